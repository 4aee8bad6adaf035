"""The HTTP exchange that a request came in: what runs for the request ends with it (FACE-13, FACE-40)."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from mcp.shared.exceptions import MCPError
from mcp.types import REQUEST_TIMEOUT

from wicketgate.faces.mcp.codes import own_code
from wicketgate.faces.mcp.request import McpRequest

# The endpoint puts the Exchange under this key of the ASGI scope.
EXCHANGE = "wicketgate.exchange"


class Exchange:
    """A handle on what runs for one request, maybe in a task of its session."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.reason = "The client has left."

    def end(self, reason: str = "") -> None:
        """Cancels what runs. *reason* is for a client that is still there. Later calls do nothing."""
        if reason and not self.scope.cancel_called:
            self.reason = reason
        self.scope.cancel()


@contextmanager
def within_exchange(ctx: McpRequest) -> Iterator[None]:
    """Cancels the block when the exchange of this request is over. Raises MCPError then.

    Without an HTTP request, as over stdio, it does nothing.
    """
    if ctx.request is None:
        yield
        return
    exchange: Exchange = ctx.request.scope[EXCHANGE]
    with exchange.scope:
        yield
    if exchange.scope.cancelled_caught:
        raise MCPError(own_code(REQUEST_TIMEOUT, ctx), exchange.reason)
