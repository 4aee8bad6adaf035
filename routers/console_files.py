"""``/console/``: the shell of the console and its files, by exact names (OPS-261 to OPS-264). ``/`` leads there."""

from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from app import login_pages
from app.console.files import BASE, ConsoleFiles, StaticFile
from routers.refusals import refuse

_ENTRANCES = ("/", "/console")
_METHODS = ["GET", "HEAD"]


def open_paths(files: ConsoleFiles) -> frozenset[str]:
    """The paths that need no credential."""
    return files.paths | frozenset(_ENTRANCES)


def no_such_page(scope: Scope) -> Response | None:
    """Returns the answer to a browser that opens a path below the console at which there is no page."""
    path, accept = scope["path"], Headers(scope=scope).get("accept", "")
    if scope["method"] != "GET" or not path.startswith(BASE) or "text/html" not in accept:
        return None
    # Relative, for a proxy that serves the gate below a path of its own.
    console = "../" * (path.count("/") - BASE.count("/")) or "./"
    return HTMLResponse(login_pages.no_such_page(console), 404, login_pages.HEADERS)


def console_file_routes(files: ConsoleFiles) -> list[BaseRoute]:
    """To be added after the routes of the console's data, which stand below the same path."""
    routes: list[BaseRoute] = [Route(path, _entrance, methods=_METHODS) for path in _ENTRANCES]
    return [*routes, Route(BASE + "{name:path}", _file(files), methods=_METHODS)]


async def _entrance(request: Request) -> Response:
    # Relative, so that it is right behind a proxy that serves the gate below a path of its own.
    return RedirectResponse("./console/", 307)


def _file(files: ConsoleFiles) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        found = files.find(request.url.path)
        if found is None:
            return refuse(404, "not_found", "There is nothing at this path; the console is at /console/")
        return _answered(found, request)

    return answer


def _answered(file: StaticFile, request: Request) -> Response:
    headers = dict(file.headers)
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(None, 304, headers)
    body = file.body
    if file.can_be_packed:
        headers["vary"] = "accept-encoding"
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            body = file.packed
    return Response(body, 200, headers, file.media_type)
