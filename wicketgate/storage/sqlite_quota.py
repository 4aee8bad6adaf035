"""Executions counted in the file of ``storage.url``, for the processes of a host (ACCESS-93)."""

import sqlite3
from collections.abc import Callable, Sequence

from wicketgate.call_state import WINDOW_S, Full, StoreAway, Window
from wicketgate.storage.encoding import hashed
from wicketgate.storage.open_quota import Taken
from wicketgate.storage.sqlite_file import explain
from wicketgate.storage.sqlite_writer import SQLiteWriter


class SQLiteQuotaStore:
    """Implements SharedQuota. *now* is the time of day in seconds. The writer is closed by its owner."""

    def __init__(self, writer: SQLiteWriter, now: Callable[[], float]) -> None:
        self._writer = writer
        self._now = now

    async def take(self, actor: str, windows: Sequence[Window], *, count: bool = True) -> Full | None:
        try:
            return await self._writer.run(lambda disk: self._take(disk, hashed(actor), windows, count=count))
        except sqlite3.Error as error:
            raise StoreAway(f"the storage file {explain(error)}") from None

    async def give(self, actor: str, taken: Sequence[Taken]) -> None:
        try:
            await self._writer.run(lambda disk: self._give(disk, hashed(actor), taken))
        except sqlite3.Error as error:
            raise StoreAway(f"the storage file {explain(error)}") from None

    async def aclose(self) -> None:
        """Does nothing: the writer is closed by its owner."""

    def _take(self, disk: sqlite3.Connection, actor: str, windows: Sequence[Window], *, count: bool) -> Full | None:
        now = self._now()
        # A clock that was set back leaves times to come, which would count for long.
        disk.execute("DELETE FROM quota WHERE at <= ? OR at > ?", (now - WINDOW_S, now + WINDOW_S))
        full: Full | None = None
        for window in windows:
            key = (actor, hashed(window.name))
            (taken,) = disk.execute("SELECT count(*) FROM quota WHERE actor = ? AND name = ?", key).fetchone()
            if taken >= window.most:
                wait_s = WINDOW_S
                if window.most:
                    (at,) = disk.execute(
                        "SELECT at FROM quota WHERE actor = ? AND name = ? ORDER BY at LIMIT 1 OFFSET ?",
                        (*key, taken - window.most),
                    ).fetchone()
                    wait_s = min(at + WINDOW_S - now, WINDOW_S)
                if full is None or wait_s > full.retry_after_s:
                    full = Full(window, wait_s)
        if full is None and count:
            _insert(disk, actor, [window.name for window in windows], now)
        return full

    def _give(self, disk: sqlite3.Connection, actor: str, taken: Sequence[Taken]) -> None:
        now = self._now()
        for each in taken:
            _insert(disk, actor, each.names, now - each.ago_s)


def _insert(disk: sqlite3.Connection, actor: str, names: Sequence[str], at: float) -> None:
    disk.executemany("INSERT INTO quota VALUES (?, ?, ?)", [(actor, hashed(name), at) for name in names])


def make_quota_table(disk: sqlite3.Connection) -> None:
    """Adds the table beside those of the artifacts; older files do not have it."""
    disk.execute("CREATE TABLE IF NOT EXISTS quota (actor TEXT NOT NULL, name TEXT NOT NULL, at REAL NOT NULL)")
    disk.execute("CREATE INDEX IF NOT EXISTS quota_by_name ON quota (actor, name, at)")
    disk.execute("CREATE INDEX IF NOT EXISTS quota_by_time ON quota (at)")
