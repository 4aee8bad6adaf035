"""The paths of requests: without a prefix before them, and those of the faces and of chats, served in front of the
framework's router, which would cost each call a tenth more; and the metadata
of this service as a protected resource."""

import re
from collections.abc import Awaitable, Mapping

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from routers.refusals import refuse
from wicketgate.access.issuers import Issuers
from wicketgate.access.resources import WELL_KNOWN, Resources

_MAIN = "/mcp"
_ALL_TOOLS = "/mcp/namespaced"
_ASKS_ALL = re.compile(rb"(?:^|&)tools=all(?:&|$)")
_CACHED = {"cache-control": "public, max-age=300"}


class FacePaths:
    """ASGI: gives requests to a path of *endpoints* to the endpoint there, all others to *app*.

    ``/mcp?tools=all`` is the endpoint of the namespaced face (FACE-177). The path of the request stays ``/mcp``, so
    everything that goes by the path does so too.
    """

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._endpoints = endpoints

    # Returns the awaitable and awaits nothing itself: one frame less for each step of a request.
    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == _MAIN and scope["query_string"] and _ASKS_ALL.search(scope["query_string"]):
            path = _ALL_TOOLS
        return self._endpoints.get(path, self._app)(scope, receive, send)


def without_prefix(scope: Scope) -> Scope:
    """*scope* as it is where no program is around this one, nor a prefix before its paths (``root_path``)."""
    root: str = scope.get("root_path", "")
    if not root or not scope["path"].startswith(f"{root}/"):
        return scope
    return {**scope, "path": scope["path"].removeprefix(root), "root_path": ""}


def well_known_router(issuers: Issuers, resources: Resources) -> APIRouter:
    """The metadata of this service as a protected resource (RFC 9728; ACCESS-130, ACCESS-131): one document for each
    resource, and that of the main face at the root; none where no issuer is configured."""
    router = APIRouter(include_in_schema=False)

    async def document(request: Request) -> Response:
        found = resources.document(request.url.path, issuers.all)
        if found is None:
            return refuse(404, "not_found", "There is no such document")
        return JSONResponse(found, headers=_CACHED)

    for path in (WELL_KNOWN, f"{WELL_KNOWN}/{{resource:path}}"):
        router.add_api_route(path, document, methods=["GET"])
    return router
