"""Tasks that have an owner, and cleaning up that a cancellation cannot break off."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("wicketgate.upstream")


class Background:
    """Tasks that end with their owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._closed:
            task.cancel()
        return task

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of a connection failed", exc_info=error)


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Run *work*, which must be bounded, to its end also when the caller is cancelled meanwhile."""
    running = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError as error:
            cancelled = error
    running.result()
    if cancelled is not None:
        raise cancelled


async def within(seconds: float, event: asyncio.Event) -> bool:
    """Whether *event* was set in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
