"""An approval is used once, whichever process uses it and whatever becomes of the store."""

import asyncio
from collections.abc import Callable

import pytest

from tests.support.clock import Clock
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from wicketgate.errors import NotAdmitted
from wicketgate.storage.encoding import hashed
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Drop, Kind, Store
from wicketgate.storage.used_approvals import SKEW_S, UsedApprovals

Stores = tuple[str, Callable[[], Store]]

NOW = 1_000_000.0


BOUND_S = 30.0


def used_in(store: Store, clock: Clock | None = None) -> UsedApprovals:
    return UsedApprovals(store, clock or Clock(NOW), StorageMeasures())


@requirement("CHAT-68", "CHAT-70", "ACCESS-18", "ACCESS-86")
async def test_only_the_first_of_many_uses_an_approval_over_all_processes(stores: Stores) -> None:
    _, make = stores
    processes = [used_in(make()), used_in(make())]
    added = await asyncio.gather(*(each.add("a", NOW + 10) for _ in range(10) for each in processes))
    assert sorted(added) == [False] * 19 + [True]
    assert await processes[0].add("b", NOW + 10)
    assert not await used_in(make()).add("b", NOW + 99)


async def test_any_string_is_a_key_of_its_own(stores: Stores) -> None:
    store = used_in(stores[1]())
    odd = ["", "a", "A", "a ", "a\nb", "é", "e\u0301", "😀", "\ud800", "x" * 9_999, "{a}", "a:b"]
    assert [await store.add(key, NOW + 10) for key in odd] == [True] * len(odd)
    assert [await store.add(key, NOW + 10) for key in odd] == [False] * len(odd)


@requirement("ACCESS-18")
async def test_a_key_is_kept_until_it_has_ended_by_every_clock_and_then_makes_room() -> None:
    clock = Clock(NOW)
    store = MemoryStore(clock)
    assert await used_in(store, clock).add("a", clock.now + 10)
    clock.now += 9.9 + SKEW_S
    assert not await used_in(store, clock).add("a", clock.now + 10)
    clock.now += 0.1
    assert await used_in(store, clock).add("a", clock.now + 10)


@requirement("ACCESS-18")
async def test_a_full_store_lets_nothing_happen_until_something_lapses(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(NOW)
    used = UsedApprovals(MemoryStore(clock), clock, StorageMeasures(), most=2)
    assert await used.add("a", clock.now + 10)
    assert await used.add("b", clock.now + 20)
    with pytest.raises(NotAdmitted):
        await used.add("c", clock.now + 30)
    assert "2 were used in a short time, so nothing that is approved can run" in caplog.text
    clock.now += 10 + SKEW_S
    assert await used.add("c", clock.now + 30)
    with pytest.raises(NotAdmitted):
        await used.add("d", clock.now + 30)


@requirement("ACCESS-86")
async def test_a_repeated_step_is_no_second_use() -> None:
    store = FailingStore()
    store.repeats = 2
    assert await used_in(store).add("a", NOW + 10)
    assert store.repeats == 0
    assert not await used_in(store).add("a", NOW + 10)


@requirement("ACCESS-87")
async def test_a_use_that_was_not_acknowledged_may_count_and_nothing_runs(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore()
    store.lost = True
    used = used_in(store)
    with pytest.raises(NotAdmitted):
        await used.add("a", NOW + 10)
    assert "no answer, so nothing that is approved can run" in caplog.text
    store.lost = False
    assert not await used.add("a", NOW + 10)


@requirement("EXEC-43", "ACCESS-18")
async def test_what_a_process_has_used_is_not_forgotten_with_its_row() -> None:
    store = MemoryStore()
    used = used_in(store)
    assert await used.add("a", NOW + 10)
    await store.step([Drop(Kind("used_approval"), hashed("a"))])
    assert not await used.add("a", NOW + 10)
    assert await used.add("b", NOW + 10)
