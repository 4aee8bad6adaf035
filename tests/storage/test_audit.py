"""Audit records in files and databases: whole or not at all (ROUTE-27, ACCESS-23, ACCESS-25, ACCESS-26)."""

import asyncio
import csv
import fcntl
import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from tests.support.postgres import postgres_server
from tests.support.requirement import requirement
from wicketgate.config.plugins import make_auditor
from wicketgate.config.settings import PluginsSettings
from wicketgate.errors import ConfigError
from wicketgate.gateway.audit import AuditFailed, AuditRecord
from wicketgate.gateway.plugin_chain import Stage
from wicketgate.storage.audit_file import COLUMNS, AuditFile, BatchedSink, csv_header, csv_line, json_line
from wicketgate.storage.audit_sql import PostgresAudit, SQLiteAudit

RECORD = AuditRecord(
    at=1_000.5,
    operation="execute",
    actor="owner_1",
    correlation_id="req_1",
    outcome="allowed",
    tool_id="raw:echo#559d82ea",
    server="raw",
    arguments="ab" * 32,
    transport="ok",
    protocol="ok",
    tool="ok",
    duration_ms=1.5,
    upstream_ms=1.0,
    stages=(Stage("pii_filter", "request", "modified", "email: 1", 0.0001),),
)
BOUND_S = 20.0


def numbered(count: int) -> list[AuditRecord]:
    return [replace(RECORD, correlation_id=f"req_{number}") for number in range(count)]


def ids(path: Path) -> list[str]:
    return [json.loads(line)["correlation_id"] for line in path.read_text().splitlines()]


@requirement("ACCESS-23", "ACCESS-26")
def test_a_line_of_json_says_everything_and_stays_one_line() -> None:
    line = json_line(replace(RECORD, actor="a\nb\u2028\ud800"))
    assert line.count(b"\n") == 1
    read = json.loads(line)
    assert (read["timestamp"], read["actor"]) == ("1970-01-01T00:16:40.500+00:00", "a\nb\u2028\ud800")
    assert read["stages"] == [
        {"plugin": "pii_filter", "phase": "request", "outcome": "modified", "note": "email: 1", "ms": 0.1}
    ]


@requirement("ACCESS-26")
def test_a_csv_cell_is_no_formula_and_a_record_is_one_row(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.csv", csv_line, csv_header())
    for actor in ("=cmd()", "+1", "-1", "@x", "\n =1", "a\r\nb", 'quo"te,d', "plain"):
        file.write([replace(RECORD, actor=actor)])
    file.close()
    with (tmp_path / "audit.csv").open(newline="") as text:
        header, *rows = csv.reader(text)
    assert tuple(header) == COLUMNS
    assert [row[2] for row in rows] == ["'=cmd()", "'+1", "'-1", "'@x", "'  =1", "a b", 'quo"te,d', "plain"]


async def test_records_that_come_together_are_all_kept_in_order(tmp_path: Path) -> None:
    sink = BatchedSink(AuditFile(tmp_path / "audit.jsonl", json_line))
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*(sink.write(record) for record in numbered(500)))
        await sink.aclose()
    assert ids(tmp_path / "audit.jsonl") == [f"req_{number}" for number in range(500)]


async def test_a_record_is_kept_though_its_caller_has_left(tmp_path: Path) -> None:
    sink = BatchedSink(AuditFile(tmp_path / "audit.jsonl", json_line))
    async with asyncio.timeout(BOUND_S):
        leaving = asyncio.create_task(sink.write(RECORD))
        await asyncio.sleep(0)
        leaving.cancel()
        await sink.aclose()
    assert ids(tmp_path / "audit.jsonl") == ["req_1"]


@requirement("ACCESS-26")
@pytest.mark.parametrize("gone", ["file", "directory", "rotated"])
def test_a_file_that_is_gone_is_made_anew(tmp_path: Path, gone: str) -> None:
    path = tmp_path / "logs" / "audit.jsonl"
    file = AuditFile(path, json_line)
    file.write(numbered(1))
    if gone == "file":
        path.unlink()
    elif gone == "directory":
        shutil.rmtree(path.parent)
    else:
        path.rename(path.with_suffix(".1"))
    file.write([RECORD])
    file.close()
    assert ids(path) == ["req_1"]
    assert path.stat().st_mode & 0o777 == 0o600


@requirement("ACCESS-26")
def test_half_a_line_of_a_power_cut_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(json_line(RECORD)[:40])
    file = AuditFile(path, json_line)
    file.write([RECORD])
    file.close()
    assert json.loads(path.read_text().splitlines()[1])["correlation_id"] == "req_1"


@requirement("ACCESS-26")
def test_a_full_disk_leaves_no_half_line_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    script = """
import resource, signal, sys
from pathlib import Path
from tests.storage.test_audit import numbered
from wicketgate.storage.audit_file import AuditFile
from wicketgate.storage.audit_file import json_line
from wicketgate.gateway.audit import AuditFailed

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = AuditFile(Path(sys.argv[1]), json_line)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
kept = 0
try:
    for record in numbered(1000):
        file.write([record])
        kept += 1
except AuditFailed:
    try:
        file.probe()
    except AuditFailed:
        print(kept)
"""
    child = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    kept = int(child.stdout)
    assert 0 < kept < 100
    assert ids(path) == [f"req_{number}" for number in range(kept)]
    assert path.stat().st_size <= 8192


@requirement("ACCESS-26")
def test_several_processes_write_one_file_without_mixing_lines(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    script = """
import sys
from pathlib import Path
from tests.storage.test_audit import numbered
from wicketgate.storage.audit_file import AuditFile
from wicketgate.storage.audit_file import json_line

file = AuditFile(Path(sys.argv[1]), json_line)
for record in numbered(200):
    file.write([record])
    file.probe()
"""
    children = [subprocess.Popen([sys.executable, "-c", script, str(path)]) for _ in range(2)]
    assert [child.wait(BOUND_S) for child in children] == [0, 0]
    assert sorted(ids(path)) == sorted(2 * [f"req_{number}" for number in range(200)])


async def test_a_sink_that_failed_is_ready_again_once_it_can_write(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    sink = BatchedSink(AuditFile(folder / "audit.jsonl", json_line), pause_s=0)
    async with asyncio.timeout(BOUND_S):
        await sink.ready()
        folder.write_text("in the way")
        with pytest.raises(AuditFailed):
            await sink.write(RECORD)
        with pytest.raises(AuditFailed):
            await sink.ready()
        folder.unlink()
        await sink.ready()
        await sink.write(RECORD)
        await sink.aclose()
    assert ids(folder / "audit.jsonl") == ["req_1"]


def test_rows_of_sqlite_are_kept_together_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.db"
    audit = SQLiteAudit(path)
    audit.write([*numbered(2), replace(RECORD, actor="nul\0 \ud800")])
    audit.probe()
    with sqlite3.connect(path) as other:
        other.execute("DROP TABLE wicketgate_audit")
    with pytest.raises(AuditFailed):
        audit.write(numbered(2))
    audit.write([RECORD])
    audit.close()
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT correlation_id, cached, outcome FROM wicketgate_audit").fetchall() == [
            ("req_1", 0, "allowed")
        ]


@requirement("ACCESS-26")
@pytest.mark.parametrize("gone", ["file", "rotated"])
def test_a_database_that_is_gone_is_made_anew(tmp_path: Path, gone: str) -> None:
    path = tmp_path / "audit.db"
    audit = SQLiteAudit(path)
    audit.write(numbered(1))
    path.unlink() if gone == "file" else path.rename(path.with_suffix(".1"))
    audit.write([RECORD])
    audit.close()
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT correlation_id FROM wicketgate_audit").fetchall() == [("req_1",)]
    assert path.stat().st_mode & 0o777 == 0o600


_FILL = """
import asyncio, os, sys
from pathlib import Path
from tests.storage.test_audit import numbered
from wicketgate.gateway.audit import AuditFailed
from wicketgate.storage.audit_file import BatchedSink
from wicketgate.storage.audit_sql import SQLiteAudit

async def main(path, fill, under_way):
    writer = SQLiteAudit(path, reserve_bytes=512 * 1024)
    writer.probe()  # as at the start of a service
    sink = BatchedSink(writer, pause_s=0)
    fill(True)
    # Calls come, each with a record, until one is not let in.
    records, let_in = iter(numbered(100_000)), 0
    try:
        for record in records:
            await sink.ready()
            let_in += 1
            await sink.write(record)
    except AuditFailed as error:
        print("refused:", error, file=sys.stderr)
    # Those that were let in before still get their records, one after the other.
    for _ in range(under_way):
        await sink.write(next(records))
        let_in += 1
    fill(False)
    await sink.ready()
    await sink.write(next(records))
    await sink.aclose()
    print(let_in + 1)
"""
_FULL_DISK = (
    _FILL
    + """
path, filler = Path(sys.argv[1]), Path(sys.argv[1]).with_suffix(".filler")

def fill(on):
    if not on:
        return filler.unlink()
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass

asyncio.run(main(path, fill, 200))
"""
)
_FULL_QUOTA = (
    _FILL
    + """
import resource, signal
path = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def fill(on):
    most = max(each.stat().st_size for each in path.parent.iterdir()) if on else resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

asyncio.run(main(path, fill, 200))
"""
)


@requirement("ACCESS-68")
@pytest.mark.parametrize("full", ["disk", "quota"])
def test_on_a_full_disk_no_call_is_let_in_whose_record_a_database_could_not_keep(tmp_path: Path, full: str) -> None:
    script = _FULL_DISK if full == "disk" else _FULL_QUOTA
    command = [sys.executable, "-c", script, str(tmp_path / "audit.db")]
    if full == "disk":
        own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        mount = f"mount -t tmpfs -o size=8m tmpfs '{tmp_path}'"
        if subprocess.run([*own, mount], capture_output=True, timeout=BOUND_S).returncode:
            pytest.skip("a file system of our own cannot be mounted here")
        count = "SELECT count(*), count(DISTINCT correlation_id) FROM wicketgate_audit"
        read = f"import sqlite3; print(sqlite3.connect('{tmp_path}/audit.db').execute('{count}').fetchone())"
        command = [*own, f'{mount} && "$@" && "$1" -c "{read}"', "-", *command]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert child.returncode == 0, child.stderr
    assert "refused:" in child.stderr
    let_in, *rows = child.stdout.splitlines()
    if full == "quota":
        with sqlite3.connect(tmp_path / "audit.db") as other:
            rows = [
                str(other.execute("SELECT count(*), count(DISTINCT correlation_id) FROM wicketgate_audit").fetchone())
            ]
    assert rows == [f"({let_in}, {let_in})"]


@requirement("ACCESS-69")
async def test_a_record_that_waits_behind_others_waits_no_longer_than_they_may(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    sink = BatchedSink(SQLiteAudit(path, busy_s=0.5), patience_s=0.6)
    await sink.write(RECORD)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with asyncio.timeout(BOUND_S):
            first = asyncio.create_task(sink.write(RECORD))
            await asyncio.sleep(0)  # the first is being written
            await asyncio.sleep(0)
            second = asyncio.create_task(sink.write(replace(RECORD, correlation_id="req_2")))
            with pytest.raises(AuditFailed, match="locked"):
                await first
            # It would be tried in its turn, which would take as long again.
            with pytest.raises(AuditFailed, match="does not answer"):
                await second
        other.execute("ROLLBACK")
    async with asyncio.timeout(BOUND_S):
        await sink.aclose()


def test_a_file_that_another_process_keeps_locked_blocks_no_caller_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path, json_line, patience_s=0.05)
    file.write([RECORD])
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(AuditFailed, match="locked"):
            file.write([RECORD])
    file.write([RECORD])
    file.close()
    assert len(ids(path)) == 2


class Writer:
    """Fails as the test sets it, and counts its calls."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.probes = 0
        self.gate = threading.Event()
        self.gate.set()

    def write(self, records: Sequence[AuditRecord]) -> str:
        self.gate.wait(BOUND_S)
        if self.failure:
            raise self.failure
        return ""

    def probe(self) -> None:
        self.probes += 1
        self.gate.wait(BOUND_S)
        if self.failure:
            raise self.failure

    def close(self) -> None:
        pass


async def test_a_fault_of_a_writer_fails_its_records_and_leaves_no_caller_waiting() -> None:
    sink = BatchedSink(Writer(TypeError("not JSON serializable: secret")), pause_s=0)
    async with asyncio.timeout(BOUND_S):
        for attempt in (sink.write(RECORD), sink.write(RECORD), sink.ready()):
            with pytest.raises(AuditFailed) as failed:
                await attempt
            assert str(failed.value) == "TypeError"
        await sink.aclose()


async def test_a_sink_that_is_out_of_order_is_tried_once_for_all_callers() -> None:
    writer = Writer(AuditFailed("down"))
    sink = BatchedSink(writer, pause_s=3_600)
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(AuditFailed):
            await sink.write(RECORD)
        writer.gate.clear()
        asked = [asyncio.create_task(sink.ready()) for _ in range(100)]
        await asyncio.sleep(0)
        asked[0].cancel()
        writer.gate.set()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in outcomes] == [asyncio.CancelledError] + 99 * [AuditFailed]
        with pytest.raises(AuditFailed):
            await sink.ready()
        await sink.aclose()
    assert writer.probes == 1


@requirement("ACCESS-27")
async def test_a_writer_that_hangs_holds_neither_callers_nor_the_end_and_is_used_again_when_it_comes_back() -> None:
    writer = Writer()
    writer.gate.clear()
    sink = BatchedSink(writer, pause_s=0, patience_s=0.05)
    async with asyncio.timeout(BOUND_S):
        for attempt in (sink.write(RECORD), sink.ready(), sink.write(RECORD)):
            with pytest.raises(AuditFailed, match="does not answer"):
                await attempt
        writer.gate.set()
        while True:
            try:
                await sink.ready()
                break
            except AuditFailed:
                await asyncio.sleep(0)
        await sink.write(RECORD)
        writer.gate.clear()
        with pytest.raises(AuditFailed):
            await sink.write(RECORD)
        await sink.aclose()
    writer.gate.set()


async def test_only_so_many_records_wait_for_a_writer_that_hangs() -> None:
    writer = Writer()
    writer.gate.clear()
    sink = BatchedSink(writer, max_waiting=3)
    async with asyncio.timeout(BOUND_S):
        writing = [asyncio.create_task(sink.write(RECORD)) for _ in range(3)]
        await asyncio.sleep(0)
        for attempt in (sink.write(RECORD), sink.ready()):
            with pytest.raises(AuditFailed, match="wait"):
                await attempt
        writer.gate.set()
        await asyncio.gather(*writing)
        await sink.aclose()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


def test_rows_of_postgres_survive_a_lost_connection(postgres: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    audit = PostgresAudit(postgres)
    audit.write(numbered(2))
    with psycopg.connect(postgres, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        audit.write([replace(RECORD, actor="nul\0 \ud800")])
        audit.probe()
        rows = other.execute("SELECT correlation_id, cached, duration_ms FROM wicketgate_audit").fetchall()
    audit.close()
    assert rows == [("req_0", False, 1.5), ("req_1", False, 1.5), ("req_1", False, 1.5)]


@requirement("ACCESS-67")
def test_replicas_that_start_at_once_make_one_table_of_postgres(postgres: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    for _ in range(5):
        with psycopg.connect(postgres, autocommit=True) as db:
            db.execute("DROP TABLE IF EXISTS wicketgate_audit")
        writers = [PostgresAudit(postgres) for _ in range(6)]
        with ThreadPoolExecutor(len(writers)) as pool:
            list(pool.map(PostgresAudit.probe, writers))
        for writer in writers:
            writer.write([RECORD])
            writer.close()


def configured(*entries: dict[str, Any]) -> PluginsSettings:
    return PluginsSettings.model_validate({"auditing": {"_global": list(entries)}})


async def test_a_sink_is_made_of_its_configuration(tmp_path: Path) -> None:
    auditor = make_auditor(
        configured(
            {"handler": "audit_jsonl", "config": {"path": str(tmp_path / "a.jsonl")}},
            {"handler": "audit_csv", "critical": False, "config": {"path": str(tmp_path / "a.csv")}},
            {"handler": "audit_sql", "config": {"url": f"sqlite:///{tmp_path}/a.db"}},
            {"handler": "audit_csv", "enabled": False, "config": {}},
        ),
        lambda: 0.0,
    )
    assert auditor is not None
    with anyio.fail_after(BOUND_S):
        await auditor.record(RECORD)
        await auditor.aclose()
    assert ids(tmp_path / "a.jsonl") == ["req_1"]
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 2
    assert make_auditor(configured(), lambda: 0.0) is None


@requirement("ACCESS-25")
@pytest.mark.parametrize("path", ["/dev/full", "/proc/nothing/audit.jsonl", "/"])
def test_a_critical_sink_that_cannot_be_written_stops_the_start(path: str) -> None:
    entry = {"handler": "audit_jsonl", "config": {"path": path}}
    with pytest.raises(ConfigError, match="cannot be written"):
        make_auditor(configured(entry), lambda: 0.0)
    assert make_auditor(configured({**entry, "critical": False}), lambda: 0.0) is not None


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"handler": "jsonl"}, "no auditing plugin is called 'jsonl'"),
        ({"handler": "audit_jsonl"}, "config.path"),
        ({"handler": "audit_jsonl", "config": {"path": "a", "x": 1}}, "config.x: unknown key"),
        ({"handler": "audit_sql", "config": {"url": "mysql://h/d"}}, "must be sqlite:///file.db or postgresql://"),
    ],
)
def test_a_mistake_is_reported_with_its_place(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_auditor(configured(entry), lambda: 0.0)
    assert problem in str(refused.value)
    assert "plugins.auditing._global[0]" in str(refused.value)
