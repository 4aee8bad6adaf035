import asyncio

import anyio
import pytest

from tests.support.requirement import requirement
from wicketgate.engine.limits import Interrupted, Interruption


async def waiting(interruption: Interruption, gate: asyncio.Event) -> "asyncio.Task[bool]":
    task = asyncio.create_task(interruption.wait(gate.wait()))
    await asyncio.sleep(0)
    return task


@requirement("CHAT-72", "CHAT-78", "OPS-17")
async def test_what_is_awaited_is_cancelled_and_every_later_wait_refuses() -> None:
    interruption, gate = Interruption(), asyncio.Event()
    task = await waiting(interruption, gate)
    interruption.request("cancelled")
    with pytest.raises(Interrupted):
        await task
    with pytest.raises(Interrupted):
        await interruption.wait(gate.wait())


async def test_a_task_that_somebody_else_cancels_too_is_cancelled() -> None:
    for ours_first in (True, False):
        interruption = Interruption()
        task = await waiting(interruption, asyncio.Event())
        for cancel in (interruption.request, task.cancel)[:: 1 if ours_first else -1]:
            cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_came_to_its_end_all_the_same_is_not_lost_and_the_task_is_not_cancelled() -> None:
    interruption = Interruption()

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return ""

    async def run() -> str:
        said = await interruption.wait(stubborn())
        with anyio.fail_after(1):
            await asyncio.sleep(0)
        with pytest.raises(Interrupted):
            await interruption.wait(asyncio.sleep(0))
        return said

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    interruption.request("cancelled")
    assert await task == "done"
    assert task.cancelling() == 0


async def test_without_a_request_nothing_changes() -> None:
    interruption = Interruption()
    assert await interruption.wait(asyncio.sleep(0, "x")) == "x"
    with pytest.raises(KeyError):
        await interruption.wait(failing())
    with pytest.raises(asyncio.CancelledError):
        task = await waiting(interruption, asyncio.Event())
        task.cancel()
        await task


async def failing() -> None:
    raise KeyError
