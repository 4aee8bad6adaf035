"""The JSON-RPC errors of a face's refusals, by the era of the client (FACE-54 to FACE-56).

2026-07-28 reserves -32768 to -32000: what a server says there, and what older clients know from us, gets another code.
"""

from collections.abc import Mapping
from typing import Any

from mcp import types as t
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wicketgate.faces.mcp.request import McpRequest
from wicketgate.faces.surface import Refusal

_RESERVED = range(-32768, -32000 + 1)
_OURS_OFFSET = 1_000
"""Added to a code of ours for the newer era: -32004 is -31004 there."""
_PASSED = frozenset(
    {
        t.PARSE_ERROR,
        t.INVALID_REQUEST,
        t.METHOD_NOT_FOUND,
        t.INVALID_PARAMS,
        t.INTERNAL_ERROR,
        t.MISSING_REQUIRED_CLIENT_CAPABILITY,
    }
)
# -32002 is that of older versions. Older SDKs answer 0 to a read that fails, mostly because there is no such resource.
_NOT_FOUND = (-32002, 0)
_READ = "resources/read"


def mcp_error(refusal: Refusal, ctx: McpRequest) -> MCPError:
    """*refusal* as an error for the client of *ctx*."""
    code, data = refusal.code, refusal.data
    asked = (ctx.params or {}).get("uri") if ctx.method == _READ else None
    # A client knows the resource by the URI that it asked for.
    if asked is not None and isinstance(data, Mapping) and "uri" in data:
        data = {**data, "uri": asked}
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return MCPError(code, refusal.message, data)
    if refusal.theirs and asked is not None and code in _NOT_FOUND:
        return MCPError(t.INVALID_PARAMS, refusal.message, {**_with_code(data, code), "uri": asked})
    if asked is not None and code == t.INVALID_PARAMS and data is None:
        return MCPError(code, refusal.message, {"uri": asked})
    if code in _PASSED or code not in _RESERVED:
        return MCPError(code, refusal.message, data)
    if refusal.theirs:
        return MCPError(t.INTERNAL_ERROR, refusal.message, _with_code(data, code))
    return MCPError(own_code(code, ctx), refusal.message, data)


def is_answered_by(refusal: Refusal, ctx: McpRequest) -> bool:
    """True if the era of *ctx* knows the code of *refusal*, the error of a server behind a meta-tool."""
    return refusal.code in _PASSED or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS


def own_code(code: int, ctx: McpRequest) -> int:
    """*code*, one of ours, as the client of *ctx* is given it."""
    return code + _OURS_OFFSET if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else code


def _with_code(data: object, code: int) -> dict[str, Any]:
    known = {"upstream_code": code}
    if isinstance(data, Mapping):
        return {**data, **known}
    return known if data is None else {"upstream_data": data, **known}
