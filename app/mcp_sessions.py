"""The session that a request at an MCP door belongs to, as its headers name it."""

from collections.abc import MutableMapping
from typing import Any

from wicketgate.mcp_names import HANDSHAKE_PROTOCOL_VERSIONS

SESSION_ID = b"mcp-session-id"


def opens_session(scope: MutableMapping[str, Any]) -> bool:
    """True for a request that opens a session of the handshake era."""
    return scope["method"] == "POST" and session_of(scope) is None and of_handshake_era(scope)


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
