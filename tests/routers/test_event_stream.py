"""The response that carries a stream, against a server that the test controls (CHAT-25, CHAT-35)."""

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Message

from routers.event_stream import WRITE_AT_ONCE, EventStream, LastPiece, PiecesAtOnce
from tests.support.requirement import requirement

BOUND_S = 30.0


async def stays() -> Message:
    """Receives for a client that does not leave."""
    await asyncio.Event().wait()
    raise AssertionError


async def nothing() -> None:
    """Does nothing at the end of a stream."""


@requirement("CHAT-72")
async def test_the_news_that_the_client_left_is_heard_although_nothing_ever_waits() -> None:
    left, over, sent = asyncio.Event(), asyncio.Event(), 0

    async def pieces() -> AsyncGenerator[bytes, None]:
        nonlocal sent
        while not left.is_set() and sent < 100_000:  # bounded, in case the departure is never noticed
            sent += 1
            yield b"x"

    async def receive() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        """A server's, whose client is gone: it returns at once."""

    async def done() -> None:
        over.set()

    stream = EventStream(pieces(), heartbeat_s=60, on_leave=left.set, on_end=done)
    await stream({"type": "http"}, receive, send)
    assert sent < 1_000
    assert over.is_set()


@requirement("CHAT-35")
async def test_comments_come_only_while_nothing_else_is_sent_and_never_after_the_end() -> None:
    sent: list[bytes] = []
    beats = asyncio.Semaphore(0)

    async def pieces() -> AsyncGenerator[bytes, None]:
        await beats.acquire()
        await beats.acquire()
        yield b"text\n\n"

    async def send(message: Message) -> None:
        sent.append(message.get("body", b"head"))
        if sent[-1].startswith(b":"):
            beats.release()
        if sent[-1].startswith(b"text"):
            await asyncio.sleep(0.1)  # many heartbeats' time: a slow reader is sent none on top

    async with asyncio.timeout(BOUND_S):
        await EventStream(pieces(), heartbeat_s=0.01, on_leave=lambda: None, on_end=nothing)(
            {"type": "http"}, stays, send
        )
    assert sent == [b"head", b": keepalive\n\n", b": keepalive\n\n", b"text\n\n", b""]


@requirement("CHAT-35")
async def test_pieces_sent_past_the_response_put_comments_off() -> None:
    sent: list[bytes] = []
    over = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        await over.wait()
        yield LastPiece(b"last\n\n")

    async def send(message: Message) -> None:
        sent.append(message.get("body", b"head"))
        if sent[-1].startswith(b":"):
            over.set()

    def write(piece: bytes) -> bool:
        sent.append(piece)
        return True

    scope = {"type": "http", "extensions": {WRITE_AT_ONCE: write}}
    at_once = PiecesAtOnce(scope)
    stream = EventStream(pieces(), heartbeat_s=1.0, on_leave=lambda: None, on_end=nothing, at_once=at_once)
    async with asyncio.timeout(BOUND_S):
        streaming = asyncio.create_task(stream(scope, stays, send))
        for _ in range(15):
            await asyncio.sleep(0.1)  # a piece in each tenth of a heartbeat
            assert at_once.send(b"piece\n\n")
        await streaming
    assert sent == [b"head", *[b"piece\n\n"] * 15, b": keepalive\n\n", b"last\n\n"]


async def test_without_a_server_that_writes_at_once_nothing_is_sent_so() -> None:
    assert not PiecesAtOnce({"type": "http"}).send(b"piece")
    assert not PiecesAtOnce({"type": "http", "extensions": {WRITE_AT_ONCE: lambda piece: False}}).send(b"piece")
