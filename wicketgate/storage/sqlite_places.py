"""Places of actors in the SQLite file of ``storage.url``, counted for all processes of a host (ACCESS-97)."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from wicketgate.storage.group_shares import LAPSE_S, Grant, PlacesAway, Wish
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite_file import prepare
from wicketgate.storage.sqlite_writer import SQLiteWriter

_FAR_S = 2 * LAPSE_S


class SQLitePlaces:
    """Implements PlaceStore. *member* is unique among the processes that share the file; *now* is the time of day in
    seconds. Raises ConfigError for a file that cannot be used."""

    def __init__(
        self,
        path: Path,
        member: str,
        now: Callable[[], float],
        measures: StorageMeasures | None = None,
        lapse_s: float = LAPSE_S,
    ) -> None:
        self.member = member
        self._now = now
        self._lapse_s = lapse_s
        path = path.absolute()
        prepare(path, _make_tables)
        self._writer = SQLiteWriter(path, _make_tables, measures=measures)

    async def settle(self, kind: str, limit: int, wishes: Sequence[Wish]) -> Sequence[Grant]:
        try:
            return await self._writer.run(lambda disk: self._settle(disk, kind, limit, wishes))
        except sqlite3.Error:
            raise PlacesAway from None

    async def leave(self, kind: str) -> None:
        try:
            await self._writer.run(lambda disk: _drop(disk, kind, self.member))
        except sqlite3.Error:
            raise PlacesAway from None

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await self._writer.aclose()

    def _settle(self, disk: sqlite3.Connection, kind: str, limit: int, wishes: Sequence[Wish]) -> list[Grant]:
        now = self._now()
        # An end too far ahead was written before the clock was set back.
        ended = "SELECT member FROM place_member WHERE kind = ? AND (until <= ? OR until > ?)"
        for (member,) in disk.execute(ended, (kind, now, now + _FAR_S)).fetchall():
            _drop(disk, kind, member)
        disk.execute("INSERT OR REPLACE INTO place_member VALUES (?, ?, ?)", (kind, self.member, now + self._lapse_s))
        return [self._grant(disk, kind, limit, wish) for wish in wishes]

    def _grant(self, disk: sqlite3.Connection, kind: str, limit: int, wish: Wish) -> Grant:
        actor = wish.actor.encode("utf-8", "surrogatepass")
        (elsewhere,) = disk.execute(
            "SELECT coalesce(sum(held), 0) FROM place WHERE kind = ? AND actor = ? AND member != ?",
            (kind, actor, self.member),
        ).fetchone()
        granted = max(0, min(wish.wanted, limit - elsewhere - wish.held))
        if wish.held + granted:
            disk.execute(
                "INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?)", (kind, actor, self.member, wish.held + granted)
            )
        else:
            disk.execute("DELETE FROM place WHERE kind = ? AND actor = ? AND member = ?", (kind, actor, self.member))
        return Grant(granted, elsewhere)


def _drop(disk: sqlite3.Connection, kind: str, member: str) -> None:
    """Drops a process with all that it holds."""
    disk.execute("DELETE FROM place WHERE kind = ? AND member = ?", (kind, member))
    disk.execute("DELETE FROM place_member WHERE kind = ? AND member = ?", (kind, member))


def _make_tables(disk: sqlite3.Connection) -> None:
    disk.execute(
        "CREATE TABLE IF NOT EXISTS place_member (kind TEXT, member TEXT, until REAL NOT NULL,"
        " PRIMARY KEY (kind, member)) WITHOUT ROWID"
    )
    disk.execute(
        "CREATE TABLE IF NOT EXISTS place (kind TEXT, actor BLOB, member TEXT, held INTEGER NOT NULL,"
        " PRIMARY KEY (kind, actor, member)) WITHOUT ROWID"
    )
