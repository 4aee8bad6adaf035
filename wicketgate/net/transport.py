"""The transport below httpx: a pool of connections, requests written as they are, and the bodies of answers
(UP-25, UP-26, UP-42).

It does what a gate may do with a request that is not its own: sends it once, with its URL byte for byte, and knows
when it was never sent. It keeps no cookies and follows no redirects. There is no limit on open connections; its callers
have their own. A server is asked for no content coding. gzip and deflate are decoded anyway, in steps,
so that a small answer cannot fill the memory.
"""

import asyncio
import re
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol

import httpx

from wicketgate.net.connection import HttpConnection
from wicketgate.net.dial import Route, connect, route_to
from wicketgate.net.outgoing import (
    AnswerAbandoned,
    AnswerTooLarge,
    AnswerUndecodable,
    NotSendable,
    Origin,
    Outgoing,
    SchemeRefused,
)

_STEP_BYTES = 64 * 1024
"""At most so much is decoded at a time."""
_FED_BYTES = 16 * 1024
"""At most so much is given to zlib at a time, because it copies what it leaves."""
_STEPS_AT_ONCE = 16
"""After so many, other tasks have their turn."""
_MAX_BARREN_BYTES = 1024 * 1024
"""Of a compressed body that give nothing: no compressor writes so many."""

Read = Callable[[], Coroutine[Any, Any, bytes]]


def decoder_of(codings: Sequence[bytes], read: Read) -> Read | None:
    """A read that undoes the content coding; None if there is nothing to undo.

    Raises AnswerUndecodable for one that is not known here.
    """
    match [coding for each in codings if (coding := each.strip().lower()) not in (b"", b"identity")]:
        case []:
            return None
        case [b"gzip" | b"x-gzip" | b"deflate"]:
            return _Inflating(read).read
    raise AnswerUndecodable("the server used a content coding that was not asked for")


class _Inflating:
    """Undoes gzip or deflate, at most ``_STEP_BYTES`` at a time.

    The loop is never held for long, and a body that costs much and gives little is refused: a caller may have set no
    bound of its own.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)  # it tells gzip and zlib apart
        self._pending = memoryview(b"")
        self._begun = False
        self._steps = 0
        self._barren_bytes = 0

    async def read(self) -> bytes:
        while True:
            self._steps += 1
            if self._steps % _STEPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not self._pending:
                self._pending = memoryview(await self._read())
                if not self._pending:
                    if self._begun and not self._inflate.eof:
                        raise AnswerUndecodable("the compressed body ended before it was whole")
                    return b""
            if data := self._step():
                return data

    def _step(self) -> bytes:
        piece = self._pending[:_FED_BYTES]
        try:
            data = self._inflate.decompress(piece, _STEP_BYTES)
        except zlib.error:
            raise AnswerUndecodable("the body does not hold to its content coding") from None
        if self._inflate.unused_data:
            raise AnswerUndecodable("something comes behind the compressed body")
        self._begun = True
        used = len(piece) - len(self._inflate.unconsumed_tail)
        self._pending = self._pending[used:]
        self._barren_bytes = 0 if data else self._barren_bytes + used
        if self._barren_bytes > _MAX_BARREN_BYTES:
            raise AnswerUndecodable("the compressed body goes on without content")
        return data


MAX_BODY_BYTES = 64 * 1024 * 1024
"""The bound of what iterating gives, unless the request says otherwise."""


class _Response(httpx.Response):
    """A redirect is an answer like any other: httpx would read its Location, and fail if that is no URL."""

    @property
    def has_redirect_location(self) -> bool:
        return False


_LARGE_BYTES = 1 << 20


class Room(Protocol):
    """Memory for large bodies (``wicketgate.answer_room``), and when one that has room must be whole."""

    end_by: float

    async def take(self, size: int) -> None: ...

    def shrink(self, size: int) -> None: ...


class Body(httpx.AsyncByteStream):
    """Read it by iterating or, without a generator around each piece, by ``read``: it gives what one read from the
    socket produced, and ``b""`` at the end. Only iterating is bounded, by *max_bytes*, and timed, by *read_s*;
    before ``read``, call ``watch`` with a deadline in the loop's time."""

    def __init__(
        self,
        connection: HttpConnection,
        leave: Callable[[], None],
        finish: Callable[[float], None],
        decode: Read | None,
        max_bytes: float,
        read_s: float | None,
    ) -> None:
        self.read: Read = decode or connection.read
        self.watch: Callable[[float], None] = connection.watch
        self._leave = leave
        self._finish = finish
        self._connection = None if decode is not None else connection
        self._max_bytes = max_bytes
        self._read_s = inf if read_s is None else read_s
        self._end_by = inf

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._max_bytes
        while data := await self._read_in_time():
            left -= len(data)
            if left < 0:
                raise AnswerTooLarge(f"the body of the server's answer is over {self._max_bytes} bytes")
            yield data

    async def gather(self, max_bytes: int, room: Room | None = None) -> tuple[bytearray, bool]:
        """At most *max_bytes* of the rest, and whether there was more; in the buffer that grew with the pieces, because
        a copy of a large body takes long.

        More than a megabyte is read only when *room* has been taken for the whole.
        """
        data, taken = bytearray(), False
        while piece := await self._read_in_time():
            if room is not None and not taken and len(data) + len(piece) > _LARGE_BYTES:
                declared = None if self._connection is None else self._connection.declared_bytes
                await room.take(max_bytes if declared is None else min(declared, max_bytes))
                taken, self._end_by = True, room.end_by
            data += piece
            if len(data) > max_bytes:
                del data[max_bytes:]
                return data, True
        if room is not None:
            room.shrink(len(data))
        return data, False

    def pass_on(self, take: Callable[[bytes], bool] | None) -> None:
        """As HttpConnection's, until the response is closed. Nothing is offered of a body that has to be decoded."""
        if self._connection is not None:
            self._connection.pass_on(take)

    async def aclose(self) -> None:
        """Keep the connection if the answer has come to its end; close it otherwise."""
        self._end()
        self._leave()

    def finish(self, within_s: float) -> None:
        """Leave the answer although it may not have come to its end: the rest is dropped, and the connection kept if it
        ends within *within_s* and is small. For an answer whose meaning is known before its end."""
        self._end()
        self._leave = lambda: None
        self._finish(within_s)

    def _end(self) -> None:
        self.pass_on(None)
        self.read, self.watch, self._connection = _closed, lambda _: None, None

    def _read_in_time(self) -> Coroutine[Any, Any, bytes]:
        self.watch(min(self._end_by, asyncio.get_running_loop().time() + self._read_s))
        return self.read()


def body_of(response: httpx.Response) -> Body:
    """The Body behind *response*, also where httpx's client has wrapped it."""
    body = response.extensions["body"]
    assert isinstance(body, Body)
    return body


async def read_bounded(response: httpx.Response, max_bytes: int, room: Room | None = None) -> tuple[bytearray, bool]:
    """As ``Body.gather``. Closes the response."""
    try:
        return await body_of(response).gather(max_bytes, room)
    finally:
        await response.aclose()


async def _closed() -> bytes:
    raise AnswerAbandoned("the response was closed")


IDLE_S = 4.0
"""Seconds for which a connection is kept for the next request: common servers close it after five seconds, and a
request that meets the closing is lost."""

MAX_FINISHING = 64
"""Connections that may wait for the end of an answer that nobody reads: a server may end none."""

_MAX_PORT = 65_535
_METHOD = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PATH = re.compile(rb"[!-~\x80-\xff]+")
_WITHOUT_CONTENT = ("GET", "HEAD")
_WIRE_FIELDS = (b"content-encoding", b"content-length")


class Target:
    """A URL with the method and headers of all requests that go there, written once: writing a head as httpx does
    costs as much as sending it. Raises NotSendable and SchemeRefused."""

    def __init__(self, method: str, url: str, headers: Mapping[str, str]) -> None:
        parsed = read_url(url)
        self.origin = origin_of(parsed)
        self.method = method
        self.path = path_of(url, parsed)
        fields = {"Host": parsed.netloc.decode("ascii"), "Accept-Encoding": "identity", "User-Agent": "wicketgate"}
        if parsed.userinfo:
            pair = f"{parsed.username}:{parsed.password}".encode()
            fields["Authorization"] = f"Basic {b64encode(pair).decode()}"
        # Names differ by case in no two headers of one request.
        named = {name.lower(): (name, value) for name, value in (*fields.items(), *headers.items())}
        self.fields = _fields((name.encode(), value.encode()) for name, value in named.values())
        _check_line(method.encode(), self.path)


class Transport(httpx.AsyncBaseTransport):
    """Of a request's ``timeout`` it keeps ``connect`` (name, proxy and TLS together) and ``read`` (to the beginning of
    the answer, then from one piece of the body to the next). The extension ``target`` is sent in place of path and
    query; ``max_bytes`` bounds what iterating over the body gives (None: nothing does)."""

    def __init__(self, outgoing: Outgoing, idle_s: float = IDLE_S) -> None:
        self._outgoing = outgoing
        self._idle_s = idle_s
        self._routes: dict[Origin, Route] = {}
        self._idle: dict[Origin, list[tuple[float, HttpConnection]]] = {}
        self._open: set[HttpConnection] = set()
        self._finishing: set[HttpConnection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweeps_at = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """``body_of`` gives the response's Body. Raises the errors of ``wicketgate.net.outgoing``."""
        content = await request.aread()
        origin = origin_of(request.url)
        path = request.extensions.get("target", request.url.raw_path)
        fields = _fields(_with_length(request.headers.raw, content))
        timeouts = request.extensions.get("timeout", {})
        max_bytes = request.extensions.get("max_bytes", MAX_BODY_BYTES)
        method = request.method.encode("ascii", "replace")
        _check_line(method, path)
        route = self._route(origin)
        head = b"%b %b%b HTTP/1.1\r\n%b%b\r\n" % (method, route.prefix, path, fields, route.fields)
        return await self._exchange(
            route,
            head + content,
            timeouts.get("connect"),
            timeouts.get("read"),
            is_head=request.method == "HEAD",
            max_bytes=inf if max_bytes is None else max_bytes,
        )

    async def send(
        self,
        target: Target,
        content: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        connect_s: float | None,
        read_s: float | None = None,
    ) -> httpx.Response:
        """The same for a Target, at a third of the cost. *headers* are added to its own."""
        route = self._routes.get(target.origin) or self._route(target.origin)
        more = _fields((name.encode(), value.encode()) for name, value in headers.items()) if headers else b""
        if content or target.method not in _WITHOUT_CONTENT:
            more += b"Content-Length: %d\r\n" % len(content)
        start = (target.method.encode(), route.prefix, target.path)
        head = b"%b %b%b HTTP/1.1\r\n%b%b%b\r\n" % (*start, target.fields, route.fields, more)
        return await self._exchange(
            route, head + content, connect_s, read_s, is_head=target.method == "HEAD", max_bytes=MAX_BODY_BYTES
        )

    async def reach(self, url: str, connect_s: float) -> None:
        """Connect to the origin of *url*, by its proxy and with TLS, and close the connection. Raises a NeverSent."""
        connection = await connect(self._route(origin_of(read_url(url))), self._outgoing, connect_s)
        connection.close()

    async def aclose(self) -> None:
        """Close all connections; answers that are being read break off."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        connections = [*self._open, *(connection for idle in self._idle.values() for _, connection in idle)]
        self._open.clear()
        self._idle.clear()
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)  # for the sockets to be closed

    async def _exchange(
        self,
        route: Route,
        request: bytes,
        connect_s: float | None,
        read_s: float | None,
        *,
        is_head: bool,
        max_bytes: float,
    ) -> httpx.Response:
        origin = route.origin
        # A kept connection that is found closed is replaced, since nothing was written to it yet.
        connection = self._take(origin) or await connect(route, self._outgoing, connect_s)
        self._open.add(connection)
        try:
            await connection.ask(request, read_s, is_head=is_head)
            # Headers that speak of the coded body are not those of the decoded one.
            headers, decode = connection.headers, None
            if connection.codings and not is_head:
                decode = decoder_of(connection.codings, connection.read)
            if decode is not None:
                headers = [field for field in headers if field[0].lower() not in _WIRE_FIELDS]
        except BaseException:
            self._leave(origin, connection)
            raise
        leave, finish = partial(self._leave, origin, connection), partial(self._finish, origin, connection)
        body = Body(connection, leave, finish, decode, max_bytes, read_s)
        return _Response(connection.status, headers=headers, stream=body, extensions={"body": body})

    def _route(self, origin: Origin) -> Route:
        route = self._routes.get(origin)
        if route is None:
            route = self._routes[origin] = route_to(origin, self._outgoing)
        return route

    def _take(self, origin: Origin) -> HttpConnection | None:
        """The connection used last: it is the least likely to have been closed in the meantime."""
        idle = self._idle.get(origin)
        while idle:
            _, connection = idle.pop()
            if connection.is_reusable and not connection.has_news:
                return connection
            connection.close()
        return None

    def _finish(self, origin: Origin, connection: HttpConnection, within_s: float) -> None:
        leave = partial(self._leave, origin, connection)
        if len(self._finishing) >= MAX_FINISHING:
            leave()
            return
        self._finishing.add(connection)
        connection.finish(within_s, leave)

    def _leave(self, origin: Origin, connection: HttpConnection) -> None:
        self._finishing.discard(connection)
        if connection not in self._open:
            return
        self._open.discard(connection)
        # A second early, so that the server does not close it at the same moment.
        keep_s = min(self._idle_s, connection.keep_s - 1.0)
        if not connection.is_reusable or keep_s < 0:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + keep_s
        self._idle.setdefault(origin, []).append((until, connection))
        if self._sweeping is not None and until < self._sweeps_at:
            self._sweeping.cancel()
            self._sweeping = None
        if self._sweeping is None:
            self._sweep_at(until)

    def _sweep_at(self, until: float) -> None:
        # Noted, because uvloop's handle of a timer that is due within a millisecond does not tell when that is.
        self._sweeps_at = until
        self._sweeping = asyncio.get_running_loop().call_at(until, self._sweep)

    def _sweep(self) -> None:
        """One timer for all, for connections are taken and given back with every request."""
        self._sweeping = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for origin, idle in list(self._idle.items()):
            kept = []
            for until, connection in idle:
                if until > now and connection.is_reusable:
                    kept.append((until, connection))
                else:
                    connection.close()
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]
        if self._idle:
            self._sweep_at(min(until for idle in self._idle.values() for until, _ in idle))


def read_url(url: str) -> httpx.URL:
    """Raises NotSendable."""
    try:
        return httpx.URL(url)
    except httpx.InvalidURL:
        raise NotSendable("the URL cannot be read") from None


def origin_of(url: httpx.URL) -> Origin:
    """Raises SchemeRefused and NotSendable."""
    if url.scheme not in ("http", "https") or not url.host:
        raise SchemeRefused("only http and https URLs with a host can be requested")
    port = url.port
    if port is None:
        port = 443 if url.scheme == "https" else 80
    elif not 0 < port <= _MAX_PORT:
        # The system would take it modulo 65536.
        raise NotSendable("the URL names a port that does not exist")
    return url.scheme, url.raw_host.decode("ascii"), port


def path_of(url: str, parsed: httpx.URL) -> bytes:
    """Path and query of *url* as they are written; httpx takes ``..`` out and encodes some characters. What could not
    stand in a request line is encoded by httpx."""
    written = url.partition("://")[2].partition("#")[0]
    start = min((at for at in (written.find("/"), written.find("?")) if at >= 0), default=len(written))
    path = written[start:]
    if not path.startswith("/"):
        path = f"/{path}"
    raw = path.encode()
    return raw if raw.isascii() and _PATH.fullmatch(raw) else parsed.raw_path


def _check_line(method: bytes, path: bytes) -> None:
    if not _METHOD.fullmatch(method) or method == b"CONNECT":
        raise NotSendable("a method that cannot be sent")
    if not _PATH.fullmatch(path):
        raise NotSendable("a character that cannot stand in a request line")


def _fields(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Raises NotSendable where a line end or a NUL would make another request of it."""
    lines = [b"%b: %b\r\n" % field for field in headers]
    fields = b"".join(lines)
    if fields.count(b"\r") != len(lines) or fields.count(b"\n") != len(lines) or b"\0" in fields:
        raise NotSendable("a character that a header cannot have")
    return fields


def _with_length(headers: list[tuple[bytes, bytes]], content: bytes) -> list[tuple[bytes, bytes]]:
    """A content that httpx would send in chunks is known whole here."""
    if not any(name.lower() == b"transfer-encoding" for name, _ in headers):
        return headers
    kept = [field for field in headers if field[0].lower() not in (b"transfer-encoding", b"content-length")]
    return [*kept, (b"Content-Length", b"%d" % len(content))]
