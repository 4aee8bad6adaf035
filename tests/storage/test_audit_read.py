"""The audit table read back, from a SQLite file and from a real PostgreSQL, and the turns of those who read."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.storage.test_audit import RECORD
from tests.support.postgres import postgres_server
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from tests.support.until import until
from wicketgate.gateway.audit import AuditRecord
from wicketgate.gateway.plugin_chain import Stage
from wicketgate.storage.audit_read import (
    THREADS,
    AuditReader,
    NotRead,
    PostgresRows,
    ReadingsFull,
    Rows,
    SQLiteRows,
    Wanted,
    timestamp,
)
from wicketgate.storage.audit_sql import PostgresAudit, SQLiteAudit

STAGED = replace(
    RECORD,
    at=1_003.25,
    call_id="c4",
    actor="über",
    detail="100% of _all_",
    stages=(Stage("p", "request", "allowed", "", 0.001),),
)
RECORDS = [
    replace(RECORD, call_id="c2"),
    replace(RECORD, at=1_001.0, key_id="laptop", source="192.0.2.7", call_id="c1", phase="intent"),
    replace(RECORD, at=1_001.0, call_id="c3", outcome="failed", code="TIMED_OUT"),
    STAGED,
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


Fill = Callable[[Sequence[AuditRecord]], Rows]


@pytest.fixture(params=["sqlite", "postgres"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fill]:
    """Writes records into an empty table, and gives the rows of it."""
    if request.param == "sqlite":

        def fill(records: Sequence[AuditRecord]) -> Rows:
            audit = SQLiteAudit(tmp_path / "audit.db")
            audit.write(records)
            audit.close()
            return SQLiteRows(tmp_path / "audit.db")

        yield fill
        return
    psycopg = pytest.importorskip("psycopg")
    url = request.getfixturevalue("postgres")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS wicketgate_audit")

    def fill_postgres(records: Sequence[AuditRecord]) -> Rows:
        audit = PostgresAudit(url)
        audit.write(records)
        audit.close()
        return PostgresRows(url)

    yield fill_postgres


async def read(reader: AuditReader, wanted: Wanted, most: int = 10) -> list[str]:
    return [row["call_id"] for row in await reader.read(wanted, most, "ann")]


@requirement("OPS-297")
async def test_rows_come_back_newest_first_filtered_and_page_by_page(table: Fill) -> None:
    reader = AuditReader(table(RECORDS))
    try:
        rows = await reader.read(Wanted(), 10, "ann")
        assert [row["call_id"] for row in rows] == ["c4", "c3", "c1", "c2"]
        assert (rows[0]["timestamp"], rows[0]["actor"], bool(rows[0]["cached"])) == (timestamp(1_003.25), "über", False)
        assert (rows[0]["duration_ms"], [stage["plugin"] for stage in rows[0]["stages"]]) == (1.5, ["p"])
        for wanted, found in (
            (Wanted({"phase": "end", "outcome": "failed"}), ["c3"]),
            (Wanted({"actor": "über"}), ["c4"]),
            (Wanted(tool="ECHO#55"), ["c4", "c3", "c1", "c2"]),
            (Wanted(tool="e%o"), []),
            (Wanted(text="100% of _ALL_"), ["c4"]),
            (Wanted(text="timed_out"), ["c3"]),
            (Wanted(text="timedxout"), []),
            (Wanted(text="!"), []),
            (Wanted(text="'; DROP TABLE wicketgate_audit; --"), []),
            (Wanted(since=1_001.0, until=1_002.0), ["c3", "c1"]),
            (Wanted(before=(timestamp(1_001.0), "c3")), ["c1", "c2"]),
        ):
            assert await read(reader, wanted) == found, wanted
        assert await read(reader, Wanted(), 2) == ["c4", "c3"]
    finally:
        await reader.aclose()


@requirement("OPS-297")
async def test_a_reading_of_postgres_writes_nothing_and_leaves_no_connection(postgres: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS wicketgate_audit")
        rows = PostgresRows(postgres)
        reader = AuditReader(rows)
        with pytest.raises(NotRead, match="UndefinedTable"):
            await read(reader, Wanted())
        audit = PostgresAudit(postgres)
        audit.write(RECORDS)
        audit.close()
        assert len(await read(reader, Wanted())) == 4
        with pytest.raises(NotRead, match="ReadOnlySqlTransaction"):
            rows.read("DELETE FROM wicketgate_audit RETURNING 1", [])
        with pytest.raises(NotRead):
            rows.read("SELECT %s::text", ["\0"])
        await reader.aclose()
        left = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        await until(lambda: db.execute(left).fetchone(), lambda row: row == (0,), bound_s=BOUND_S)


@requirement("OPS-297")
async def test_a_reading_of_postgres_that_takes_too_long_is_given_up(postgres: str) -> None:
    pytest.importorskip("psycopg")
    rows = PostgresRows(postgres, longest_s=0.2)
    with pytest.raises(NotRead, match="QueryCanceled"):
        await asyncio.to_thread(rows.read, "SELECT pg_sleep(%s)", [BOUND_S])
    assert await asyncio.to_thread(rows.read, "SELECT 7", []) == [(7,)]


class Held:
    """Rows whose readings last until they are let go. *begun* has one value for each."""

    mark = "?"

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)

    def read(self, statement: str, values: Sequence[Any]) -> list[Sequence[Any]]:
        self.begun.release()
        assert self.go.acquire(timeout=BOUND_S)
        return []


@requirement("OPS-298")
async def test_one_actor_reads_once_at_a_time_and_keeps_no_other_out() -> None:
    rows = Held()
    reader = AuditReader(rows, longest_s=BOUND_S)

    async def begun(count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(rows.begun.acquire, timeout=BOUND_S)

    first = asyncio.create_task(reader.read(Wanted(), 1, "ann"))
    await begun(1)
    waits, leaves = [asyncio.create_task(reader.read(Wanted(), 1, "ann")) for _ in range(2)]
    await asyncio.sleep(0)
    leaves.cancel()
    other = asyncio.create_task(reader.read(Wanted(), 1, "bob"))
    await begun(1)
    rows.go.release(3)
    assert [await each for each in (first, waits, other)] == [[], [], []]
    await reader.aclose()


@requirement("OPS-298")
async def test_a_turn_ends_with_the_work_and_not_with_the_wait_for_it() -> None:
    rows = Held()
    reader = AuditReader(rows, longest_s=0.05)
    for _ in range(THREADS):
        with pytest.raises(NotRead):
            await reader.read(Wanted(), 1, f"actor {_}")
    # All threads are held by what nobody waits for any more.
    for actor, scope in (("actor 0", "actor"), ("ann", "all")):
        with pytest.raises(ReadingsFull) as refused:
            await reader.read(Wanted(), 1, actor)
        assert refused.value.scope == scope
    rows.go.release(THREADS + 1)
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                assert await reader.read(Wanted(), 1, "ann") == []
                break
            except (ReadingsFull, NotRead):  # not yet; on a busy machine not within the time of a reading
                rows.go.release()
    await reader.aclose()
