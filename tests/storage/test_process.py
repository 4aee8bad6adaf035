"""The mark of a process, and its patience (EXEC-120). Its times are short; the clock of the store is moved by hand."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.storage.core import DamagedRow
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.process import RELEASED, Process
from wicketgate.storage.store import Beat, Fence, Kind, Put, Signal, StoreUnavailable, Take

BOUND_S = 30.0
MARK_S = 0.4
BEAT_S = 0.02
THING = Kind("thing")


class Store(MemoryStore):
    """Has outages, and a clock that can jump. Sets *beaten* at each beat."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.away = False
        self.beaten = asyncio.Event()
        loop = asyncio.get_running_loop()
        super().__init__(lambda: loop.time() + self.ahead_s)

    async def beat(self, process: str, *, mark_s: float = MARK_S) -> Beat:
        self.beaten.set()
        if self.away:
            raise StoreUnavailable("is not there")
        return await super().beat(process, mark_s=mark_s)

    async def pass_beats(self, number: int = 2) -> None:
        for _ in range(number):
            self.beaten.clear()
            await self.beaten.wait()


class Taker:
    """Takes rows of kind ``thing``, and notes when."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.process = Process(store, mark_s=MARK_S, beat_s=BEAT_S)
        self.process.take_over("thing", self.take)
        self.process.on_lost(self._lose)
        self.taken_at: dict[str, float] = {}
        self.lost = 0
        self.took = asyncio.Event()

    async def take(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self.store.step([Take(THING, key, self.process.id)])
            self.taken_at[key] = asyncio.get_running_loop().time()
        self.took.set()

    async def takes(self) -> float:
        """Waits for what is taken next, and returns when."""
        self.took.clear()
        await self.took.wait()
        return max(self.taken_at.values())

    def _lose(self) -> None:
        self.lost += 1


@pytest.fixture
async def store() -> Store:
    return Store()


def now() -> float:
    return asyncio.get_running_loop().time()


@requirement("EXEC-120")
async def test_a_process_takes_over_nothing_for_the_lifetime_of_a_mark_after_its_start(store: Store) -> None:
    await store.step([Put(THING, "a", b"", holder="ended")])
    taker, began = Taker(store), now()
    async with asyncio.timeout(BOUND_S), taker.process.running():
        assert await taker.takes() >= began + MARK_S
    row = await store.get(THING, "a")
    assert row is not None
    assert (row.holder, row.term) == (taker.process.id, 2)
    assert taker.lost == 0


@requirement("EXEC-120", "CHAT-119")
async def test_processes_that_live_keep_their_rows_after_an_outage_longer_than_a_mark(store: Store) -> None:
    one, other = Taker(store), Taker(store)
    async with asyncio.timeout(BOUND_S), other.process.running():
        async with one.process.running():
            await store.step([Put(THING, "a", b"", holder=one.process.id)])
            await until(lambda: not one.process._is_patient() and not other.process._is_patient())
            store.away = True
            await store.pass_beats()
            store.ahead_s += 10 * MARK_S
            store.away, back = False, now()
            await store.pass_beats(6)
            assert (one.lost, other.lost) == (1, 1), "both learn that their marks had lapsed"
            assert (one.taken_at, other.taken_at) == ({}, {})
            await store.step([Put(THING, "a", b"1")], fence=Fence(THING, "a", one.process.id, 1))
        assert await other.takes() >= back + MARK_S, "and it is taken once its process has ended"


@requirement("EXEC-120")
async def test_a_process_that_stood_still_takes_over_nothing_before_others_can_renew_their_marks(store: Store) -> None:
    taker = Taker(store)
    async with asyncio.timeout(BOUND_S), taker.process.running():
        await until(lambda: not taker.process._is_patient())
        await store.beat("other", mark_s=MARK_S)
        await store.step([Put(THING, "a", b"", holder="other")])
        store.ahead_s += 10 * MARK_S  # the whole machine stood still
        woken = now()
        await store.pass_beats(4)
        assert (taker.lost, taker.taken_at) == (1, {})
        assert await taker.takes() >= woken + MARK_S


async def test_a_mark_that_the_store_has_forgotten_was_lost_too(store: Store) -> None:
    taker = Taker(store)
    async with asyncio.timeout(BOUND_S), taker.process.running():
        store.away = True
        await store.pass_beats()
        await MemoryStore.beat(store, taker.process.id, mark_s=0)
        store.away = False
        await store.pass_beats(4)
        assert taker.lost == 1


async def test_a_released_row_is_taken_over_before_the_next_beat(store: Store) -> None:
    process = Process(store, mark_s=MARK_S, beat_s=BOUND_S)
    took = asyncio.Event()

    async def take(keys: Sequence[str]) -> None:
        assert list(keys) == ["a"]
        took.set()

    process.take_over("thing", take)
    await store.beat("other", mark_s=BOUND_S)
    async with asyncio.timeout(BOUND_S / 2), process.running():
        await until(lambda: not process._is_patient())
        await store.beat(process.id, mark_s=BOUND_S)
        await store.step([Put(THING, "a", b"", holder=""), Signal(RELEASED)])
        await took.wait()


@pytest.mark.parametrize("error", [ValueError, StoreUnavailable])
async def test_a_slow_or_failing_taker_stops_no_beat(store: Store, error: Callable[[str], Exception]) -> None:
    go_on, calls = asyncio.Event(), 0

    async def take(keys: Sequence[str]) -> None:
        nonlocal calls
        calls += 1
        await go_on.wait()
        raise error("on purpose")

    process = Process(store, mark_s=MARK_S, beat_s=BEAT_S)
    process.take_over("thing", take)
    process.on_lost(lambda: pytest.fail("its mark lapsed"))
    await store.step([Put(THING, "a", b"", holder="ended")])
    async with asyncio.timeout(BOUND_S), process.running():
        while not calls:
            await store.pass_beats(1)
        for _ in range(3):
            store.ahead_s += MARK_S / 2
            await store.pass_beats()
        assert calls == 1, "one at a time"
        go_on.set()
        while calls < 3:
            await store.pass_beats(1)


async def test_a_damaged_row_holds_up_no_other_kind(store: Store) -> None:
    process, took = Process(store), asyncio.Event()

    async def fail(keys: Sequence[str]) -> None:
        raise DamagedRow("damaged", "a")

    async def take(keys: Sequence[str]) -> None:
        took.set()

    process.take_over("damaged", fail)
    process.take_over("thing", take)
    await process._take({"damaged": ["a"], "thing": ["a"]})
    assert took.is_set()


async def test_the_end_of_a_process_frees_what_it_held_immediately(store: Store) -> None:
    process = Process(store)
    async with process.running():
        await store.step([Put(THING, "a", b"", holder=process.id)])
        assert (await store.beat("other")).lapsed == {}
    assert (await store.beat("other")).lapsed == {"thing": ["a"]}


@requirement("EXEC-120")
async def test_where_all_marks_have_lapsed_no_process_is_known_to_have_ended_before_it_could_renew_its_own(
    store: Store,
) -> None:
    here = Process(store, mark_s=MARK_S, beat_s=BEAT_S)
    async with here.running():
        await store.beat("there", mark_s=MARK_S)
        store.ahead_s += 2 * MARK_S
        assert not await here.ended("there")
        await until(lambda: here.ended("there"))
