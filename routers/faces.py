"""The paths of requests: without a prefix before them, and those of the faces, served in front of the framework's
router, which would cost each call a tenth more."""

import re
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from routers.refusals import refusal_of

_MAIN = "/mcp"
_ALL_TOOLS = "/mcp/namespaced"
_ASKS_ALL = re.compile(rb"(?:^|&)tools=all(?:&|$)")


class FacePaths:
    """ASGI: gives requests to a path of *endpoints* to the endpoint there, all others to *app*.

    ``/mcp?tools=all`` is the endpoint of the namespaced face (FACE-177). The path of the request stays ``/mcp``, so
    everything that goes by the path does so too.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == _MAIN and scope["query_string"] and _ASKS_ALL.search(scope["query_string"]):
            path = _ALL_TOOLS
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            return await self._app(scope, receive, send)
        try:
            await endpoint(scope, receive, send)
        except HTTPException as error:
            # A body that does not arrive as it must. Nothing was answered then.
            await refusal_of(error)(scope, receive, send)


def without_prefix(scope: Scope) -> Scope:
    """*scope* as it is where no program is around this one, nor a prefix before its paths (``root_path``)."""
    root: str = scope.get("root_path", "")
    if not root or not scope["path"].startswith(f"{root}/"):
        return scope
    return {**scope, "path": scope["path"].removeprefix(root), "root_path": ""}
