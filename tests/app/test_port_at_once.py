"""The way past ``send`` writes what ``send`` would have written, or nothing (CHAT-25, CHAT-77)."""

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from app.port.protocol import WRITE_AT_ONCE
from routers import event_stream
from tests.support.bare_port import BOUND_S, server
from tests.support.requirement import requirement

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def test_both_sides_have_one_name_for_it() -> None:
    assert event_stream.WRITE_AT_ONCE == WRITE_AT_ONCE


@requirement("CHAT-25")
async def test_pieces_come_in_order_with_those_that_are_sent_and_never_before_the_head_or_behind_the_end() -> None:
    wrote: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        write = scope["extensions"][WRITE_AT_ONCE]
        wrote.append(write(b"early"))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        wrote.append(write(b"one "))
        await send({"type": "http.response.body", "body": b"two ", "more_body": True})
        wrote.append(write(b""))
        await asyncio.sleep(0)
        wrote.append(write(b"three"))
        await send({"type": "http.response.body", "body": b""})
        wrote.append(write(b"late"))

    async with server(app=app, writes_at_once=True) as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"
    assert wrote == [False, True, False, True, False]


@requirement("CHAT-25", "CHAT-87")
@pytest.mark.parametrize("case", ["older client", "declared length", "not offered"])
async def test_an_answer_that_has_no_chunks_is_left_to_send(case: str) -> None:
    wrote: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"3")] if case == "declared length" else []
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, (b"connection", b"close")]})
        write = scope.get("extensions", {}).get(WRITE_AT_ONCE, lambda piece: False)
        wrote.append(write(b"abc"))
        await send({"type": "http.response.body", "body": b"abc"})

    async with server(app=app, writes_at_once=case != "not offered") as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST.replace(b"1.1", b"1.0") if case == "older client" else REQUEST)
        body = (await reader.read()).partition(b"\r\n\r\n")[2]
        writer.close()
    assert wrote == [False]
    assert body.count(b"abc") == 1


@requirement("CHAT-77")
async def test_a_client_that_does_not_read_or_has_left_gets_nothing_so() -> None:
    full, gone = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        write = scope["extensions"][WRITE_AT_ONCE]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while write(b"x" * 65_536):
            await asyncio.sleep(0)
        full.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        assert not write(b"x")
        gone.set()

    async with server(app=app, writes_at_once=True) as port, asyncio.timeout(BOUND_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await full.wait()
        writer.transport.abort()
        await gone.wait()
