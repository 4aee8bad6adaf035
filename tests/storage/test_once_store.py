"""A key is added once only, and a lapsed key makes room."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.storage.once_store_contract import OnceStoreContract, OpenOnce
from tests.support.requirement import requirement
from wicketgate.errors import ConfigError, NotAdmitted
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory_once import MemoryOnceStore
from wicketgate.storage.sqlite_once import SQLiteOnceStore
from wicketgate.storage.sqlite_store import SQLiteArtifactStore
from wicketgate.storage.sqlite_writer import WAIT_S

BOUND_S = 30.0


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


class TestMemory(OnceStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenOnce:
        return MemoryOnceStore


class TestSQLite(OnceStoreContract):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenOnce]:
        made: list[SQLiteOnceStore] = []

        def make(clock: Callable[[], float]) -> SQLiteOnceStore:
            made.append(SQLiteOnceStore(tmp_path / "store.db", clock))
            return made[-1]

        yield make
        for store in made:
            await store.aclose()


@requirement("ACCESS-18")
async def test_a_full_store_lets_nothing_happen_until_something_lapses() -> None:
    clock = Clock()
    store = MemoryOnceStore(clock, max_kept=2)
    assert await store.add("a", 10.0)
    assert await store.add("b", 20.0)
    assert not await store.add("c", 30.0)
    clock.time = 10.0
    assert await store.add("c", 30.0)
    assert not await store.add("d", 30.0)


@requirement("CHAT-68", "CHAT-70", "ACCESS-18")
async def test_a_file_remembers_over_a_restart_and_for_all_who_share_it(tmp_path: Path) -> None:
    file, clock = tmp_path / "store.db", Clock()
    one, other = SQLiteOnceStore(file, clock), SQLiteOnceStore(file, clock)
    added = await asyncio.gather(*(store.add("a", 10.0) for store in (one, other) for _ in range(10)))
    assert sorted(added) == [False] * 19 + [True]
    await one.aclose()
    await other.aclose()
    after = SQLiteOnceStore(file, clock)
    assert not await after.add("a", 10.0)
    clock.time = 10.0
    assert await after.add("b", 20.0)
    await after.aclose()
    with closing(sqlite3.connect(file)) as disk:
        assert disk.execute("SELECT key FROM once").fetchall() == [("b",)], "what has lapsed makes room"


async def test_a_file_of_artifacts_from_before_is_taken_and_one_of_somebody_else_is_not(tmp_path: Path) -> None:
    before = SQLiteArtifactStore(tmp_path / "store.db")
    store = SQLiteOnceStore(tmp_path / "store.db", Clock())
    assert await store.add("a", 10.0)
    await store.aclose()
    await before.aclose()
    (tmp_path / "other.db").write_bytes(b"not a database at all, but long enough to be looked at")
    with pytest.raises(ConfigError, match="not a database"):
        SQLiteOnceStore(tmp_path / "other.db", Clock())


@requirement("ACCESS-18")
async def test_a_file_that_cannot_be_written_lets_nothing_happen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SQLiteOnceStore(tmp_path / "store.db", Clock())
    for file in tmp_path.iterdir():
        file.unlink()
    (tmp_path / "store.db").mkdir()
    with caplog.at_level(logging.ERROR), pytest.raises(NotAdmitted):
        await store.add("a", 10.0)
    assert "nothing that is approved can run" in caplog.text
    await store.aclose()
    await store.aclose()


@requirement("EXEC-41", "ACCESS-18")
async def test_a_file_that_another_process_keeps_locked_lets_nothing_happen_and_holds_nobody_up(tmp_path: Path) -> None:
    measures = StorageMeasures()
    store = SQLiteOnceStore(tmp_path / "store.db", Clock(), measures)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with asyncio.timeout(BOUND_S):
            outcomes = await asyncio.gather(*(store.add(key, 10.0) for key in "abcdef"), return_exceptions=True)
            assert [type(each) for each in outcomes] == 6 * [NotAdmitted]
            with pytest.raises(NotAdmitted):
                await store.add("g", 10.0)
    await store.aclose()
    # They waited at the same time: in turn the n-th would have waited n times as long. The one that came later, not at
    # all.
    assert measures.waits.total_s < sum(range(1, 7)) * WAIT_S
    assert (sum(measures.waits.counts), measures.refused) == (6, 1)


@requirement("EXEC-43", "ACCESS-18")
async def test_what_was_used_is_not_forgotten_with_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "store.db"
    one, other = SQLiteOnceStore(file, Clock()), SQLiteOnceStore(file, Clock())
    assert await one.add("a", 10.0)
    assert await other.add("b", 10.0)
    for each in tmp_path.iterdir():
        each.unlink()
    assert not await one.add("a", 10.0)
    assert not await other.add("b", 10.0)
    assert not await one.add("b", 10.0)
    assert "is gone" in caplog.text
    await one.aclose()
    await other.aclose()
