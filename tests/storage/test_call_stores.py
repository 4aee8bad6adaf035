"""Long calls, as they are kept in a file and in a real Redis."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.storage.call_store_contract import CallStoreContract, OpenCalls
from tests.storage.once_store_contract import Clock
from tests.storage.test_redis_stores import keys_without_an_end
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from wicketgate.gateway.kept_calls import MOST_BYTES, StoreAway
from wicketgate.storage.redis.calls import RedisCallStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.sqlite_calls import SQLiteCallStore

pytestmark = pytest.mark.usefixtures("patient_stores")

BOUND_S = 30.0


class TestSQLite(CallStoreContract):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenCalls]:
        opened: list[SQLiteCallStore] = []

        def make(clock: Clock, most_bytes: int = MOST_BYTES) -> SQLiteCallStore:
            opened.append(SQLiteCallStore(tmp_path / "a.db", clock, most_bytes=most_bytes))
            return opened[-1]

        yield make
        for store in opened:
            await store.aclose()

    @requirement("FACE-109")
    async def test_rows_lapse_and_outlive_a_restart(self, open_store: OpenCalls) -> None:
        clock = Clock()
        store = open_store(clock)
        await store.put("ann", "1", b"1", 10, ended=True)
        clock.now += 9
        other = open_store(clock)
        assert await other.get("ann", "1") == b"1"
        clock.now += 1
        assert await other.get("ann", "1") is None

    @requirement("FACE-109")
    async def test_a_file_that_is_out_of_order_is_told_from_a_row_that_is_not_there(
        self, open_store: OpenCalls, tmp_path: Path
    ) -> None:
        store = open_store(Clock())
        await store.put("ann", "1", b"1", 10, ended=True)
        (tmp_path / "a.db").unlink()
        (tmp_path / "a.db").mkdir()
        assert not await store.put("ann", "1", b"1", 10, ended=True)
        with pytest.raises(StoreAway):
            await store.get("ann", "1")
        await store.drop("ann", "1")

    @requirement("OPS-350")
    async def test_a_file_of_an_earlier_version_is_read_and_bounded(
        self, open_store: OpenCalls, tmp_path: Path
    ) -> None:
        clock = Clock()
        open_store(clock)
        with closing(sqlite3.connect(tmp_path / "a.db")) as disk:
            disk.execute("DROP TABLE long_call")
            disk.execute(
                "CREATE TABLE long_call (id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, until REAL NOT NULL,"
                " row BLOB NOT NULL)"
            )
            row = (b"n", clock.now + 60, b"x" * 90)
            disk.execute("INSERT INTO long_call (name, until, row) VALUES (?, ?, ?)", row)
            disk.commit()
        store = open_store(clock, 100)
        assert await store.put("ann", "1", b"x" * 20, 60, ended=True)
        assert await store.get("ann", "1") is not None
        with closing(sqlite3.connect(tmp_path / "a.db")) as disk:
            assert disk.execute("SELECT count(*) FROM long_call").fetchone() == (1,)


class TestRedis(CallStoreContract):
    @pytest.fixture
    def open_store(self, link: RedisLink) -> OpenCalls:
        return lambda clock, most_bytes=MOST_BYTES: RedisCallStore(link, most_bytes)

    @requirement("FACE-109", "OPS-163")
    async def test_rows_lapse_and_every_replica_has_them(self, link: RedisLink, redis: RedisServer) -> None:
        store = RedisCallStore(link)
        other = RedisLink(read_url(redis.url), names=link.names)
        await store.put("ann", "1", b"1", 60, ended=True)
        assert await RedisCallStore(other).get("ann", "1") == b"1"
        await other.aclose()
        assert await keys_without_an_end(link) == []
        await store.put("ann", "2", b"2", 0.001, ended=True)
        async with asyncio.timeout(BOUND_S):
            while await store.get("ann", "2") is not None:
                pass

    @requirement("OPS-350")
    async def test_what_lapsed_makes_room(self, link: RedisLink) -> None:
        store = RedisCallStore(link, 100)
        assert await store.put("ann", "1", b"x" * 50, 0.001, ended=False)
        async with asyncio.timeout(BOUND_S):
            while not await store.put("ann", "2", b"x" * 50, 60, ended=False):
                pass
            while await store.get("ann", "1") is not None:
                pass
        assert await keys_without_an_end(link) == []

    @requirement("FACE-109")
    async def test_a_redis_that_is_away_is_told_from_a_row_that_is_not_there(self, tmp_path: Path) -> None:
        server = RedisServer(tmp_path)  # not started
        link = RedisLink(read_url(server.url))
        store = RedisCallStore(link)
        assert not await store.put("ann", "1", b"1", 60, ended=True)
        with pytest.raises(StoreAway):
            await store.get("ann", "1")
        await store.drop("ann", "1")
        await link.aclose()
