"""The contract that every store of counted executions keeps (ACCESS-16, ACCESS-93).

A store is tested by a class that inherits this one, beside a fixture ``counted`` that gives it with a way to let time
pass.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.support.requirement import requirement
from wicketgate.call_state import QuotaStore, Window

SLACK_S = 30.0
"""The time that a test may take on a slow machine, where the store has a clock of its own."""


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Counted:
    store: QuotaStore
    later: Callable[[float], Awaitable[None]]

    async def runs(self, *windows: Window, actor: str = "ann", count: bool = True) -> bool:
        return await self.store.take(actor, windows, count=count) is None


ALL = Window("", 3)


class QuotaStoreContract:
    @requirement("ACCESS-16", "ACCESS-93")
    async def test_of_many_at_once_as_many_run_as_may(self, counted: Counted) -> None:
        ran = await asyncio.gather(*(counted.runs(Window("", 20)) for _ in range(60)))
        assert sum(ran) == 20

    @requirement("ACCESS-16", "ACCESS-93")
    async def test_the_window_slides_and_the_refusal_says_for_how_long(self, counted: Counted) -> None:
        assert await counted.runs(ALL)
        await counted.later(20)
        assert [await counted.runs(ALL) for _ in range(3)] == [True, True, False]
        full = await counted.store.take("ann", [ALL])
        assert full is not None
        assert full.window == ALL
        assert 40 - SLACK_S < full.retry_after_s <= 40
        await counted.later(full.retry_after_s)
        assert [await counted.runs(ALL) for _ in range(2)] == [True, False]
        await counted.later(60)
        assert [await counted.runs(ALL) for _ in range(4)] == [True, True, True, False]

    @requirement("ACCESS-16")
    async def test_each_actor_and_each_window_has_its_own_count(self, counted: Counted) -> None:
        for window in (Window("", 1), Window("x:*", 1), Window("é😀{}:", 1)):
            for actor in ("ann", "bob", "", "ann:x"):
                assert await counted.runs(window, actor=actor)
                assert not await counted.runs(window, actor=actor)

    @requirement("ACCESS-16", "ACCESS-93")
    async def test_a_refused_execution_counts_in_no_window(self, counted: Counted) -> None:
        tool = Window("x:*", 1)
        assert await counted.runs(ALL, tool)
        assert [await counted.runs(ALL, tool) for _ in range(5)] == [False] * 5
        assert [await counted.runs(ALL) for _ in range(3)] == [True, True, False]

    @requirement("ACCESS-16")
    async def test_the_window_that_stays_full_longest_is_told(self, counted: Counted) -> None:
        tool = Window("x:*", 1)
        assert await counted.runs(Window("", 1))
        await counted.later(20)
        assert await counted.runs(tool)
        full = await counted.store.take("ann", [Window("", 1), tool])
        assert full is not None
        assert full.window == tool

    @requirement("EXEC-5", "ACCESS-16")
    async def test_a_look_counts_nothing(self, counted: Counted) -> None:
        one = Window("", 1)
        assert [await counted.runs(one, count=False) for _ in range(3)] == [True] * 3
        assert await counted.runs(one)
        assert not await counted.runs(one, count=False)

    @requirement("ACCESS-16")
    async def test_what_was_counted_counts_under_another_limit_too(self, counted: Counted) -> None:
        assert [await counted.runs(ALL) for _ in range(3)] == [True] * 3
        assert [await counted.runs(Window("", 5)) for _ in range(3)] == [True, True, False]
        await counted.later(20)
        full = await counted.store.take("ann", [Window("", 1)])
        assert full is not None
        assert 40 - SLACK_S < full.retry_after_s <= 40
        nothing = await counted.store.take("bob", [Window("", 0)])
        assert nothing is not None
        assert nothing.retry_after_s == 60
