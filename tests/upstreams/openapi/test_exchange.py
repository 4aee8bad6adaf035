"""One exchange with a real server: URLs as written, redirects at home only, nothing kept (W-KINDS)."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from wicketgate.upstreams.openapi.exchange import ConnectionBroken, HttpExchange, NeverSent

MANY = 1_000_000


@pytest.fixture
async def http() -> AsyncIterator[HttpExchange]:
    exchange = HttpExchange()
    yield exchange
    await exchange.aclose()


@pytest.mark.parametrize(
    "target",
    ["/a/%2E%2E/b", "/a%2Fb/..%2Fc", "/a?x=%2C,%2B+%20&y=%41", "/%C3%A9?q[a]=%5B%5D", "/a;b=1/c%3Bd", "/a?x=%26%3D%23"],
)
async def test_a_url_goes_out_as_it_was_written(http: HttpExchange, target: str) -> None:
    async with HttpService() as service:
        await http.send("GET", service.url + target, {}, max_bytes=MANY)
    assert service.seen[0].target == target


async def test_only_our_headers_go_out_and_cookies_are_not_kept(
    http: HttpExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with HttpService(lambda seen: Reply(headers={"set-cookie": "who=someone; Path=/"})) as service:
        for _ in range(2):
            await http.send("POST", service.url, {"X-A": "1"}, b"data", max_bytes=MANY)
    assert set(service.seen[1].headers) == {
        "host",
        "accept",
        "accept-encoding",
        "user-agent",
        "x-a",
        "content-length",
    } | ({"content-type"} & set(service.seen[1].headers))
    assert service.seen[1].body == b"data"


async def test_a_body_is_cut_at_its_bound(http: HttpExchange) -> None:
    async with HttpService(lambda seen: Reply(b"x" * 100_000)) as service:
        cut = await http.send("GET", service.url, {}, max_bytes=1_000)
        whole = await http.send("GET", service.url, {}, max_bytes=100_000)
    assert (len(cut.body), cut.cut) == (1_000, True)
    assert (len(whole.body), whole.cut) == (100_000, False)


async def test_a_compressed_body_is_bounded_by_what_it_becomes(http: HttpExchange) -> None:
    bomb = gzip.compress(b"x" * 5_000_000)
    async with HttpService(lambda seen: Reply(bomb, headers={"content-encoding": "gzip"})) as service:
        answer = await http.send("GET", service.url, {}, max_bytes=1_000)
    assert (answer.body, answer.cut) == (b"x" * 1_000, True)


def redirecting(status: int, location: str) -> HttpService:
    def answer(seen: Seen) -> Reply:
        if seen.target == "/from":
            return Reply(status=status, headers={"location": location})
        return Reply(f"{seen.method} {seen.body.decode()}".encode())

    return HttpService(answer)


@pytest.mark.parametrize(
    ("status", "method", "arrives"),
    [
        (301, "GET", b"GET "),
        (302, "POST", b"GET "),
        (303, "PUT", b"GET "),
        (307, "POST", b"POST data"),
        (308, "PUT", b"PUT data"),
    ],
)
async def test_a_redirect_at_home_is_followed(http: HttpExchange, status: int, method: str, arrives: bytes) -> None:
    async with redirecting(status, "/to?x=1") as service:
        body = None if method == "GET" else b"data"
        answer = await http.send(method, service.url + "/from", {}, body, max_bytes=MANY)
    assert (answer.status, answer.body) == (200, arrives)
    assert service.seen[1].target == "/to?x=1"


@requirement("W-SECRETS")
@pytest.mark.parametrize(
    "other", ["http://localhost:{port}/x", "https://127.0.0.1:{port}/x", "//127.0.0.1:1/x", "http://[bad"]
)
async def test_a_redirect_elsewhere_is_not_followed(http: HttpExchange, other: str) -> None:
    async with HttpService() as service:
        service.answer = lambda seen: Reply(
            status=302, headers={"location": other.format(port=service.url.rpartition(":")[2])}
        )
        answer = await http.send("GET", service.url, {"Authorization": "secret"}, max_bytes=MANY)
    assert answer.status == 302
    assert len(service.seen) == 1


async def test_redirects_without_end_end(http: HttpExchange) -> None:
    async with HttpService(lambda seen: Reply(status=307, headers={"location": "/again"})) as service:
        answer = await http.send("GET", service.url, {}, max_bytes=MANY)
    assert answer.status == 307
    assert len(service.seen) == 3


async def test_nobody_there_was_never_sent(http: HttpExchange) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(NeverSent):
        await http.send("POST", url, {}, b"x", max_bytes=MANY)
    with pytest.raises(NeverSent):
        await http.send("GET", "http://nowhere.invalid/", {}, max_bytes=MANY)


@requirement("gateway 130")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
async def test_a_connection_that_breaks_is_told_and_nothing_is_sent_twice(http: HttpExchange, method: str) -> None:
    arrived: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The first request is answered and the connection kept; the second is read and hung up on.
        arrived.append(await reader.readuntil(b"\r\n\r\n"))
        if len(arrived) == 1:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            arrived.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert (await http.send("GET", url, {}, max_bytes=MANY)).body == b"ok"
        with pytest.raises(ConnectionBroken):
            await http.send(method, url, {}, max_bytes=MANY)
    assert len(arrived) == 2


async def test_a_body_that_breaks_off_is_told(http: HttpExchange) -> None:
    async with HttpService(lambda seen: Reply(b"half", cut=True)) as service:
        with pytest.raises(ConnectionBroken):
            await http.send("GET", service.url, {}, max_bytes=MANY)


async def test_cancelling_ends_the_exchange_at_the_server(http: HttpExchange) -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if await reader.read() == b"":
            gone.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await http.send("GET", url, {}, max_bytes=MANY)
        async with asyncio.timeout(10):
            await gone.wait()


@pytest.mark.parametrize(
    "said",
    [
        b"garbage\r\n\r\n",
        b"\0" * 100_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 7\r\n\r\nnotgzip",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_is_a_broken_connection(http: HttpExchange, said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectionBroken):
            await http.send("GET", url, {}, max_bytes=MANY)
