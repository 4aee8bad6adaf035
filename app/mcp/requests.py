"""The session and era of a request at an MCP door, and refusals. Does not import the SDK.

A refusal is an HTTP status with a JSON-RPC error; clients show its message (FACE-37). A message about a running call
belongs to the process that runs the call (FACE-118).
"""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from starlette.responses import JSONResponse

from wicketgate.access.shares import RETRY_AFTER_S, Scope, too_many_text
from wicketgate.faces.mcp.message import Fault, heading_of, usable_id
from wicketgate.mcp_names import HANDSHAKE_PROTOCOL_VERSIONS, INTERNAL_ERROR

AsgiMessage = MutableMapping[str, Any]
AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

RequestId = int | str

SESSION_ID = b"mcp-session-id"

_STATUS: dict[Scope, int] = {"actor": 429, "all": 503, "away": 503}


def in_session(scope: AsgiScope) -> bool:
    """True for a request in a session of the handshake era."""
    return session_of(scope) is not None and of_handshake_era(scope)


def session_of(scope: AsgiScope) -> str | None:
    """The id of the session that a request names; None if it names none."""
    return _header(scope, SESSION_ID)


def header_of(scope: AsgiScope, name: bytes) -> str:
    return _header(scope, name) or ""


def of_handshake_era(scope: AsgiScope) -> bool:
    """True for a request of a client of the era with a handshake."""
    version = _header(scope, b"mcp-protocol-version")
    return not version or version in HANDSHAKE_PROTOCOL_VERSIONS


def _header(scope: AsgiScope, name: bytes) -> str | None:
    """The value without blanks around it. Of a header that comes twice the first counts, as in the SDK."""
    return next((value.strip().decode("latin-1") for key, value in scope["headers"] if key == name), None)


@dataclass(frozen=True, slots=True)
class Addressed:
    """``answer``: to question *id*. ``progress``: of question *id*. ``cancel``: of the client's request *id*."""

    kind: Literal["answer", "progress", "cancel"]
    id: RequestId


class _Cancelled(msgspec.Struct):
    request: Any = msgspec.field(default=None, name="requestId")


class _Progress(msgspec.Struct):
    token: Any = msgspec.field(default=None, name="progressToken")


_cancelled = msgspec.json.Decoder(_Cancelled).decode
_progress = msgspec.json.Decoder(_Progress).decode


def addressed(body: bytes) -> Addressed | None:
    """Returns what a message is about; None for a request, any other notification, and what is no message."""
    message = heading_of(body)
    if message is None or message.begins:
        return None
    try:
        match message.method:
            case msgspec.UNSET:
                return _about("answer", message.id)
            case "notifications/cancelled":
                return _about("cancel", _cancelled(message.params).request)
            case "notifications/progress":
                return _about("progress", _progress(message.params).token)
    except (ValueError, RecursionError):
        pass
    return None


def same(id: object) -> object:
    """Returns *id* as the SDK compares it: an integer in a string is that integer."""
    if isinstance(id, str):
        try:
            return int(id)
        except ValueError:
            return id
    return id


def _about(kind: Literal["answer", "progress", "cancel"], given: object) -> Addressed | None:
    id = usable_id(given)
    return None if id is None else Addressed(kind, id)


def refused(fault: Fault, status: int = 400, *, later: bool = False) -> JSONResponse:
    """*later*: the same request may be taken in a moment."""
    return JSONResponse(fault.as_json(), status, {"Retry-After": str(RETRY_AFTER_S)} if later else None)


def too_many(things: str, scope: Scope) -> JSONResponse:
    """The refusal of a request for which there is no room."""
    data = {"scope": scope, "retry_after_s": RETRY_AFTER_S}
    return refused(Fault(INTERNAL_ERROR, too_many_text(things, scope), data=data), _STATUS[scope], later=True)


def unavailable(message: str, request_id: int | str | None = None, *, later: bool = False) -> JSONResponse:
    return refused(Fault(INTERNAL_ERROR, message, request_id), 503, later=later)
