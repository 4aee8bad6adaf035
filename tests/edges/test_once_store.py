"""What was done once is not done again, and what is forgotten in time makes room."""

import asyncio

from app.edges.once_store import MemoryOnceStore
from tests.support.requirement import requirement


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


@requirement("E83", "E85")
async def test_only_the_first_of_many_adds_a_key() -> None:
    store = MemoryOnceStore(Clock())
    assert sorted(await asyncio.gather(*(store.add("a", 10.0) for _ in range(20)))) == [False] * 19 + [True]
    assert await store.add("b", 10.0)


async def test_a_full_store_lets_nothing_happen_until_something_lapses() -> None:
    clock = Clock()
    store = MemoryOnceStore(clock, max_kept=2)
    assert await store.add("a", 10.0)
    assert await store.add("b", 20.0)
    assert not await store.add("c", 30.0)
    clock.time = 10.0
    assert await store.add("c", 30.0)
    assert not await store.add("d", 30.0)
