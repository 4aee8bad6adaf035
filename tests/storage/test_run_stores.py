"""Runs in a SQLite file and in Redis, under the contract of every RunStore."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.storage.run_store_contract import Hosts, RunStoreContract
from wicketgate.storage.memory_journal import JournalBounds
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.runs import RedisRunStore
from wicketgate.storage.run_store import RunStore
from wicketgate.storage.sqlite_runs import SQLiteRunStore

BOUNDS = JournalBounds(total_bytes=2_000_000, run_bytes=200_000, unread_bytes=50_000, joins=False)


class _OneFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._now = 1_000_000.0
        self._stores: list[SQLiteRunStore] = []

    def process(self) -> RunStore:
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
