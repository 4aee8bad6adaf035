"""Runs in a SQLite file and in Redis, under the contract of every RunStore."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.storage.run_store_contract import Hosts, RunStoreContract
from tests.support.locked_file import locked
from tests.support.requirement import requirement
from wicketgate.storage import sqlite_writer
from wicketgate.storage.memory_journal import JournalBounds
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.runs import RedisRunStore
from wicketgate.storage.run_store import RunStore, StoreAway
from wicketgate.storage.sqlite_runs import SQLiteRunStore

pytestmark = pytest.mark.usefixtures("patient_stores")

BOUNDS = JournalBounds(total_bytes=2_000_000, run_bytes=200_000, unread_bytes=50_000, joins=False)


class _OneFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._now = 1_000_000.0
        self._stores: list[SQLiteRunStore] = []

    def process(self) -> SQLiteRunStore:
        store = SQLiteRunStore(self._path, BOUNDS, lambda: self._now, f"process {len(self._stores)}", lease_s=6)
        self._stores.append(store)
        return store

    async def lapse(self) -> None:
        self._now += 7

    async def aclose(self) -> None:
        await asyncio.gather(*(store.aclose() for store in self._stores))


class TestSQLiteRunStore(RunStoreContract):
    @pytest.fixture
    async def hosts(self, tmp_path: Path) -> AsyncIterator[Hosts]:
        file = _OneFile(tmp_path / "a.db")
        yield file
        await file.aclose()


class _OneRedis:
    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._ahead_s = 0.0
        self._stores = 0

    def process(self) -> RunStore:
        self._stores += 1
        return RedisRunStore(self._link, BOUNDS, f"process {self._stores}", 6, lambda: self._ahead_s)

    async def lapse(self) -> None:
        self._ahead_s += 7


class TestRedisRunStore(RunStoreContract):
    @pytest.fixture
    def hosts(self, link: RedisLink) -> Hosts:
        return _OneRedis(link)


@requirement("CHAT-140")
async def test_a_key_that_was_refused_because_the_file_was_locked_is_free_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "WAIT_S", 0.05)
    monkeypatch.setattr(sqlite_writer, "PAUSE_S", 0.0)
    file = _OneFile(tmp_path / "a.db")
    here, there = file.process(), file.process()
    with locked(tmp_path / "a.db"), pytest.raises(StoreAway):
        await here.claim("a", "refused", "digest", "bob")
    monkeypatch.setattr(sqlite_writer, "WAIT_S", 30.0)
    assert await here.claim("b", "next", "digest", "bob") is None  # behind what the first may have left to do
    assert await there.find("a") is None
    assert await there.claim("a", "again", "digest", "bob") is None
    await file.aclose()


@requirement("CHAT-140")
async def test_a_claim_that_was_committed_after_its_caller_left_is_free_at_its_process(tmp_path: Path) -> None:
    file = _OneFile(tmp_path / "a.db")
    here, there = file.process(), file.process()
    assert await here.claim("a", "left", "digest", "bob", b"part") is None
    here._mine.clear()  # as if the caller had been given up while the disk took the commit
    assert await here.find("a") is None
    assert await here.claim("a", "again", "digest", "bob", b"part") is None
    found = await there.find("a")
    assert found is not None
    assert found.run_id == "again"
    # Other processes find it free after the next renewal; a run that has begun is left alone.
    assert await here.claim("b", "left", "digest", "bob", b"part") is None
    del here._mine["b"]
    assert await here.renew() == []
    assert await there.claim("b", "other", "digest", "bob", b"part") is None
    assert await here.renew() == []
    assert await there.find("a") is not None
    await file.aclose()
