"""Keys that can be added once only, in the file of ``storage.url``: those of used approvals.

An approved call must not run again because a restart forgot that it ran (ACCESS-18).
"""

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

from wicketgate.errors import NotAdmitted
from wicketgate.storage.measures import StorageMeasures, without_level
from wicketgate.storage.memory_once import MemoryOnceStore
from wicketgate.storage.sqlite_file import explain, prepare
from wicketgate.storage.sqlite_writer import SQLiteWriter

log = logging.getLogger("wicketgate.approvals")


class SQLiteOnceStore:
    """Implements OnceStore for the processes of a host. *now* is the time of day in seconds.

    While the file cannot be written, ``add`` raises NotAdmitted; a locked one is waited for as ``SQLiteWriter`` does.
    A file that was removed is begun anew with the keys that this process has added. Raises ConfigError for a file that
    cannot be used. For use from one event loop only, which never waits for the disk.
    """

    def __init__(self, path: Path, now: Callable[[], float], measures: StorageMeasures | None = None) -> None:
        self._now = now
        self._own = MemoryOnceStore(now)
        path = path.absolute()
        prepare(path, _make_table)
        # Not even a power cut may bring an approval back.
        self._writer = SQLiteWriter(path, self._begin_anew, pragma="PRAGMA synchronous = FULL", measures=measures)

    async def add(self, key: str, until: float) -> bool:
        try:
            added = await self._writer.run(lambda disk: self._add(disk, key, until))
        except sqlite3.Error as error:
            level = without_level(self._writer.measures.fail, "approvals")
            log.log(level, "the storage file %s, so nothing that is approved can run", explain(error))
            raise NotAdmitted("Approvals cannot be kept at the moment, so nothing that needs one can run.") from None
        self._writer.measures.fail.answered("approvals")
        if added:
            await self._own.add(key, until)
        return added

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await self._writer.aclose()

    def _add(self, disk: sqlite3.Connection, key: str, until: float) -> bool:
        # One transaction, so that of several processes only one inserts the key.
        disk.execute("DELETE FROM once WHERE until <= ?", (self._now(),))
        return disk.execute("INSERT OR IGNORE INTO once VALUES (?, ?)", (key, until)).rowcount == 1

    def _begin_anew(self, disk: sqlite3.Connection) -> None:
        _make_table(disk)
        disk.executemany("INSERT OR IGNORE INTO once VALUES (?, ?)", self._own.kept())


def _make_table(disk: sqlite3.Connection) -> None:
    """Adds the table beside those of the artifacts; older files do not have it."""
    disk.execute("CREATE TABLE IF NOT EXISTS once (key TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID")
    disk.execute("CREATE INDEX IF NOT EXISTS once_by_end ON once (until)")
