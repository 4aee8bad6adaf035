"""The one thread that writes into the SQLite file of ``storage.url``, and that holds no caller up (EXEC-41 to EXEC-43).

A caller waits a second at most for its turn and the lock of the file, also if another process keeps it. What it has
given up is not done afterwards (OPS-333). After one that waited in vain, further ones are refused at once for a while;
then a single one tries. A file that was removed or replaced is noticed before the next write, and begun anew.
"""

import asyncio
import logging
import os
import sqlite3
import threading
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


class _GivenUp(Exception):
    """Ends a transaction whose caller has left."""


class _Turn:
    """Decides between the thread that does a work, step by step, and the caller who gives it up: one is first."""

    BEGUN, COMMITTED = 1, 2

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step = 0
        self.given_up = False

    def take(self, step: int) -> None:
        """Called by the thread before a step. Raises _GivenUp."""
        with self._lock:
            if self.given_up:
                raise _GivenUp
            self._step = step

    def give_up_before(self, step: int) -> None:
        """Called by the caller; does nothing if the thread has taken *step*."""
        with self._lock:
            self.given_up = self._step < step


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
        not to be had in time. Then, and if the caller is cancelled, nothing of it is kept, unless the disk was at the
        commit already."""
        loop = asyncio.get_running_loop()
        if self._trying or loop.time() < self._refused_until:
            self.measures.refused += 1
            raise Unavailable(sqlite3.SQLITE_BUSY)
        began = loop.time()
        # After a pause, one tries for all.
        self._trying = self._refused_until > float("-inf")
        begun, turn = asyncio.Event(), _Turn()
        begin = partial(loop.call_soon_threadsafe, begun.set)
        done = loop.run_in_executor(self._thread, self._work, work, turn, begin)
        try:
            result = await self._bounded(done, begun, turn)
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

    async def _bounded(self, done: asyncio.Future[T], begun: asyncio.Event, turn: _Turn) -> T:
        waiting = asyncio.ensure_future(begun.wait())
        try:
            either: list[asyncio.Future[Any]] = [done, waiting]
            await asyncio.wait(either, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                turn.give_up_before(turn.BEGUN)
                # Also without the news that it has begun, which may still be on their way here.
                if not turn.given_up:
                    await asyncio.wait([done], timeout=WRITE_S)
        finally:
            waiting.cancel()
            if not done.done():
                turn.give_up_before(turn.COMMITTED)
                done.cancel()
                done.add_done_callback(_ignore)
        if done.cancelled():
            raise Unavailable(sqlite3.SQLITE_BUSY)
        return done.result()

    def _work(self, work: Callable[[sqlite3.Connection], T], turn: _Turn, begun: Callable[[], object]) -> T:
        disk = self._current()
        with transaction(disk):
            turn.take(turn.BEGUN)
            self._writing = True
            try:
                begun()
                result = work(disk)
                turn.take(turn.COMMITTED)
                return result
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
