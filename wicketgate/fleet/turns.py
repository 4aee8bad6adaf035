"""Turns: work that comes by the hundred, such as connecting all upstreams, is begun a few at a time (UP-56).

What one upstream costs is little, but of five hundred at once the event loop would do the first step of each, then the
second of each, and nothing else for most of a second.
"""

import asyncio
from collections.abc import Iterable
from types import TracebackType

AT_ONCE = 16
LONGEST_S = 0.5


class Turns:
    """At most *at_once* have a turn; one that takes longer than *longest_s*, such as a server that does not answer,
    no longer counts, so that it holds up nobody else."""

    def __init__(self, at_once: int = AT_ONCE, longest_s: float | None = None) -> None:
        """None stands for ``LONGEST_S``."""
        self._free = asyncio.Semaphore(at_once)
        self._longest_s = LONGEST_S if longest_s is None else longest_s

    @staticmethod
    def longest_wait_s(others: int) -> float:
        """Returns how long one may wait for its turn behind *others* that all take as long as they can."""
        return others // AT_ONCE * LONGEST_S

    async def take(self) -> "Turn":
        """Wait for a turn; ``end`` it, or leave it as a context."""
        await self._free.acquire()
        return Turn(self._free, self._longest_s)


class Turn:
    def __init__(self, free: asyncio.Semaphore, longest_s: float) -> None:
        self._free: asyncio.Semaphore | None = free
        self._timer = asyncio.get_running_loop().call_later(longest_s, self.end)

    def end(self) -> None:
        """Let the next one begin. A second time nothing happens."""
        if self._free is not None:
            self._timer.cancel()
            self._free.release()
            self._free = None

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


async def cancel_in_turns(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel each task once, and let the loop do other work between them. Does not wait for their end."""
    for number, task in enumerate(tasks):
        if number % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        task.cancel()
