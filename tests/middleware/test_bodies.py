"""The time that a body may take: the client's time alone."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from middleware.refusals import BodyLimit
from tests.support.requirement import requirement
from tests.support.service import BOUND_S

Reading = Callable[[Receive], Coroutine[None, None, None]]


async def run(read: Reading, receive: Receive, *, timeout_s: float) -> None:
    async with asyncio.timeout(BOUND_S):
        await read(BodyLimit(10_000_000, timeout_s).counted(receive))


async def read_all(receive: Receive) -> None:
    while (await receive()).get("more_body"):
        pass


def dripping(size: int, pause_s: float) -> Receive:
    async def receive() -> Message:
        await asyncio.sleep(pause_s)  # the drip
        return {"type": "http.request", "body": b"x" * size, "more_body": True}

    return receive


@requirement("OPS-29")
async def test_a_body_that_takes_too_long_in_all_is_refused() -> None:
    with pytest.raises(HTTPException) as refused:
        await run(read_all, dripping(20_000, 0.01), timeout_s=0.3)
    assert refused.value.status_code == 408


@requirement("OPS-29")
async def test_a_body_that_comes_too_slowly_is_refused_after_a_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("middleware.refusals.GRACE_S", 0.2)
    with pytest.raises(HTTPException) as refused:
        await run(read_all, dripping(1, 0.01), timeout_s=60)
    assert refused.value.status_code == 408


@requirement("OPS-29")
async def test_a_handler_that_reads_late_and_one_that_waits_for_the_end_of_its_client_are_not_hit() -> None:
    left = asyncio.Event()
    messages: list[Message] = [
        {"type": "http.request", "body": b"a", "more_body": True},
        {"type": "http.request", "body": b"b", "more_body": False},
    ]

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        await left.wait()
        return {"type": "http.disconnect"}

    async def late(receive: Receive) -> None:
        await receive()
        await asyncio.sleep(0.3)  # longer than a body may take
        await receive()
        asyncio.get_running_loop().call_later(0.3, left.set)
        assert (await receive())["type"] == "http.disconnect"

    await run(late, receive, timeout_s=0.1)


@requirement("OPS-29")
async def test_a_cancellation_while_a_body_is_waited_for_reaches_who_waits_for_it() -> None:
    reached: list[str] = []
    waits = asyncio.Event()

    async def receive() -> Message:
        await asyncio.sleep(0)
        try:
            waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reached.append("cancelled")
            raise
        raise AssertionError("it never comes")

    running = asyncio.create_task(run(read_all, receive, timeout_s=60))
    await waits.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reached == ["cancelled"]
