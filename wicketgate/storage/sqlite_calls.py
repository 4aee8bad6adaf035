"""Long calls, as they are kept in the SQLite file of ``storage.url`` (EXEC-47)."""

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wicketgate.gateway.kept_calls import MOST_BYTES, StoreAway
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite_file import explain, prepare
from wicketgate.storage.sqlite_writer import SQLiteWriter

log = logging.getLogger("wicketgate.calls")

_TABLE = """
CREATE TABLE IF NOT EXISTS long_call (
    id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, until REAL NOT NULL, row BLOB NOT NULL,
    owner BLOB NOT NULL DEFAULT x'', ended INTEGER NOT NULL DEFAULT 1
)
"""
_ADDED = ("owner BLOB NOT NULL DEFAULT x''", "ended INTEGER NOT NULL DEFAULT 1")
_BY_END = "CREATE INDEX IF NOT EXISTS long_call_by_end ON long_call (until)"

# Bytes beside the new row: of all and of the owner, each with those of calls that run.
_HELD = """
SELECT total(length(row)), total(length(row) * NOT ended), total(length(row) * (owner = :owner)),
    total(length(row) * (owner = :owner AND NOT ended))
FROM long_call WHERE name != :name
"""
# Of the owner that holds most of what has ended, the new row counted with its own.
_NEXT_TO_GO = """
SELECT id, length(row), owner FROM long_call WHERE ended AND name != :name AND owner = (
    SELECT owner FROM long_call WHERE ended AND name != :name GROUP BY owner
    ORDER BY sum(length(row)) + iif(owner = :owner, :needed, 0) DESC, owner = :owner DESC LIMIT 1
) ORDER BY id LIMIT 1
"""
_OWN_NEXT_TO_GO = """
SELECT id, length(row), owner FROM long_call WHERE ended AND name != :name AND owner = :owner ORDER BY id LIMIT 1
"""


class SQLiteCallStore:
    """Implements CallStore for the processes of a host. *now* is the time of day in seconds. *most_bytes* bounds all
    rows: give each process the same. Raises ConfigError for a
    file that cannot be used. For use from one event loop only, which never waits for the disk."""

    def __init__(
        self,
        path: Path,
        now: Callable[[], float],
        measures: StorageMeasures | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._now = now
        self._most_bytes = most_bytes
        path = path.absolute()
        prepare(path, _make_table)
        self._writer = SQLiteWriter(path, _make_table, measures=measures)

    async def put(self, owner: str, id: str, row: bytes, life_s: float, *, ended: bool) -> bool:
        def write(disk: sqlite3.Connection) -> bool:
            now, name, whose = self._now(), _name(owner, id), _name(owner)
            disk.execute("DELETE FROM long_call WHERE until <= ?", (now,))
            if not self._makes_room(disk, {"owner": whose, "name": name, "needed": len(row)}):
                return False
            disk.execute(
                "INSERT OR REPLACE INTO long_call (name, until, row, owner, ended) VALUES (?, ?, ?, ?, ?)",
                (name, now + life_s, row, whose, ended),
            )
            return True

        try:
            return await self._writer.run(write)
        except sqlite3.Error as error:
            log.error("a long call is not kept: the storage file %s", explain(error))
            return False

    async def get(self, owner: str, id: str) -> bytes | None:
        query = "SELECT row FROM long_call WHERE name = ? AND until > ?"
        try:
            found = await self._writer.run(lambda disk: disk.execute(query, (_name(owner, id), self._now())).fetchone())
        except sqlite3.Error as error:
            log.error("a long call is not read: the storage file %s", explain(error))
            raise StoreAway from None
        return None if found is None else bytes(found[0])

    async def drop(self, owner: str, id: str) -> None:
        try:
            await self._writer.run(
                lambda disk: disk.execute("DELETE FROM long_call WHERE name = ?", (_name(owner, id),))
            )
        except sqlite3.Error as error:
            log.debug("a long call is not removed: the storage file %s", explain(error))

    async def aclose(self) -> None:
        await self._writer.aclose()

    def _makes_room(self, disk: sqlite3.Connection, wanted: Mapping[str, Any]) -> bool:
        """Lets rows go for the one that is *wanted*; returns false, and lets none go, if that would not do."""
        needed, most, most_of_one = wanted["needed"], self._most_bytes, self._most_bytes // 2
        of_all, running, own, own_running = (held + needed for held in disk.execute(_HELD, wanted).fetchone())
        if running > most or own_running > most_of_one:
            return False
        while own > most_of_one or of_all > most:
            query = _OWN_NEXT_TO_GO if own > most_of_one else _NEXT_TO_GO
            number, size, whose = disk.execute(query, wanted).fetchone()
            disk.execute("DELETE FROM long_call WHERE id = ?", (number,))
            of_all -= size
            own -= size if whose == wanted["owner"] else 0
        return True


def _name(*parts: str) -> bytes:
    """No text of a client is too long, or no Unicode."""
    encoded = (part.encode("utf-8", "surrogatepass") for part in parts)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in encoded)).digest()


def _make_table(disk: sqlite3.Connection) -> None:
    """Adds the table beside those of the artifacts; older files do not have it, or not all of its columns."""
    disk.execute(_TABLE)
    there = {name for _, name, *_ in disk.execute("PRAGMA table_info(long_call)")}
    for column in _ADDED:
        if column.partition(" ")[0] not in there:
            disk.execute(f"ALTER TABLE long_call ADD COLUMN {column}")
    disk.execute(_BY_END)
