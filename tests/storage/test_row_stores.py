"""The rows of logins in memory, in SQLite and in a real Redis."""

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.storage.row_store_contract import RowStoreContract, row
from tests.storage.test_redis_stores import keys_without_an_end
from tests.support.locked_file import locked
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from wicketgate.login.rows import LoginsAway, RowStore
from wicketgate.storage.memory_logins import MemoryRowStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.logins import RedisRowStore
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.sqlite_logins import SQLiteRowStore

pytestmark = pytest.mark.usefixtures("patient_stores")


class TestMemory(RowStoreContract):
    @pytest.fixture
    def store(self) -> RowStore:
        return MemoryRowStore(time.time)

    @pytest.fixture
    def other(self, store: RowStore) -> RowStore:
        return store

    @requirement("ACCESS-150")
    async def test_what_has_ended_makes_room(self) -> None:
        store = MemoryRowStore(time.time)
        for number in range(1_000):
            await store.write(row(f"k{number}", expires_at=time.time() - 1))
            await store.lease("grant", f"k{number}", "h", 0.0)
        assert len(store._rows) < 300
        assert len(store._leases) < 300


class TestSQLite(RowStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[RowStore]:
        store = SQLiteRowStore(tmp_path / "store.db", time.time)
        yield store
        await store.aclose()

    @pytest.fixture
    async def other(self, store: RowStore, tmp_path: Path) -> AsyncIterator[RowStore]:
        other = SQLiteRowStore(tmp_path / "store.db", time.time)
        yield other
        await other.aclose()

    @requirement("ACCESS-152")
    @pytest.mark.usefixtures("real_waits")
    async def test_a_locked_file_is_away(self, store: RowStore, tmp_path: Path) -> None:
        with locked(tmp_path / "store.db"):
            for doing in (store.read("grant", "k1"), store.write(row()), store.lease("grant", "k1", "h", 1)):
                with pytest.raises(LoginsAway):
                    await doing

    @requirement("ACCESS-152")
    async def test_a_file_that_was_removed_is_begun_anew(self, store: RowStore, tmp_path: Path) -> None:
        await store.write(row())
        for file in tmp_path.iterdir():
            file.unlink()
        assert await store.read("grant", "k1") is None
        assert await store.write(row())

    @requirement("ACCESS-150")
    async def test_what_has_ended_leaves_the_file(self, store: RowStore, tmp_path: Path) -> None:
        for number in range(10):
            await store.write(row(f"k{number}", expires_at=time.time() - 1))
        await store.write(row())
        with closing(sqlite3.connect(tmp_path / "store.db")) as disk:
            assert disk.execute("SELECT count(*) FROM login_row").fetchone() == (1,)


class TestRedis(RowStoreContract):
    @pytest.fixture
    def store(self, link: RedisLink) -> RowStore:
        return RedisRowStore(link)

    @pytest.fixture
    async def other(self, redis: RedisServer, link: RedisLink) -> AsyncIterator[RowStore]:
        made = RedisLink(read_url(redis.url), names=link.names)
        yield RedisRowStore(made)
        await made.aclose()

    @requirement("OPS-163", "ACCESS-150")
    async def test_every_key_has_an_end_a_version_and_one_slot(self, store: RowStore, link: RedisLink) -> None:
        await store.write(row("k1"))
        await store.write(row("k2", expires_at=time.time() + 60), most_of_owner=3)
        await store.lease("grant", "k1", "h", 60)
        assert await keys_without_an_end(link) == []

        async def names(client: Any) -> set[str]:
            return {key.decode().partition(":")[2] async for key in client.scan_iter(f"{link.names.space}:*")}

        rows = {"wg1:login-grant:{k1}", "wg1:login-grant:{k1}:lease", "wg1:login-grant:{k2}"}
        found = await link.run(names)
        assert rows < found
        assert all(name.startswith(("wg1:login-owner:{", "wg1:login-all:{")) for name in found - rows)

    @requirement("ACCESS-150")
    async def test_names_without_a_row_take_no_room(self, store: RowStore, link: RedisLink) -> None:
        for number in range(3):
            await store.write(row(f"k{number}"))

        async def lose(client: Any) -> None:
            await client.delete(*(link.names.key("login-grant", f"k{number}") for number in range(3)))

        await link.run(lose)
        assert await store.write(row("new"), most_of_owner=1)
        assert [each.key for each in await store.of_owner("grant", "ann")] == ["new"]

    @requirement("ACCESS-150")
    @pytest.mark.parametrize(("field", "value"), [("version", b"x"), ("owner", b"\xff"), ("until", b"soon")])
    async def test_what_is_not_ours_is_no_row(self, store: RowStore, link: RedisLink, field: str, value: bytes) -> None:
        await store.write(row())

        async def spoil(client: Any) -> None:
            await client.hset(link.names.key("login-grant", "k1"), field, value)

        await link.run(spoil)
        assert await store.read("grant", "k1") is None


@requirement("ACCESS-152")
async def test_a_redis_that_is_gone_is_away(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        link = RedisLink(read_url(server.url))
        store = RedisRowStore(link)
        await store.write(row())
        server.kill()
        for doing in (store.read("grant", "k1"), store.write(row(version=2)), store.of_owner("grant", None)):
            with pytest.raises(LoginsAway):
                await doing
        await link.aclose()
