"""What may happen once only, in the SQLite file of ``storage.url``: also after a kill, for all processes of a host.

A call that was approved must not run again because nobody remembers that it did (DESIGN §3 "Approval").
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wicketgate.storage.sqlite_file import connect, prepare, told, transaction

log = logging.getLogger("wicketgate.approvals")


class SQLiteOnceStore:
    """Implements OnceStore. *now* is the time of day in seconds. A file that cannot be written lets nothing happen.

    Raises ConfigError when the file cannot be used. Use from one event loop only, which never waits for the disk.
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
            log.error("the storage file %s, so nothing that is approved can run", told(error))
            return False

    async def aclose(self) -> None:
        """Wait for what is being written, and close the file."""
        await asyncio.to_thread(self._writer.shutdown)
        if self._disk is not None:
            self._disk.close()

    def _add(self, key: str, until: float) -> bool:
        if self._disk is None:
            self._disk = _connect(self._path)
        with transaction(self._disk):
            self._disk.execute("DELETE FROM once WHERE until <= ?", (self._now(),))
            return self._disk.execute("INSERT OR IGNORE INTO once VALUES (?, ?)", (key, until)).rowcount == 1


def _connect(path: Path) -> sqlite3.Connection:
    disk = connect(path)
    disk.execute("PRAGMA synchronous = FULL")  # not even a power cut may bring an approval back
    return disk


def _make_table(disk: sqlite3.Connection) -> None:
    """Beside the artifacts; files from before it are given it."""
    disk.execute("CREATE TABLE IF NOT EXISTS once (key TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID")
    disk.execute("CREATE INDEX IF NOT EXISTS once_by_end ON once (until)")
