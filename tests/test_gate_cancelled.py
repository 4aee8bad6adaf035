"""A gate that is left by force: the end of a program cancels all its tasks, in the middle of their cleaning up too."""

import asyncio
import gc
import os
import warnings

from tests.support.process import alive, children
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S
from wicketgate.config.settings import Settings
from wicketgate.gate import Gate

SLOW_TO_END = {"name": "slow", "command": ["sh", "-c", "cat; sleep 0.1"]}
FIRST_TURNS = (1, 3, 8)
SECOND_TURNS = range(1, 11)
"""Turns of the loop: from the start of a child to the first cancellation, and from there to the second."""


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def left_by_force(settings: Settings, first: int, second: int) -> None:
    before, others = asyncio.all_tasks(), set(children(os.getpid()))

    async def use() -> None:
        async with Gate(settings):
            await asyncio.Event().wait()

    using = asyncio.create_task(use())
    await turns(first)
    using.cancel()
    await turns(second)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.wait([using], timeout=BOUND_S)
    assert using.done(), f"hangs when everything is cancelled {second} turns after turn {first}"
    left = [pid for pid in children(os.getpid()) if pid not in others and alive(pid)]
    assert not left, f"a child is left: {first}, {second}"


@requirement("LIB-23")
async def test_a_gate_ends_when_every_task_is_cancelled_at_any_turn_of_its_teardown() -> None:
    settings = Settings.model_validate({"upstreams": [SLOW_TO_END]})
    with warnings.catch_warnings():
        # asyncio leaves pipes that it had not connected to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        for first in FIRST_TURNS:
            for second in SECOND_TURNS:
                await left_by_force(settings, first, second)
        gc.collect()
