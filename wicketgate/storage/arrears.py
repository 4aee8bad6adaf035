"""Values that a shared store could not be given, given again until it has them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.storage")

PAUSE_S = 1.0


class Arrears:
    """Awaits *work* every *pause_s* seconds until it returns true, in one task, which is there only meanwhile."""

    def __init__(self, work: Callable[[], Awaitable[bool]], name: str, pause_s: float = PAUSE_S) -> None:
        self._work = work
        self._name = name
        self._pause_s = pause_s
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Something is owed. Does not wait."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._task = loop.create_task(self._until_done(), name=self._name)

    async def aclose(self) -> None:
        """Try a last time, if something is owed."""
        if self._task is None or self._task.done():
            return
        await end_tasks(self._task)
        await self._work()

    async def _until_done(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                if await self._work():
                    return
            except Exception:
                log.exception("%s: given up", self._name)
                return
