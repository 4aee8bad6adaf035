"""The one thread that writes into the SQLite file of ``storage.url``, and that holds no caller up (EXEC-41 to EXEC-43).

A caller waits a second at most for its turn and the lock of the file, also if another process keeps it. After one that
waited in vain, further ones are refused at once for a while; then a single one tries. A file that was removed or
replaced is noticed before the next write, and begun anew.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from wicketgate.errors import ConfigError
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite_file import connect, explain, kind_of, prepare, transaction

log = logging.getLogger("wicketgate.storage")

T = TypeVar("T")

WAIT_S = 1.0
"""The longest wait for the turn and the lock."""
WRITE_S = 10.0
"""The longest wait for a write that has begun."""
PAUSE_S = 2.0
_BUSY_S = 0.8


class Unavailable(sqlite3.OperationalError):
    """Raised in place of an error of SQLite, with its code."""

    def __init__(self, code: int) -> None:
        super().__init__("the storage file is not available")
        self.sqlite_errorcode = code
        self.sqlite_errorname = "unavailable"


class SQLiteWriter:
    """*at_start* makes what is missing in a new file, within the transaction of its making. *pragma* is run on each
    connection. For use from one event loop only."""

    def __init__(
        self,
        path: Path,
        at_start: Callable[[sqlite3.Connection], object],
        *,
        pragma: str = "",
        measures: StorageMeasures | None = None,
    ) -> None:
        self._path = path
        self._at_start = at_start
        self._pragma = pragma
        self._thread = ThreadPoolExecutor(1, "storage-write")
        self._disk: sqlite3.Connection | None = None
        self._opened = path.stat()
        self._writing = False
        self._refused_until = float("-inf")
        self._trying = False
        self.measures = measures or StorageMeasures()
        self.generation = 0
        """Counts the files that were begun in place of one that was gone: older connections belong to no file."""

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Returns what *work* returns, run in one transaction. Raises sqlite3.Error; ``Unavailable`` if the lock was
        not to be had in time."""
        loop = asyncio.get_running_loop()
        if self._trying or loop.time() < self._refused_until:
            self.measures.refused += 1
            raise Unavailable(sqlite3.SQLITE_BUSY)
        began = loop.time()
        # After a pause, one tries for all.
        self._trying = self._refused_until > float("-inf")
        begun = asyncio.Event()
        done = loop.run_in_executor(self._thread, self._work, work, partial(loop.call_soon_threadsafe, begun.set))
        try:
            result = await self._bounded(done, begun)
        except sqlite3.Error as error:
            self.measures.errors[kind_of(error)] += 1
            if kind_of(error) == "busy" and not self._writing:
                self._refused_until = loop.time() + PAUSE_S
                log.warning("the storage file %s; nothing is written for %g s", explain(error), PAUSE_S)
            raise
        else:
            self._refused_until = float("-inf")
            return result
        finally:
            self._trying = False
            self.measures.waits.observe(loop.time() - began)

    async def aclose(self) -> None:
        """Waits for pending writes and closes the file."""
        await asyncio.to_thread(self._thread.shutdown)
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    async def _bounded(self, done: asyncio.Future[T], begun: asyncio.Event) -> T:
        waiting = asyncio.ensure_future(begun.wait())
        try:
            either: list[asyncio.Future[Any]] = [done, waiting]
            await asyncio.wait(either, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
            if not done.done() and begun.is_set():
                await asyncio.wait([done], timeout=WRITE_S)
        finally:
            waiting.cancel()
            if not done.done():
                done.cancel()  # it is not begun any more, if it still waits for its turn
                done.add_done_callback(_ignore)
        if done.cancelled():
            raise Unavailable(sqlite3.SQLITE_BUSY)
        return done.result()

    def _work(self, work: Callable[[sqlite3.Connection], T], begun: Callable[[], object]) -> T:
        disk = self._current()
        with transaction(disk):
            self._writing = True
            try:
                begun()
                return work(disk)
            finally:
                self._writing = False

    def _current(self) -> sqlite3.Connection:
        # A file that was removed or replaced would take writes that nobody reads.
        if not self._is_there():
            if self._disk is not None:
                self._disk.close()
                self._disk = None
            log.error("the storage file %s is gone with all that was in it; a new one is begun", self._path)
            self.measures.errors["gone"] += 1
            try:
                prepare(self._path, self._at_start, patience_s=_BUSY_S)
            except ConfigError as error:
                log.error("%s", error)
                raise Unavailable(sqlite3.SQLITE_CANTOPEN) from None
            self._opened = self._path.stat()
            self.generation += 1
        if self._disk is None:
            self._disk = connect(self._path, _BUSY_S)
            if self._pragma:
                self._disk.execute(self._pragma)
        return self._disk

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), self._opened)
        except OSError:
            return False


def _ignore(done: asyncio.Future[T]) -> None:
    if not done.cancelled():
        done.exception()
