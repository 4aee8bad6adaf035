"""The contract that every store of keys keeps that can be added once only (ACCESS-18).

A store is tested by a class that inherits this one, beside a fixture ``open_store`` that makes it and closes it.
"""

import asyncio
from collections.abc import Callable

from tests.support.requirement import requirement
from wicketgate.engine.sealed_approvals import OnceStore


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


OpenOnce = Callable[[Clock], OnceStore]


class OnceStoreContract:
    @requirement("CHAT-68", "CHAT-70", "ACCESS-18")
    async def test_only_the_first_of_many_adds_a_key(self, open_store: OpenOnce) -> None:
        clock = Clock()
        store = open_store(clock)
        added = await asyncio.gather(*(store.add("a", clock.now + 10) for _ in range(20)))
        assert sorted(added) == [False] * 19 + [True]
        assert await store.add("b", clock.now + 10)
        assert not await store.add("b", clock.now + 99)

    @requirement("ACCESS-18")
    async def test_a_key_is_taken_until_it_lapses(self, open_store: OpenOnce) -> None:
        clock = Clock()
        store = open_store(clock)
        assert await store.add("a", clock.now + 10)
        clock.now += 9
        assert not await store.add("a", clock.now + 10)
        clock.now += 1
        assert await store.add("a", clock.now + 10)
        assert not await store.add("a", clock.now + 10)

    async def test_any_string_is_a_key_of_its_own(self, open_store: OpenOnce) -> None:
        clock = Clock()
        store = open_store(clock)
        odd = ["", "a", "A", "a ", "a\nb", "é", "e\u0301", "😀", "x" * 9_999, "{a}", "a:b"]
        assert [await store.add(key, clock.now + 10) for key in odd] == [True] * len(odd)
        assert [await store.add(key, clock.now + 10) for key in odd] == [False] * len(odd)
