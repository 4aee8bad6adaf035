"""Counts the requests that a stop has to wait for, and refuses those that come after its begin (OPS-24, OPS-36) or
before the tools are there (FACE-127).

While the service stops, every answer closes its connection, so that clients and proxies go elsewhere with the next
request. A message to ``/mcp`` that begins nothing new (the answer to a question, as a message in a session or a second
attempt, a cancellation, the end of a session) is still taken: a call under way may need it to come to its end.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.json_body import given_again, read_short
from app.mcp_refusals import unavailable
from app.mcp_sessions import session_of
from middleware.refusals import send_refusal
from wicketgate.access.shares import RETRY_AFTER_S
from wicketgate.engine.limits import Drain
from wicketgate.faces.mcp.message import is_second_attempt, request_in

_ENGINE = "/engine/chat"
"""It refuses by itself, in the words of its contract (CHAT-78)."""
_NOT_WAITED_FOR = frozenset({"/healthz", "/readyz", "/metrics"})
_STOPPING = (
    "The service is stopping; nothing was run. Try again: another instance answers, or this one after its restart"
)
_STARTING = "The tools are being gathered; nothing was run. Try again in a moment: another instance may answer"
_LATER = ((b"retry-after", b"%d" % RETRY_AFTER_S),)
_CLOSE = (b"connection", b"close")
_MAX_MESSAGE_BYTES = 1024 * 1024
"""A longer message is taken for a request. Answers to questions are short."""


class DrainMiddleware:
    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    # Returns the awaitable and awaits nothing itself: one frame less for each step of a request.
    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        drain, waited_for = self._drain, scope["path"] not in _NOT_WAITED_FOR

        def watched(message: Message) -> Awaitable[None]:
            if drain.phase != "serving" and message["type"] == "http.response.start":
                message["headers"] = _with_close(message)
            return send(message)

        if drain.phase == "draining" and waited_for:
            return self._refuse(scope, receive, watched)
        if drain.phase == "serving" and not drain.started() and _has_tools(scope["path"]):
            return self._refuse_early(scope, receive, watched)
        if waited_for:
            return self._counted(scope, receive, watched)
        return self._app(scope, receive, watched)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._drain.request_begun()
        try:
            await self._app(scope, receive, send)
        finally:
            self._drain.request_ended()

    async def _refuse_early(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_mcp(scope["path"]):
            return await send_refusal(send, 503, "unavailable", _STARTING, _LATER)
        body = await read_short(receive, _MAX_MESSAGE_BYTES) if scope["method"] == "POST" else None
        asked = None if body is None else request_in(body)[1]
        await unavailable(_STARTING, asked, later=True)(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == _ENGINE:
            return await self._counted(scope, receive, send)
        if not _is_mcp(scope["path"]):
            return await send_refusal(send, 503, "unavailable", _STOPPING, _LATER)
        has_session = session_of(scope) is not None
        if scope["method"] == "DELETE" and has_session:
            return await self._counted(scope, receive, send)
        body = None
        if scope["method"] == "POST":
            body = await read_short(receive, _MAX_MESSAGE_BYTES)
        begins, asked = (True, None) if body is None else request_in(body)
        if body is not None and (is_second_attempt(body) or (has_session and not begins)):
            return await self._counted(scope, given_again(body, receive), send)
        await unavailable(_STOPPING, asked, later=True)(scope, receive, send)


def _with_close(message: Message) -> list[tuple[bytes, bytes]]:
    headers = message.get("headers", ())
    return [*((name, value) for name, value in headers if name.lower() != b"connection"), _CLOSE]


def _has_tools(path: str) -> bool:
    """The chat looks for itself."""
    return _is_mcp(path) or path == "/operations" or path.startswith("/operations/")


def _is_mcp(path: str) -> bool:
    return path == "/mcp" or path.startswith("/mcp/")
