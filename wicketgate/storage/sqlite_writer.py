"""The two threads that use the SQLite file of ``storage.url``; no caller waits for them for long (EXEC-41 to EXEC-43).

Writes that wait together share one transaction, and so one flush of the disk (EXEC-117). A caller waits one second at
most for its turn and for the lock of the file, also if another process keeps it. A write that its caller has given up
before its turn is not done (OPS-333). After a caller has waited in vain, further ones are refused immediately for a
while; then a single one tries. A file that was removed or replaced is not used any more (EXEC-43).
"""

import asyncio
import logging
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite_file import connect, explain, kind_of, transaction

log = logging.getLogger("wicketgate.storage")

T = TypeVar("T")

WAIT_S = 1.0
"""The longest wait for the turn and the lock."""
WRITE_S = 10.0
"""The longest wait for a write that has begun."""
PAUSE_S = 2.0
_BUSY_S = 0.8
_AT_ONCE = 64
"""The most writes of one transaction."""


class Unavailable(sqlite3.OperationalError):
    """Raised in place of an error of SQLite, with its code."""

    def __init__(self, code: int) -> None:
        super().__init__("the storage file is not available")
        self.sqlite_errorcode = code
        self.sqlite_errorname = "unavailable"


class _Write(Generic[T]):
    def __init__(self, work: Callable[[sqlite3.Connection], T], durable: bool, answer: asyncio.Future[T]) -> None:
        self.work = work
        self.durable = durable
        self.answer = answer
        self.error: BaseException | None = None
        self.result: T | None = None
        self._decided = threading.Lock()

    def decide(self) -> bool:
        """Returns true once: to the thread, which begins the write, or to its caller, who gives it up."""
        return self._decided.acquire(blocking=False)

    def do(self, disk: sqlite3.Connection) -> None:
        """Does the work within a savepoint. Keeps its result or error for the caller."""
        disk.execute("SAVEPOINT one")
        try:
            self.result = self.work(disk)
        except BaseException as error:
            self.error = error
            if not disk.in_transaction:  # the error has undone the writes before this one too
                raise
            disk.execute("ROLLBACK TO one")
        disk.execute("RELEASE one")

    def reply(self) -> None:
        if self.answer.done():
            return
        if self.error is None:
            self.answer.set_result(self.result)  # type: ignore[arg-type]
        else:
            self.answer.set_exception(self.error)


class Gate:
    """Measures callers of the file. After one has waited in vain it refuses all for ``PAUSE_S``, and then lets a single
    one try. Logs an outage once."""

    def __init__(self, measures: StorageMeasures) -> None:
        self._measures = measures
        self._refused_until = float("-inf")
        self._trying = False
        self._reported = ""

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Raises Unavailable if the caller is refused, and sqlite3.Error of the block."""
        now = asyncio.get_running_loop().time
        if self._trying or now() < self._refused_until:
            self._measures.refused += 1
            raise Unavailable(sqlite3.SQLITE_BUSY)
        began = now()
        # After a pause, one tries for all.
        self._trying = self._refused_until > float("-inf")
        try:
            yield
            self._refused_until, self._reported = float("-inf"), ""
            self._measures.away = ""
        except sqlite3.Error as error:
            kind = kind_of(error)
            self._measures.errors[kind] += 1
            self._measures.away = explain(error) if kind == "gone" else ""
            if kind not in ("busy", self._reported):
                self._reported = kind
                log.error("the storage file %s", explain(error))
            raise
        finally:
            self._trying = False
            self._measures.waits.observe(now() - began)

    def close(self, error: sqlite3.Error) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._refused_until:
            log.warning("the storage file %s; it is not used for %g s", explain(error), PAUSE_S)
        self._refused_until = now + PAUSE_S


class _FileThread:
    """One thread that uses the file at *path*, which ``prepare`` has checked. For use from one event loop only."""

    def __init__(self, path: Path, name: str, measures: StorageMeasures) -> None:
        self.measures = measures
        self._path = path
        self._thread = ThreadPoolExecutor(1, name)
        self._disk: sqlite3.Connection | None = None
        self._opened = path.stat()
        self._gate = Gate(measures)

    async def aclose(self) -> None:
        """Waits for what is under way and closes the file."""
        await asyncio.to_thread(self._thread.shutdown)
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def _current(self) -> sqlite3.Connection:
        """Raises Unavailable if the file was removed or replaced: no other process would read what is written to it."""
        try:
            is_there = os.path.samestat(self._path.stat(), self._opened)
        except OSError:
            is_there = False
        if not is_there:
            raise Unavailable(sqlite3.SQLITE_CANTOPEN)
        if self._disk is None:
            self._disk = connect(self._path, _BUSY_S)
        return self._disk


class SQLiteWriter(_FileThread):
    """The thread that writes."""

    def __init__(self, path: Path, measures: StorageMeasures | None = None) -> None:
        super().__init__(path, "storage-write", measures or StorageMeasures())
        self._waiting: deque[_Write[Any]] = deque()
        self._writing = False

    async def run(self, work: Callable[[sqlite3.Connection], T], *, durable: bool = False) -> T:
        """Returns what *work* returns, run in a transaction. Raises sqlite3.Error; ``Unavailable`` if the lock was
        not available in time. Then, and if the caller is cancelled, *work* is not run unless that has begun. With
        *durable* the disk has acknowledged the write."""
        loop = asyncio.get_running_loop()
        with self._gate.admitted():
            write = _Write(work, durable, loop.create_future())
            self._waiting.append(write)
            self._thread.submit(self._work, loop)
            try:
                return await self._bounded(write)
            except sqlite3.Error as error:
                if kind_of(error) == "busy" and not self._writing:
                    self._gate.close(error)
                raise

    async def _bounded(self, write: _Write[T]) -> T:
        late = asyncio.get_running_loop().call_later(WAIT_S, self._end_wait, write)
        try:
            return await write.answer
        except asyncio.CancelledError:
            write.decide()
            raise
        finally:
            late.cancel()

    def _end_wait(self, write: _Write[Any]) -> None:
        if write.decide():
            _give_up(write)
        else:
            asyncio.get_running_loop().call_later(WRITE_S, _give_up, write)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Does writes that wait, if an earlier turn of the thread has not done them."""
        if not self._waiting:
            return
        done: list[_Write[Any]] = []
        try:
            disk = self._current()
            durable = any(write.durable for write in list(self._waiting)[:_AT_ONCE])
            disk.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            with transaction(disk):
                while self._waiting and len(done) < _AT_ONCE and (durable or not self._waiting[0].durable):
                    write = self._waiting.popleft()
                    if write.decide():
                        self._writing = True
                        done.append(write)
                        write.do(disk)
        except BaseException as error:
            # Those that wait for the same lock, or the same disk, are answered with it.
            while self._waiting:
                done.append(self._waiting.popleft())
            for write in done:
                write.error = error
        self._writing = False
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_reply, done)


class SQLiteReader(_FileThread):
    """The thread that reads."""

    def __init__(self, path: Path, measures: StorageMeasures) -> None:
        super().__init__(path, "storage-read", measures)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Returns what *work* returns, which sees one state of the file. Raises sqlite3.Error; ``Unavailable`` if it
        did not begin and end in time."""
        with self._gate.admitted():
            answer = asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)
            try:
                async with asyncio.timeout(WAIT_S):
                    return await answer
            except TimeoutError:
                late = Unavailable(sqlite3.SQLITE_BUSY)
                self._gate.close(late)
                raise late from None

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        disk = self._current()
        disk.execute("BEGIN")
        try:
            return work(disk)
        finally:
            disk.rollback()


def _give_up(write: _Write[Any]) -> None:
    if not write.answer.done():
        write.answer.set_exception(Unavailable(sqlite3.SQLITE_BUSY))


def _reply(done: list[_Write[Any]]) -> None:
    for write in done:
        write.reply()
