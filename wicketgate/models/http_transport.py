"""The transport below httpx for streams that are read as they come: a pool of ``HttpConnection`` (DESIGN §3 "Libraries
on the hot paths"). No proxies, no redirects, no retries, no limit on how many connections there are.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from ssl import SSLContext
from typing import Any

import httpx
from aiohappyeyeballs import start_connection

from wicketgate.models.http_connection import HttpConnection
from wicketgate.net.tls import trusted

_IDLE_S = 15.0
"""How long a connection is kept for the next request."""
_MAX_IDLE = 256
_NEXT_ADDRESS_S = 0.25

Origin = tuple[str, str, int]
"""Scheme, host, port."""


class LeanTransport(httpx.AsyncBaseTransport):
    """*tls* stands in for the usual trust. Of a request's timeouts it keeps ``connect``; others are the caller's."""

    def __init__(self, tls: SSLContext | None = None) -> None:
        self._tls = tls
        self._idle: dict[Origin, list[tuple[float, HttpConnection]]] = {}
        self._open: set[HttpConnection] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """``response.stream`` is a ``Body``."""
        head = request_head(request.method, request.url, request.headers.raw)
        connect_s = request.extensions.get("timeout", {}).get("connect")
        return await self.send(origin_of(request.url), head, await request.aread(), connect_s)

    async def send(self, origin: Origin, head: bytes, content: bytes, connect_s: float | None) -> httpx.Response:
        """The same for a request whose head is written already: writing one as httpx does costs as much as sending."""
        connection = self._take(origin)
        if connection is None:
            connection = await self._connected(origin, connect_s)
        self._open.add(connection)
        try:
            await connection.ask(head + content)
        except BaseException:
            self._leave(origin, connection)
            raise
        return httpx.Response(
            connection.status,
            headers=connection.headers,
            stream=Body(connection, partial(self._leave, origin, connection)),
        )

    async def aclose(self) -> None:
        """Streams that are open break off."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        connections = [*self._open, *(connection for idle in self._idle.values() for _, connection in idle)]
        self._open.clear()
        self._idle.clear()
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)  # for the sockets to be closed

    def _take(self, origin: Origin) -> HttpConnection | None:
        """The one used last: it is the least likely to have been closed meanwhile."""
        idle = self._idle.get(origin)
        while idle:
            _, connection = idle.pop()
            if connection.is_reusable:
                return connection
            connection.close()
        return None

    def _leave(self, origin: Origin, connection: HttpConnection) -> None:
        if connection not in self._open:
            return
        self._open.discard(connection)
        idle = self._idle.setdefault(origin, [])
        if not connection.is_reusable or len(idle) >= _MAX_IDLE:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        idle.append((loop.time() + _IDLE_S, connection))
        if self._sweeping is None:
            self._sweeping = loop.call_later(_IDLE_S, self._sweep)

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
            first = min(idle[0][0] for idle in self._idle.values())
            self._sweeping = loop.call_at(first, self._sweep)

    async def _connected(self, origin: Origin, timeout_s: float | None) -> HttpConnection:
        scheme, host, port = origin
        tls = (self._tls or trusted()) if scheme == "https" else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                sock = await start_connection(found, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                try:
                    _, connection = await loop.create_connection(
                        HttpConnection, sock=sock, ssl=tls, server_hostname=host if tls is not None else None
                    )
                except BaseException:
                    sock.close()
                    raise
        except TimeoutError:
            raise httpx.ConnectTimeout("no connection in time") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that is none
            raise httpx.ConnectError(f"{type(error).__name__}: {error}") from error
        return connection


class Body(httpx.AsyncByteStream):
    """The body of an answer, to be read by iterating or, without a generator around each piece, by ``read``."""

    def __init__(self, connection: HttpConnection, leave: Callable[[], None]) -> None:
        self.read: Callable[[], Coroutine[Any, Any, bytes]] = connection.read
        self._leave = leave

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.read():
            yield data

    async def aclose(self) -> None:
        """The connection is kept if the answer was read to its end."""
        self.read = _closed
        self._leave()


async def _closed() -> bytes:
    raise httpx.ReadError("the response was closed")


def origin_of(url: httpx.URL) -> Origin:
    if url.scheme not in ("http", "https") or not url.host:
        raise httpx.UnsupportedProtocol("only http and https are spoken here")
    return url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)


def request_head(method: str, url: httpx.URL, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Raises LocalProtocolError where a line end or a NUL would make another request of it."""
    if method in ("HEAD", "CONNECT"):
        raise httpx.LocalProtocolError("only answers with a body are read here")
    lines = [b"%b %b HTTP/1.1" % (method.encode("ascii"), url.raw_path)]
    lines += [b"%b: %b" % field for field in headers]
    head = b"\r\n".join(lines)
    breaks = len(lines) - 1
    if head.count(b"\r") != breaks or head.count(b"\n") != breaks or b"\0" in head:
        raise httpx.LocalProtocolError("a character that cannot stand in a request's head")
    return head + b"\r\n\r\n"
