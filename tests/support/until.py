"""Bounded waits for a state that is reported by no event: of another process, a store or a log."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


async def until(
    ask: Callable[[], Any],
    found: Callable[[Any], object] = bool,
    *,
    bound_s: float = 30.0,
    pause_s: float = 0.01,
) -> Any:
    """Asks every *pause_s* seconds, and returns the first answer that *found* accepts; by default the first true one.

    The answer of *ask* may be awaitable. Raises TimeoutError after *bound_s* seconds.
    """
    async with asyncio.timeout(bound_s):
        while True:
            answer = ask()
            if inspect.isawaitable(answer):
                answer = await answer
            if found(answer):
                return answer
            await asyncio.sleep(pause_s)  # between two looks


def until_now(ask: Callable[[], object]) -> None:
    """Does the same without an event loop. Raises AssertionError after half a minute."""
    give_up_at = time.monotonic() + 30
    while not ask():
        assert time.monotonic() < give_up_at, "it did not come"
        time.sleep(0.01)  # between two looks


async def settle() -> None:
    """Lets the tasks of this loop go on until they wait for something else than one another."""
    for _ in range(5):
        await asyncio.sleep(0)
