"""The HTTP exchange that a request came in: what runs for the request ends with it (FACE-13, FACE-40)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import anyio
from mcp.shared.exceptions import MCPError
from mcp.types import REQUEST_TIMEOUT

from wicketgate.faces.mcp.codes import own_code
from wicketgate.faces.mcp.request import McpRequest
from wicketgate.task_end import EndableBlock

# The endpoint puts the Exchange under this key of the ASGI scope.
EXCHANGE = "wicketgate.exchange"


class Exchange:
    """A handle on what runs for one request, maybe in a task of its session."""

    def __init__(self) -> None:
        self.reason = "The client has left."
        self.over = False
        self._cancel: Callable[[], None] | None = None

    def end(self, reason: str = "") -> None:
        """Cancels what runs. *reason* is for a client that is still there. Later calls do nothing."""
        if self.over:
            return
        self.over = True
        self.reason = reason or self.reason
        if self._cancel is not None:
            self._cancel()

    def runs(self, cancel: Callable[[], None] | None) -> None:
        """*cancel* ends what runs from now on; None: nothing does."""
        self._cancel = cancel
        if self.over and cancel is not None:
            cancel()


@contextmanager
def within_exchange(ctx: McpRequest) -> Iterator[None]:
    """Cancels the block when the exchange of this request is over. Raises MCPError then.

    Without an HTTP request, as over stdio, it does nothing.
    """
    if ctx.request is None:
        yield
        return
    exchange: Exchange = ctx.request.scope[EXCHANGE]
    scope = anyio.CancelScope()
    exchange.runs(scope.cancel)
    try:
        with scope:
            yield
    finally:
        exchange.runs(None)
    if scope.cancelled_caught:
        raise _ended(ctx, exchange)


class WithinOwnExchange:
    """As ``within_exchange``, where the block runs in the task of its own HTTP request and has no scopes of the SDK in
    it."""

    __slots__ = ("_block", "_ctx", "_exchange")

    def __init__(self, ctx: McpRequest) -> None:
        assert ctx.request is not None
        self._ctx = ctx
        self._exchange: Exchange = ctx.request.scope[EXCHANGE]
        self._block = EndableBlock()

    def __enter__(self) -> None:
        self._block.__enter__()
        self._exchange.runs(self._block.end)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exchange.runs(None)
        if self._block.__exit__(kind, error, traceback):
            raise _ended(self._ctx, self._exchange) from None


def _ended(ctx: McpRequest, exchange: Exchange) -> MCPError:
    return MCPError(own_code(REQUEST_TIMEOUT, ctx), exchange.reason)
