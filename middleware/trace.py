"""The span of an HTTP request (OPS-540). It replaces the request's ``traceparent``, so later spans are below it."""

from starlette.types import Scope

from wicketgate.tracing import TRACEPARENT, OpenSpan, begin, traces_are_on

_ROUTES = frozenset(["/engine/chat", "/operations/call", "/operations/batch", "/mcp"]).union(
    f"/mcp/{face}" for face in ("gateway", "namespaced", "transparent", "registry")
)
"""Other paths are the caller's text, so they do not become span names."""

_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"])
_PATH_CHARS = 256
_HEADER = TRACEPARENT.encode()


def begin_span(scope: Scope) -> OpenSpan | None:
    """Begins the span and replaces the ``traceparent`` header of *scope*. Returns None if traces are off."""
    if not traces_are_on():
        return None
    path = scope["path"]
    method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
    attributes = {
        "http.request.method": method,
        "url.scheme": scope.get("scheme", "http"),
        "url.path": path[:_PATH_CHARS],
    }
    name = method if method in _METHODS else "HTTP"
    if path in _ROUTES:
        name, attributes["http.route"] = f"{method} {path}", path
    headers = scope["headers"]
    carrier = {key.decode(): value.decode("latin-1") for key, value in headers if key in (_HEADER, b"tracestate")}
    span = begin(name, "SERVER", attributes, carrier)
    if span is not None:
        kept = [header for header in headers if header[0] != _HEADER]
        scope["headers"] = [*kept, (_HEADER, span.traceparent.encode())]
    return span


def end_span(span: OpenSpan, status: int) -> None:
    """*status* is 0 if the client left before an answer began."""
    if status:
        span.note({"http.response.status_code": status})
    span.end(str(status) if status >= 500 else "")
