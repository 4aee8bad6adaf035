"""Quotas, kept results and seen cards keep one contract in memory, in a file and in a real Redis."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.quota_store_contract import Clock, Counted, QuotaStoreContract
from tests.storage.result_store_contract import MAX_RESULTS, Kept, ResultStoreContract, key, result
from tests.storage.session_store_contract import MARKER, OpenSessions, Sessions, SessionStoreContract, card
from tests.storage.test_redis_stores import keys_without_an_end, other_replica
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from wicketgate.call_state import SessionStore, Window
from wicketgate.config.call_state import CallState, make_call_state
from wicketgate.config.settings import StorageSettings
from wicketgate.storage.memory_quota import MemoryQuotaStore
from wicketgate.storage.memory_results import MemoryResultStore
from wicketgate.storage.memory_store import MemorySessionStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.quota import RedisQuotaStore
from wicketgate.storage.redis.results import RedisResultStore
from wicketgate.storage.redis.sessions import RedisSessionStore
from wicketgate.storage.result_rows import MAX_RESULT_BYTES
from wicketgate.storage.sqlite_file import prepare
from wicketgate.storage.sqlite_quota import SQLiteQuotaStore, make_quota_table
from wicketgate.storage.sqlite_results import SQLiteResultStore, make_result_tables
from wicketgate.storage.sqlite_sessions import SQLiteSessionStore, make_session_tables
from wicketgate.storage.sqlite_writer import SQLiteWriter

BOUND_S = 40.0
MILLISECOND, MICROSECOND = 1_000, 1_000_000
Later = Callable[[float], Awaitable[None]]


def by(clock: Clock) -> Later:
    async def later(seconds: float) -> None:
        clock.now += seconds

    return later


def aged(link: RedisLink, units: int) -> Later:
    """Makes all that is kept older, because the clock is that of Redis. Scores are times in *units* of a second."""

    async def work(client: Any, seconds: float) -> None:
        async for name in client.scan_iter(f"{link.names.space}:*"):
            if await client.type(name) == b"zset":
                for member, score in await client.zrange(name, 0, -1, withscores=True):
                    await client.zadd(name, {member: score - seconds * units})
            elif b":state:" in name:
                await client.pexpire(name, max(await client.pttl(name) - int(seconds * 1_000), 0))

    async def later(seconds: float) -> None:
        if seconds >= 1:
            await link.run(lambda client: work(client, seconds))

    return later


@pytest.fixture
async def writer(tmp_path: Path) -> AsyncIterator[SQLiteWriter]:
    def make_tables(disk: Any) -> None:
        for make in (make_quota_table, make_result_tables, make_session_tables):
            make(disk)

    prepare(tmp_path / "store.db", make_tables)
    made = SQLiteWriter(tmp_path / "store.db", make_tables)
    yield made
    await made.aclose()


class TestQuotasInMemory(QuotaStoreContract):
    @pytest.fixture
    def counted(self) -> Counted:
        clock = Clock()
        return Counted(MemoryQuotaStore(clock), by(clock))


class TestQuotasInAFile(QuotaStoreContract):
    @pytest.fixture
    def counted(self, writer: SQLiteWriter) -> Counted:
        clock = Clock()
        return Counted(SQLiteQuotaStore(writer, clock), by(clock))

    async def test_a_clock_that_was_set_back_holds_nobody_off_for_long(self, writer: SQLiteWriter) -> None:
        clock = Clock()
        store = SQLiteQuotaStore(writer, clock)
        assert await store.take("ann", [Window("", 1)]) is None
        clock.now -= 30
        full = await store.take("ann", [Window("", 1)])
        assert full is not None
        assert full.retry_after_s == 60
        clock.now -= 3_600
        assert await store.take("ann", [Window("", 1)]) is None


class TestQuotasInRedis(QuotaStoreContract):
    @pytest.fixture
    def counted(self, link: RedisLink) -> Counted:
        return Counted(RedisQuotaStore(link), aged(link, MICROSECOND))

    @requirement("ACCESS-93")
    async def test_of_many_replicas_together_as_many_run_as_may(self, redis: RedisServer, link: RedisLink) -> None:
        windows = [Window("", 10), Window("x:*", 15)]
        async with other_replica(redis, link) as elsewhere:
            stores = [RedisQuotaStore(link), RedisQuotaStore(elsewhere)]
            taken = await asyncio.gather(*(store.take("ann", windows) for _ in range(30) for store in stores))
        assert taken.count(None) == 10
        assert await keys_without_an_end(link) == []


class TestResultsInMemory(ResultStoreContract):
    @pytest.fixture
    def kept(self) -> Kept:
        clock = Clock()
        return Kept(MemoryResultStore(clock, max_results=MAX_RESULTS), by(clock))


class TestResultsInAFile(ResultStoreContract):
    @pytest.fixture
    def kept(self, writer: SQLiteWriter) -> Kept:
        clock = Clock()
        return Kept(SQLiteResultStore(writer, clock, max_results=MAX_RESULTS), by(clock))

    @requirement("EXEC-54")
    async def test_bytes_are_bounded(self, writer: SQLiteWriter) -> None:
        await bytes_are_bounded(Kept(SQLiteResultStore(writer, Clock(), max_bytes=2_500), by(Clock())))


class TestResultsInRedis(ResultStoreContract):
    @pytest.fixture
    def kept(self, link: RedisLink) -> Kept:
        return Kept(RedisResultStore(link, max_results=MAX_RESULTS), aged(link, MILLISECOND))

    @requirement("EXEC-54")
    async def test_bytes_are_bounded(self, link: RedisLink) -> None:
        await bytes_are_bounded(Kept(RedisResultStore(link, max_bytes=2_500), aged(link, MILLISECOND)))

    @requirement("EXEC-54")
    async def test_names_tell_nothing_and_every_key_has_an_end(self, link: RedisLink, kept: Kept) -> None:
        await kept.keep("salary-of-ann")
        assert await keys_without_an_end(link) == []

        async def names(client: Any) -> list[bytes]:
            return [name async for name in client.scan_iter(f"{link.names.space}:*")]

        assert not any(b"ann" in name for name in await link.run(names))


async def bytes_are_bounded(kept: Kept) -> None:
    for name in ("a" * 1_000, "b" * 1_000, "c" * 1_000):
        await kept.keep(name)
        assert await kept.has(name) == [name]
        await kept.later(1)
    assert await kept.has("a" * 1_000) == []
    await kept.keep("d" * 3_000)
    assert await kept.has("d" * 3_000) == []
    huge = {"content": [{"type": "text", "text": "x" * MAX_RESULT_BYTES}]}
    await kept.store.put(key("huge"), huge, 60, (await kept.store.get(key("huge"))).since)
    assert await kept.has("huge") == []


class TestSeenCardsInMemory(SessionStoreContract):
    @pytest.fixture
    def open_sessions(self) -> OpenSessions:
        clock = Clock()
        return lambda bounds: Sessions(MemorySessionStore(clock, bounds), by(clock))


class TestSeenCardsInAFile(SessionStoreContract):
    @pytest.fixture
    def open_sessions(self, writer: SQLiteWriter) -> OpenSessions:
        clock = Clock()
        return lambda bounds: Sessions(SQLiteSessionStore(writer, clock, bounds), by(clock))


class TestSeenCardsInRedis(SessionStoreContract):
    @pytest.fixture
    def open_sessions(self, link: RedisLink) -> OpenSessions:
        return lambda bounds: Sessions(RedisSessionStore(link, bounds), aged(link, MICROSECOND))

    @requirement("BROWSE-72")
    async def test_replicas_that_show_cards_at_once_lose_none_and_agree(
        self, redis: RedisServer, link: RedisLink
    ) -> None:
        async with other_replica(redis, link) as elsewhere:
            stores: list[SessionStore] = [RedisSessionStore(link), RedisSessionStore(elsewhere)]
            await agree([Sessions(store, aged(link, MICROSECOND)) for store in stores])
        assert await keys_without_an_end(link) == []

    async def test_a_damaged_card_is_a_new_one(self, link: RedisLink) -> None:
        here = Sessions(RedisSessionStore(link), aged(link, MICROSECOND))
        await here.order("s", "a", "b")

        async def spoil(client: Any) -> None:
            async for name in client.scan_iter(f"{link.names.space}:*:cards:*"):
                await client.hset(name, card("a").id, b"\xff[")
                await client.hset(name, card("b").id, b'["d", [1, 2]]')

        await link.run(spoil)
        assert await here.order("s", "a", "b") == ["a", "b"]


async def agree(stores: list[Sessions]) -> None:
    """Each shows the same cards with scores of its own; what was shown first is shown by all afterwards."""
    names = [f"card_{number}" for number in range(12)]
    scores = itertools.count(1)
    sent = await asyncio.gather(
        *(
            here.sent("s", [card(name, 1 / next(scores)) for name in names[at : at + 6]])
            for at in range(0, 7, 3)
            for here in stores
        )
    )
    shown = {each.id: each for order in sent for each in order if each.name != MARKER}
    assert len(shown) == 12
    after = [await here.sent("s", [card(name) for name in names]) for here in stores]
    assert [len(order) for order in after] == [12, 12], "all were seen"
    assert after[0] == after[1]
    for order in sent:
        assert set(order) - set(after[0]) <= {each for each in order if each.name == MARKER}


@pytest.fixture
async def two_of_a_file(tmp_path: Path) -> AsyncIterator[list[CallState]]:
    settings = StorageSettings(url=f"sqlite:///{tmp_path}/both.db")
    made = [make_call_state(settings), make_call_state(settings)]
    yield made
    for state in made:
        await state.aclose()


@requirement("BROWSE-72", "ACCESS-93", "EXEC-54")
async def test_processes_that_share_a_file_share_all_three(two_of_a_file: list[CallState]) -> None:
    one, other = two_of_a_file
    async with asyncio.timeout(BOUND_S):
        still = by(Clock())
        await agree([Sessions(one.sessions, still), Sessions(other.sessions, still)])
        windows = [Window("", 20)]
        taken = await asyncio.gather(*(each.quota.take("ann", windows) for _ in range(30) for each in two_of_a_file))
        assert taken.count(None) == 20
        here, there = Kept(one.results, still), Kept(other.results, still)
        await here.keep("a")
        assert await there.got("a") == result("a")
        await there.store.clear()
        assert await here.got("a") is None


@requirement("BROWSE-71")
async def test_seen_cards_outlive_a_restart(tmp_path: Path) -> None:
    settings = StorageSettings(url=f"sqlite:///{tmp_path}/store.db")
    for expected in (["a"], ["a", MARKER, "b"]):
        state = make_call_state(settings)
        here = Sessions(state.sessions, by(Clock()))
        assert await here.order("s", *("ab"[: len(expected)])) == expected
        await state.aclose()
