"""Background tasks end, also where a library has swallowed their cancellation."""

import asyncio

from tests.support.requirement import requirement
from wicketgate.task_end import end_tasks


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
