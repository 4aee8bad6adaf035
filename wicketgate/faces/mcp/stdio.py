"""A face as an MCP server over this process's stdin and stdout, in the era that the client opens with (FACE-36).

Only messages go to stdout, and no other part of the process reads stdin. It ends with stdin.
"""

import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, cast

import anyio
from mcp import types as t
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.runner import serve_dual_era_loop
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from wicketgate.daemon_threads import DaemonThreads
from wicketgate.faces.mcp.message import Fault, fault_of
from wicketgate.faces.mcp.server import McpDoor

log = logging.getLogger("wicketgate.mcp")

_HEAD = 1_000

_UNAWAITED = frozenset({"ping", "notifications/initialized", "notifications/cancelled"})
_OPENING = frozenset({"initialize", "server/discover"})

StdioItem = SessionMessage | Exception


async def serve_stdio(door: McpDoor, ready: Callable[[], Awaitable[None]], *, max_bytes: int) -> None:
    """Serve until stdin ends. A message of more than *max_bytes* is refused.

    Requests wait until *ready* returns, which is bounded. So a client that lists once gets everything (OPS-11). The
    opening waits only if its answer says what the servers offer: many clients allow it a few seconds (FACE-52).
    """
    unawaited = _UNAWAITED if door.opens_with_offers else _UNAWAITED | _OPENING

    async def once_ready(ctx: "ServerRequestContext[Any, Any]", call_next: CallNext) -> HandlerResult:
        if ctx.method not in unawaited:
            await ready()
        return await call_next(ctx)

    door.server.middleware.append(once_ready)
    async with (
        _own_stdin(max_bytes) as lines,
        stdio_server(stdin=cast(Any, lines)) as (read, write),
        anyio.create_task_group() as announcing,
    ):
        announcing.start_soon(door.announcing)
        async with door.server.lifespan(door.server) as state:
            # Not ``Server.run``, which fixes the capabilities before the upstreams are connected.
            await serve_dual_era_loop(door.server, _ValidMessages(read, write, lines), write, lifespan_state=state)
        announcing.cancel_scope.cancel()


class _Lines:
    """The lines of stdin, read in a daemon thread so that the process can end. *last* is the newest line."""

    def __init__(self, stream: Any, max_bytes: int) -> None:
        self._stream = stream
        self.max_bytes = max_bytes
        self._threads = DaemonThreads(1, "stdin")
        self.last = b""
        self.too_long = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        # Assigned here, because the thread reads on while the previous line is still in use.
        self.last, self.too_long = await self._threads.run(self._next)
        if not self.last:
            raise StopAsyncIteration
        return self.last.decode("utf-8", "replace")

    def _next(self) -> tuple[bytes, bool]:
        """A line, and True if it was too long. Then it is only the beginning, which is no message."""
        line: bytes = self._stream.readline(self.max_bytes)
        if len(line) == self.max_bytes and not line.endswith(b"\n"):
            while (rest := self._stream.readline(self.max_bytes)) and not rest.endswith(b"\n"):
                pass
            return line[:_HEAD] + b"\n", True
        return line, False


class _ValidMessages:
    """The incoming messages. Malformed ones are answered at once, with our own texts (FACE-5)."""

    def __init__(self, inner: ReadStream[StdioItem], write: WriteStream[SessionMessage], lines: _Lines) -> None:
        self._inner = inner
        self._write = write
        self._lines = lines

    async def receive(self) -> StdioItem:
        while True:
            item = await self._inner.receive()
            fault = self._fault(item)
            if fault is None:
                return item
            error = t.ErrorData(code=fault.code, message=fault.message)
            await self._write.send(SessionMessage(t.JSONRPCError(jsonrpc="2.0", id=fault.id, error=error)))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StdioItem:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _fault(self, item: StdioItem) -> Fault | None:
        """A request with an invalid id looks like a notification to the SDK, which would not answer it."""
        if isinstance(item, SessionMessage):
            nameless = isinstance(item.message, t.JSONRPCNotification) and b'"id"' in self._lines.last
            return fault_of(self._lines.last) if nameless else None
        if self._lines.too_long:
            return Fault(t.INVALID_REQUEST, f"The message is larger than {self._lines.max_bytes} bytes.")
        return fault_of(self._lines.last) if self._lines.last.strip() else None


@asynccontextmanager
async def _own_stdin(max_bytes: int) -> AsyncIterator[_Lines]:
    """Children and tools that read stdin find it empty, instead of taking our messages."""
    own = os.dup(sys.stdin.fileno())
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, sys.stdin.fileno())
    os.close(empty)
    # Never closed, because a thread may wait in a read of it until the process ends.
    yield _Lines(os.fdopen(own, "rb", closefd=False), max_bytes)
