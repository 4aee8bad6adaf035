"""Quotas over one store: what processes share, the window, outages (ACCESS-16, ACCESS-93, ACCESS-94, ACCESS-320)."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from wicketgate.call_state import Window
from wicketgate.errors import NotAdmitted
from wicketgate.storage import quotas as quotas_module
from wicketgate.storage.fail_modes import USUAL, FailModes
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.quotas import StoredQuotas
from wicketgate.storage.store import Store

NOW = 1_000_020.0
"""The beginning of a bucket."""


MINUTE_S = 60.0
LONG_S = 30 * 86_400.0
ALL = Window("", 3)


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def quotas(clock: Clock) -> StoredQuotas:
    return StoredQuotas(MemoryStore(clock))


async def runs(quotas: StoredQuotas, *windows: Window, actor: str = "ann", count: bool = True) -> bool:
    return await quotas.take(actor, windows, count=count) is None


Stores = tuple[str, Callable[[], Store]]


class TestAnyStore:
    @pytest.fixture(autouse=True)
    def _long_windows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No test meets the end of a bucket, whatever the clock."""
        monkeypatch.setattr(quotas_module, "WINDOW_S", LONG_S)

    @requirement("ACCESS-16", "ACCESS-93")
    async def test_of_many_at_once_as_many_run_as_may_at_all_processes_together(self, stores: Stores) -> None:
        _, make = stores
        processes = [StoredQuotas(make()), StoredQuotas(make())]
        windows = [Window("", 10), Window("x:*", 15)]
        taken = await asyncio.gather(*(each.take("ann", windows) for _ in range(30) for each in processes))
        assert taken.count(None) == 10
        assert {full.window for full in taken if full} == {windows[0]}

    @requirement("ACCESS-16")
    async def test_each_actor_and_each_window_has_its_own_count(self, stores: Stores) -> None:
        here = StoredQuotas(stores[1]())
        for window in (Window("", 1), Window("x:*", 1), Window("é😀{}:", 1)):
            for actor in ("ann", "bob", "", "ann:x", "\ud800 \n"):
                assert await runs(here, window, actor=actor)
                assert not await runs(here, window, actor=actor)

    @requirement("ACCESS-16", "ACCESS-93")
    async def test_a_refused_execution_counts_in_no_window(self, stores: Stores) -> None:
        here, tool = StoredQuotas(stores[1]()), Window("x:*", 1)
        assert await runs(here, ALL, tool)
        assert [await runs(here, ALL, tool) for _ in range(5)] == [False] * 5
        assert [await runs(here, ALL) for _ in range(3)] == [True, True, False]

    @requirement("EXEC-5", "ACCESS-16")
    async def test_a_look_counts_nothing(self, stores: Stores) -> None:
        here = StoredQuotas(stores[1]())
        assert [await runs(here, ALL, count=False) for _ in range(9)] == [True] * 9
        assert [await runs(here, ALL) for _ in range(4)] == [True, True, True, False]
        assert not await runs(here, ALL, count=False)

    @requirement("ACCESS-93")
    async def test_other_limits_count_on(self, stores: Stores) -> None:
        here = StoredQuotas(stores[1]())
        assert [await runs(here, Window("", 2)) for _ in range(3)] == [True, True, False]
        assert [await runs(here, Window("", 4)) for _ in range(3)] == [True, True, False]
        assert not await runs(here, Window("", 1))
        nothing = await here.take("bob", [Window("", 0)])
        assert nothing is not None
        assert 0 < nothing.retry_after_s <= 2 * LONG_S + 1


class TestTheWindow:
    @requirement("ACCESS-16", "ACCESS-320")
    async def test_what_the_minute_before_holds_fades_evenly_up_to_its_last(
        self, quotas: StoredQuotas, clock: Clock
    ) -> None:
        clock.now += 40
        assert [await runs(quotas, Window("", 4)) for _ in range(5)] == [True] * 4 + [False]
        admitted_at = []
        for second in range(60, 121):
            clock.now = NOW + second
            if await runs(quotas, Window("", 4)):
                admitted_at.append(second)
        assert admitted_at == [70, 80, 90, 100]

    @requirement("ACCESS-16")
    async def test_the_window_that_stays_full_longest_is_reported(self, quotas: StoredQuotas, clock: Clock) -> None:
        tool = Window("x:*", 1)
        assert await runs(quotas, Window("", 1))
        clock.now += MINUTE_S
        assert await runs(quotas, tool)
        full = await quotas.take("ann", [Window("", 1), tool])
        assert full is not None
        assert full.window == tool
        assert full.retry_after_s == pytest.approx(60, abs=0.1)

    @requirement("ACCESS-16", "ACCESS-320")
    @given(
        limit=st.integers(1, 60),
        pauses=st.lists(st.one_of(st.just(0.0), st.floats(0, 5), st.floats(0, 130)), min_size=1, max_size=150),
    )
    async def test_no_minute_admits_more_than_the_limit_and_a_refusal_is_right(
        self, limit: int, pauses: Sequence[float]
    ) -> None:
        clock = Clock(NOW)
        quotas, windows = StoredQuotas(MemoryStore(clock)), [Window("", limit)]
        admitted: list[float] = []
        for pause in pauses:
            clock.now += pause
            full = await quotas.take("ann", windows)
            if full is None:
                admitted.append(clock.now)
                continue
            assert 0 < full.retry_after_s <= MINUTE_S + 0.1
            came, clock.now = clock.now, clock.now + full.retry_after_s
            assert await runs(quotas, *windows, count=False), "it has room when it said that it would have"
            clock.now = came
        for at in admitted:
            bucket = [each for each in admitted if each // MINUTE_S == at // MINUTE_S]
            assert len(bucket) <= limit
            assert len([each for each in admitted if at <= each < at + MINUTE_S]) < 2 * limit

    @requirement("ACCESS-320")
    @given(limit=st.integers(1, 30), begin=st.floats(0, 60))
    async def test_an_actor_that_always_asks_gets_its_limit_each_minute(self, limit: int, begin: float) -> None:
        clock = Clock(NOW)
        clock.now += begin
        quotas, end, admitted = StoredQuotas(MemoryStore(clock)), clock.now + 20 * MINUTE_S, 0
        while clock.now < end:
            full = await quotas.take("ann", [Window("", limit)])
            admitted += full is None
            clock.now += 0.0 if full is None else full.retry_after_s
        assert admitted >= 19 * limit

    async def test_a_clock_that_was_set_back_delays_no_actor_for_long(self, quotas: StoredQuotas, clock: Clock) -> None:
        assert await runs(quotas, Window("", 1))
        clock.now -= 30
        assert not await runs(quotas, Window("", 1))
        clock.now += 30 + 2 * MINUTE_S
        assert await runs(quotas, Window("", 1))
        clock.now -= 3_600
        assert await runs(quotas, Window("", 1))

    async def test_windows_that_no_longer_count_are_removed(self, clock: Clock) -> None:
        store = MemoryStore(clock)
        quotas = StoredQuotas(store)
        for number in range(2_000):
            clock.now += 1
            assert await runs(quotas, ALL, actor=f"actor_{number}")
        assert store._disk.execute("SELECT count(*) FROM count_bucket").fetchone()[0] <= 121


def over(shared: FailingStore, modes: FailModes) -> StoredQuotas:
    quotas = StoredQuotas(shared, modes)
    quotas._own = MemoryStore()  # as over a store that is not in memory
    return quotas


@requirement("ACCESS-94")
async def test_during_an_outage_each_process_counts_alone_from_what_it_admitted_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared, modes = FailingStore(), FailModes()
    one, other = over(shared, modes), over(shared, modes)
    twenty = Window("", 20)
    assert [await runs(one, twenty) for _ in range(5)] == [True] * 5
    shared.unavailable = True
    assert sum([await runs(one, twenty) for _ in range(30)]) == 15
    assert sum([await runs(other, twenty) for _ in range(30)]) == 20
    assert modes.degraded(away=False) == {"quotas": "open"}
    # Nothing of it is added to the store afterwards.
    shared.unavailable = False
    assert sum([await runs(one, twenty) for _ in range(30)]) == 15
    assert modes.degraded(away=False) == {}
    assert [record.getMessage() for record in caplog.records if record.name == "wicketgate.quota"] == [
        "executions cannot be counted for all processes: it is unavailable; each process counts alone"
    ] * 2


@requirement("ACCESS-94")
async def test_closed_quotas_admit_nothing_during_an_outage() -> None:
    shared = FailingStore()
    quotas = over(shared, FailModes({**USUAL, "quotas": "closed"}))
    assert await runs(quotas, ALL)
    shared.unavailable = True
    for count in (True, False):
        with pytest.raises(NotAdmitted):
            await quotas.take("ann", [ALL], count=count)
    shared.unavailable = False
    assert await runs(quotas, ALL)
