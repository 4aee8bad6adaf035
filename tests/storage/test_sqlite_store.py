import asyncio
import json
import logging
import sqlite3
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.artifact_store_contract import (
    LOGGER,
    ArtifactStoreContract,
    Clock,
    OpenStore,
    artifact,
    handle,
    held,
    room_for,
    sealed,
)
from tests.storage.killed_writer import OWNER
from tests.support.process import ROOT
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.errors import ConfigError, ViewFailed
from wicketgate.ports import Artifact
from wicketgate.storage.memory_store import MAX_AGE_S, MAX_BYTES, MemoryArtifactStore
from wicketgate.storage.sqlite_store import SQLiteArtifactStore

pytestmark = pytest.mark.usefixtures("patient_stores")

BOUND_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wicketgate.db"


@pytest.fixture
async def open_store(path: Path) -> AsyncIterator[OpenStore]:
    opened = []

    def make(
        *, max_bytes: int = MAX_BYTES, max_age_s: float = MAX_AGE_S, now: Callable[[], float] | None = None
    ) -> SQLiteArtifactStore:
        opened.append(SQLiteArtifactStore(path, max_bytes, max_age_s, now or Clock()))
        return opened[-1]

    yield make
    for store in opened:
        await store.aclose()


class TestSQLiteStore(ArtifactStoreContract):
    @requirement("EXEC-32")
    async def test_handles_and_ages_go_on_after_a_restart(self, open_store: OpenStore) -> None:
        clock = Clock()
        store = open_store(max_age_s=60, now=clock)
        await store.put("ann", artifact("one"))
        clock.now += 30
        await store.put("ann", artifact("two"))
        await store.aclose()
        clock.now += 30
        store = open_store(max_age_s=60, now=clock)
        assert await store.get("ann", handle("two")) == artifact("two")
        assert await held(store, "ann", "one", "two") == ["two"]

    async def test_opening_it_brings_the_file_within_its_bounds(
        self, open_store: OpenStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = Clock()
        store = open_store(max_age_s=60, now=clock)
        await store.put("ann", artifact("old"))
        clock.now += 30
        for name in ("one", "two", "three"):
            await store.put("ann", artifact(name))
        await store.aclose()
        clock.now += 30
        with caplog.at_level(logging.INFO, LOGGER):
            store = open_store(max_age_s=60, max_bytes=room_for(2), now=clock)
        assert f"1 by age, 1 for space, {room_for(2)} bytes" in caplog.text
        assert await held(store, "ann", "old", "one", "two", "three") == ["two", "three"]

    async def test_two_stores_on_one_file_see_each_other(self, open_store: OpenStore) -> None:
        here, there = open_store(), open_store()
        await asyncio.gather(*(store.put("ann", artifact(name)) for store, name in ((here, "one"), (there, "two"))))
        assert await held(here, "ann", "one", "two") == await held(there, "ann", "one", "two") == ["one", "two"]

    async def test_reading_and_the_loop_go_on_while_another_process_writes(
        self, open_store: OpenStore, path: Path
    ) -> None:
        store = open_store()
        await store.put("ann", artifact("one"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            put = asyncio.create_task(store.put("ann", artifact("two")))
            assert await held(store, "ann", "one", "two") == ["one"]
            assert not put.done()
            other.execute("COMMIT")
            assert await put == "kept"

    async def test_a_put_that_is_cancelled_leaves_the_store_in_order(self, open_store: OpenStore) -> None:
        store = open_store()
        large = sealed(b"x" * 3_000_000)
        puts = [asyncio.create_task(store.put("ann", large)) for _ in range(3)]
        await asyncio.sleep(0)
        for put in puts:
            put.cancel()
        assert await asyncio.gather(*puts, return_exceptions=True) != ["kept"] * 3
        await store.put("ann", artifact("one"))
        assert await held(store, "ann", "one") == ["one"]
        assert await store.get("ann", large.handle) in (None, large)

    async def test_a_store_that_breaks_while_it_is_used_says_so(
        self, open_store: OpenStore, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = open_store()
        await store.put("ann", artifact("one"))
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TABLE piece")
        assert await store.put("ann", artifact("two")) == "failed"
        with pytest.raises(ViewFailed):
            await store.get("ann", handle("one"))
        assert "damaged" in caplog.text

    async def test_an_artifact_with_a_piece_missing_is_not_shown_in_part(
        self, open_store: OpenStore, path: Path
    ) -> None:
        store = open_store()
        await store.put("ann", artifact("one", 600_000))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("DELETE FROM piece WHERE place > 0")
        with pytest.raises(ViewFailed):
            await store.get("ann", handle("one"))

    async def test_putting_the_same_again_does_not_write_its_bytes_again(
        self, open_store: OpenStore, path: Path
    ) -> None:
        store = open_store()
        for name in ("one", "two", "one"):
            await store.put("ann", artifact(name))
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT id, handle FROM artifact ORDER BY id").fetchall() == [
                (1, handle("one").encode()),
                (2, handle("two").encode()),
            ]

    async def test_only_the_owner_of_the_process_may_read_the_files(self, open_store: OpenStore, path: Path) -> None:
        await open_store().put("ann", artifact("one"))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == dict.fromkeys(("wicketgate.db", "wicketgate.db-wal", "wicketgate.db-shm"), 0o600)

    async def test_the_file_grows_no_further_once_the_store_is_full(self, open_store: OpenStore, path: Path) -> None:
        store = open_store(max_bytes=4_000_000)
        for number in range(10):
            await store.put("ann", sealed(bytes([number]) * 1_000_000))
        await store.aclose()
        full = path.stat().st_size
        store = open_store(max_bytes=4_000_000)
        for number in range(10, 40):
            await store.put("ann", sealed(bytes([number]) * 1_000_000))
        await store.aclose()
        assert path.stat().st_size <= full < 8_000_000


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE customer (name TEXT)")


def _of_another_program_without_tables(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA application_id = 7")


def _of_another_version(path: Path) -> None:
    SQLiteArtifactStore(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE store SET version = 99")


def _cut_short(path: Path) -> None:
    SQLiteArtifactStore(path)
    path.write_bytes(path.read_bytes()[:20_000])


def _overwritten(path: Path) -> None:
    SQLiteArtifactStore(path)
    content = path.read_bytes()
    path.write_bytes(content[:8_192] + b"\xa5" * (len(content) - 8_192))


def _with_one_page_overwritten(path: Path) -> None:
    SQLiteArtifactStore(path)
    with closing(sqlite3.connect(path)) as other:
        (page,) = other.execute("SELECT rootpage FROM sqlite_master WHERE name = 'artifact'").fetchone()
        (page_bytes,) = other.execute("PRAGMA page_size").fetchone()
    content = path.read_bytes()
    start = (page - 1) * page_bytes
    path.write_bytes(content[:start] + b"\xa5" * page_bytes + content[start + page_bytes :])


def _without_a_version(path: Path) -> None:
    SQLiteArtifactStore(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM store")


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda path: path.write_text("hello"), "is not a database"),
        (lambda path: path.write_bytes(b"\xa5" * 100_000), "is not a database"),
        (_of_another_program, "of another program"),
        (_of_another_program_without_tables, "of another program"),
        (_of_another_version, "another version"),
        (_without_a_version, "is damaged"),
        (_cut_short, "is damaged"),
        (_overwritten, "is damaged"),
        (_with_one_page_overwritten, "is damaged"),
    ],
)
def test_a_file_that_is_not_ours_or_is_spoilt_is_reported_in_a_line_and_left_alone(
    path: Path, spoil: Callable[[Path], Any], problem: str
) -> None:
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(ConfigError) as fault:
        SQLiteArtifactStore(path)
    text = str(fault.value)
    assert text.startswith(f"storage.url: {path} ")
    assert problem in text
    assert "\n" not in text
    assert path.read_bytes() == before


def test_a_missing_directory_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; make it"):
        SQLiteArtifactStore(tmp_path / "var" / "wicketgate.db")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        SQLiteArtifactStore(tmp_path)


def test_a_file_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made"):
        SQLiteArtifactStore(tmp_path / ("x" * 300))


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    SQLiteArtifactStore(path)
    assert path.read_bytes().startswith(b"SQLite format 3")


async def test_opening_waits_for_another_process_that_is_still_opening(path: Path) -> None:
    SQLiteArtifactStore(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN")
        other.execute("SELECT * FROM store").fetchall()
        opening = asyncio.create_task(asyncio.to_thread(SQLiteArtifactStore, path))
        done, _ = await asyncio.wait([opening], timeout=0.1)
        assert not done
        other.execute("COMMIT")
        store = await opening
    assert await store.put("ann", artifact("one")) == "kept"
    await store.aclose()


async def test_a_path_with_any_characters_is_that_file(tmp_path: Path) -> None:
    path = tmp_path / "a ?b#c%20d é.db"
    store = SQLiteArtifactStore(path)
    await store.put("ann", artifact("one"))
    await store.aclose()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@requirement("EXEC-32")
async def test_a_killed_writer_leaves_every_artifact_whole(tmp_path: Path) -> None:
    writers = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.storage.killed_writer",
        str(tmp_path),
        "40",
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BOUND_S):
        output, _ = await writers.communicate()
    assert writers.returncode == 0
    rounds = [json.loads(line) for line in output.splitlines()]
    last_kept = {each["path"]: each["kept"][-1] for each in rounds if each["kept"]}
    assert len(rounds) == 40
    assert len(last_kept) == 8
    for name, newest in last_kept.items():
        store = SQLiteArtifactStore(Path(name))
        with closing(sqlite3.connect(name)) as disk:
            handles = [row[0].decode() for row in disk.execute("SELECT handle FROM artifact")]
            assert disk.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert disk.execute(
                "SELECT count(*) FROM piece WHERE artifact NOT IN (SELECT id FROM artifact)"
            ).fetchone() == (0,)
            assert (
                disk.execute("SELECT * FROM owner").fetchall()
                == disk.execute("SELECT owner, sum(size_bytes) FROM artifact GROUP BY owner").fetchall()
            )
        assert newest in handles
        for each in handles:
            found = await store.get(OWNER, each)
            assert found is not None
            assert found == sealed(found.data)
        await store.aclose()


_PUT_MANY = """
import asyncio, sys
from pathlib import Path
from wicketgate.storage.sqlite_store import SQLiteArtifactStore
from tests.storage.artifact_store_contract import artifact

async def put_many(owner, path):
    sys.stdin.read()
    store = SQLiteArtifactStore(Path(path))
    for number in range(40):
        assert await store.put(owner, artifact(str(number), 20_000)) == "kept"
    await store.aclose()

asyncio.run(put_many(*sys.argv[1:]))
"""


async def test_processes_may_make_one_file_and_write_to_it_at_the_same_time(path: Path) -> None:
    owners = ("ann", "bob", "cyd")
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PUT_MANY, owner, str(path), cwd=ROOT, stdin=asyncio.subprocess.PIPE
        )
        for owner in owners
    ]
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*(writer.communicate(b"") for writer in writers))
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    store = SQLiteArtifactStore(path)
    for owner in owners:
        for number in range(40):
            assert await store.get(owner, handle(str(number))) == artifact(str(number), 20_000)
    await store.aclose()


_names = st.sampled_from(["one", "two", "three", "four"])
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), _names, st.sampled_from([0, 50, 100, 700, 1_700, 4_000])),
        st.tuples(st.just("get"), st.sampled_from("abc"), _names, st.just(0)),
        st.tuples(st.just("wait"), st.just(""), st.just(""), st.integers(1, 40)),
    ),
    max_size=40,
)


@requirement("EXEC-32")
@settings(max_examples=examples(40), deadline=None)
@given(_steps)
def test_it_answers_as_the_memory_store_does(steps: list[tuple[str, str, str, int]]) -> None:
    async def play(folder: Path) -> None:
        clock = Clock()
        memory = MemoryArtifactStore(5_000, 60, clock)
        sqlite = SQLiteArtifactStore(folder / "a.db", 5_000, 60, clock)
        for what, owner, name, number in steps:
            if what == "wait":
                clock.now += number
            elif what == "get":
                assert await memory.get(owner, handle(name)) == await sqlite.get(owner, handle(name))
            else:
                each = Artifact(handle(name), "text/plain", "full text", b"x" * number)
                assert await memory.put(owner, each) == await sqlite.put(owner, each)
        for owner in "abc":
            for name in ("one", "two", "three", "four"):
                assert await memory.get(owner, handle(name)) == await sqlite.get(owner, handle(name))
        await sqlite.aclose()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))
