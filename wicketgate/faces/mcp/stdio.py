"""A face as an MCP server over this process's stdin and stdout, in the era that the client opens with (FACE-36).

Only messages go to stdout, and no other part of the process reads stdin. It ends with stdin.
"""

import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, cast

import anyio
from mcp import types as t
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.runner import serve_dual_era_loop
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage

from wicketgate.daemon_threads import DaemonThreads
from wicketgate.faces.mcp.message import Fault, read_message
from wicketgate.faces.mcp.server import McpDoor

log = logging.getLogger("wicketgate.mcp")

_UNAWAITED = frozenset({"ping", "notifications/initialized", "notifications/cancelled"})
_OPENING = frozenset({"initialize", "server/discover"})


async def serve_stdio(door: McpDoor, ready: Callable[[], Awaitable[None]], *, max_bytes: int) -> None:
    """Serve until stdin ends. A message of more than *max_bytes* is refused.

    Requests wait until *ready* returns, which is bounded. So a client that lists once gets everything (OPS-11). The
    opening waits only if its answer says what the servers offer: many clients allow it a few seconds (FACE-52).
    """
    unawaited = _UNAWAITED if door.offers is not None else _UNAWAITED | _OPENING

    async def once_ready(ctx: "ServerRequestContext[Any, Any]", call_next: CallNext) -> HandlerResult:
        if ctx.method not in unawaited:
            await ready()
        return await call_next(ctx)

    sdk = door.sdk
    sdk.server.middleware.append(once_ready)
    async with (
        _own_stdin(max_bytes) as lines,
        stdio_server(stdin=cast(Any, lines)) as (read, write),
    ):
        lines.answers = write
        async with anyio.create_task_group() as announcing, sdk.server.lifespan(sdk.server) as state:
            announcing.start_soon(sdk.announcing)
            # Not ``Server.run``, which fixes the capabilities before the upstreams are connected.
            await serve_dual_era_loop(sdk.server, read, write, lifespan_state=state)
            announcing.cancel_scope.cancel()


class _Lines:
    """The messages on stdin, a line each, read in a daemon thread so that the process can end. Malformed ones are
    answered at once, with our own texts (FACE-5), by *answers*."""

    answers: WriteStream[SessionMessage]

    def __init__(self, stream: Any, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._threads = DaemonThreads(1, "stdin")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        while True:
            line, fault = await self._threads.run(self._next)
            if not line:
                raise StopAsyncIteration
            if fault is None:
                return line.decode("utf-8", "replace")
            error = t.ErrorData(code=fault.code, message=fault.message)
            await self.answers.send(SessionMessage(t.JSONRPCError(jsonrpc="2.0", id=fault.id, error=error)))

    def _next(self) -> tuple[bytes, Fault | None]:
        """A line that is not blank, and what is wrong with it."""
        line = b"\n"
        while line and not line.strip():
            line = self._stream.readline(self._max_bytes)
        if len(line) == self._max_bytes and not line.endswith(b"\n"):
            while (rest := self._stream.readline(self._max_bytes)) and not rest.endswith(b"\n"):
                pass
            return line, Fault(t.INVALID_REQUEST, f"The message is larger than {self._max_bytes} bytes.")
        message = read_message(line.decode("utf-8", "replace")) if line else None
        return line, message if isinstance(message, Fault) else None


@asynccontextmanager
async def _own_stdin(max_bytes: int) -> AsyncIterator[_Lines]:
    """Children and tools that read stdin find it empty, instead of taking our messages."""
    own = os.dup(sys.stdin.fileno())
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, sys.stdin.fileno())
    os.close(empty)
    # Never closed, because a thread may wait in a read of it until the process ends.
    yield _Lines(os.fdopen(own, "rb", closefd=False), max_bytes)
