"""Takes new connections from the listening socket: a few in each turn of the loop, and none while files are used up
(OPS-33, OPS-34).

The loops' own servers take all that wait at once, which holds the loop, and say nothing when files run out.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.port.connections import Connections
from app.port.tls import HANDSHAKE_S, Certificates
from wicketgate.task_end import hold

log = logging.getLogger("wicketgate.http")

ACCEPTED_IN_A_TURN = 16

_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RETRY_S = 0.2
_GIVE_WAY_S = 0.002
_NOTE_EVERY_S = 0.25
_LOG_EVERY_S = 60.0


@dataclass(eq=False, repr=False)
class Acceptor:
    """In the place of an ``asyncio.Server``, with the methods that uvicorn calls.

    Takes up to *at_once* connections in a turn of the loop. *is_least* gets how many are held, and returns whether no
    other process that takes from the same socket holds fewer; if one does, it is given a moment.
    """

    _listener: socket.socket
    _make_protocol: Callable[[], asyncio.Protocol]
    _connections: Connections
    _at_once: int = ACCEPTED_IN_A_TURN
    is_least: Callable[[int], bool] | None = None
    certificates: Certificates | None = None

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_least = self.is_least or (lambda held: True)
        self._waited = False
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._logged_at: float | None = None
        self._closed = False
        self._listener.setblocking(False)
        self._listen()
        self._noting: asyncio.Handle | None = self._loop.call_soon(self._note_held) if self.is_least else None

    def close(self) -> None:
        """Takes no further connection. The socket is its owner's."""
        if self._closed:
            return
        self._closed = True
        if self._noting is not None:
            self._noting.cancel()
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        if self._opening:
            await asyncio.wait(self._opening)

    def _note_held(self) -> None:
        """Lets the others know, who see nothing of connections that have gone."""
        self._is_least(self._connections.counts.open + len(self._opening))
        self._noting = self._loop.call_later(_NOTE_EVERY_S, self._note_held)

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        held = self._connections.counts.open + len(self._opening)
        if not self._is_least(held) and not self._waited:
            self._waited = True  # if it is still there then, the others are busy
            self._loop.remove_reader(self._listener.fileno())
            self._retry = self._loop.call_later(_GIVE_WAY_S, self._listen)
            return
        self._waited = False
        for _ in range(self._at_once):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    self._wait_for_files(error)
                    return
                continue  # an error of one connection, which has gone again
            hold(self._loop.create_task(self._open(connection)), self._opening)

    async def _open(self, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls: dict[str, Any] = {}
            if self.certificates is not None:
                tls = {"ssl": self.certificates.context(), "ssl_handshake_timeout": HANDSHAKE_S}
            await self._loop.connect_accepted_socket(self._make_protocol, connection, **tls)
        except OSError as error:
            log.debug("a new connection was lost at once: %s", error)
            connection.close()

    def _wait_for_files(self, error: OSError) -> None:
        self._connections.counts.out_of_files += 1
        self._connections.shed()
        # The socket stays readable, so it is left alone for a while.
        self._loop.remove_reader(self._listener.fileno())
        self._retry = self._loop.call_later(_RETRY_S, self._listen)
        now = self._loop.time()
        if self._logged_at is None or now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            log.error(
                "no connection can be accepted (%s): raise the limit of open files (ulimit -n), or lower "
                "server.max_connections",
                error.strerror,
            )
