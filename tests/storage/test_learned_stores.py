"""Learned words in memory and in the storage file."""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.storage.learned_store_contract import (
    Clock,
    LearnedStoreContract,
    OpenLearned,
    held,
    learned,
    lesson,
)
from tests.storage.test_sqlite_writer import locked
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.catalog.learned_words import MAX_ACTOR_TOOLS, MAX_SIZE
from wicketgate.errors import ConfigError
from wicketgate.gateway.learning import Learning
from wicketgate.ports import CallContext, LearnedStore, session_key
from wicketgate.storage.memory_learned import MemoryLearnedStore
from wicketgate.storage.sqlite_learned import SQLiteLearnedStore
from wicketgate.storage.sqlite_store import SQLiteArtifactStore

pytestmark = pytest.mark.usefixtures("patient_stores")

STILL = Clock()


class TestMemory(LearnedStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenLearned:
        def make(
            *, now: Callable[[], float] = STILL, max_size: int = MAX_SIZE, max_actor_tools: int = MAX_ACTOR_TOOLS
        ) -> LearnedStore:
            return MemoryLearnedStore(now, max_size=max_size, max_actor_tools=max_actor_tools)

        return make


class TestSQLite(LearnedStoreContract):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenLearned]:
        made: list[LearnedStore] = []

        def make(
            *, now: Callable[[], float] = STILL, max_size: int = MAX_SIZE, max_actor_tools: int = MAX_ACTOR_TOOLS
        ) -> LearnedStore:
            store = SQLiteLearnedStore(tmp_path / "store.db", now, max_size=max_size, max_actor_tools=max_actor_tools)
            made.append(store)
            return store

        yield make
        for store in made:
            await store.aclose()

    @requirement("BROWSE-51")
    async def test_words_outlive_a_restart_and_are_shared_by_processes(self, open_store: OpenLearned) -> None:
        one, other = open_store(), open_store()
        first = await learned(one, lesson("ann", "a:x", "film"))
        await learned(other, lesson("ann", "a:x", "film"))
        rows = await learned(one, since=first.version)
        assert [(row[:2], dict(row[2].counts)) for row in rows.rows] == [(("ann", "a:x"), {"film": 2.0})]
        assert await held(open_store()) == await held(one)

    @requirement("BROWSE-51")
    @pytest.mark.usefixtures("real_waits")
    async def test_a_locked_file_loses_lessons_and_says_so_once(
        self, open_store: OpenLearned, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = open_store()
        await learned(store, lesson("ann", "a:x", "film"))
        with caplog.at_level(logging.INFO, "wicketgate.learning"), locked(tmp_path / "store.db"):
            for _ in range(3):
                assert await store.learn([lesson("ann", "a:x", "film")], 0) is None
        assert [record.getMessage() for record in caplog.records if record.name == "wicketgate.learning"] == [
            "learned words cannot be kept or read at the moment: the storage file is locked by another process"
        ]
        with pytest.raises(ConfigError, match=r"store\.db is locked"):
            await store.reset()

    @requirement("BROWSE-51")
    async def test_a_file_that_was_removed_is_begun_anew(self, open_store: OpenLearned, tmp_path: Path) -> None:
        store = open_store()
        for _ in range(5):
            before = await learned(store, lesson("ann", "a:x", "film"))
        for file in tmp_path.glob("store.db*"):
            file.unlink()
        after = await learned(store, lesson("bob", "b:y", "play"), since=before.version)
        assert (after.whole, [row[:2] for row in after.rows]) == (True, [("bob", "b:y")])

    @requirement("BROWSE-51")
    async def test_a_file_that_was_replaced_by_another_is_read_whole(
        self, open_store: OpenLearned, tmp_path: Path
    ) -> None:
        store = open_store()
        before = await learned(store, lesson("ann", "a:x", "film"))
        other = SQLiteLearnedStore(tmp_path / "other.db")
        for _ in range(5):
            await learned(other, lesson("bob", "b:y", "play"))
        await learned(other, lesson("bob", "b:z", "play"))
        await other.aclose()
        for file in tmp_path.glob("store.db-*"):
            file.unlink()
        (tmp_path / "other.db").replace(tmp_path / "store.db")
        after = await learned(store, since=before.version)
        assert (after.whole, {row[:2] for row in after.rows}) == (True, {("bob", "b:y"), ("bob", "b:z")})

    @requirement("BROWSE-51")
    async def test_a_damaged_row_costs_its_words_only(self, open_store: OpenLearned, tmp_path: Path) -> None:
        store = open_store()
        await learned(store, lesson("ann", "a:x", "film"), lesson("ann", "a:y", "film"))
        with closing(sqlite3.connect(tmp_path / "store.db")) as disk, disk:
            disk.execute("UPDATE learned SET words = '[1' WHERE tool = ?", (b"a:x",))
        found = await held(store)
        assert [dict(found["ann", name].counts) for name in ("a:x", "a:y")] == [{}, {"film": 1.0}]
        await learned(store, lesson("ann", "a:x", "play"))
        assert dict((await held(store))["ann", "a:x"].counts) == {"play": 1.0}

    @pytest.mark.parametrize(
        "damage",
        [
            "runs = 'much'",
            "runs = -2.0",
            "runs = 9e999",
            "at = 'today'",
            "at = 9e999",
            "actor = 'ann'",
            "actor = x'ff'",
            "tool = 'a:x'",
            "size = 'large'",
            "words = x'ff'",
            """words = '{"film": NaN, "new": 1e999, "old": -5}'""",
            f"""words = '{{"film": 1{"0" * 400}}}'""",
            f"words = '{'[' * 100_000}'",
        ],
    )
    @requirement("BROWSE-56")
    async def test_a_damaged_row_fails_no_browse_and_stops_no_lesson(
        self, open_store: OpenLearned, tmp_path: Path, damage: str
    ) -> None:
        store = open_store(max_size=12)
        await learned(store, lesson("ann", "a:x", "film"), lesson("bob", "a:y", "film"))
        with closing(sqlite3.connect(tmp_path / "store.db")) as disk, disk:
            disk.execute(f"UPDATE learned SET {damage} WHERE tool = ?", (b"a:x",))
        learning = Learning(store, "all")
        await learning.load()
        for actor in ("ann", "bob"):
            words = learning.words(CallContext(Identity(actor, ("*",)), "-", session_key("test", actor, "")))
            assert words is None or all(0 < weight <= 1 for weight in words.weights("film").values())
        # Learning goes on, also where room is made.
        for number in range(10):
            await learned(store, lesson("bob", f"a:{number}", "film"))
        await learned(store, lesson("ann", "a:x", "film"))
        found = await held(store)
        assert dict(found["ann", "a:x"].counts)["film"] >= 1
        assert sum(words.size for words in found.values()) <= 12

    @requirement("BROWSE-57")
    async def test_the_file_does_not_tell_the_order_of_the_words(self, open_store: OpenLearned, tmp_path: Path) -> None:
        await learned(open_store(), lesson("ann", "a:x", "who sacked ann yesterday"))
        with closing(sqlite3.connect(tmp_path / "store.db")) as disk:
            ((words,),) = disk.execute("SELECT words FROM learned").fetchall()
        assert list(json.loads(words)) == ["ann", "sacked", "who", "yesterday"]

    @requirement("BROWSE-56")
    async def test_a_time_to_come_does_not_keep_words_for_ever(self, open_store: OpenLearned) -> None:
        await learned(open_store(now=lambda: 9e9), lesson("ann", "a:x", "film"))
        assert (await held(open_store()))["ann", "a:x"].at == STILL()

    @requirement("BROWSE-51")
    async def test_a_file_of_artifacts_alone_gets_the_tables(self, tmp_path: Path) -> None:
        artifacts = SQLiteArtifactStore(tmp_path / "store.db", now=time.time)
        await artifacts.aclose()
        store = SQLiteLearnedStore(tmp_path / "store.db")
        assert list((await learned(store, lesson("ann", "a:x", "film"))).rows)
        await asyncio.gather(store.aclose())
