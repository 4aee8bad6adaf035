"""Runs the HTTP server of the process, and drains it at its end (CHAT-22, CHAT-78, OPS-24, OPS-36, OPS-37)."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from app.port.acceptor import ACCEPTED_IN_A_TURN, Acceptor
from app.port.connections import Connections
from app.port.last_resort import end_at_last
from app.port.listener import Listener
from app.port.protocol import GuardedHttpProtocol
from app.port.tls import Certificates

_CUT_AFTER_S = 1
_ENDS_WITHIN_S = 13.0
"""From the cut on, whatever stands still."""
_SETTLE_STEP_S = 0.05
_STEPS_ALONE = 3
_LEAST_SETTLE_S = 2.0
"""Time for a socket whose next connections another process takes: those accepted before the signal are served, not
refused."""
_MOST_UNREADY_S = 10.0
_KEEP_ALIVE_S = 75
"""Longer than clients and proxies keep an idle connection, mostly a minute. The side that sends requests must close
first: otherwise a request meets a closing connection, and fails unseen."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The steps of a stop, each called on the loop, and their times in seconds.

    SIGTERM calls *settling*; *settle_s* later, SIGINT at once, comes ``stopping(drain_s)``, and a further signal calls
    ``stopping(0)``. *drained* returns when all that ran is over.
    """

    settle_s: float
    drain_s: float
    settling: Callable[[], None]
    stopping: Callable[[float], None]
    drained: Callable[[], Coroutine[Any, Any, None]]
    ready: Callable[[], Coroutine[Any, Any, None]]
    """Returns when requests can be served. It is awaited only if connections can wait in the listener (OPS-52,
    OPS-396)."""
    cut: signal.Signals | None = None
    """With it the process is one of several: this signal, which their supervisor sends, is the further one. Another
    SIGTERM is not, since a service manager may send the first to every process (OPS-177)."""
    is_least: Callable[[int], bool] | None = None
    """Returns whether no other process on the same socket holds fewer connections than so many."""


async def serve_app(
    app: ASGIApp,
    listener: Listener,
    stop: Stop,
    connections: Connections,
    *,
    debug: bool = False,
    certificates: Certificates | None = None,
) -> bool:
    """Serves until SIGINT or SIGTERM; returns False if the application could not start. *debug*: the log has the lines
    of uvicorn's start and stop too.

    The port stays open until the end of the drain, so that new requests get a 503 and ``/readyz`` answers. A listener
    that outlives the process is left at the first signal instead: what connects waits for the next process. A second
    after *drain_s* every connection is cut.
    """
    server = _DrainingServer(
        uvicorn.Config(
            cast(Any, app),  # the two name the same protocol in different types
            log_config=None,
            log_level=None if debug else logging.WARNING,
            access_log=False,
            server_header=False,
            http=cast(
                Any,
                partial(GuardedHttpProtocol, connections=connections, writes_at_once=True),
            ),
            ws="none",
            proxy_headers=False,  # the application decides which proxies it trusts
            timeout_keep_alive=_KEEP_ALIVE_S,
        ),
        stop,
        connections,
        outlived=listener.outlives_process,
        certificates=certificates,
    )
    # The server raises the signal that stopped it once more at its end. This is a normal end, with exit code 0.
    for stop_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop_signal, lambda number, frame: None)
    if stop.cut is not None:
        asyncio.get_running_loop().add_signal_handler(stop.cut, server.cut)
    await server.serve(sockets=[listener.socket])
    return server.started


class _DrainingServer(uvicorn.Server):
    """Made on the loop that it runs on."""

    def __init__(
        self,
        config: uvicorn.Config,
        stop: Stop,
        connections: Connections,
        *,
        outlived: bool,
        certificates: Certificates | None,
    ) -> None:
        super().__init__(config)
        self._certificates = certificates
        self._loop = asyncio.get_running_loop()
        self._stop = stop
        self._connections = connections
        self._outlived = outlived
        self._signals = 0
        self._cut = asyncio.Event()
        self._signalled = asyncio.Event()
        self._cut_timer: asyncio.TimerHandle | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The original would exit at a second signal without ending the upstreams' processes.
        if self._signals and self._stop.cut is not None:
            return
        self._signals += 1
        self._loop.call_soon_threadsafe(self._signalled.set)
        if self._signals > 1:
            self._loop.call_soon_threadsafe(self._begin_drain, 0.0)
        elif self._outlived or (sig == signal.SIGTERM and self._stop.settle_s):
            self._loop.call_soon_threadsafe(self._settle)
        else:
            self._loop.call_soon_threadsafe(self._begin_drain, self._stop.drain_s)

    def cut(self) -> None:
        """Takes the signal of the supervisor."""
        self._signals += 2
        self._signalled.set()
        self._begin_drain(0.0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # The application is started, and the sockets are ours.
        await super().startup(sockets=[])
        # Another process takes connections, or will: those that come here wait in the kernel until there are tools.
        waits = self._outlived or self._stop.cut is not None
        if waits:
            waiting = [asyncio.create_task(self._stop.ready()), asyncio.create_task(self._signalled.wait())]
            await asyncio.wait(waiting, timeout=_MOST_UNREADY_S, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            if self._signals:
                return  # what connected waits for another process
        make = cast(Any, self.config.http_protocol_class)
        make_protocol = partial(make, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        # Of several processes, one that is busy must not take all that waits.
        at_once = ACCEPTED_IN_A_TURN if self._stop.cut is None else 1
        acceptors = [
            Acceptor(listener, make_protocol, self._connections, at_once, self._stop.is_least, self._certificates)
            for listener in sockets or ()
        ]
        self.servers = cast(Any, acceptors)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        waiting = [asyncio.create_task(self._stop.drained()), asyncio.create_task(self._cut.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        # Whole seconds, and later than the cut: for a task that does not end although its client is gone.
        left_s = self._cut_timer.when() - self._loop.time() if self._cut_timer else 0.0
        self.config.timeout_graceful_shutdown = max(int(left_s), 0) + 1 + _CUT_AFTER_S
        await super().shutdown(sockets)

    def _settle(self) -> None:
        self._leave_outlived()
        self._stop.settling()
        settle_s = max(self._stop.settle_s, _LEAST_SETTLE_S) if self._outlived else self._stop.settle_s
        self._watch_settling(self._loop.time() + settle_s, 0)

    def _watch_settling(self, until: float, steps_alone: int) -> None:
        if self._signals > 1:
            return  # the second signal has begun the drain
        # Nobody can come any more, and nobody is left: there is nothing to wait for. Not at the first sight, because a
        # connection that has just been accepted is not in the list yet.
        alone = self._outlived and not self.server_state.connections
        if steps_alone == _STEPS_ALONE or self._loop.time() >= until:
            self._begin_drain(self._stop.drain_s)
        else:
            self._loop.call_later(_SETTLE_STEP_S, self._watch_settling, until, steps_alone + 1 if alone else 0)

    def _leave_outlived(self) -> None:
        """Accepts no more connections where another process will: in this one they would only be refused."""
        if self._outlived:
            for server in self.servers:
                server.close()

    def _begin_drain(self, drain_s: float) -> None:
        self._leave_outlived()
        self._stop.stopping(drain_s)
        self.should_exit = True  # uvicorn's own loop ends, and calls shutdown
        end_at_last(self._loop, drain_s + _CUT_AFTER_S + _ENDS_WITHIN_S)
        if self._cut_timer is not None:
            self._cut_timer.cancel()
        self._cut_timer = self._loop.call_later(drain_s + _CUT_AFTER_S, self._cut_all)

    def _cut_all(self) -> None:
        self._cut.set()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
