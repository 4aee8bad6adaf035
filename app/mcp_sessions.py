"""The session that a request at an MCP door belongs to, as its headers name it."""

from collections.abc import MutableMapping
from typing import Any, Literal

import msgspec

from wicketgate.mcp_names import HANDSHAKE_PROTOCOL_VERSIONS

SESSION_ID = b"mcp-session-id"


class _Stateless(msgspec.Struct):
    """A request that is served without a session (FACE-200)."""

    id: int | str
    method: Literal["tools/list", "tools/call", "ping"]


_stateless = msgspec.json.Decoder(_Stateless).decode


def opens_session(scope: MutableMapping[str, Any], body: bytes) -> bool:
    """True for a POST that opens a session of the handshake era: it names none, and is not served without one."""
    if session_of(scope) is not None or not of_handshake_era(scope):
        return False
    try:
        _stateless(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return True
    return False


def in_session(scope: MutableMapping[str, Any]) -> bool:
    """True for a request in a session of the handshake era."""
    return session_of(scope) is not None and of_handshake_era(scope)


def session_of(scope: MutableMapping[str, Any]) -> str | None:
    """The id of the session that a request names; None if it names none."""
    return _header(scope, SESSION_ID)


def of_handshake_era(scope: MutableMapping[str, Any]) -> bool:
    """True for a request of a client of the era with a handshake."""
    version = _header(scope, b"mcp-protocol-version")
    return not version or version in HANDSHAKE_PROTOCOL_VERSIONS


def _header(scope: MutableMapping[str, Any], name: bytes) -> str | None:
    """The value without blanks around it. Of a header that comes twice the first counts, as in the SDK."""
    return next((value.strip().decode("latin-1") for key, value in scope["headers"] if key == name), None)
