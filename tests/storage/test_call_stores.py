"""What is kept of long calls, in a file and in a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.storage.call_store_contract import CallStoreContract, OpenCalls
from tests.storage.once_store_contract import Clock
from tests.storage.test_redis_stores import keys_without_an_end
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from wicketgate.gateway.kept_calls import StoreAway
from wicketgate.storage import sqlite_calls
from wicketgate.storage.redis.calls import RedisCallStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.sqlite_calls import SQLiteCallStore

BOUND_S = 30.0


class TestSQLite(CallStoreContract):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenCalls]:
        opened: list[SQLiteCallStore] = []

        def make(clock: Clock) -> SQLiteCallStore:
            opened.append(SQLiteCallStore(tmp_path / "a.db", clock))
            return opened[-1]

        yield make
        for store in opened:
            await store.aclose()

    @requirement("FACE-109")
    async def test_rows_lapse_outlive_a_restart_and_are_bounded(
        self, open_store: OpenCalls, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock()
        store = open_store(clock)
        await store.put("ann", "1", b"1", 10)
        clock.now += 9
        other = open_store(clock)
        assert await other.get("ann", "1") == b"1"
        clock.now += 1
        assert await other.get("ann", "1") is None
        monkeypatch.setattr(sqlite_calls, "MOST_BYTES", 10)
        for id in "abc":
            await other.put("ann", id, b"1234", 10)
        assert [await store.get("ann", id) for id in "abc"] == [None, b"1234", b"1234"]

    @requirement("FACE-109")
    async def test_a_file_that_is_out_of_order_is_told_from_a_row_that_is_not_there(
        self, open_store: OpenCalls, tmp_path: Path
    ) -> None:
        store = open_store(Clock())
        await store.put("ann", "1", b"1", 10)
        (tmp_path / "a.db").unlink()
        (tmp_path / "a.db").mkdir()
        assert not await store.put("ann", "1", b"1", 10)
        with pytest.raises(StoreAway):
            await store.get("ann", "1")
        await store.drop("ann", "1")


class TestRedis(CallStoreContract):
    @pytest.fixture
    def open_store(self, link: RedisLink) -> OpenCalls:
        return lambda clock: RedisCallStore(link)

    @requirement("FACE-109", "OPS-163")
    async def test_rows_lapse_and_every_replica_has_them(self, link: RedisLink, redis: RedisServer) -> None:
        store = RedisCallStore(link)
        other = RedisLink(read_url(redis.url), names=link.names)
        await store.put("ann", "1", b"1", 60)
        assert await RedisCallStore(other).get("ann", "1") == b"1"
        await other.aclose()
        assert await keys_without_an_end(link) == []
        await store.put("ann", "2", b"2", 0.001)
        async with asyncio.timeout(BOUND_S):
            while await store.get("ann", "2") is not None:
                pass

    @requirement("FACE-109")
    async def test_a_redis_that_is_away_is_told_from_a_row_that_is_not_there(self, tmp_path: Path) -> None:
        server = RedisServer(tmp_path)  # not started
        link = RedisLink(read_url(server.url))
        store = RedisCallStore(link)
        assert not await store.put("ann", "1", b"1", 60)
        with pytest.raises(StoreAway):
            await store.get("ann", "1")
        await store.drop("ann", "1")
        await link.aclose()
