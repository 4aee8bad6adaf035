"""Waiters for signals in this process, by topic."""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from wicketgate.storage.store import LOOK_S


class Waiter:
    """Implements Changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float = LOOK_S) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        self._event.clear()


class Listeners:
    """For use from one event loop only."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[Waiter]] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._waiters)

    def __contains__(self, topic: str) -> bool:
        return topic in self._waiters

    def wake(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for waiter in self._waiters.get(topic, ()):
                waiter.wake()

    def wake_all(self) -> None:
        self.wake(list(self._waiters))

    @contextmanager
    def listening(self, topic: str) -> Iterator[Waiter]:
        waiter = Waiter()
        waiters = self._waiters.setdefault(topic, set())
        waiters.add(waiter)
        try:
            yield waiter
        finally:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[topic]
