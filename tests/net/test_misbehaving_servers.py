"""Servers that break off, fall silent, never end, or answer before they have read: the error says what is known."""

import asyncio
import gzip
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.support.raw_server import CHUNKED, OK, WHOLE, RawServer
from tests.support.requirement import requirement
from wicketgate.net import HttpClient, NeverSent, NoAnswer, Outgoing, Reply, body_of, fetch
from wicketgate.net.outgoing import AnswerTimedOut, AnswerTooLarge, AnswerUndecodable
from wicketgate.net.transport import MAX_BODY_BYTES, decoder_of

MANY = 1_000_000
SOON_S = 0.1

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with HttpClient(Outgoing()) as client:
        yield client


@asynccontextmanager
async def served_by(serve: Serve) -> AsyncIterator[str]:
    """The URL of a server that treats each connection as *serve* does, and closes it then."""

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(closing, "127.0.0.1", 0) as server, asyncio.timeout(20):
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def get(http: HttpClient, url: str, max_bytes: int = MANY) -> Reply:
    return await fetch(http, "GET", url, {}, max_bytes=max_bytes)


def reset(writer: asyncio.StreamWriter) -> None:
    """Make the closing a TCP reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@requirement("EXEC-15", "UP-25", "UP-42")
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("hard", [False, True])
async def test_a_server_that_hangs_up_after_reading_may_have_acted_and_is_asked_once(
    http: HttpClient, method: str, kept: bool, hard: bool
) -> None:
    arrived: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if kept and not arrived:
            arrived.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(WHOLE)
        arrived.append(await reader.readuntil(b"\r\n\r\n"))
        if hard:
            reset(writer)

    async with served_by(serve) as url:
        if kept:
            await get(http, url)
        with pytest.raises(httpx.ReadError) as caught:
            await fetch(http, method, url, {}, max_bytes=MANY)
    assert isinstance(caught.value, NoAnswer)
    assert not isinstance(caught.value, NeverSent)
    assert len(arrived) == 1 + kept


async def test_a_server_that_hangs_up_unread_gives_an_error_that_claims_nothing_wrong(http: HttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reset(writer)

    async with served_by(serve) as url:
        for _ in range(20):
            with pytest.raises(httpx.TransportError):
                await get(http, url)


@requirement("UP-26")
@pytest.mark.parametrize(
    ("coding", "data"),
    [(b"gzip", b"notgzip"), (b"br", b"x"), (b"gzip", gzip.compress(b"hello" * 50)[:15]), (b"gzip, gzip", b"x")],
    ids=["no gzip", "br", "half of it", "two codings"],
)
async def test_a_body_that_cannot_be_decoded_is_told_apart(http: HttpClient, coding: bytes, data: bytes) -> None:
    said = OK + b"content-encoding: %b\r\ncontent-length: %d\r\n\r\n%b" % (coding, len(data), data)
    async with RawServer(([said], True)).running() as server:
        with pytest.raises(AnswerUndecodable):
            await get(http, server.url)


@requirement("UP-26")
@pytest.mark.parametrize("head", [CHUNKED, OK + b"\r\n"], ids=["chunks", "no length"])
async def test_a_body_without_end_is_cut_and_the_server_left(http: HttpClient, head: bytes) -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        try:
            while True:
                writer.write(b"400\r\n%b\r\n" % (b"x" * 1024))
                await writer.drain()
        except OSError:
            left.set()

    async with served_by(serve) as url:
        reply = await get(http, url, 5_000)
        assert (len(reply.body), reply.cut) == (5_000, True)
        await left.wait()


async def test_a_bound_may_be_larger_than_the_usual_one(http: HttpClient) -> None:
    size = MAX_BODY_BYTES + 1
    async with RawServer(([OK + b"content-length: %d\r\n\r\n" % size, bytes(size)], False)).running() as server:
        assert len((await get(http, server.url, size)).body) == size


async def test_iterating_is_bounded_for_users_of_httpx_too(http: HttpClient) -> None:
    body = OK + b"content-length: 100\r\n\r\n" + b"x" * 100
    async with RawServer(([body], False), ([body], False)).running() as server:
        with pytest.raises(AnswerTooLarge):
            await http.get(server.url, extensions={"max_bytes": 99})
        assert len((await http.get(server.url, extensions={"max_bytes": 100})).content) == 100


BOMB = b"x" * 50_000_000


@requirement("UP-26")
@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", gzip.compress(BOMB, 1)),
        ("x-gzip", gzip.compress(BOMB, 1)),
        ("deflate", zlib.compress(BOMB, 1)),
    ],
    ids=["gzip", "x-gzip", "deflate"],
)
async def test_a_small_body_that_swells_is_decoded_in_steps(http: HttpClient, coding: str, data: bytes) -> None:
    said = OK + f"content-encoding: {coding}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data
    async with RawServer(([said], False), ([said], False)).running() as server:
        reply = await get(http, server.url, 1_000)
        assert (reply.body, reply.cut) == (b"x" * 1_000, True)
        response = await http.send(http.build_request("GET", server.url), stream=True)
        assert len(await body_of(response).read()) <= 64 * 1024
        assert "content-encoding" not in response.headers
        await response.aclose()


@requirement("UP-26")
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_compressed_body_is_read_whole_however_it_is_cut(http: HttpClient, size: int) -> None:
    text = bytes(range(256)) * 40
    data = gzip.compress(text)
    head = OK + f"content-encoding: gzip\r\ncontent-length: {len(data)}\r\n\r\n".encode()
    pieces = [head, *[data[at : at + size] for at in range(0, len(data), size)]]
    async with RawServer((pieces, False)).running() as server:
        assert (await http.get(server.url)).content == text


@requirement("UP-41")
@pytest.mark.parametrize("location", ["http://[::1", "http://a:b", "//["])
async def test_a_redirect_to_what_is_no_url_is_an_answer(http: HttpClient, location: str) -> None:
    said = b"HTTP/1.1 302 Found\r\nlocation: " + location.encode("latin-1") + b"\r\ncontent-length: 0\r\n\r\n"
    async with RawServer(([said], False), ([said], False)).running() as server:
        assert (await http.get(server.url)).status_code == 302
        assert (await fetch(http, "GET", server.url, {}, max_bytes=10, hops=1)).status == 302


class Pieces:
    """A read that never waits: it gives *pieces*, the last one up to *most* times in all, and then the end."""

    def __init__(self, *pieces: bytes, most: int = 1_000) -> None:
        self.pieces = pieces
        self.most = most
        self.reads = 0

    async def __call__(self) -> bytes:
        self.reads += 1
        return self.pieces[min(self.reads, len(self.pieces)) - 1] if self.reads <= self.most else b""


def decoded_from(pieces: Pieces) -> Callable[[], Awaitable[bytes]]:
    read = decoder_of([b"gzip"], pieces)
    assert read is not None
    return read


async def test_other_tasks_run_while_a_body_that_swells_is_decoded() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    read = decoded_from(Pieces(gzip.compress(BOMB, 1), most=1))
    size = 0
    while data := await read():
        size += len(data)
    counting.cancel()
    assert size == len(BOMB)
    assert turns >= len(BOMB) // (64 * 1024 * 20)


@pytest.mark.parametrize(
    "sent",
    [
        (gzip.compress(b"x") * 2,),
        (gzip.compress(b"x"),),
        (b"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03", b"n" * 65_536),
        (gzip.compress(b"")[:10], b"\x00\x00\x00\xff\xff" * 10_000),
    ],
    ids=["two members at once", "a second member", "a name without end", "empty blocks"],
)
async def test_a_compressed_body_that_costs_more_than_it_gives_is_refused(sent: tuple[bytes, ...]) -> None:
    pieces = Pieces(*sent, most=20_000)
    read = decoded_from(pieces)
    with pytest.raises(AnswerUndecodable):
        while await read():
            pass
    assert pieces.reads < pieces.most


@requirement("UP-43")
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nx:", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_an_answer_that_does_not_begin_in_time_is_given_up(http: HttpClient, said: bytes) -> None:
    async with RawServer(([said, b""] if said else [b""], False)).running() as server:
        with pytest.raises(httpx.ReadTimeout) as caught:
            await http.post(server.url, timeout=httpx.Timeout(None, read=SOON_S))
        assert isinstance(caught.value, AnswerTimedOut)
        await server.left.wait()


async def test_a_head_in_drips_does_not_prolong_the_time(http: HttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while True:
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(SOON_S / 10)  # the drip

    async with served_by(serve) as url:
        with pytest.raises(AnswerTimedOut):
            await http.get(url, timeout=httpx.Timeout(None, read=SOON_S))


@requirement("UP-43")
async def test_a_body_that_falls_silent_is_given_up_after_what_came(http: HttpClient) -> None:
    async with RawServer(([CHUNKED + b"5\r\nhello\r\n", b""], False)).running() as server:
        request = http.build_request("GET", server.url, timeout=httpx.Timeout(None, read=SOON_S))
        response = await http.send(request, stream=True)
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"hello"
        with pytest.raises(AnswerTimedOut):
            await anext(pieces)
        await server.left.wait()


@requirement("UP-43")
async def test_a_body_in_drips_lasts_as_long_as_it_drips_and_between_reads_no_time_runs(http: HttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        for _ in range(8):
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(SOON_S / 3)  # the drip
        writer.write(b"0\r\n\r\n")

    async with served_by(serve) as url:
        request = http.build_request("GET", url, timeout=httpx.Timeout(None, read=SOON_S))
        response = await http.send(request, stream=True)
        pieces = response.aiter_raw()
        read = await anext(pieces)
        await asyncio.sleep(SOON_S * 1.5)  # longer than a silence may be
        async for piece in pieces:
            read += piece
    assert read == b"x" * 8


async def test_a_large_request_that_is_taken_in_slowly_is_no_silence(http: HttpClient) -> None:
    size = 60 << 20  # far more than the system keeps for a connection

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(24):
            await reader.readexactly(size // 24)
            await asyncio.sleep(SOON_S)  # a server that takes its time
        writer.write(WHOLE)
        await writer.drain()

    async with served_by(serve) as url:
        response = await http.put(url, content=bytes(size), timeout=httpx.Timeout(None, read=SOON_S * 20))
    assert response.text == "hello"


async def test_an_answer_before_the_request_is_read_is_the_answer(http: HttpClient) -> None:
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        await done.wait()

    async with served_by(serve) as url:
        for _ in range(2):
            reply = await fetch(http, "POST", url, {}, bytes(64 << 20), max_bytes=MANY)
            assert (reply.status, reply.body) == (413, b"no")
        done.set()


async def test_a_server_that_half_closes_after_its_answer_has_answered(http: HttpClient) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(WHOLE)
        writer.write_eof()
        assert await reader.read() == b""  # until the client closes too

    async with served_by(serve) as url:
        for _ in range(3):
            assert (await get(http, url)).body == b"hello"


@requirement("UP-43")
@pytest.mark.parametrize("kind", [b"", CHUNKED])
async def test_cancelling_ends_the_exchange_at_the_server(http: HttpClient, kind: bytes) -> None:
    async with RawServer(([kind, b""] if kind else [b""], False)).running() as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_S):
                await get(http, server.url)
        await server.left.wait()
