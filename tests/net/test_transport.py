"""The transport below httpx against a server that sends exactly the bytes it is given, however they are cut."""

import asyncio
import socket
import threading
import types
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest

from tests.support.raw_server import CHUNKED, OK, WHOLE, RawServer, cut
from tests.support.requirement import requirement
from wicketgate.net import NeverSent, NoAnswer, Outgoing, Target, body_of
from wicketgate.net.connection import MAX_HEAD_BYTES
from wicketgate.net.outgoing import AnswerAbandoned, AnswerBroken, AnswerTimedOut, AnswerTooLarge, NotSendable
from wicketgate.net.transport import MAX_FINISHING, Transport


@asynccontextmanager
async def transport_to(
    *answers: tuple[Sequence[bytes], bool], idle_s: float = 4.0
) -> AsyncIterator[tuple[Transport, RawServer]]:
    async with RawServer(*answers).running() as server, Transport(Outgoing(), idle_s) as transport:
        yield transport, server


def post(url: str, content: bytes = b"{}") -> httpx.Request:
    return httpx.Request("POST", url, content=content, extensions={"timeout": {"connect": 5.0}})


async def ask(transport: Transport, url: str) -> tuple[httpx.Response, bytes]:
    response = await transport.handle_async_request(post(url))
    try:
        return response, b"".join([piece async for piece in response.aiter_raw()])
    finally:
        await response.aclose()


GOOD = {
    "content-length": (WHOLE, b"hello", False),
    "chunks": (CHUNKED + b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", b"hello", False),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n", b"hello", False),
    "interim answers first": (
        b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + WHOLE,
        b"hello",
        False,
    ),
    "up to the end of the connection": (OK + b"\r\nhello", b"hello", True),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello", True),
    "an empty body": (OK + b"content-length: 0\r\n\r\n", b"", False),
    "no body at all": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", False),
    "line feeds alone": (b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", b"hello", False),
    "to be closed": (OK + b"connection: close\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
}

BAD_HEADS: dict[str, tuple[bytes, type[Exception] | types.UnionType]] = {
    "nothing": (b"", NoAnswer),
    "half a head": (b"HTTP/1.1 200 OK\r\nconte", AnswerBroken),
    "an interim answer alone": (b"HTTP/1.1 100 Continue\r\n\r\n", NoAnswer | AnswerBroken),
    "garbage": (b"garbage\r\n\r\n", AnswerBroken),
    "zeros": (bytes(100_000), AnswerBroken),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", AnswerBroken),
    "a bad field": (OK + b"bad field\r\n\r\n", AnswerBroken),
    "two lengths": (OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello", AnswerBroken),
    "a length and chunks": (OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\nhello", AnswerBroken),
    "a length that is no number": (OK + b"content-length: five\r\n\r\nhello", AnswerBroken),
    "a length below zero": (OK + b"content-length: -5\r\n\r\n", AnswerBroken),
    "a coding not asked for": (OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", AnswerBroken),
    "another protocol by upgrade": (
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nabc",
        AnswerBroken,
    ),
    "a head that is too large": (OK + b"x: " + b"y" * (MAX_HEAD_BYTES + 1), AnswerTooLarge | AnswerBroken),
    "many fields": (OK + b"x: y\r\n" * 20_000, AnswerTooLarge | AnswerBroken),
    "interim answers for ever": (b"HTTP/1.1 103 Early\r\nx: y\r\n\r\n" * 5_000, AnswerTooLarge),
    "empty interim answers for ever": (b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000, AnswerTooLarge),
}

BROKEN_BODIES = {
    "shorter than its length": OK + b"content-length: 9\r\n\r\nhello",
    "cut between chunks": CHUNKED + b"5\r\nhello\r\n",
    "cut in a chunk": CHUNKED + b"9\r\nhello",
    "cut before the last line": CHUNKED + b"5\r\nhello\r\n0\r\n",
    "a chunk's size that is none": CHUNKED + b"5\r\nhello\r\nzz\r\n",
    "a chunk longer than its size": CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n",
    "trailers for ever": CHUNKED + b"5\r\nhello\r\n0\r\nx: " + b"y" * (MAX_HEAD_BYTES + 1),
}


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
@pytest.mark.parametrize("name", GOOD)
async def test_an_answer_is_the_same_however_it_is_cut(name: str, size: int) -> None:
    data, body, close = GOOD[name]
    async with transport_to((cut(data, size), close)) as (transport, server):
        response, read = await ask(transport, server.url)
    assert (response.status_code, read) == (204 if "204" in data.decode() else 200, body)
    assert b"x" not in [key for key, _ in response.headers.raw]  # what came with an interim answer or as a trailer


@requirement("UP-26")
@pytest.mark.parametrize("size", [1 << 20, 3])
@pytest.mark.parametrize("name", BAD_HEADS)
async def test_what_is_no_answer_is_an_error_and_its_connection_is_closed(name: str, size: int) -> None:
    data, kind = BAD_HEADS[name]
    size = size if len(data) < 1000 else 1 << 20
    async with transport_to((cut(data, size), True), ([WHOLE], False)) as (transport, server):
        with pytest.raises(httpx.TransportError) as caught:
            await ask(transport, server.url)
        assert isinstance(caught.value, kind), caught.value
        assert not isinstance(caught.value, NeverSent)
        assert (await ask(transport, server.url))[1] == b"hello"
        assert server.connections == 2


@requirement("UP-43")
@pytest.mark.parametrize("name", BROKEN_BODIES)
async def test_what_was_said_before_a_body_breaks_off_is_given_first(name: str) -> None:
    async with transport_to(([BROKEN_BODIES[name]], True)) as (transport, server):
        response = await transport.handle_async_request(post(server.url))
        read = b""
        with pytest.raises((AnswerBroken, AnswerTooLarge)):
            while piece := await body_of(response).read():
                read += piece
        assert read.startswith(b"hello")
        await response.aclose()


@requirement("UP-25")
async def test_the_request_is_sent_as_it_is_written_with_its_body() -> None:
    async with transport_to(([WHOLE], False)) as (transport, server):
        await (await transport.handle_async_request(post(server.url, b"abc"))).aclose()
        head, _, content = server.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/x?a=%2C HTTP/1.1\r\n")
        assert b"\r\nHost: 127.0.0.1:" in head
        assert content == b"abc"


@requirement("UP-27")
async def test_a_connection_serves_again_only_after_an_answer_that_was_whole() -> None:
    async with transport_to(
        ([WHOLE], False), ([CHUNKED + b"5\r\nhello\r\n", b"", b"0\r\n\r\n"], False), ([WHOLE], False), ([WHOLE], False)
    ) as (transport, server):
        await ask(transport, server.url)
        response = await transport.handle_async_request(post(server.url))
        assert server.connections == 1
        await response.aclose()
        await server.left.wait()
        await ask(transport, server.url)
        await ask(transport, server.url)
        assert server.connections == 2


@requirement("UP-27")
@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", b"rubbish", b"\0"])
@pytest.mark.parametrize("later", [False, True])
async def test_what_comes_behind_an_answer_is_never_the_next_one(more: bytes, later: bool) -> None:
    pieces = [WHOLE, more] if later else [WHOLE + more]
    async with transport_to((pieces, False), ([WHOLE], False)) as (transport, server):
        assert (await ask(transport, server.url))[1] == b"hello"
        await server.left.wait()
        assert (await ask(transport, server.url))[1] == b"hello"
        assert server.connections == 2


ENDLESS = ([CHUNKED + b"5\r\nhello\r\n", b""], False)


async def finished(transport: Transport, url: str, within_s: float = 30.0) -> None:
    """Leaves an answer of which the rest is still to come."""
    response = await transport.handle_async_request(post(url))
    body_of(response).finish(within_s)
    await response.aclose()
    with pytest.raises(AnswerAbandoned):
        await body_of(response).read()


@requirement("UP-200")
async def test_a_connection_serves_again_when_the_rest_that_nobody_wants_has_ended() -> None:
    slow = ([CHUNKED + b"5\r\nhello\r\n", b"", b"4\r\nmore\r\n", b"0\r\n\r\n"], False)
    last = ([OK + b"content-length: 5\r\nconnection: close\r\n\r\nhello"], True)
    async with transport_to(slow, *[last] * 100) as (transport, server):
        await finished(transport, server.url)
        # Until then it serves nobody.
        await ask(transport, server.url)
        assert server.connections == 2
        server.go_on.set()
        asked = 1
        while server.connections == asked + 1:
            assert (await ask(transport, server.url))[1] == b"hello"
            asked += 1


@requirement("UP-200")
async def test_a_connection_is_closed_when_the_rest_does_not_end_in_time() -> None:
    async with transport_to(ENDLESS, ([WHOLE], False)) as (transport, server):
        await finished(transport, server.url, 0.01)
        await server.left.wait()
        assert (await ask(transport, server.url))[1] == b"hello"
        assert server.connections == 2


@requirement("UP-200")
@pytest.mark.parametrize(
    "rest",
    [
        [b"20000\r\n", *[bytes(1 << 12)] * 32, b"\r\n"],
        [b"0\r\n\r\n" + WHOLE],
        [b"no chunk\r\n"],
    ],
    ids=["too much", "another answer", "no http"],
)
async def test_a_connection_is_closed_when_the_rest_is_not_what_it_should_be(rest: list[bytes]) -> None:
    answer = ([CHUNKED + b"5\r\nhello\r\n", b"", *rest], False)
    async with transport_to(answer, ([WHOLE], False)) as (transport, server):
        await finished(transport, server.url)
        server.go_on.set()
        await server.left.wait()
        assert (await ask(transport, server.url))[1] == b"hello"
        assert server.connections == 2


@requirement("UP-200")
async def test_few_connections_at_once_wait_for_the_rest_of_their_answers() -> None:
    async with transport_to(*[ENDLESS] * (MAX_FINISHING + 1)) as (transport, server):
        for _ in range(MAX_FINISHING):
            await finished(transport, server.url)
        assert not server.left.is_set()
        await finished(transport, server.url)
        await server.left.wait()


@requirement("UP-200")
async def test_closing_the_transport_ends_what_waits_for_a_rest() -> None:
    async with transport_to(ENDLESS) as (transport, server):
        await finished(transport, server.url)
        await transport.aclose()
        await server.left.wait()


async def test_an_answer_that_is_whole_is_finished_at_once() -> None:
    async with transport_to(([WHOLE], False), ([WHOLE], False)) as (transport, server):
        response = await transport.handle_async_request(post(server.url))
        assert await body_of(response).read() == b"hello"
        body_of(response).finish(30.0)
        await ask(transport, server.url)
        assert server.connections == 1


@requirement("UP-42")
async def test_a_kept_connection_that_the_server_has_closed_is_replaced() -> None:
    async with transport_to(([WHOLE], True), ([WHOLE], False)) as (transport, server):
        await ask(transport, server.url)
        await server.hung_up.wait()
        await ask(transport, server.url)
        assert server.connections == 2


@requirement("UP-42")
async def test_a_closing_that_the_loop_has_not_seen_yet_is_found_before_anything_is_written() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    closed = threading.Event()
    accepted = 0

    def serve() -> None:
        nonlocal accepted
        for _ in range(2):
            connection, _ = listener.accept()
            accepted += 1
            connection.recv(65_536)
            connection.sendall(WHOLE)
            connection.close()
            closed.set()

    thread = threading.Thread(target=serve)
    thread.start()
    async with Transport(Outgoing()) as transport:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        response = await transport.handle_async_request(post(url))
        await response.aread()
        await response.aclose()
        closed.wait(5)  # holds the loop, so that the end stays in the socket
        await ask(transport, url)
    thread.join(5)
    listener.close()
    assert accepted == 2


async def test_a_connection_is_given_up_before_the_server_has_said_it_will_close_it() -> None:
    short = OK + b"keep-alive: timeout=1, max=9\r\ncontent-length: 5\r\n\r\nhello"
    long = short.replace(b"timeout=1", b"timeout=100")
    async with transport_to(([short], False), ([long], False), ([WHOLE], False), idle_s=60.0) as (transport, server):
        await ask(transport, server.url)
        await server.left.wait()
        await ask(transport, server.url)
        await ask(transport, server.url)
        assert server.connections == 2


async def test_streams_side_by_side_have_connections_of_their_own() -> None:
    answer = ([CHUNKED + b"1\r\nx\r\n", b"", b"0\r\n\r\n"], False)
    async with transport_to(*[answer] * 20) as (transport, server):
        responses = [await transport.handle_async_request(post(server.url)) for _ in range(20)]
        server.go_on.set()
        assert [await response.aread() for response in responses] == [b"x"] * 20
        assert server.connections == 20


async def test_a_server_is_held_back_while_the_body_is_not_read_and_nothing_is_lost() -> None:
    size = 64 << 20
    pieces = [OK + b"content-length: %d\r\n\r\n" % size, *cut(bytes(size), 1 << 16)]
    async with transport_to((pieces, False), ([WHOLE], False)) as (transport, server):
        response = await transport.handle_async_request(post(server.url))
        sent, still = -1, 0
        while still < 1000:  # until the server gets no further
            still = still + 1 if sent == server.pieces_sent else 0
            sent = server.pieces_sent
            await asyncio.sleep(0)
        assert sent < len(pieces) // 2
        assert len(await response.aread()) == size
        assert (await ask(transport, server.url))[1] == b"hello"
        assert server.connections == 1


async def test_a_body_read_after_its_end_is_closed_gives_nothing_of_the_next() -> None:
    async with transport_to(([WHOLE], False)) as (transport, server):
        response = await transport.handle_async_request(post(server.url))
        await response.aclose()
        with pytest.raises(httpx.ReadError):
            await body_of(response).read()


async def test_closing_the_transport_ends_the_streams_that_are_open() -> None:
    async with transport_to(([CHUNKED, b""], False)) as (transport, server):
        response = await transport.handle_async_request(post(server.url))
        reading = asyncio.create_task(response.aread())
        await asyncio.sleep(0)
        await transport.aclose()
        with pytest.raises(AnswerAbandoned):
            await reading
        await server.left.wait()


async def test_connections_that_are_not_needed_are_given_up() -> None:
    async with transport_to(([WHOLE], False), idle_s=0.0) as (transport, server):
        await ask(transport, server.url)
        await server.left.wait()


async def test_connections_are_given_up_at_once_side_by_side() -> None:
    """uvloop has no time to tell of a timer that is due now."""
    async with transport_to(*[([WHOLE], False)] * 3, idle_s=0.0) as (transport, server):
        responses = [await transport.handle_async_request(post(server.url)) for _ in range(3)]
        for response in responses:
            assert await response.aread() == b"hello"
        await server.left.wait()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://no-such-host.invalid/", "http://a..b/"])
async def test_who_cannot_be_reached_is_a_connect_error(url: str) -> None:
    async with Transport(Outgoing()) as transport:
        with pytest.raises(httpx.ConnectError) as caught:
            await transport.handle_async_request(post(url))
        assert isinstance(caught.value, NeverSent)


async def test_a_connection_that_does_not_come_about_in_time_is_a_connect_timeout() -> None:
    async with transport_to() as (_, server), Transport(Outgoing()) as transport:
        # A server that never answers the greeting of TLS.
        url = server.url.replace("http:", "https:")
        request = httpx.Request("POST", url, content=b"", extensions={"timeout": {"connect": 0.05}})
        with pytest.raises(httpx.ConnectTimeout):
            await transport.handle_async_request(request)


async def test_an_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    head = OK + b"content-length: 5\r\n\r\n"
    async with transport_to(([head], False), ([WHOLE], False)) as (transport, server):
        response = await transport.handle_async_request(httpx.Request("HEAD", server.url))
        assert (await response.aread(), response.headers["content-length"]) == (b"", "5")
        await response.aclose()
        assert (await ask(transport, server.url))[1] == b"hello"


async def test_a_target_is_sent_with_its_own_headers_and_those_of_the_call() -> None:
    async with transport_to(([WHOLE], False)) as (transport, server):
        target = Target("POST", server.url + "&b=%2F..%2e", {"accept": "x/y", "user-agent": "me"})
        response = await transport.send(target, b"abc", {"X-Call": "1"}, connect_s=5.0)
        assert await response.aread() == b"hello"
    lines = server.requests[0].split(b"\r\n")
    host = server.url.split("/")[2].encode()
    assert lines[0] == b"POST /v1/x?a=%2C&b=%2F..%2e HTTP/1.1"
    assert sorted(lines[1:-2]) == sorted(
        [
            b"Host: " + host,
            b"Accept-Encoding: identity",
            b"user-agent: me",
            b"accept: x/y",
            b"X-Call: 1",
            b"Content-Length: 3",
        ]
    )
    assert lines[-2:] == [b"", b"abc"]


@requirement("UP-25")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET /b HTTP/1.1\r\nx", b"/"),
        ("CONNECT", b"/"),
        ("", b"/"),
        ("GET", b"/a b"),
        ("GET", b"/\r\nx: y"),
        ("GET", b""),
    ],
)
async def test_a_request_line_cannot_become_another(method: str, path: bytes) -> None:
    async with transport_to() as (transport, server):
        request = httpx.Request(method, server.url, extensions={"target": path})
        with pytest.raises(NotSendable):
            await transport.handle_async_request(request)
        assert server.connections == 0


async def test_a_content_that_comes_in_pieces_is_sent_whole() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"c"

    async with transport_to(([WHOLE], False)) as (transport, server), httpx.AsyncClient(transport=transport) as client:
        await client.post(server.url, content=pieces())
        assert server.requests[0].endswith(b"\r\n\r\nabc")
        assert b"transfer-encoding" not in server.requests[0].lower()


async def test_a_deadline_of_one_exchange_means_nothing_to_the_next() -> None:
    async with transport_to(([WHOLE], False), ([b"", WHOLE], False)) as (transport, server):
        target = Target("POST", server.url, {})
        await (await transport.send(target, b"", connect_s=5.0, read_s=0.05)).aread()
        asking = asyncio.create_task(transport.send(target, b"", connect_s=5.0))
        done, _ = await asyncio.wait([asking], timeout=0.15)
        assert not done
        server.go_on.set()
        assert await (await asking).aread() == b"hello"
        assert server.connections == 1


async def test_it_serves_the_client_of_httpx() -> None:
    async with (
        transport_to(([CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"], False)) as (transport, server),
        httpx.AsyncClient(transport=transport, trust_env=False) as client,
    ):
        assert (await client.post(server.url, json={})).text == "hello"


@requirement("CHAT-60")
@pytest.mark.parametrize("earlier", [[], [60.0], [0.01], [60.0, 0.02, 30.0]])
async def test_a_read_that_outlasts_its_deadline_fails_whatever_the_deadlines_before_it_were(
    earlier: list[float],
) -> None:
    now = asyncio.get_running_loop().time
    pieces = [CHUNKED, *[b"1\r\nx\r\n" for _ in earlier], b""]
    async with transport_to((pieces, False)) as (transport, server):
        body = body_of(await transport.handle_async_request(post(server.url)))
        came = 0
        for seconds in earlier:
            body.watch(now() + seconds)
            if came < len(earlier):  # several pieces may come together
                came += len(await body.read())
        while came < len(earlier):
            came += len(await body.read())
        body.watch(now() + 0.05)
        with pytest.raises(AnswerTimedOut):
            await body.read()
        await body.aclose()
        await server.left.wait()


async def test_a_deadline_already_past_ends_the_read_at_once() -> None:
    async with transport_to(([CHUNKED, b""], False)) as (transport, server):
        body = body_of(await transport.handle_async_request(post(server.url)))
        body.watch(asyncio.get_running_loop().time() - 1)
        with pytest.raises(AnswerTimedOut):
            await body.read()


async def test_between_reads_no_time_runs_and_once_closed_a_deadline_means_nothing() -> None:
    now = asyncio.get_running_loop().time
    async with transport_to(([WHOLE[:-2], b"", WHOLE[-2:]], False), ([b"", WHOLE], False)) as (transport, server):
        response = await transport.handle_async_request(post(server.url))
        body = body_of(response)
        body.watch(now() + 0.02)
        assert await body.read() == b"hel"
        with anyio.move_on_after(0.06):
            await asyncio.Event().wait()
        server.go_on.set()
        assert (await body.read(), await body.read()) == (b"lo", b"")
        body.watch(now() + 0.02)
        await response.aclose()
        server.go_on.clear()
        asking = asyncio.create_task(ask(transport, server.url))
        done, _ = await asyncio.wait([asking], timeout=0.06)
        assert not done
        server.go_on.set()
        assert (await asking)[1] == b"hello"
        assert server.connections == 1


@requirement("UP-42")
@pytest.mark.parametrize("port", [0, 65_536, 99_999])
async def test_a_port_that_does_not_exist_is_refused_before_anything_is_sent(port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    async with Transport(Outgoing()) as transport:
        with pytest.raises(NotSendable):
            await ask(transport, url)
    with pytest.raises(NotSendable):
        Target("GET", url, {})
