"""Background tasks end, also where a library has swallowed their cancellation."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from tests.support.requirement import requirement
from wicketgate.access.authenticator import KeyUses
from wicketgate.task_end import EndableBlock, end_tasks


@requirement("OPS-24")
async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    swallowed = 0

    async def deaf() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    async def failing() -> None:
        raise ValueError

    tasks = [asyncio.create_task(deaf()), asyncio.create_task(failing())]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await end_tasks(*tasks)
    assert (swallowed, [task.done() for task in tasks]) == (2, [True, True])


@requirement("ACCESS-41")
async def test_a_block_that_is_ended_lets_its_task_go_on() -> None:
    block, went_on = EndableBlock(), False

    async def run() -> None:
        nonlocal went_on
        with block:
            await asyncio.Event().wait()
        await asyncio.sleep(0)  # nothing is left of the cancellation
        went_on = True

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    block.end()
    block.end()
    async with asyncio.timeout(30):
        await task
    assert (block.ended, went_on, task.cancelling()) == (True, True, 0)


@requirement("ACCESS-41")
async def test_a_cancellation_of_the_task_itself_is_not_swallowed() -> None:
    block = EndableBlock()

    async def run() -> None:
        with block:
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    block.end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await task
    assert not block.ended


@requirement("ACCESS-41")
async def test_ending_a_block_before_or_after_it_does_nothing() -> None:
    block = EndableBlock()
    block.end()
    with block:
        await asyncio.sleep(0)
    block.end()
    await asyncio.sleep(0)
    assert not block.ended


def _end_all(door: object, use: object, held: Callable[[], None]) -> None:
    held()


@requirement("ACCESS-41")
async def test_a_request_that_is_over_leaves_nothing_for_the_garbage_collector() -> None:
    gone: list[weakref.ref[object]] = []

    class Door:
        """Stands for all that a request holds."""

    async def request(uses: KeyUses) -> None:
        block, door = EndableBlock(), Door()
        use = uses.begin("key", block.end)
        held = use.end
        use.end = partial(_end_all, door, use, held)
        gone.append(weakref.ref(door))
        with block:
            await asyncio.sleep(0)
        use.finish()

    gc.disable()
    try:
        await asyncio.create_task(request(KeyUses()))
        await asyncio.sleep(0)
    finally:
        gc.enable()
    assert [each() for each in gone] == [None]
