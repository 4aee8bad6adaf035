"""The paths of requests: without a prefix before them, and those of the faces, served in front of the framework's
router, which would cost each call a tenth more."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from routers.refusals import refusal_of


class FacePaths:
    """ASGI: gives requests to a path of *endpoints* to the endpoint there, all others to *app*."""

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
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
