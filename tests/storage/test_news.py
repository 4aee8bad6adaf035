"""The news of all processes: heard by each from its start on, once, over every back end."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.news import News
from wicketgate.storage.store import Append, Drop, Kind, Put, Store

Stores = tuple[str, Callable[[], Store]]
ROW = Kind("news"), "all"


class Heard:
    """What one process heard, and how often it may have missed something."""

    def __init__(self, store: Store, process: str) -> None:
        self.news = News(store, process)
        self.facts: list[Any] = []
        self.gaps = 0
        self.changed = asyncio.Event()
        self.news.on("told", self._hear, self._missed)

    async def _hear(self, facts: Any) -> None:
        self.facts.append((facts["by"], facts["n"]))
        self.changed.set()

    async def _missed(self, facts: Any) -> None:
        self.gaps += 1
        self.changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not done():
                self.changed.clear()
                await self.changed.wait()


@requirement("OPS-487")
async def test_each_process_hears_what_is_told_after_its_start_in_order(stores: Stores) -> None:
    _, make = stores
    one, other = Heard(make(), "one"), Heard(make(), "other")
    async with one.news.running():
        await one.news.tell("told", n=0)
        async with other.news.running():
            for n in range(1, 150):
                await (one if n % 2 else other).news.tell("told", n=n)
            await other.until(lambda: len(other.facts) == 149)
            await one.until(lambda: len(one.facts) == 150)
    assert [n for _, n in one.facts] == list(range(150))
    assert other.facts == [("one" if n % 2 else "other", n) for n in range(1, 150)]
    assert (one.gaps, other.gaps) == (0, 0)


@requirement("OPS-487")
async def test_an_entry_that_a_repeated_step_wrote_twice_is_heard_once(stores: Stores) -> None:
    _, make = stores
    store = make()
    one = Heard(store, "one")
    async with one.news.running():
        ops = one.news.ops("told", n=1)
        await store.step(ops)
        await store.step(ops)
        await one.news.tell("told", n=2)
        await one.until(lambda: len(one.facts) == 2)
    assert one.facts == [("one", 1), ("one", 2)]


@requirement("OPS-487")
async def test_the_log_is_bounded_and_a_process_that_missed_entries_looks_at_all_rows(stores: Stores) -> None:
    _, make = stores
    store = make()
    one = Heard(store, "one")
    async with one.news.running():
        await one.news.tell("told", n=1)
        await one.until(lambda: len(one.facts) == 1)
        # The store loses its data, and has new entries up to the same place.
        await store.step([Drop(*ROW)])
        await store.step(News(store, "two").ops("told", n=2))
        await one.until(lambda: one.gaps == 1)
        await one.news.tell("told", n=3)
        await one.until(lambda: len(one.facts) == 2)
        # Entries up to the last thousand are dropped.
        await store.step([Put(*ROW, b""), Append(*ROW, 0, -1, [b"[]"] * 1_200)])
        await one.news.tell("told", n=4)
        await one.until(lambda: len(one.facts) == 3)
        await one.news.tell("told", n=5)
        await one.until(lambda: len(one.facts) == 4)
    left = await store.read_log(*ROW, 0, 0, 2_000)
    assert len(left) <= 1_002
    assert [n for _, n in one.facts] == [1, 3, 4, 5]


@requirement("OPS-487")
async def test_a_damaged_entry_is_refused_with_its_key_and_the_next_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    one = Heard(store, "one")
    async with one.news.running():
        for entry in (b"{", b"[1]", b'{"what": "told"}', b'{"what": "told", "id": "a"}', b"[" * 5_000):
            await store.step([Put(*ROW, b""), Append(*ROW, 0, -1, [entry])])
        await one.news.tell("told", n=1)
        await one.until(lambda: len(one.facts) == 1)
    refused = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert len(refused) == 5
    assert all("damaged row (news 'all" in line for line in refused)


@requirement("OPS-487")
async def test_what_is_told_during_an_outage_is_heard_after_it() -> None:
    store = FailingStore()
    one, other = Heard(store, "one"), Heard(store, "other")
    async with one.news.running(), other.news.running():
        store.unavailable = True
        await one.news.tell("told", n=1)
        store.unavailable = False
        await other.until(lambda: len(other.facts) == 1)
    assert other.facts == [("one", 1)]
