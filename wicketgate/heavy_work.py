"""Work on very large values, one piece of work at a time in the process (EXEC-27).

Each piece holds the interpreter again and again, some milliseconds each. The event loop waits for one such thread at
most between two of its steps; with sixteen it would wait for all of them.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from wicketgate.fleet.slots import shared_slots

T = TypeVar("T")

VERY_LARGE_BYTES = 1 << 20

_line = ThreadPoolExecutor(max_workers=1, thread_name_prefix="wicketgate-heavy")


async def run_queued(function: Callable[[], T], actor: str) -> T:
    """Returns what *function* returns in a copy of the caller's context, or raises what it raises.

    The actors that wait take turns (round robin), and each actor's functions run in the order in which they came. A
    caller that leaves before its turn takes the function back.
    """
    run = partial(contextvars.copy_context().run, function)
    turns = shared_slots("heavy work", lambda: 1)
    if not turns.enter(actor):
        await turns.wait(actor)
    try:
        return await asyncio.get_running_loop().run_in_executor(_line, run)
    finally:
        turns.leave(actor)
