"""Guards a port that strangers can reach: heads are bounded, and readers that do not read are cut.

- A request's head may have 64 KiB and ten seconds; nothing of it is checked before it is whole, not even the key.
- A reader that takes nothing of what waits for it is cut. What it leaves unread fills the socket, then holds the run
  behind the stream (and its place) for as long as the reader likes.
"""

import asyncio
import logging
from typing import Any

from app.port.older_clients import OlderClientsProtocol

log = logging.getLogger("wicketgate.http")

MAX_HEAD_BYTES = 65_536
HEAD_DEADLINE_S = 10.0

_TOO_LARGE_BODY = b'{"code":"head_too_large","message":"The request head is larger than 64 KiB."}'
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY)
)


class GuardedHttpProtocol(OlderClientsProtocol):
    """uvicorn's protocol, for ``Config(http=...)``."""

    def __init__(self, *args: Any, stuck_reader_s: float = 60.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stuck_reader_s = stuck_reader_s
        self._stuck_timer: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._unwatch_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._unwatch_reader()
        super().resume_writing()

    def on_message_begin(self) -> None:
        if self._head_timer is None:  # a further request on the connection
            self._begin_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def feed(self, data: bytes) -> None:
        if self._head_timer is not None:
            self._head_bytes += len(data)
        super().feed(data)
        if self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES:
            self._end_head()
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _begin_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_DEADLINE_S, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _watch_reader(self, unsent_bytes: int) -> None:
        self._stuck_timer = self.loop.call_later(self._stuck_reader_s, self._cut_if_stuck, unsent_bytes)

    def _unwatch_reader(self) -> None:
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
            self._stuck_timer = None

    def _cut_if_stuck(self, unsent_bytes_before: int) -> None:
        # Nothing is written while writing is paused, heartbeats apart, so any reading shows as a smaller buffer.
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes < unsent_bytes_before:
            self._watch_reader(unsent_bytes)
            return
        log.warning("a reader took nothing for %g s and was cut", self._stuck_reader_s)
        self.transport.abort()
