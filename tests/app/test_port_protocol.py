"""Heads are bounded before anything is checked, and an offer to upgrade costs no request its body."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from app.port.protocol import MAX_HEAD_BYTES, GuardedHttpProtocol

BOUND_S = 10


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path and the length of the body."""
    if scope["type"] != "http":
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = json.dumps([scope["path"], size]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def server() -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(echo, log_config=None, http=GuardedHttpProtocol, ws="none", lifespan="off", loop="asyncio")
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running._serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        running.should_exit = True
        await serving
        listener.close()


async def exchange(port: int, *pieces: bytes, answers: int = 1) -> list[bytes]:
    """Send the pieces, each in a segment of its own; the bodies of the answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    bodies = []
    try:
        async with asyncio.timeout(BOUND_S):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
            for _ in range(answers):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                bodies.append(head.split(b" ")[1] + b" " + await reader.readexactly(length))
    finally:
        writer.close()
    return bodies


OFFER = (
    b"POST /%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 10\r\n\r\n"
)


@pytest.mark.parametrize("cut", [None, 4, 40, len(OFFER) - 2, len(OFFER) + 3])
async def test_an_offer_to_upgrade_is_passed_over_wherever_the_bytes_are_cut(cut: int | None) -> None:
    whole = OFFER % b"a" + b"0123456789" + OFFER % b"b" + b"9876543210" + b"GET /c HTTP/1.1\r\nHost: x\r\n\r\n"
    pieces = [whole] if cut is None else [whole[:cut], whole[cut:]]
    async with server() as port:
        assert await exchange(port, *pieces, answers=3) == [b'200 ["/a", 10]', b'200 ["/b", 10]', b'200 ["/c", 0]']


async def test_an_offer_without_a_body_and_one_byte_at_a_time() -> None:
    request = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with server() as port:
        assert await exchange(port, *(request[n : n + 1] for n in range(len(request)))) == [b'200 ["/a", 0]']


async def test_a_chunked_body_with_an_offer_is_refused_not_misread() -> None:
    request = OFFER.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked") % b"a"
    async with server() as port:
        (answer,) = await exchange(port, request + b"5\r\nhello\r\n0\r\n\r\n")
    assert answer.startswith(b"400")


async def test_a_head_without_end_is_cut_off() -> None:
    line = b"x-filler: " + b"a" * 1_000 + b"\r\n"
    async with server() as port:
        (answer,) = await exchange(port, b"GET / HTTP/1.1\r\n", line * (MAX_HEAD_BYTES // 1_000 + 2))
    assert answer.startswith(b"431")
    assert json.loads(answer[4:])["code"] == "head_too_large"


async def test_a_large_body_and_many_requests_on_one_connection_are_no_head() -> None:
    async with server() as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        for number in range(5):
            answer = await http.post(f"/{number}", content=b"x" * MAX_HEAD_BYTES * 3)
            assert answer.json() == [f"/{number}", MAX_HEAD_BYTES * 3]


async def test_a_head_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.port.protocol.HEAD_DEADLINE_S", 0.1)
    async with server() as port:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost:"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            async with asyncio.timeout(BOUND_S):
                assert await reader.read() == b""
            writer.close()
