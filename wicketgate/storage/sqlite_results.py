"""Results kept in the file of ``storage.url``, to be given again by all processes of a host (EXEC-54)."""

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from wicketgate.call_state import Found, Key, StoreAway
from wicketgate.storage.result_rows import MAX_BYTES, MAX_RESULTS, packed_result, read_result, result_name
from wicketgate.storage.sqlite_file import explain
from wicketgate.storage.sqlite_writer import SQLiteWriter

T = TypeVar("T")


class SQLiteResultStore:
    """Implements ResultStore. *now* is the time of day in seconds. Of too many results, the one that ends first goes
    first. The writer is closed by its owner."""

    def __init__(
        self,
        writer: SQLiteWriter,
        now: Callable[[], float],
        *,
        max_results: int = MAX_RESULTS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._writer = writer
        self._now = now
        self._max_results = max_results
        self._max_bytes = max_bytes

    async def get(self, key: Key) -> Found:
        name = result_name(key)
        kept, cleared = await self._run(lambda disk: self._get(disk, name))
        return Found(None if kept is None else read_result(kept), cleared)

    async def put(self, key: Key, result: Mapping[str, Any], ttl_s: float, since: object) -> None:
        kept = packed_result(result)
        if kept is not None and len(kept) <= self._max_bytes:
            name = result_name(key)
            await self._run(lambda disk: self._put(disk, name, kept, ttl_s, since))

    async def clear(self) -> None:
        await self._run(_clear)

    async def aclose(self) -> None:
        """Does nothing: the writer is closed by its owner."""

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._writer.run(work)
        except sqlite3.Error as error:
            raise StoreAway(f"the storage file {explain(error)}") from None

    def _get(self, disk: sqlite3.Connection, name: str) -> tuple[bytes | None, object]:
        row = disk.execute("SELECT value FROM result WHERE name = ? AND ends > ?", (name, self._now())).fetchone()
        return row and row[0], _cleared(disk)

    def _put(self, disk: sqlite3.Connection, name: str, kept: bytes, ttl_s: float, since: object) -> None:
        if _cleared(disk) != since:
            return
        now = self._now()
        disk.execute("DELETE FROM result WHERE ends <= ? OR name = ?", (now, name))
        number, size = disk.execute("SELECT count(*), coalesce(sum(size), 0) FROM result").fetchone()
        while number >= self._max_results or size + len(kept) > self._max_bytes:
            gone = disk.execute(
                "DELETE FROM result WHERE name = (SELECT name FROM result ORDER BY ends, rowid LIMIT 1) RETURNING size"
            ).fetchone()
            if gone is None:
                return
            number, size = number - 1, size - gone[0]
        disk.execute("INSERT INTO result VALUES (?, ?, ?, ?)", (name, now + ttl_s, len(kept), kept))


def make_result_tables(disk: sqlite3.Connection) -> None:
    """Adds the tables beside those of the artifacts; older files do not have them."""
    # The sizes are in an index, so that summing them reads no value.
    disk.execute(
        "CREATE TABLE IF NOT EXISTS result (name TEXT PRIMARY KEY, ends REAL NOT NULL, size INTEGER NOT NULL, "
        "value BLOB NOT NULL)"
    )
    disk.execute("CREATE INDEX IF NOT EXISTS result_by_end ON result (ends, size)")
    disk.execute("CREATE TABLE IF NOT EXISTS result_state (cleared INTEGER NOT NULL)")
    disk.execute("INSERT INTO result_state SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM result_state)")


def _cleared(disk: sqlite3.Connection) -> object:
    return disk.execute("SELECT cleared FROM result_state").fetchone()[0]


def _clear(disk: sqlite3.Connection) -> None:
    disk.execute("DELETE FROM result")
    disk.execute("UPDATE result_state SET cleared = cleared + 1")
