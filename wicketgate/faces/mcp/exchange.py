"""The HTTP exchange that a request came in: what runs for the request ends with it (FACE-13, FACE-40)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import anyio
from mcp.shared.exceptions import MCPError
from mcp.types import REQUEST_TIMEOUT

from wicketgate.faces.mcp.codes import own_code
from wicketgate.faces.mcp.request import McpRequest

# The endpoint puts the Exchange under this key of the ASGI scope.
EXCHANGE = "wicketgate.exchange"


AGAIN_S = 5.0
"""A task that has caught a cancellation by mistake is cancelled once more. Cleaning up takes no longer, and must not be
broken off."""


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
    it: at a tenth of the cost."""

    def __init__(self, ctx: McpRequest) -> None:
        assert ctx.request is not None
        self._ctx = ctx
        self._exchange: Exchange = ctx.request.scope[EXCHANGE]
        self._cancels = 0
        self._next: asyncio.Handle | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        self._exchange.runs(self._cancel_soon)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exchange.runs(None)
        if self._next is None:
            return
        self._next.cancel()
        cancelling = self._task.cancelling()
        for _ in range(self._cancels):
            cancelling = self._task.uncancel()
        # Somebody else may have cancelled the task too, and that is not ours to end.
        if self._cancels and kind is asyncio.CancelledError and cancelling <= self._before:
            raise _ended(self._ctx, self._exchange) from None

    def _cancel_soon(self) -> None:
        # Not at once: a task that is cancelled by itself would be interrupted where it waits next, maybe after the
        # block.
        self._next = asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        self._cancels += 1
        self._task.cancel()
        self._next = asyncio.get_running_loop().call_later(AGAIN_S, self._cancel)


def _ended(ctx: McpRequest, exchange: Exchange) -> MCPError:
    return MCPError(own_code(REQUEST_TIMEOUT, ctx), exchange.reason)
