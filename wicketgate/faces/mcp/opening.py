"""The size of requests that open what lasts, a session or a stream: their bodies are kept as long (FACE-46)."""

from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

# The endpoint puts the size of a request's body under this key of the ASGI scope.
BODY_BYTES = "wicketgate.body_bytes"
SMALL_BYTES = 64 * 1024


def check_small(ctx: ServerRequestContext) -> None:
    """Raises MCPError for a request over HTTP that is too large to be kept."""
    if ctx.request is not None and ctx.request.scope.get(BODY_BYTES, 0) > SMALL_BYTES:
        raise MCPError(t.INVALID_PARAMS, f"A request that opens a session or a stream has {SMALL_BYTES} bytes at most.")
