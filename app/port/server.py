"""Runs the HTTP server of the process, and drains it at its end (CHAT-22, CHAT-78)."""

import asyncio
import signal
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from app.port.protocol import GuardedHttpProtocol

_CUT_AFTER_S = 1
_KEEP_ALIVE_S = 75
"""Longer than clients and proxies keep an idle connection, mostly a minute. The side that sends requests must close
first: otherwise a request meets a closing connection, and fails unseen."""


async def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    *,
    drain_s: float,
    stuck_reader_s: float,
    stopping: Callable[[float], None],
    drained: Callable[[], Coroutine[Any, Any, None]],
) -> bool:
    """Serves until SIGINT or SIGTERM; returns False if the application could not start.

    The signal calls *stopping* on the loop, with the time that running streams have left. The port stays open until
    *drained* returns, so that new requests get a 503. A second after *drain_s* every connection is cut. A second signal
    calls ``stopping(0)``.
    """
    server = _DrainingServer(
        uvicorn.Config(
            cast(Any, app),  # the two name the same protocol in different types
            log_config=None,
            access_log=False,
            server_header=False,
            http=cast(Any, partial(GuardedHttpProtocol, stuck_reader_s=stuck_reader_s)),
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE_S,
        ),
        drain_s,
        stopping,
        drained,
    )
    # The server raises the signal that stopped it once more at its end. This is a normal end, with exit code 0.
    for stop_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop_signal, lambda number, frame: None)
    await server.serve(sockets=[listener])
    return server.started


class _DrainingServer(uvicorn.Server):
    """Made on the loop that it runs on."""

    def __init__(
        self,
        config: uvicorn.Config,
        drain_s: float,
        stopping: Callable[[float], None],
        drained: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(config)
        self._loop = asyncio.get_running_loop()
        self._drain_s = drain_s
        self._stopping = stopping
        self._drained = drained
        self._cut = asyncio.Event()
        self._cut_timer: asyncio.TimerHandle | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The original would exit at a second signal without ending the upstreams' processes.
        if self.should_exit:
            self._loop.call_soon_threadsafe(self._stop_within, 0.0)
        else:
            self._loop.call_soon_threadsafe(self._stop_within, self._drain_s)
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        waiting = [asyncio.create_task(self._drained()), asyncio.create_task(self._cut.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        # Whole seconds, and later than the cut: for a task that does not end although its client is gone.
        left_s = self._cut_timer.when() - self._loop.time() if self._cut_timer else 0.0
        self.config.timeout_graceful_shutdown = max(int(left_s), 0) + 1 + _CUT_AFTER_S
        await super().shutdown(sockets)

    def _stop_within(self, drain_s: float) -> None:
        self._stopping(drain_s)
        if self._cut_timer is not None:
            self._cut_timer.cancel()
        self._cut_timer = self._loop.call_later(drain_s + _CUT_AFTER_S, self._cut_all)

    def _cut_all(self) -> None:
        self._cut.set()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
