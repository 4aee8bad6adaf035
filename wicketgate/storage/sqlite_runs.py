"""Runs with an Idempotency-Key in the SQLite file of ``storage.url`` (CHAT-110 to CHAT-115).

Events and leases survive a kill. A claim of a call, and all that was written before it, survives a power cut too.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from wicketgate.access.shares import ShareRefused, full_scope
from wicketgate.engine.events import is_end
from wicketgate.engine.journal import Entry, lost_events
from wicketgate.storage.measures import StorageMeasures, without_level
from wicketgate.storage.memory_journal import JournalBounds
from wicketgate.storage.run_store import LEASE_S, LOST_KEEP_S, KeptRun, NewEvents, Orphan, Part, StoreAway
from wicketgate.storage.sqlite_file import connect, explain, prepare
from wicketgate.storage.sqlite_writer import WAIT_S, SQLiteWriter

log = logging.getLogger("wicketgate.engine")

T = TypeVar("T")

_AT_ONCE_BYTES = 32 * 1024
_READERS = 2

# keep_until is null while the run goes on.
_RUN = """
CREATE TABLE IF NOT EXISTS run (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL, digest TEXT NOT NULL, owner BLOB NOT NULL,
    replica TEXT NOT NULL, lease_until REAL NOT NULL, attended_until REAL NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, held_bytes INTEGER NOT NULL, lost INTEGER NOT NULL, keep_until REAL
)
"""
_EVENT = """
CREATE TABLE IF NOT EXISTS run_event (
    run INTEGER NOT NULL, position INTEGER NOT NULL, event BLOB NOT NULL, UNIQUE (run, position)
)
"""
_CALL = """
CREATE TABLE IF NOT EXISTS run_call (
    run INTEGER NOT NULL, call BLOB NOT NULL, completed INTEGER NOT NULL, UNIQUE (run, call)
)
"""
# A part is needed only while its run goes on.
_PART = """
CREATE TABLE IF NOT EXISTS run_part (
    run INTEGER NOT NULL, number INTEGER NOT NULL, position INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (run, number)
)
"""
_ENDED = """
CREATE TRIGGER IF NOT EXISTS run_ended AFTER UPDATE OF keep_until ON run WHEN new.keep_until IS NOT NULL BEGIN
    DELETE FROM run_part WHERE run = new.id;
END
"""
_DROPPED = """
CREATE TRIGGER IF NOT EXISTS run_dropped AFTER DELETE ON run BEGIN
    DELETE FROM run_event WHERE run = old.id;
    DELETE FROM run_call WHERE run = old.id;
END
"""
_BY_END = "CREATE INDEX IF NOT EXISTS run_by_end ON run (keep_until, lease_until)"
_BY_OWNER = "CREATE INDEX IF NOT EXISTS run_by_owner ON run (owner, held_bytes)"
_TABLES = (_RUN, _EVENT, _CALL, _PART, _ENDED, _DROPPED, _BY_END, _BY_OWNER)
_FIND = (
    "SELECT id, run_id, digest, owner, replica, lease_until, first, last, held_bytes, lost, keep_until FROM run "
    "WHERE name = ?"
)
_UNKNOWN = "SELECT call FROM run_call WHERE run = ? AND NOT completed ORDER BY rowid"
# The ended run that goes first: the oldest of the owner who holds most.
_NEXT_TO_GO = """
SELECT id, last, held_bytes FROM run WHERE keep_until IS NOT NULL AND first < last AND owner = (
    SELECT owner FROM run GROUP BY owner ORDER BY sum(held_bytes) DESC LIMIT 1
) ORDER BY keep_until LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class _Row:
    id: int
    run_id: str
    digest: str
    owner: bytes
    replica: str
    lease_until: float
    first: int
    last: int
    held_bytes: int
    lost: int
    keep_until: float | None


@dataclass(slots=True)
class _Mine:
    """A run of this process, for a file that is begun anew."""

    run_id: str
    digest: str
    owner: str
    last: int = 0
    calls: set[str] = field(default_factory=set)


class SQLiteRunStore:
    """Implements RunStore for the processes of a host. *now* is the time of day in seconds; *replica* names this
    process and no other.

    A file that was removed is begun anew with the runs of this process. Raises ConfigError for a file that cannot be
    used. For use from one event loop only, which never waits for the disk.
    """

    def __init__(
        self,
        path: Path,
        bounds: JournalBounds,
        now: Callable[[], float],
        replica: str,
        measures: StorageMeasures | None = None,
        lease_s: float = LEASE_S,
    ) -> None:
        self._path = path.absolute()
        self._bounds = bounds
        self._now = now
        self._replica = replica
        self._lease_s = lease_s
        self._mine: dict[str, _Mine] = {}
        self._claiming: set[str] = set()
        prepare(self._path, _make_tables)
        self._writer = SQLiteWriter(self._path, self._begin_anew, measures=measures)
        # What is committed here is on the disk, with all that was committed before.
        self._claims = SQLiteWriter(
            self._path, self._begin_anew, pragma="PRAGMA synchronous = FULL", measures=self._writer.measures
        )
        self._readers = ThreadPoolExecutor(_READERS, "runs-read")

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> KeptRun | None:
        self._claiming.add(name)
        try:
            kept = await self._write(lambda disk: self._claim(disk, name, _Mine(run_id, digest, owner), part))
            if kept is None:
                self._mine[name] = _Mine(run_id, digest, owner)
        finally:
            self._claiming.discard(name)
        return kept

    async def find(self, name: str) -> KeptRun | None:
        found = await self._read(lambda disk: _find(disk, name))
        return None if found is None or self._is_due(found) or self._is_left(found, name) else self._kept(found)

    async def append(self, events: Mapping[str, NewEvents]) -> Sequence[str]:
        taken = await self._write(
            lambda disk: [name for name, new in events.items() if not self._append(disk, name, new)]
        )
        for name, new in events.items():
            if name in self._mine and new.entries:
                self._mine[name].last = new.entries[-1].position
        return taken

    async def claim_call(self, name: str, call_id: str) -> bool:
        mine = self._mine[name]
        claimed = await self._write(lambda disk: self._claim_call(disk, name, call_id), self._claims)
        mine.calls.add(call_id)
        return claimed

    async def end(self, name: str) -> None:
        await self._write(lambda disk: self._end(disk, name))
        self._mine.pop(name, None)

    async def read(self, name: str, after: int) -> tuple[KeptRun, Sequence[Entry]] | None:
        run = await self.find(name)
        if run is None:
            return None
        # The state is read first: what is behind the end of an ended run is all that there is.
        return run, await self._read(lambda disk: _entries(disk, name, after))

    async def renew(self) -> Sequence[str]:
        mine = list(self._mine)
        return await self._write(lambda disk: self._renew(disk, mine))

    async def release(self, name: str) -> None:
        given = (self._now(), name, self._replica)
        free = "UPDATE run SET replica = '', lease_until = ? WHERE name = ? AND replica = ? AND keep_until IS NULL"
        await self._write(lambda disk: disk.execute(free, given).rowcount)
        self._mine.pop(name, None)

    async def lapsed(self, most: int) -> Mapping[str, bool]:
        found = (
            "SELECT name, replica = '' FROM run WHERE keep_until IS NULL AND lease_until <= ? AND replica != ? "
            "ORDER BY lease_until LIMIT ?"
        )
        rows = await self._read(lambda disk: disk.execute(found, (self._now(), self._replica, most)).fetchall())
        return {name: bool(released) for name, released in rows}

    async def take(self, name: str) -> Orphan | None:
        orphan = await self._write(lambda disk: self._take(disk, name))
        if orphan is not None:
            self._mine[name] = _Mine(orphan.run_id, orphan.digest, orphan.owner, orphan.last, set(orphan.unfinished))
        return orphan

    async def attend(self, name: str, for_s: float) -> None:
        until = self._now() + for_s
        await self._write(
            lambda disk: disk.execute("UPDATE run SET attended_until = ? WHERE name = ?", (until, name)).rowcount
        )

    async def attended_s(self, name: str) -> float:
        row = await self._read(
            lambda disk: disk.execute("SELECT attended_until FROM run WHERE name = ?", (name,)).fetchone()
        )
        return float("-inf") if row is None or not row[0] else row[0] - self._now()

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await asyncio.to_thread(self._readers.shutdown)
        await self._claims.aclose()
        await self._writer.aclose()

    async def _write(self, work: Callable[[sqlite3.Connection], T], writer: SQLiteWriter | None = None) -> T:
        fail = self._writer.measures.fail
        try:
            found = await (writer or self._writer).run(work)
        except sqlite3.Error as error:
            log.log(without_level(fail, "runs"), "runs cannot be kept: the storage file %s", explain(error))
            raise StoreAway from None
        fail.answered("runs")
        return found

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def run() -> T:
            with closing(connect(self._path, WAIT_S)) as disk:
                return work(disk)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, run)
        except sqlite3.Error as error:
            log.error("runs cannot be read: the storage file %s", explain(error))
            raise StoreAway from None

    def _kept(self, row: _Row) -> KeptRun:
        ended = row.keep_until is not None
        return KeptRun(row.run_id, row.digest, row.first, row.last, ended, bool(row.lost), self._has_lapsed(row))

    def _has_lapsed(self, row: _Row) -> bool:
        """True of a run that goes on, but not in any process. Of its own a process knows better: a lock of the file
        may have kept it from renewing the lease."""
        return row.keep_until is None and row.replica != self._replica and row.lease_until <= self._now()

    def _is_due(self, row: _Row) -> bool:
        return row.keep_until is not None and row.keep_until <= self._now()

    def _is_left(self, row: _Row, name: str) -> bool:
        """True of a claim that the disk took after its caller had left: nobody runs it. To be asked from any thread."""
        # In this order: a name is among ours before it is not being claimed any more.
        return self._is_unbegun(row) and name not in self._claiming and name not in self._mine

    def _is_unbegun(self, row: _Row) -> bool:
        return row.replica == self._replica and row.keep_until is None and not (row.last or row.lost)

    def _claim(self, disk: sqlite3.Connection, name: str, run: _Mine, part: bytes) -> KeptRun | None:
        # Runs that nobody came back to, and claims whose callers have left, make room; then the name must be free.
        disk.execute("DELETE FROM run WHERE keep_until <= ?", (self._now(),))
        if (row := _find(disk, name)) is not None:
            if name in self._mine or not self._is_unbegun(row):
                return self._kept(row)
            _drop(disk, row)
        by = _bytes(run.owner)
        (runs,) = disk.execute("SELECT count(*) FROM run").fetchone()
        (own,) = disk.execute("SELECT count(*) FROM run WHERE owner = ?", (by,)).fetchone()
        if (full := full_scope(own, runs, self._bounds.max_runs, None)) is not None:
            raise ShareRefused(full, own)
        self._make_room(disk)
        self._insert(disk, name, run)
        if part:
            disk.execute("INSERT INTO run_part SELECT id, 0, 0, ? FROM run WHERE name = ?", (part, name))
        return None

    def _take(self, disk: sqlite3.Connection, name: str) -> Orphan | None:
        row = _find(disk, name)
        if row is None or not self._has_lapsed(row):
            return None
        until = self._now() + self._lease_s
        disk.execute(
            "UPDATE run SET replica = ?, lease_until = ?, lost = 1 WHERE id = ?", (self._replica, until, row.id)
        )
        parts = disk.execute("SELECT number, position, data FROM run_part WHERE run = ? ORDER BY number", (row.id,))
        return Orphan(
            row.run_id,
            row.digest,
            row.owner.decode("utf-8", "surrogatepass"),
            row.last,
            _last_event(disk, row),
            [Part(*part) for part in parts],
            _unfinished(disk, row),
            self._now() - row.lease_until,
        )

    def _insert(self, disk: sqlite3.Connection, name: str, run: _Mine) -> None:
        until = self._now() + self._lease_s
        added = disk.execute(
            "INSERT OR IGNORE INTO run (name, run_id, digest, owner, replica, lease_until, attended_until, first, "
            "last, held_bytes, lost, keep_until) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, 0, 0, NULL)",
            (name, run.run_id, run.digest, _bytes(run.owner), self._replica, until, run.last + 1, run.last),
        )
        if added.rowcount:
            calls = [(added.lastrowid, _bytes(call)) for call in list(run.calls)]
            disk.executemany("INSERT INTO run_call VALUES (?, ?, 0)", calls)

    def _begin_anew(self, disk: sqlite3.Connection) -> None:
        _make_tables(disk)
        for name, run in list(self._mine.items()):
            self._insert(disk, name, run)

    def _own(self, disk: sqlite3.Connection, name: str) -> _Row | None:
        row = _find(disk, name)
        return row if row is not None and row.replica == self._replica and row.keep_until is None else None

    def _append(self, disk: sqlite3.Connection, name: str, new: NewEvents) -> bool:
        row = self._own(disk, name)
        if row is None:
            return False
        entries = [entry for entry in new.entries if entry.position > row.last]
        self._add(disk, row, entries)
        parts = [(row.id, part.number, part.position, part.data) for part in new.parts]
        disk.executemany("INSERT OR IGNORE INTO run_part VALUES (?, ?, ?, ?)", parts)
        calls = [(row.id, _bytes(call)) for call in new.completed]
        disk.executemany("UPDATE run_call SET completed = 1 WHERE run = ? AND call = ?", calls)
        until = self._now() + self._lease_s
        disk.execute("UPDATE run SET lease_until = ? WHERE id = ?", (until, row.id))
        return True

    def _add(self, disk: sqlite3.Connection, row: _Row, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        first, held_bytes = row.first, row.held_bytes
        # Behind a gap nothing can be read in order: the journal begins there.
        if entries[0].position != row.last + 1:
            disk.execute("DELETE FROM run_event WHERE run = ?", (row.id,))
            first, held_bytes = entries[0].position, 0
        rows = [(row.id, entry.position, entry.event) for entry in entries]
        disk.executemany("INSERT INTO run_event VALUES (?, ?, ?)", rows)
        held_bytes += sum(len(entry.event) for entry in entries)
        last = entries[-1].position
        while held_bytes > self._bounds.run_bytes and first < last:
            oldest = (row.id, first)
            (size,) = disk.execute(
                "SELECT length(event) FROM run_event WHERE run = ? AND position = ?", oldest
            ).fetchone()
            disk.execute("DELETE FROM run_event WHERE run = ? AND position = ?", oldest)
            held_bytes -= size
            first += 1
        disk.execute(
            "UPDATE run SET first = ?, last = ?, held_bytes = ? WHERE id = ?", (first, last, held_bytes, row.id)
        )

    def _renew(self, disk: sqlite3.Connection, mine: Sequence[str]) -> Sequence[str]:
        until = self._now() + self._lease_s
        kept = (until, self._replica)
        disk.execute("UPDATE run SET lease_until = ? WHERE keep_until IS NULL AND replica = ?", kept)
        rows = disk.execute("SELECT name FROM run WHERE keep_until IS NULL AND replica = ?", (self._replica,))
        held = {name for (name,) in rows}
        for name in held.difference(mine):
            if (row := _find(disk, name)) is not None and self._is_left(row, name):
                _drop(disk, row)
        return list(set(mine) - held)

    def _claim_call(self, disk: sqlite3.Connection, name: str, call_id: str) -> bool:
        row = self._own(disk, name)
        if row is None:
            return False
        return disk.execute("INSERT OR IGNORE INTO run_call VALUES (?, ?, 0)", (row.id, _bytes(call_id))).rowcount == 1

    def _end(self, disk: sqlite3.Connection, name: str) -> None:
        if (row := self._own(disk, name)) is not None:
            self._settle(disk, row)

    def _settle(self, disk: sqlite3.Connection, row: _Row) -> None:
        """Ends a run: with the events of a lost one, unless its last event is an end."""
        last = _last_event(disk, row)
        unended = last is None or not is_end(last)
        if unended:
            events = lost_events(_unfinished(disk, row), last)
            self._add(disk, row, [Entry(row.last + number, event) for number, event in enumerate(events, 1)])
        lost = unended or row.lost
        keep_s = max(self._bounds.keep_s, LOST_KEEP_S) if lost else self._bounds.keep_s
        disk.execute("UPDATE run SET lost = ?, keep_until = ? WHERE id = ?", (lost, self._now() + keep_s, row.id))

    def _make_room(self, disk: sqlite3.Connection) -> None:
        """Drops events of ended runs, but their ends, until the file holds no more of them than it may."""
        (total,) = disk.execute("SELECT coalesce(sum(held_bytes), 0) FROM run").fetchone()
        while total > self._bounds.total_bytes:
            found = disk.execute(_NEXT_TO_GO).fetchone()
            if found is None:
                return
            run, last, held_bytes = found
            disk.execute("DELETE FROM run_event WHERE run = ? AND position < ?", (run, last))
            (left,) = disk.execute("SELECT sum(length(event)) FROM run_event WHERE run = ?", (run,)).fetchone()
            disk.execute("UPDATE run SET first = last, held_bytes = ? WHERE id = ?", (left, run))
            total -= held_bytes - left


def _make_tables(disk: sqlite3.Connection) -> None:
    """Adds the tables beside those of the artifacts; older files do not have them."""
    for statement in _TABLES:
        disk.execute(statement)


def _find(disk: sqlite3.Connection, name: str) -> _Row | None:
    found = disk.execute(_FIND, (name,)).fetchone()
    return None if found is None else _Row(*found)


def _drop(disk: sqlite3.Connection, row: _Row) -> None:
    """Forgets a run with its parts, which go with its end."""
    disk.execute("UPDATE run SET keep_until = 0 WHERE id = ?", (row.id,))
    disk.execute("DELETE FROM run WHERE id = ?", (row.id,))


def _last_event(disk: sqlite3.Connection, row: _Row) -> bytes | None:
    at = (row.id, row.last)
    found = disk.execute("SELECT event FROM run_event WHERE run = ? AND position = ?", at).fetchone()
    return None if found is None else found[0]


def _unfinished(disk: sqlite3.Connection, row: _Row) -> list[str]:
    calls = disk.execute(_UNKNOWN, (row.id,)).fetchall()
    return [call.decode("utf-8", "surrogatepass") for (call,) in calls]


def _entries(disk: sqlite3.Connection, name: str, after: int) -> Sequence[Entry]:
    rows = disk.execute(
        "SELECT position, event FROM run_event WHERE run = (SELECT id FROM run WHERE name = ?) AND position > ? "
        "ORDER BY position",
        (name, after),
    )
    entries, taken_bytes = [], 0
    for position, event in rows:
        entries.append(Entry(position, event))
        taken_bytes += len(event)
        if taken_bytes >= _AT_ONCE_BYTES:
            break
    return entries


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
