"""Many requests sent in one piece: they take neither the memory nor the event loop."""

import asyncio
import gc

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.port.health import alive
from tests.support.bare_port import BOUND_S, echo, exchange, server
from tests.support.requirement import requirement

MANY = 5_000
A_FEW = 500
"""Requests that one piece may hold, with those that the collector has not freed yet."""


def requests_in_memory() -> int:
    return sum(isinstance(it, RequestResponseCycle) for it in gc.get_objects())


@requirement("OPS-50")
async def test_requests_behind_a_running_one_wait_unparsed_and_are_all_answered_in_order() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    peaks: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/first":
            started.set()
            await go_on.wait()
        elif scope["path"].endswith("000"):
            peaks.append(requests_in_memory())
        await echo(scope, receive, send)

    async with server(app=app) as port, asyncio.timeout(3 * BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /first HTTP/1.1\r\n\r\n" + b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % n for n in range(MANY)))
        await started.wait()
        peaks.append(requests_in_memory())
        go_on.set()
        await reader.readuntil(b'["/first", 0]')
        for number in range(MANY):
            assert (await reader.readuntil(b"]")).endswith(b'["/%d", 0]' % number)
        writer.close()
    assert len(peaks) == 1 + MANY // 1000 - 1  # "/0" ends in no "000"
    assert max(peaks) < A_FEW


@requirement("OPS-50")
async def test_other_work_has_its_turn_between_some_dozen_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = 0
    most_in_a_turn = 0

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal answered
        answered += 1
        await alive(scope, receive, send)

    async def watch() -> None:
        nonlocal most_in_a_turn
        while answered < MANY:
            before = answered
            await asyncio.sleep(0)
            most_in_a_turn = max(most_in_a_turn, answered - before)

    monkeypatch.setattr("app.port.protocol.alive", counted)
    async with server() as port, asyncio.timeout(3 * BOUND_S):
        watching = asyncio.create_task(watch())
        answers = await exchange(port, b"GET /healthz HTTP/1.1\r\n\r\n" * MANY, answers=MANY)
        await watching
    assert answers == [b'200 {"status":"ok"}'] * MANY
    assert most_in_a_turn < A_FEW


@requirement("OPS-50")
async def test_bodies_of_any_size_may_stand_between_requests() -> None:
    bodies = [b"x" * size for size in (0, 1, 1023, 1024, 70_000, 300_000, 5)]
    requests = b"".join(b"POST /%d HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (len(it), len(it)) + it for it in bodies)
    chunked = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"3e8\r\n" + b"y" * 1000 + b"\r\n0\r\n\r\n"
    offer = b"POST /u HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbody"
    async with server() as port:
        answers = await exchange(port, (requests + chunked + offer) * 3, answers=3 * (len(bodies) + 2))
    expected = [b'200 ["/%d", %d]' % (len(it), len(it)) for it in bodies]
    assert answers == [*expected, b'200 ["/c", 1000]', b'200 ["/u", 4]'] * 3


@requirement("OPS-51")
@pytest.mark.parametrize("behind", [0, 1, 50, 3_000])
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
