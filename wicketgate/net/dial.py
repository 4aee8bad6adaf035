"""The making of a connection: the addresses of a name, the proxy's tunnel, and TLS (UP-39, UP-44).

Nothing of a request is sent here, so all that fails here is a NeverSent.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, TypeVar, cast

from wicketgate.net.connection import MAX_HEAD_BYTES, HttpConnection
from wicketgate.net.guard import Guard
from wicketgate.net.outgoing import (
    NO_CA,
    AddressRefused,
    CannotConnect,
    ConnectTimedOut,
    Origin,
    Outgoing,
    Proxy,
    ProxyFailed,
    Trouble,
    trouble_of,
)

_NEXT_ADDRESS_S = 0.25
"""Seconds for which one address of a name is tried before the next one is tried beside it (RFC 8305)."""

Address = tuple[Any, ...]
"""One row of getaddrinfo."""

P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class Route:
    """The way to an origin. *prefix* stands before the path in the request line, *fields* are added to the head;
    both are for a proxy that is given the request itself."""

    origin: Origin
    proxy: Proxy | None
    prefix: bytes = b""
    fields: bytes = b""


def route_to(origin: Origin, outgoing: Outgoing) -> Route:
    """Raises ProxyFailed."""
    scheme, host, port = origin
    proxy = outgoing.proxies.proxy_for(origin)
    if proxy is None or scheme == "https":
        return Route(origin, proxy)
    fields = b"Proxy-Authorization: %b\r\n" % proxy.credentials if proxy.credentials else b""
    return Route(origin, proxy, f"http://{_authority(host, port, 80)}".encode("ascii"), fields)


async def connect(route: Route, outgoing: Outgoing, timeout_s: float | None) -> HttpConnection:
    """Raises a NeverSent of httpx's kind."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _connected(route, outgoing)
    except TimeoutError:
        raise ConnectTimedOut("no connection in time") from None
    except ssl.SSLCertVerificationError as error:
        raise _refused(error) from error
    except CannotConnect:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that is none
        raise CannotConnect(f"{type(error).__name__}: {error}", trouble_of(error)) from error


async def _connected(route: Route, outgoing: Outgoing) -> HttpConnection:
    scheme, host, port = route.origin
    proxy = route.proxy
    loop = asyncio.get_running_loop()
    tls = await _trust(outgoing) if scheme == "https" else None

    # A direct connection.
    if proxy is None:
        sock = await _socket_to(host, port, outgoing.guard)
        return await _over(sock, HttpConnection, tls, host)
    # The proxy is asked for an address, because it would look a name up again.
    reached = host
    if outgoing.guard is not None and not outgoing.guard.trusts(host):
        reached = (await _addresses(host, port, outgoing.guard))[0][4][0]

    # A proxy that is given the request, and one that is asked for a tunnel.
    proxy_tls = await _trust(outgoing) if proxy.scheme == "https" else None
    try:
        sock = await _socket_to(proxy.host, proxy.port)
        if tls is None:
            return await _over(sock, HttpConnection, proxy_tls, proxy.host)
        tunnel = await _over(sock, _Tunnel, proxy_tls, proxy.host)
    except ssl.SSLCertVerificationError as error:
        refused = _refused(error)
        refused.trouble = Trouble("the proxy refused the connection", _of_proxy(proxy, refused.trouble))
        raise refused from error
    except OSError as error:
        text = f"no connection to the proxy: {type(error).__name__}: {error}"
        raise ProxyFailed(text, _of_proxy(proxy, trouble_of(error))) from error
    try:
        await tunnel.open(reached, port, proxy)
        assert tunnel.transport is not None
        connection = HttpConnection()
        transport = await loop.start_tls(tunnel.transport, connection, tls, server_hostname=host)
        assert transport is not None
        connection.connection_made(transport)
    except BaseException:
        if tunnel.transport is not None:
            tunnel.transport.abort()
        raise
    return connection


async def _trust(outgoing: Outgoing) -> ssl.SSLContext:
    try:
        return await outgoing.tls()
    except OSError as error:
        raise CannotConnect(f"{type(error).__name__}: {error}", NO_CA) from error


def _refused(error: ssl.SSLCertVerificationError) -> CannotConnect:
    return CannotConnect(f"the certificate is not trusted: {error.verify_message}", trouble_of(error))


def _of_proxy(proxy: Proxy, trouble: Trouble) -> str:
    """The mend for a proxy that is not reached."""
    return f"of the proxy in {proxy.variable}: {trouble.told('', proxy.variable)}"


async def _over(sock: socket.socket, make: type[P], tls: ssl.SSLContext | None, host: str) -> P:
    loop = asyncio.get_running_loop()
    try:
        _, protocol = await loop.create_connection(
            make, sock=sock, ssl=tls, server_hostname=host if tls is not None else None
        )
    except BaseException:
        sock.close()
        raise
    return protocol


def _mend_of_refusal(proxy: Proxy, status: str) -> str:
    if status == "407":
        return f"the proxy wants a user and a password: {proxy.variable}=http://user:password@host:port"
    return f"the proxy in {proxy.variable} answered {status}; ask who runs it, or name the host in NO_PROXY"


class _Tunnel(asyncio.Protocol):
    """The connection to a proxy until it has opened the tunnel (RFC 9110 §9.3.6)."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._head = b""

    async def open(self, host: str, port: int, proxy: Proxy) -> None:
        """Raises ProxyFailed unless the proxy agrees."""
        credentials = proxy.credentials
        authority = _authority(host, port).encode("ascii")
        fields = b"Proxy-Authorization: %b\r\n" % credentials if credentials else b""
        assert self.transport is not None
        self.transport.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, fields))
        status_line = (await self._answer).split(b"\r\n", 1)[0]
        words = status_line.split(b" ", 2)
        status = words[1] if len(words) > 1 and words[0].startswith(b"HTTP/1.") else b""
        if not (len(status) == 3 and status.isdigit()):
            raise ProxyFailed("the proxy's answer is not HTTP")
        if not status.startswith(b"2"):
            raise ProxyFailed(f"the proxy answered {status.decode()}", _mend_of_refusal(proxy, status.decode()))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if self._answer.done():
            return
        if end and not rest:
            self._answer.set_result(head)
        elif end or len(self._head) > MAX_HEAD_BYTES:
            # A server that waits for TLS says nothing first.
            words = "sent something behind its answer" if end else f"answered with a head over {MAX_HEAD_BYTES} bytes"
            self._answer.set_exception(ProxyFailed(f"the proxy {words}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if not self._answer.done():
            self._answer.set_exception(ProxyFailed("the proxy closed the connection"))


async def _socket_to(host: str, port: int, guard: Guard | None = None) -> socket.socket:
    """Connected to whichever address of *host* answers first. Raises OSError, UnicodeError and AddressRefused."""
    sock = await first_connected(await _addresses(host, port, guard))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


async def _addresses(host: str, port: int, guard: Guard | None) -> Sequence[Address]:
    """The rows of getaddrinfo, those that *guard* refuses left out: nothing is looked up again after this."""
    loop = asyncio.get_running_loop()
    try:
        # An address needs no resolver, and so no thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if guard is None:
        return found
    allowed = [row for row in found if guard.allows_address(host, str(row[4][0]))]
    if found and not allowed:
        raise AddressRefused
    return allowed


async def first_connected(found: Sequence[Address], next_s: float = _NEXT_ADDRESS_S) -> socket.socket:
    """Try the addresses in turn, each *next_s* after the one before or at its failure, families alternating.

    asyncio has this (``happy_eyeballs_delay``) and uvloop does not. Raises the first failure if all fail.
    """
    waiting = _alternating(found)
    if len(waiting) == 1:
        return await _connected_socket(waiting[0])
    running: set[asyncio.Task[socket.socket]] = set()
    failures: list[BaseException] = []
    try:
        while waiting or running:
            # The next address, beside those that have not answered yet.
            if waiting:
                running.add(asyncio.create_task(_connected_socket(waiting.pop(0))))
            done, _ = await asyncio.wait(
                running, timeout=next_s if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            # The first connection wins; a failure lets the next address begin at once.
            for task in done:
                running.discard(task)
                if (failure := task.exception()) is None:
                    return task.result()
                failures.append(failure)
        raise failures[0] if failures else OSError("the name has no address")
    finally:
        # All that still run end here; a connection that came about in the meantime is closed.
        for task in running:
            task.cancel()
        for late in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()


def _alternating(found: Sequence[Address]) -> list[Address]:
    """The resolver's order, but no family's addresses all behind the other's."""
    families: dict[Any, list[Address]] = {}
    for address in found:
        families.setdefault(address[0], []).append(address)
    return [address for address in chain.from_iterable(zip_longest(*families.values())) if address is not None]


async def _connected_socket(address: Address) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


def _authority(host: str, port: int, usual: int = 0) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port == usual else f"{name}:{port}"
