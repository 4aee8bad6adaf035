"""Counts the requests that a stop has to wait for, and refuses those that come after its begin (OPS-24, OPS-36) or
before the tools are there (FACE-127).

While the service stops, every answer closes its connection, so that clients and proxies go elsewhere with the next
request. A message to ``/mcp`` that begins nothing new (the answer to a question, as a message in a session or a second
attempt, a cancellation, the end of a session) is still taken: a call under way may need it to come to its end.
"""

from starlette.types import Receive, Scope, Send

from app.json_body import given_again, read_short
from app.mcp.requests import session_of, unavailable
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
_MAX_MESSAGE_BYTES = 1024 * 1024
"""A longer message is taken for a request. Answers to questions are short."""


def is_waited_for(scope: Scope) -> bool:
    return scope["path"] not in _NOT_WAITED_FOR


async def admitted(drain: Drain, scope: Scope, receive: Receive, send: Send) -> Receive | None:
    """Returns the *receive* with which a request goes on; None if it was refused."""
    path = scope["path"]
    if drain.phase == "draining" and is_waited_for(scope):
        return await _last(scope, receive, send)
    if drain.phase != "serving" or drain.started() or not _has_tools(path):
        return receive
    if not _is_mcp(path):
        await send_refusal(send, 503, "unavailable", _STARTING, _LATER)
        return None
    body = await read_short(receive, _MAX_MESSAGE_BYTES) if scope["method"] == "POST" else None
    asked = None if body is None else request_in(body)[1]
    await unavailable(_STARTING, asked, later=True)(scope, receive, send)
    return None


async def _last(scope: Scope, receive: Receive, send: Send) -> Receive | None:
    """Admits what brings calls to their end."""
    if scope["path"] == _ENGINE:
        return receive
    if not _is_mcp(scope["path"]):
        await send_refusal(send, 503, "unavailable", _STOPPING, _LATER)
        return None
    has_session = session_of(scope) is not None
    if scope["method"] == "DELETE" and has_session:
        return receive
    body = None
    if scope["method"] == "POST":
        body = await read_short(receive, _MAX_MESSAGE_BYTES)
    begins, asked = (True, None) if body is None else request_in(body)
    if body is not None and (is_second_attempt(body) or (has_session and not begins)):
        return given_again(body, receive)
    await unavailable(_STOPPING, asked, later=True)(scope, receive, send)
    return None


def _has_tools(path: str) -> bool:
    """The chat looks for itself."""
    return _is_mcp(path) or path == "/operations" or path.startswith("/operations/")


def _is_mcp(path: str) -> bool:
    return path == "/mcp" or path.startswith("/mcp/")
