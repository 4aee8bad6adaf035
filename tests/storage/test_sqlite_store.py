import asyncio
import json
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.storage.killed_writer import OWNER
from tests.support.artifacts import artifact, held, sealed
from tests.support.process import ROOT
from tests.support.requirement import requirement
from wicketgate.errors import ConfigError
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.encoding import hashed
from wicketgate.storage.sqlite import SqliteStore

pytestmark = pytest.mark.usefixtures("patient_stores")

BOUND_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "wicketgate.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[StoredArtifacts]:
    shared = SqliteStore(path)
    yield StoredArtifacts(shared)
    await shared.aclose()


@requirement("EXEC-32")
async def test_handles_and_ages_go_on_after_a_restart(path: Path) -> None:
    now = 1_000.0
    shared = SqliteStore(path, lambda: now)
    await StoredArtifacts(shared, max_age_s=60).put("ann", artifact("one"))
    now += 30
    await StoredArtifacts(shared, max_age_s=60).put("ann", artifact("two"))
    await shared.aclose()
    now += 30
    shared = SqliteStore(path, lambda: now)
    assert await held(StoredArtifacts(shared), "ann", "one", "two") == ["two"]
    await shared.aclose()


async def test_only_the_owner_of_the_process_may_read_the_files(store: StoredArtifacts, path: Path) -> None:
    await store.put("ann", artifact("one"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("wicketgate.db", "wicketgate.db-wal", "wicketgate.db-shm"), 0o600)


async def test_the_file_grows_no_further_once_the_store_is_full(path: Path) -> None:
    sizes = []
    for numbers in (range(10), range(10, 40)):
        shared = SqliteStore(path)
        for number in numbers:
            await StoredArtifacts(shared, 4_000_000).put("ann", sealed(bytes([number]) * 1_000_000))
        await shared.aclose()
        sizes.append(path.stat().st_size)
    assert sizes[1] <= sizes[0] < 8_000_000


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE customer (name TEXT)")


def _of_another_program_without_tables(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA application_id = 7")


def _of_another_version(path: Path) -> None:
    SqliteStore(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE store SET version = 99")


def _cut_short(path: Path) -> None:
    SqliteStore(path)
    path.write_bytes(path.read_bytes()[:20_000])


def _overwritten(path: Path) -> None:
    SqliteStore(path)
    content = path.read_bytes()
    path.write_bytes(content[:8_192] + b"\xa5" * (len(content) - 8_192))


def _with_one_page_overwritten(path: Path) -> None:
    SqliteStore(path)
    with closing(sqlite3.connect(path)) as other:
        (page,) = other.execute("SELECT rootpage FROM sqlite_master WHERE name = 'row'").fetchone()
        (page_bytes,) = other.execute("PRAGMA page_size").fetchone()
    content = path.read_bytes()
    start = (page - 1) * page_bytes
    path.write_bytes(content[:start] + b"\xa5" * page_bytes + content[start + page_bytes :])


def _without_a_version(path: Path) -> None:
    SqliteStore(path)
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
        SqliteStore(path)
    text = str(fault.value)
    assert text.startswith(f"storage.url: {path} ")
    assert problem in text
    assert "\n" not in text
    assert path.read_bytes() == before


def test_a_missing_directory_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; make it"):
        SqliteStore(tmp_path / "var" / "wicketgate.db")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        SqliteStore(tmp_path)


def test_a_file_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made"):
        SqliteStore(tmp_path / ("x" * 300))


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    SqliteStore(path)
    assert path.read_bytes().startswith(b"SQLite format 3")


async def test_opening_waits_for_another_process_that_is_still_opening(path: Path) -> None:
    SqliteStore(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN")
        other.execute("SELECT * FROM store").fetchall()
        opening = asyncio.create_task(asyncio.to_thread(SqliteStore, path))
        done, _ = await asyncio.wait([opening], timeout=0.1)
        assert not done
        other.execute("COMMIT")
        shared = await opening
    assert await StoredArtifacts(shared).put("ann", artifact("one")) == "kept"
    await shared.aclose()


async def test_a_path_with_any_characters_is_that_file(tmp_path: Path) -> None:
    path = tmp_path / "a ?b#c%20d é.db"
    shared = SqliteStore(path)
    await StoredArtifacts(shared).put("ann", artifact("one"))
    await shared.aclose()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@requirement("EXEC-32")
async def test_a_killed_writer_leaves_every_artifact_whole(tmp_path: Path) -> None:
    writers = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.storage.killed_writer",
        str(tmp_path),
        "20",
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BOUND_S):
        output, _ = await writers.communicate()
    assert writers.returncode == 0
    rounds = [json.loads(line) for line in output.splitlines()]
    assert len(rounds) == 20
    kept: dict[str, list[str]] = {}
    for each in rounds:
        kept.setdefault(each["path"], []).extend(each["kept"])
    assert len(kept) == 4
    for name, handles in kept.items():
        shared = SqliteStore(Path(name))
        store = StoredArtifacts(shared)
        with closing(sqlite3.connect(name)) as disk:
            assert disk.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert disk.execute("SELECT count(*) FROM row_piece WHERE row NOT IN (SELECT id FROM row)").fetchone() == (
                0,
            )
            ((held_bytes,),) = disk.execute("SELECT bytes FROM held WHERE owner = ?", (hashed(OWNER),)).fetchall()
            assert disk.execute("SELECT sum(size) FROM row").fetchone() == (held_bytes,)
        found = [await store.get(OWNER, each) for each in handles]
        assert found[-1] is not None
        for each in found:
            assert each is None or each == sealed(each.data)
        await shared.aclose()
