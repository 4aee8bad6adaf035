"""uvicorn's HTTP protocol, made fit for a port that strangers can reach and for clients of older HTTP.

- A request's head may have 64 KiB and ten seconds. Nothing of it is checked before it is complete, not even the key.
- Trailers of a body are no headers (RFC 9110 §6.5.1): a proxy in front has not looked at them. They are dropped, and
  may have 64 KiB too, as may the extension of a chunk.
- A reader that takes nothing of what waits for it is cut. Its unread bytes fill the socket, and then hold the run
  behind the stream, with its place, for as long as the reader likes.
- A client of HTTP/1.0 knows no chunks (RFC 9112 §6.1): a stream to it ends with the connection.
- An offer to upgrade (``Upgrade: h2c``, as Java's client makes with every first request) that is declined must not cost
  the request its body (RFC 9110 §7.8). The parser stops at an offer, so the body is read past it.

- Over the bound of connections, a request is answered on the paths of health only.

All of it reaches into uvicorn: ``cycle``, ``parser`` and ``_unset_keepalive_if_required``.
"""

import asyncio
import logging
import sys
from typing import Any

import httptools
from starlette.types import ASGIApp, Receive, Scope, Send

from app.port.at_once import offer
from app.port.connections import ConnectionCounts, ConnectionLimits, Connections, Seat
from app.port.health import alive, asks_for_health, run_at_once
from app.port.pipelining import PipeliningProtocol
from wicketgate.access.shares import RETRY_AFTER_S

log = logging.getLogger("wicketgate.http")

MAX_HEAD_BYTES = 65_536
HEAD_DEADLINE_S = 10.0
RESERVED_HEAD_DEADLINE_S = 2.0

_HEALTH_PATHS = (b"/healthz", b"/readyz")
_UNBOUNDED = ConnectionLimits(sys.maxsize, sys.maxsize, 0)

_TOO_LARGE_BODY = (
    b'{"code":"head_too_large","message":"The request head, or what follows the body, is larger than 64 KiB."}'
)
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY)
)


_TOO_MANY_BODY = b'{"code":"too_many_connections","message":"Too many connections are open. Try again later."}'


async def too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: refuses a request on a connection of the reserve (OPS-31)."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(_TOO_MANY_BODY)),
        (b"retry-after", b"%d" % RETRY_AFTER_S),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": _TOO_MANY_BODY})


class _ToTheEnd(int):
    """An unknown length: at any number of written bytes the body may go on, and may end."""

    def __sub__(self, written: int) -> "_ToTheEnd":
        return self

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


class OlderClientsProtocol(PipeliningProtocol):
    """Serves clients that speak HTTP/1.0 or offer an upgrade."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Bytes of a body that came with an offer and are still to come.
        self._offered_body_left: int | None = None

    def read(self, data: bytes) -> None:
        if self._offered_body_left is not None:
            data = self._read_offered_body(data)
        if data:
            self.feed(data)

    def feed(self, data: bytes) -> None:
        """Gives the parser *data*, which is not the body of an offer."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._pass_over_offer(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            # Treated like an answer with a declared length; the connection is closed after it.
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _ToTheEnd(sys.maxsize)

    def on_message_complete(self) -> None:
        # At an offer the parser calls this before the body has come.
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _should_upgrade(self) -> bool:
        return False

    def _pass_over_offer(self, rest: bytes) -> None:
        headers = dict(self.headers)
        if b"transfer-encoding" in headers:
            self.send_400_response("A chunked body cannot come with an offer to upgrade.")
            return
        self._offered_body_left = int(headers.get(b"content-length", b"0"))
        if rest := self._read_offered_body(rest):
            self.feed(rest)

    def _read_offered_body(self, data: bytes) -> bytes:
        """Takes the part that belongs to the body. Returns the rest: the next request, for a fresh parser."""
        left = self._offered_body_left or 0
        body, rest = data[:left], data[left:]
        self._offered_body_left = left - len(body)
        if body and not self.cycle.response_complete:
            self.cycle.body += body
            self.cycle.message_event.set()
        if self._offered_body_left == 0:
            self._offered_body_left = None
            self.parser = httptools.HttpRequestParser(self)
            self._body_open = False
            self.cycle.more_body = False
            self.cycle.message_event.set()
        return rest


class GuardedHttpProtocol(OlderClientsProtocol):
    """Bounds request heads, slow readers and, over all of its instances, connections; for ``uvicorn.Config(http=...)``.

    Without *connections* their number has no bound. *writes_at_once*: offers the application to write past all that
    stands around ``send``; for a server whose application is the service as it is.
    """

    def __init__(
        self,
        *args: Any,
        stuck_reader_s: float = 60.0,
        connections: Connections | None = None,
        writes_at_once: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._stuck_reader_s = stuck_reader_s
        self._writes_at_once = writes_at_once
        self._connections = connections or Connections(_UNBOUNDED, ConnectionCounts())
        self._seat: Seat | None = None
        self._whole_app: ASGIApp = self.app
        self._stuck_timer: asyncio.TimerHandle | None = None
        # A head is being read, or waited for on a new connection. One that comes whole, as nearly all do, has no timer.
        self._reads_head = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        # Bytes in a row that belonged to no head and brought nothing of a body.
        self._bare_bytes = 0
        self._in_head = True
        # True while uvicorn decides whether a request can begin, on a connection that may stay.
        self._head_complete = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        # Aborted, since the file is needed at once: what is lost is the end of an answer that its client does not take.
        self._seat = self._connections.enter(address, transport.abort)
        self._begin_head()
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._unwatch_reader()
        if self._seat is not None:
            self._connections.leave(self._seat)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._seat is not None and self.cycle.response_complete:
            self._connections.idle(self._seat)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._unwatch_reader()
        super().resume_writing()

    def on_message_begin(self) -> None:
        if not self._reads_head:  # a further request on the connection
            self._begin_head()
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # As the original, which would cost a further step for each header of each request.
        if self._in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._end_head()
        self._in_head = False
        self._bare_bytes = 0
        self.app = self._whole_app
        reserved = False
        if self._seat is not None:
            bound = self._connections.promote(self._seat)
            self._connections.busy(self._seat)
            reserved = self._seat.reserved
            if bound is not None and self.url.partition(b"?")[0] not in _HEALTH_PATHS:
                self._connections.counts.refused[bound] += 1
                self.app = too_many_connections
        if asks_for_health(self.parser.get_method(), self.url, self.headers):
            self.app = alive
        self._head_complete = not reserved
        try:
            super().on_headers_complete()
        finally:
            self._head_complete = False
        if reserved:
            self.cycle.keep_alive = False
        if self._writes_at_once:
            offer(self.cycle)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        # Not from the end of an answer: requests sent in one piece would each begin inside the one before.
        if app is alive and self._head_complete and not self.flow.write_paused:
            self._body_open = False
            run_at_once(cycle.run_asgi(app))
        else:
            super()._start_asgi_task(cycle, app)

    def feed(self, data: bytes) -> None:
        if self._reads_head:
            self._head_bytes += len(data)
        self._bare_bytes += len(data)
        super().feed(data)
        if self.lingering:
            return
        head_too_large = self._reads_head and self._head_bytes > MAX_HEAD_BYTES
        if head_too_large or (self._body_open and self._bare_bytes > MAX_HEAD_BYTES):
            self._end_head()
            self.refuse(_TOO_LARGE)
        elif self._reads_head and self._head_timer is None:
            self._time_head()

    def _begin_head(self) -> None:
        self._head_bytes = 0
        self._reads_head = True

    def _time_head(self) -> None:
        reserved = self._seat is not None and self._seat.reserved
        self._head_timer = self.loop.call_later(
            RESERVED_HEAD_DEADLINE_S if reserved else HEAD_DEADLINE_S, self._give_head_up
        )

    def _give_head_up(self) -> None:
        if not self.lingering:
            self._connections.counts.cut["head"] += 1
            self.transport.close()

    def _end_head(self) -> None:
        self._reads_head = False
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
        self._connections.counts.cut["reader"] += 1
        log.warning("a reader took nothing for %g s and was cut", self._stuck_reader_s)
        self.transport.abort()
