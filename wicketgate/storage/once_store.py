"""Keys that can be added once only, for approvals: in memory, and in the SQLite file of ``storage.url``.

An approved call must not run again because a restart forgot that it ran (DESIGN §3 "Approval").
"""

import asyncio
import heapq
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wicketgate.storage.sqlite_file import connect, explain, prepare, transaction

log = logging.getLogger("wicketgate.approvals")

_MAX_KEPT = 100_000


class MemoryOnceStore:
    """Implements OnceStore for one process. Full of keys that have not lapsed, it takes no further key."""

    def __init__(self, now: Callable[[], float], *, max_kept: int = _MAX_KEPT) -> None:
        self._now = now
        self._max_kept = max_kept
        self._kept: set[str] = set()
        self._by_end: list[tuple[float, str]] = []

    async def add(self, key: str, until: float) -> bool:
        # Keys that have lapsed make room.
        now = self._now()
        while self._by_end and self._by_end[0][0] <= now:
            self._kept.discard(heapq.heappop(self._by_end)[1])
        if key in self._kept or len(self._kept) >= self._max_kept:
            return False
        self._kept.add(key)
        heapq.heappush(self._by_end, (until, key))
        return True

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""


class SQLiteOnceStore:
    """Implements OnceStore for the processes of a host. *now* is the time of day in seconds.

    While the file cannot be written, no key can be added. Raises ConfigError for a file that cannot be used. For use
    from one event loop only, which never waits for the disk.
    """

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path.absolute()
        self._now = now
        self._writer = ThreadPoolExecutor(1, "once-write")
        self._disk: sqlite3.Connection | None = None
        prepare(self._path, _make_table)

    async def add(self, key: str, until: float) -> bool:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, self._add, key, until)
        except sqlite3.Error as error:
            log.error("the storage file %s, so nothing that is approved can run", explain(error))
            return False

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await asyncio.to_thread(self._writer.shutdown)
        if self._disk is not None:
            self._disk.close()

    def _add(self, key: str, until: float) -> bool:
        if self._disk is None:
            self._disk = connect(self._path)
            self._disk.execute("PRAGMA synchronous = FULL")  # not even a power cut may bring an approval back
        with transaction(self._disk):
            # One transaction, so that of several processes only one inserts the key.
            self._disk.execute("DELETE FROM once WHERE until <= ?", (self._now(),))
            return self._disk.execute("INSERT OR IGNORE INTO once VALUES (?, ?)", (key, until)).rowcount == 1


def _make_table(disk: sqlite3.Connection) -> None:
    """Adds the table beside those of the artifacts; older files do not have it."""
    disk.execute("CREATE TABLE IF NOT EXISTS once (key TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID")
    disk.execute("CREATE INDEX IF NOT EXISTS once_by_end ON once (until)")
