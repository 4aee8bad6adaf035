"""Connections that do not come about: callers are told the cause in a fixed phrase, the operator also what was tried
and which setting mends it (UP-67)."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import Authority
from tests.support.http_service import HttpService
from tests.support.proxy import HttpProxy
from tests.support.requirement import requirement
from wicketgate.net import HttpClient, NeverSent, Outgoing, fetch
from wicketgate.net.outgoing import shown_origin, trouble_of, wants_tls

BOUND_S = 20.0
Peer = Callable[[Path], AbstractAsyncContextManager[tuple[str, Outgoing]]]
"""Gives the URL to ask, and the rules to ask under."""


@asynccontextmanager
async def raw(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server that reads once, answers and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(65_536)
            writer.write(answer)
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def closed_port(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}", Outgoing()


@asynccontextmanager
async def no_such_host(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    yield "https://no-such-name.invalid:8443", Outgoing()


@asynccontextmanager
async def plain_http(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with HttpService() as service:
        yield service.url.replace("http:", "https:"), Outgoing()


@asynccontextmanager
async def hangs_up_on_tls(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with raw(b"") as port:
        yield f"https://127.0.0.1:{port}", Outgoing()


@asynccontextmanager
async def tls_alert(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with raw(b"\x15\x03\x01\x00\x02\x02\x0a") as port:
        yield f"http://127.0.0.1:{port}", Outgoing()


@asynccontextmanager
async def hangs_up(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with raw(b"") as port:
        yield f"http://127.0.0.1:{port}", Outgoing()


@asynccontextmanager
async def tls_that_hangs_up_on_http(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with raw(b"", Authority(folder).serving("127.0.0.1")) as port:
        yield f"http://127.0.0.1:{port}", Outgoing()


@asynccontextmanager
async def another_protocol(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with raw(b"-ERR unknown command 'POST'\r\n") as port:
        yield f"http://127.0.0.1:{port}", Outgoing()


@asynccontextmanager
async def untrusted(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with raw(b"", Authority(folder).serving("127.0.0.1")) as port:
        yield f"https://127.0.0.1:{port}", Outgoing()


@asynccontextmanager
async def expired(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    authority = Authority(folder)
    async with raw(b"", authority.serving("127.0.0.1", expired=True)) as port:
        yield f"https://127.0.0.1:{port}", Outgoing(str(authority.ca_file))


@asynccontextmanager
async def other_address(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    authority = Authority(folder)
    async with raw(b"", authority.serving("127.0.0.2")) as port:
        yield f"https://127.0.0.1:{port}", Outgoing(str(authority.ca_file))


@asynccontextmanager
async def other_name(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    authority = Authority(folder)
    async with raw(b"", authority.serving("shop.test")) as port:
        yield f"https://localhost:{port}", Outgoing(str(authority.ca_file))


@asynccontextmanager
async def lost_ca_file(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with raw(b"") as port:
        yield f"https://127.0.0.1:{port}", Outgoing(str(folder / "none.pem"))


@asynccontextmanager
async def lost_proxy(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    yield "https://api.test", Outgoing.from_environment({"HTTPS_PROXY": "http://me:secret@127.0.0.1:1"})


@asynccontextmanager
async def refusing_proxy(folder: Path, status: bytes = b"403 Forbidden") -> AsyncIterator[tuple[str, Outgoing]]:
    async with HttpProxy().running() as proxy:
        proxy.refusal = b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status
        yield "https://api.test", Outgoing.from_environment({"https_proxy": f"http://me:secret@127.0.0.1:{proxy.port}"})


def proxy_that_asks_for_a_user(folder: Path) -> AbstractAsyncContextManager[tuple[str, Outgoing]]:
    return refusing_proxy(folder, b"407 Proxy Authentication Required")


@asynccontextmanager
async def untrusted_proxy(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    async with HttpProxy().running(Authority(folder).serving("127.0.0.1")) as proxy:
        yield "https://api.test", Outgoing.from_environment({"ALL_PROXY": f"https://127.0.0.1:{proxy.port}"})


@asynccontextmanager
async def socks_proxy(folder: Path) -> AsyncIterator[tuple[str, Outgoing]]:
    yield "http://api.test", Outgoing.from_environment({"ALL_PROXY": "socks5://me:secret@127.0.0.1:1"})


@requirement("UP-54", "UP-67")
@pytest.mark.parametrize(
    ("peer", "why", "mend"),
    [
        (closed_port, "it refuses connections", "start it, or correct the port in url"),
        (no_such_host, "its name does not resolve", "correct the host in url, or the DNS settings of this machine"),
        (plain_http, "it speaks http, not https", "write http:// in url, or the port of https"),
        (hangs_up_on_tls, "it ended the connection when TLS began", "if it speaks plain http, write http:// in url"),
        (tls_alert, "it speaks https, not http", "write https:// in url"),
        (hangs_up, "it closed the connection without an answer", "if it speaks https, write https:// in url"),
        (tls_that_hangs_up_on_http, "it closed the connection without an answer", "write https:// in url"),
        (another_protocol, "it does not speak HTTP", "is the port in url right?"),
        (untrusted, "it has a certificate that is not trusted here", "certificate authority in network.ca_file"),
        (expired, "its certificate has expired", "it has to be renewed at the server"),
        (other_address, "its certificate is for another name", "write the host in url as its certificate names it"),
        (other_name, "its certificate is for another name", "write the host in url as its certificate names it"),
        (lost_ca_file, "its certificate cannot be checked here", "network.ca_file cannot be read"),
        (lost_proxy, "the proxy refused the connection", "of the proxy in HTTPS_PROXY: it refuses connections"),
        (refusing_proxy, "the proxy refused the connection", "the proxy in https_proxy answered 403"),
        (proxy_that_asks_for_a_user, "the proxy refused the connection", "https_proxy=http://user:password@host:port"),
        (
            untrusted_proxy,
            "the proxy refused the connection",
            "of the proxy in ALL_PROXY: it has a certificate that is not",
        ),
        (socks_proxy, "the proxy refused the connection", "ALL_PROXY names a SOCKS proxy; set an http or https proxy"),
    ],
)
async def test_each_trouble_has_its_phrase_and_its_mend(tmp_path: Path, peer: Peer, why: str, mend: str) -> None:
    async with asyncio.timeout(BOUND_S), peer(tmp_path) as (origin, outgoing), HttpClient(outgoing) as http:
        url = origin.replace("://", "://user:pass@") + "/private/path?key=hidden"
        with pytest.raises(httpx.RequestError) as caught:
            await fetch(http, "POST", url, {}, b"{}", max_bytes=1000)
    trouble = trouble_of(caught.value)
    assert trouble.why == why
    told = trouble.told(url, "url")
    assert told.startswith(f"{why} ({origin}): ")
    assert mend in told
    for hidden in ("private", "hidden", "pass@", "secret", str(tmp_path)):
        assert hidden not in told


@requirement("UP-67")
async def test_a_port_that_says_nothing_is_told_as_a_timeout() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    waiting = []
    for _ in range(4):  # its queue is full
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
        waiting.append(client)
    async with HttpClient(Outgoing(), timeout=httpx.Timeout(0.05)) as http:
        with pytest.raises(NeverSent) as caught:
            await http.get(url)
    for each in (*waiting, listener):
        each.close()
    told = trouble_of(caught.value).told(url, "base_url")
    assert told == (
        f"no connection could be made in time ({url}): is a firewall between, or the host or port in base_url wrong?"
    )


@requirement("UP-54", "UP-67")
@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ([errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN], "there is no route to it"),
        ([errno.EMFILE, errno.ENFILE], "too many files are open here"),
    ],
)
def test_errors_of_the_system_have_a_phrase(numbers: list[int], why: str) -> None:
    assert [trouble_of(OSError(number, "secret")).why for number in numbers] == [why] * len(numbers)


@requirement("UP-67")
@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (400, b"Client sent an HTTP request to an HTTPS server.\n", True),
        (400, b"<center>The plain HTTP request was sent to HTTPS port</center>", True),
        (400, b"You're speaking plain HTTP to an SSL-enabled server port.<br />", True),
        (200, b"Client sent an HTTP request to an HTTPS server.\n", False),
        (400, b"Bad Request", False),
    ],
)
def test_the_refusals_of_common_servers_of_plain_http_on_their_tls_port_are_known(
    status: int, body: bytes, found: bool
) -> None:
    assert wants_tls(status, body) is found


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@api.test:8443/v1?key=x#y", "https://api.test:8443"),
        ("http://[::1]:80/mcp", "http://[::1]:80"),
        ("http://api.test", "http://api.test"),
        ("a file.yaml", ""),
        ("http://[x", ""),
        ("http://a:99999999/", ""),
    ],
)
def test_of_a_url_only_the_origin_is_shown(url: str, shown: str) -> None:
    assert shown_origin(url) == shown
