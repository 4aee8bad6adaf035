"""What is kept of long calls in the SQLite file of ``storage.url`` (EXEC-47)."""

import hashlib
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

from wicketgate.gateway.kept_calls import StoreAway
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite_file import explain, prepare
from wicketgate.storage.sqlite_writer import SQLiteWriter

log = logging.getLogger("wicketgate.calls")

MOST_BYTES = 256 * 1024 * 1024
"""Of all rows: the oldest give way."""
_TABLE = """
CREATE TABLE IF NOT EXISTS long_call (
    id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE, until REAL NOT NULL, row BLOB NOT NULL
)
"""
_BY_END = "CREATE INDEX IF NOT EXISTS long_call_by_end ON long_call (until)"


class SQLiteCallStore:
    """Implements CallStore for the processes of a host. *now* is the time of day in seconds. Raises ConfigError for a
    file that cannot be used. For use from one event loop only, which never waits for the disk."""

    def __init__(self, path: Path, now: Callable[[], float], measures: StorageMeasures | None = None) -> None:
        self._now = now
        path = path.absolute()
        prepare(path, _make_table)
        self._writer = SQLiteWriter(path, _make_table, measures=measures)

    async def put(self, owner: str, id: str, row: bytes, life_s: float) -> bool:
        def write(disk: sqlite3.Connection) -> None:
            now = self._now()
            disk.execute("DELETE FROM long_call WHERE until <= ?", (now,))
            disk.execute(
                "INSERT OR REPLACE INTO long_call (name, until, row) VALUES (?, ?, ?)",
                (_name(owner, id), now + life_s, row),
            )
            (held,) = disk.execute("SELECT total(length(row)) FROM long_call").fetchone()
            while held > MOST_BYTES:
                oldest, size = disk.execute("SELECT id, length(row) FROM long_call ORDER BY id LIMIT 1").fetchone()
                disk.execute("DELETE FROM long_call WHERE id = ?", (oldest,))
                held -= size

        try:
            await self._writer.run(write)
        except sqlite3.Error as error:
            log.error("a long call is not kept: the storage file %s", explain(error))
            return False
        return True

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


def _name(owner: str, id: str) -> bytes:
    """No text of a client is too long, or no Unicode."""
    parts = (part.encode("utf-8", "surrogatepass") for part in (owner, id))
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _make_table(disk: sqlite3.Connection) -> None:
    """Adds the table beside those of the artifacts; older files do not have it."""
    disk.execute(_TABLE)
    disk.execute(_BY_END)
