"""The port refuses HTTP that it does not support; none of it reaches the application."""

import asyncio
import gc

import pytest
from starlette.types import Receive, Scope, Send

from app.port.cycle import RequestCycle
from tests.support.bare_port import BOUND_S, echo, send_apart, server
from tests.support.open_sockets import closed, connections
from tests.support.requirement import requirement
from tests.support.until import until

POST = b"POST /a HTTP/1.1\r\nHost: x\r\n"


class Application:
    """Answers as ``echo`` does, the path ``/first`` when *go_on* is set. *asked*: paths of the requests so far, and
    *whole* of those whose body came to its end."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.whole: list[str] = []
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        if scope["path"] == "/first":
            await self.go_on.wait()

        async def noted() -> dict[str, object]:
            message = await receive()
            if message["type"] == "http.request" and not message["more_body"]:
                self.whole.append(scope["path"])
            return {**message, "more_body": message.get("more_body", False)}

        await echo(scope, noted, send)


async def answer_to(port: int, *pieces: bytes) -> bytes:
    """Everything that comes until the connection is closed. Each of *pieces* is sent by itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(BOUND_S):
            await send_apart(writer, pieces)
            return await reader.read()
    finally:
        writer.close()


@requirement("OPS-500")
@pytest.mark.parametrize(
    "first",
    [
        b"GET /first HTTP/1.1\r\n\r\n",
        b"POST /first HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"POST /first HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"GET /first HTTP/1.1\r\nConnection: close\r\n\r\n",
    ],
)
@pytest.mark.parametrize("behind", [b"GET /next HTTP/1.1\r\n\r\n", b"GET /healthz HTTP/1.1\r\n\r\n", b"\x16 no http"])
@pytest.mark.parametrize("in_one_piece", [True, False])
async def test_what_is_sent_before_the_answer_never_runs_and_the_connection_ends_with_the_answer(
    first: bytes, behind: bytes, in_one_piece: bool
) -> None:
    app = Application()
    async with server(app=app) as port:
        answering = asyncio.create_task(answer_to(port, *([first + behind] if in_one_piece else [first, behind])))
        await until(lambda: app.asked)
        await asyncio.sleep(0.05)  # until what came next has arrived
        app.go_on.set()
        answer = await answering
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nconnection: close\r\n" in answer
    assert app.asked == ["/first"]


@requirement("OPS-500")
async def test_many_requests_behind_a_running_one_take_no_memory_and_are_cut_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.port.protocol.MAX_DROPPED_BYTES", 1_000_000)
    app = Application()
    async with server(app=app) as port, asyncio.timeout(BOUND_S):
        gc.collect()
        before = sum(isinstance(it, RequestCycle) for it in gc.get_objects())
        with connections(port, 1, first=b"GET /first HTTP/1.1\r\n\r\n") as (sock,):
            answer = await closed(sock, drip=b"GET /next HTTP/1.1\r\n\r\n" * 5_000)
        requests = sum(isinstance(it, RequestCycle) for it in gc.get_objects()) - before
        app.go_on.set()
    assert (answer, requests) == (b"", 1)
    assert app.asked == ["/first"]


@requirement("OPS-51")
@pytest.mark.parametrize("behind", [0, 1, 3_000])
async def test_a_client_that_leaves_is_noticed_whatever_it_had_sent_behind_the_running_request(behind: int) -> None:
    started, left = asyncio.Event(), asyncio.Event()
    paths: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await receive()
        started.set()
        async with asyncio.timeout(BOUND_S):  # the server waits for the application when it ends
            assert (await receive())["type"] == "http.disconnect"
        left.set()

    async with server(app=app) as port, asyncio.timeout(BOUND_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /first HTTP/1.1\r\n\r\n" + b"GET /next HTTP/1.1\r\n\r\n" * behind)
        await started.wait()
        writer.transport.abort()
        await left.wait()
    assert paths == ["/first"]


OFFER = POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"


@requirement("OPS-501")
@pytest.mark.parametrize(
    "request_",
    [
        OFFER + b"Content-Length: 10\r\n\r\n0123456789",
        OFFER + b"Content-Length: 25\r\n\r\nGET /next HTTP/1.1\r\n\r\n",
        OFFER + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
@pytest.mark.parametrize("cut", [1, 40, 1_000])
async def test_an_offer_to_upgrade_is_refused_in_words(request_: bytes, cut: int) -> None:
    app = Application()
    async with server(app=app) as port:
        answer = await answer_to(port, request_[:cut], request_[cut:])
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'{"code":"upgrade_refused",' in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert app.asked == []


@requirement("OPS-46")
@pytest.mark.parametrize("trailers", [b"Digest: none\r\n\r\n", b"Authorization: Bearer x\r\nA: b\r\n\r\n"])
async def test_a_body_with_trailers_is_refused_in_words_and_does_not_count_as_whole(trailers: bytes) -> None:
    app = Application()
    async with server(app=app) as port:
        for pieces in ([CHUNKED + trailers], [CHUNKED, trailers]):
            answer = await answer_to(port, *pieces)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b'{"code":"trailers_refused",' in answer
            assert answer.count(b"HTTP/1.1 ") == 1
    assert app.whole == []


@requirement("OPS-502")
@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Content-Length: 4, 5\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length: 0x4\r\n",
        b"Content-Length : 4\r\n",
        b"Content-Length: 4\r\n Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        b"Transfer-Encoding\x00: chunked\r\n",
    ],
)
async def test_a_body_whose_length_could_be_read_in_two_ways_is_refused(headers: bytes) -> None:
    app = Application()
    async with server(app=app) as port:
        answer = await answer_to(port, POST + headers + b"\r\n0\r\n\r\nGET /next HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert app.whole == []
    assert "/next" not in app.asked


@pytest.mark.parametrize("header", [b"", b"Connection: keep-alive\r\n", b"Host: x\r\n"])
async def test_a_stream_to_http_1_0_has_no_chunks_and_ends_with_the_connection(header: bytes) -> None:
    async with server() as port:
        head, body = (await answer_to(port, b"GET /stream HTTP/1.0\r\n" + header + b"\r\n")).split(b"\r\n\r\n", 1)
    assert head.split(b" ")[1] == b"200"
    assert b"transfer-encoding" not in head.lower()
    assert body == b'["/stream", 0]more'


async def test_the_same_stream_to_http_1_1_has_chunks() -> None:
    async with server() as port:
        request = b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        head, body = (await answer_to(port, request)).split(b"\r\n\r\n", 1)
    assert b"transfer-encoding: chunked" in head.lower()
    assert body == b'e\r\n["/stream", 0]\r\n4\r\nmore\r\n0\r\n\r\n'


async def test_an_answer_of_known_length_to_http_1_0_is_whole() -> None:
    async with server() as port:
        request = b"POST /a HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"
        head, body = (await answer_to(port, request)).split(b"\r\n\r\n", 1)
    assert b"content-length: 9" in head.lower()
    assert body == b'["/a", 3]'


@pytest.mark.parametrize(("name", "value"), [(b"x-a", b"b\r\nx-c: d"), (b"x a", b"b"), (b"x-a\r\n", b"b")])
async def test_a_header_of_an_answer_cannot_begin_another(name: bytes, value: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(name, value)]})

    async with server(app=app) as port:
        assert (await answer_to(port, b"GET /a HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500 ")


@requirement("OPS-500")
async def test_what_is_sent_behind_an_answer_that_is_not_read_is_dropped_without_a_word() -> None:
    size = 20_000_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": b"a" * size})

    async with server(app=app) as port:
        answer = await answer_to(port, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert len(answer.partition(b"\r\n\r\n")[2]) == size


@requirement("OPS-500")
@pytest.mark.parametrize(("sent", "closes"), [(b"", True), (b"abc", False)])
async def test_an_answer_before_the_body_that_a_client_holds_back_closes_the_connection(
    sent: bytes, closes: bool
) -> None:
    """The client may send no body then, and its next request would be read as one."""
    head = b"POST /status/404 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    async with server() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + sent)
        async with asyncio.timeout(BOUND_S):
            answer = await reader.readuntil(b"refused")
        writer.close()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert (b"\r\nconnection: close\r\n" in answer) is closes


async def test_a_client_of_http_1_0_is_not_told_to_continue() -> None:
    async with server() as port:
        request = b"POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        answer = await answer_to(port, request, b"abc")
    assert answer.startswith(b"HTTP/1.1 200 ")
