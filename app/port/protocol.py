"""The HTTP/1.1 of a port that strangers can reach, over httptools (OPS-15, OPS-27 to OPS-35, OPS-46, OPS-47).

- A request's head may have 64 KiB and ten seconds. Nothing of it is checked before it is complete, not even the key.
- One request at a time: what a client sends before it has the answer is dropped, and the connection closed behind that
  answer. An offer to upgrade and trailers are refused. A proxy in front serves clients that need them.
- A reader that takes nothing of what waits for it is cut. Its unread bytes fill the socket, and then hold the run
  behind the stream, with its place, for as long as the reader likes.
- A connection is closed so that its client can read the answer. A socket that is closed while bytes of the client are
  unread or still come resets the connection. So this side only stops writing, drops what comes for a second at most,
  and closes then.
- Over the bound of connections, a request is answered on the paths of health only. ``GET /healthz`` is answered before
  everything else: the application answers it the same, with a correlation id, some turns of the loop later.
"""

import asyncio
import logging
import sys
from typing import Any
from urllib.parse import unquote

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from app.port.connections import ConnectionCounts, ConnectionLimits, Connections
from app.port.cycle import MAX_UNREAD_BODY_BYTES, RequestCycle
from wicketgate.access.shares import RETRY_AFTER_S

log = logging.getLogger("wicketgate.http")

MAX_HEAD_BYTES = 65_536
HEAD_DEADLINE_S = 10.0
RESERVED_HEAD_DEADLINE_S = 2.0
LINGER_S = 1.0
MAX_DROPPED_BYTES = 32 * 1024 * 1024

WRITE_AT_ONCE = "wicketgate.write_at_once"
"""The name of the ASGI extension: see ``routers/event_stream.py``, which uses it."""

_HEALTH_PATHS = (b"/healthz", b"/readyz")
_STUCK_READER_S = 60.0
"""After which a client that takes nothing is cut. A phone that changes its network comes back sooner."""
_UNBOUNDED = ConnectionLimits(sys.maxsize, sys.maxsize, 0)
_JSON = (b"content-type", b"application/json")
_ALIVE = b'{"status":"ok"}'
_ALIVE_HEADERS = [_JSON, (b"content-length", b"%d" % len(_ALIVE))]
_TOO_MANY = b'{"code":"too_many_connections","message":"Too many connections are open. Try again later."}'
_TOO_MANY_HEADERS = [_JSON, (b"content-length", b"%d" % len(_TOO_MANY)), (b"retry-after", b"%d" % RETRY_AFTER_S)]


def _refusal(status: bytes, code: bytes, message: bytes) -> bytes:
    body = b'{"code":"%b","message":"%b"}' % (code, message)
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


_TOO_LARGE = _refusal(
    b"431 Request Header Fields Too Large",
    b"head_too_large",
    b"The request head, or what follows the body, is larger than 64 KiB.",
)
_NO_HTTP = _refusal(b"400 Bad Request", b"bad_request", b"Invalid HTTP request received.")
_NO_UPGRADE = _refusal(
    b"400 Bad Request",
    b"upgrade_refused",
    b"This port upgrades to nothing: send no Upgrade header (in Java: HttpClient.Version.HTTP_1_1), "
    b"or put a proxy in front.",
)
_NO_TRAILERS = _refusal(b"400 Bad Request", b"trailers_refused", b"A request body may have no trailers.")


def _authority(url: Any) -> bytes:
    """The host of an absolute target, which counts in place of the Host header (RFC 9112 §3.2.2)."""
    host: bytes = b"[%b]" % url.host if b":" in url.host else url.host
    return host if url.port is None else b"%b:%d" % (host, url.port)


class _Stopped(Exception):
    """Raised in a call of the parser: the connection's bytes are read no further."""


class GuardedHttpProtocol(asyncio.Protocol):
    """One connection; for ``uvicorn.Config(http=...)``. Without *connections* their number has no bound.

    *writes_at_once*: offers the application to write pieces of a stream past all that is around ``send``; for a server
    whose application is the service as it is.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        stuck_reader_s: float = _STUCK_READER_S,
        connections: Connections | None = None,
        writes_at_once: bool = False,
    ) -> None:
        if not config.loaded:
            config.load()
        self.loop = _loop or asyncio.get_running_loop()
        self.server_state = server_state
        self.write_paused = False
        self._app: ASGIApp = config.loaded_app
        self._root_path = config.root_path
        self._app_state = app_state
        self._idle_s = config.timeout_keep_alive
        self._stuck_reader_s = stuck_reader_s
        self._writes_at_once = writes_at_once
        self._connections = connections or Connections(_UNBOUNDED, ConnectionCounts())
        self._parser: Any = httptools.HttpRequestParser(self)
        # The request that is read. *body_open*: its head is complete and its body is not.
        self._cycle: RequestCycle | None = None
        self._scope: dict[str, Any] = {}
        self._begins = False
        self._body_open = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._continues = False
        self._refused = b""
        # A head is being read, or waited for on a new connection. One that comes whole, as nearly all do, has no timer.
        self._reads_head = False
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        # Bytes in a row that belonged to no head and brought nothing of a body.
        self._bare_bytes = 0
        # Nothing of what comes is read any more, and while the linger timer runs, nothing is written.
        self._deaf = False
        self._dropped_bytes = 0
        self._linger_timer: asyncio.TimerHandle | None = None
        self._stuck_timer: asyncio.TimerHandle | None = None
        # None while a request is under way. The timer is looked at when it is due, not moved at each request.
        self._idle_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._read_paused = False
        self._writable = asyncio.Event()

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._server, self._client = get_local_addr(transport), get_remote_addr(transport)
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self.server_state.connections.add(self)  # type: ignore[arg-type]
        # Aborted, since the file is needed at once: what is lost is the end of an answer that its client does not take.
        self._seat = self._connections.enter(self._client[0] if self._client else "", transport.abort)
        self._begin_head()
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._stuck_timer, self._linger_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._connections.leave(self._seat)
        self.server_state.connections.discard(self)
        if self._cycle is not None and not self._cycle.answered:
            self._cycle.leave()
        self._writable.set()
        # They refer to each other and to this, and would be left to the garbage collector.
        self._parser, self._cycle, self._scope = None, None, {}

    def shutdown(self) -> None:
        """uvicorn calls it at the end of the drain."""
        if self._cycle is None or self._cycle.answered:
            self.transport.close()
        else:
            self._cycle.keeps_alive = False

    def pause_writing(self) -> None:
        self.write_paused = True
        self._writable.clear()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
        self.write_paused = False
        self._writable.set()

    async def drain(self) -> None:
        await self._writable.wait()

    def resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self.transport.resume_reading()

    def _watch_reader(self, unsent_bytes: int) -> None:
        self._stuck_timer = self.loop.call_later(self._stuck_reader_s, self._cut_if_stuck, unsent_bytes)

    def _cut_if_stuck(self, unsent_bytes_before: int) -> None:
        # Nothing is written while writing is paused, heartbeats apart, so any reading shows as a smaller buffer.
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes < unsent_bytes_before:
            self._watch_reader(unsent_bytes)
            return
        self._connections.counts.cut["reader"] += 1
        log.warning("a client read nothing for %g s and was disconnected", self._stuck_reader_s)
        self.transport.abort()

    # What comes.

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._drop(data)
            return
        if self._reads_head:
            self._head_bytes += len(data)
        self._bare_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            cycle = self._cycle
            if cycle is not None and self._is_unread(cycle) and not self._refused and not self._body_open:
                # What is behind a request is no part of it.
                self._deaf = True
                cycle.keeps_alive = False
                if cycle.answered:
                    self._close_in_order()
            else:
                self._refuse(self._refused or _NO_HTTP)
        else:
            if (self._reads_head and self._head_bytes > MAX_HEAD_BYTES) or (
                self._body_open and self._bare_bytes > MAX_HEAD_BYTES
            ):
                self._refuse(_TOO_LARGE)
            elif self._reads_head and self._head_timer is None:
                self._time_head()
        if self._begins:
            self._begin()

    def on_message_begin(self) -> None:
        cycle = self._cycle
        if cycle is not None and self._is_unread(cycle):
            raise _Stopped
        if not self._reads_head:  # a further request on the connection
            self._begin_head()
        self._url, self._headers, self._continues = b"", [], False
        self._idle_since = None

    def _is_unread(self, cycle: RequestCycle) -> bool:
        """Returns true while the client cannot have read the answer."""
        return not cycle.answered or self.write_paused

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._reads_head:
            # A proxy in front has not looked at it (RFC 9110 §6.5.1).
            self._refused = _NO_TRAILERS
            raise _Stopped
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._continues = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade():
            self._refused = _NO_UPGRADE
            raise _Stopped
        if self._head_bytes > MAX_HEAD_BYTES and self._size_of_head() > MAX_HEAD_BYTES:
            self._refused = _TOO_LARGE
            raise _Stopped
        url = httptools.parse_url(self._url)
        raw_path: bytes = url.path or b"/"
        if url.host is not None:
            self._headers = [each for each in self._headers if each[0] != b"host"]
            self._headers.append((b"host", _authority(url)))
        path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote(path)
        version = parser.get_http_version()
        self._scope = scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "root_path": self._root_path,
            "headers": self._headers,
            "state": self._app_state.copy(),
            "method": parser.get_method().decode("ascii"),
            "path": self._root_path + path,
            "raw_path": self._root_path.encode("ascii") + raw_path,
            "query_string": url.query or b"",
        }
        keeps_alive = version != "1.0" and parser.should_keep_alive()
        continues = self._continues and version != "1.0"
        self._cycle = cycle = RequestCycle(self, scope, keeps_alive=keeps_alive, continues=continues)
        if self._writes_at_once:
            scope["extensions"] = {WRITE_AT_ONCE: cycle.write_at_once}
        self._reads_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._begins = self._body_open = True
        self._bare_bytes = self._dropped_bytes = 0

    def _size_of_head(self) -> int:
        """Returns the approximate size of the head alone: the counted bytes may include a part of the body."""
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def on_body(self, body: bytes) -> None:
        self._bare_bytes = 0
        cycle = self._cycle
        assert cycle is not None
        if cycle.answered or cycle.gone:
            self._drop(body)
            return
        cycle.body += body
        if len(cycle.body) > MAX_UNREAD_BODY_BYTES and not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()
        cycle.tell()

    def on_message_complete(self) -> None:
        assert self._cycle is not None
        self._body_open = False
        self._cycle.more_body = False
        self._cycle.tell()

    def _begin(self) -> None:
        """Has the request answered whose head is complete, and maybe its body too."""
        self._begins = False
        cycle = self._cycle
        assert cycle is not None
        if cycle.gone:
            return
        bound = self._connections.promote(self._seat)
        self._connections.busy(self._seat)
        if self._seat.reserved:
            cycle.keeps_alive = False
        if bound is not None and self._url.partition(b"?")[0] not in _HEALTH_PATHS:
            self._connections.counts.refused[bound] += 1
            cycle.respond(503, _TOO_MANY_HEADERS, _TOO_MANY)
        elif self._url == b"/healthz" and self._scope["method"] == "GET" and not (self._body_open or cycle.body):
            cycle.respond(200, _ALIVE_HEADERS, _ALIVE)
        else:
            self.server_state.tasks.add(self.loop.create_task(cycle.run(self._app, self._scope)))

    # Heads.

    def _begin_head(self) -> None:
        self._head_bytes = 0
        self._reads_head = True

    def _time_head(self) -> None:
        deadline_s = RESERVED_HEAD_DEADLINE_S if self._seat.reserved else HEAD_DEADLINE_S
        self._head_timer = self.loop.call_later(deadline_s, self._give_head_up)

    def _give_head_up(self) -> None:
        if self._linger_timer is None:
            self._connections.counts.cut["head"] += 1
            self.transport.close()

    # The end of an answer, and of the connection.

    def answer_given(self, cycle: RequestCycle) -> None:
        self.server_state.total_requests += 1
        self._connections.idle(self._seat)
        if not cycle.keeps_alive:
            self._close_in_order()
            return
        self.resume_reading()
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self._idle_s, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return
        left_s = self._idle_since + self._idle_s - self.loop.time()
        if left_s > 0:
            self._idle_timer = self.loop.call_later(left_s, self._close_if_idle)
        else:
            self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        """Ends the connection with *answer*, or without any words if the application's own has begun."""
        cycle = self._cycle
        if cycle is None or not cycle.begun or (cycle.answered and not self._body_open):
            self.transport.write(answer)
        if cycle is not None:
            cycle.leave()
        self._deaf = True
        self._close_in_order()

    def _close_in_order(self) -> None:
        """Closes now if all that came has been read, otherwise after the client has had time to read the answer."""
        transport = self.transport
        if self._linger_timer is not None or transport.is_closing():
            return
        if not self._deaf and not self._body_open:
            transport.close()
            return
        self._deaf = True
        self._linger_timer = self.loop.call_later(LINGER_S, self._stop_lingering, transport.get_write_buffer_size())
        if transport.can_write_eof():  # TLS cannot
            transport.write_eof()
        self.resume_reading()

    def _stop_lingering(self, unsent_bytes_before: int) -> None:
        # A reader that still takes the answer may have the rest of it.
        unsent_bytes = self.transport.get_write_buffer_size()
        if 0 < unsent_bytes < unsent_bytes_before:
            self._linger_timer = self.loop.call_later(LINGER_S, self._stop_lingering, unsent_bytes)
        else:
            self.transport.abort()

    def _drop(self, data: bytes) -> None:
        self._dropped_bytes += len(data)
        if self._dropped_bytes > MAX_DROPPED_BYTES:
            self.transport.abort()
