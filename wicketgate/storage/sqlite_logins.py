"""The rows of logins in the file of ``storage.url``, for the processes of a host (ACCESS-150)."""

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from wicketgate.login.rows import MOST_LISTED, LoginsAway, Row, RowKind
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite_file import explain, prepare
from wicketgate.storage.sqlite_writer import SQLiteWriter

log = logging.getLogger("wicketgate.login")

T = TypeVar("T")

_ROW = """
CREATE TABLE IF NOT EXISTS login_row (
    kind TEXT NOT NULL, key TEXT NOT NULL, owner BLOB NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,
    expires_at REAL, PRIMARY KEY (kind, key)
) WITHOUT ROWID
"""
_LEASE = """
CREATE TABLE IF NOT EXISTS login_lease (
    kind TEXT NOT NULL, key TEXT NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID
"""
_BY_OWNER = "CREATE INDEX IF NOT EXISTS login_row_by_owner ON login_row (kind, owner)"
_BY_END = "CREATE INDEX IF NOT EXISTS login_row_by_end ON login_row (expires_at)"
_COLUMNS = "kind, key, owner, data, version, expires_at"
_LIVE = "(expires_at IS NULL OR expires_at > ?)"


class SQLiteRowStore:
    """Implements RowStore. *now* is the time of day in seconds, which the processes share.

    A file that was removed is begun anew, empty. Raises ConfigError for a file that cannot be used. For use from one
    event loop only, which never waits for the disk.
    """

    def __init__(self, path: Path, now: Callable[[], float], measures: StorageMeasures | None = None) -> None:
        self._now = now
        self._away = False
        path = path.absolute()
        prepare(path, _make_tables)
        # A refresh token that a power cut takes back is refused by its issuer, and the grant is lost.
        self._writer = SQLiteWriter(path, _make_tables, pragma="PRAGMA synchronous = FULL", measures=measures)

    async def read(self, kind: RowKind, key: str) -> Row | None:
        def read(disk: sqlite3.Connection) -> Row | None:
            query = f"SELECT {_COLUMNS} FROM login_row WHERE kind = ? AND key = ? AND {_LIVE}"  # noqa: S608
            found = disk.execute(query, (kind, key, self._now())).fetchone()
            return None if found is None else _row(found)

        return await self._run(read)

    async def write(self, row: Row, *, most_of_owner: int | None = None) -> bool:
        return await self._run(lambda disk: self._write(disk, row, most_of_owner))

    async def delete(self, kind: RowKind, key: str) -> bool:
        def delete(disk: sqlite3.Connection) -> bool:
            self._drop_ended(disk)
            return disk.execute("DELETE FROM login_row WHERE kind = ? AND key = ?", (kind, key)).rowcount == 1

        return await self._run(delete)

    async def of_owner(self, kind: RowKind, owner: str | None) -> Sequence[Row]:
        def rows(disk: sqlite3.Connection) -> Sequence[Row]:
            query = f"SELECT {_COLUMNS} FROM login_row WHERE kind = ? AND {_LIVE}"  # noqa: S608
            values: list[Any] = [kind, self._now()]
            if owner is not None:
                query += " AND owner = ?"
                values.append(_bytes(owner))
            return [_row(found) for found in disk.execute(f"{query} LIMIT {MOST_LISTED}", values)]

        return await self._run(rows)

    async def lease(self, kind: RowKind, key: str, holder: str, for_s: float) -> bool:
        def lease(disk: sqlite3.Connection) -> bool:
            now = self._now()
            disk.execute("DELETE FROM login_lease WHERE until <= ?", (now,))
            taken = disk.execute(
                "INSERT INTO login_lease VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET until = excluded.until WHERE holder = excluded.holder",
                (kind, key, holder, now + for_s),
            )
            return taken.rowcount == 1

        return await self._run(lease)

    async def release(self, kind: RowKind, key: str, holder: str) -> None:
        def release(disk: sqlite3.Connection) -> None:
            disk.execute("DELETE FROM login_lease WHERE kind = ? AND key = ? AND holder = ?", (kind, key, holder))

        await self._run(release)

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await self._writer.aclose()

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            result = await self._writer.run(work)
        except sqlite3.Error as error:
            level, self._away = logging.DEBUG if self._away else logging.ERROR, True
            log.log(level, "logins can neither be read nor kept at the moment: the storage file %s", explain(error))
            raise LoginsAway from None
        self._away = False
        return result

    def _write(self, disk: sqlite3.Connection, row: Row, most_of_owner: int | None) -> bool:
        self._drop_ended(disk)
        values = (row.kind, row.key, _bytes(row.owner), row.data, row.version, row.expires_at)
        if row.version > 1:
            written = disk.execute(
                "UPDATE login_row SET owner = ?3, data = ?4, version = ?5, expires_at = ?6"
                " WHERE kind = ?1 AND key = ?2 AND version = ?5 - 1",
                values,
            )
            return written.rowcount == 1
        if most_of_owner is not None:
            query = "SELECT count(*) FROM login_row WHERE kind = ? AND owner = ?"
            (count,) = disk.execute(query, (row.kind, _bytes(row.owner))).fetchone()
            if count >= most_of_owner:
                return False
        return disk.execute("INSERT OR IGNORE INTO login_row VALUES (?, ?, ?, ?, ?, ?)", values).rowcount == 1

    def _drop_ended(self, disk: sqlite3.Connection) -> None:
        disk.execute("DELETE FROM login_row WHERE expires_at <= ?", (self._now(),))


def _make_tables(disk: sqlite3.Connection) -> None:
    """Adds the tables beside those of the artifacts; older files do not have them."""
    for statement in (_ROW, _LEASE, _BY_OWNER, _BY_END):
        disk.execute(statement)


def _row(found: tuple[Any, ...]) -> Row:
    kind, key, owner, data, version, expires_at = found
    return Row(kind, key, owner.decode("utf-8", "surrogatepass"), data, version, expires_at)


# Any string may be an actor, even invalid Unicode.
def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")
