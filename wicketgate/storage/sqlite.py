"""The ``Store`` of the processes of a host: the core over the file of ``storage.url``."""

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from time import time
from typing import TypeVar

from wicketgate.storage.core import SCHEMA, Core, DamagedRow
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory import CoreStore
from wicketgate.storage.signals import Waiter
from wicketgate.storage.sqlite_file import check, connect, explain, kind_of, prepare, statements
from wicketgate.storage.sqlite_writer import SQLiteReader, SQLiteWriter
from wicketgate.storage.store import LOOK_S, StoreRemoved, StoreUnavailable
from wicketgate.task_end import end_tasks

T = TypeVar("T")

_POLL_S = 0.05


class SqliteStore(CoreStore):
    """Implements Store. *now* is the time of day in seconds. Raises ConfigError for a file that cannot be used. For use
    from one event loop only, which never waits for the disk."""

    def __init__(self, path: Path, now: Callable[[], float] = time, measures: StorageMeasures | None = None) -> None:
        super().__init__(secrets.token_hex(8))
        self._path = path.absolute()
        self._now = now
        prepare(self._path, _make_tables)
        self._writer = SQLiteWriter(self._path, measures=measures)
        self._reader = SQLiteReader(self._path, self._writer.measures)
        self._polling: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listen(self, topic: str) -> AsyncIterator[Waiter]:
        if self._polling is None or self._polling.done():
            last = await self._read(Core.last_signal)
            if self._polling is None or self._polling.done():
                self._polling = asyncio.create_task(self._poll(last), name="signals of the storage file")
        with self._listeners.listening(topic) as waiter:
            yield waiter

    async def aclose(self) -> None:
        await end_tasks(self._polling)
        await self._writer.aclose()
        await self._reader.aclose()

    async def _poll(self, last: int) -> None:
        """Wakes listeners of this process after signals of others, while there are listeners.

        Looks at the version of the file on the event loop: SQLite keeps it in shared memory. It costs 5 µs, and waits
        for no lock.
        """
        look: sqlite3.Connection | None = None
        seen = None
        pause_s = _POLL_S
        try:
            while len(self._listeners):
                await asyncio.sleep(pause_s)
                pause_s = _POLL_S
                try:
                    if look is None:
                        look = await asyncio.to_thread(connect, self._path, 0.0)
                    version = look.execute("PRAGMA data_version").fetchone()
                    if version != seen:
                        last, topics = await self._read(partial(Core.signals, after=last, reader=self._sender))
                        seen = version
                        self._listeners.wake(topics)
                except (sqlite3.Error, StoreUnavailable):
                    pause_s = LOOK_S
        finally:
            if look is not None:
                look.close()

    async def _write(self, work: Callable[[Core], T], *, durable: bool = False) -> T:
        with self._available():
            return await self._writer.run(lambda disk: work(Core(disk, self._now)), durable=durable)

    async def _read(self, work: Callable[[Core], T]) -> T:
        with self._available():
            return await self._reader.run(lambda disk: work(Core(disk, self._now)))

    @contextmanager
    def _available(self) -> Iterator[None]:
        """Counts damaged rows, and raises StoreUnavailable for errors of SQLite."""
        try:
            yield
        except DamagedRow:
            self._writer.measures.errors["damaged"] += 1
            raise
        except sqlite3.Error as error:
            failed = StoreRemoved if kind_of(error) == "gone" else StoreUnavailable
            raise failed(f"the storage file {explain(error)}") from error


def _make_tables(disk: sqlite3.Connection) -> None:
    for statement in statements(SCHEMA):
        disk.execute(statement)
    # Large data is not checked, because there may be much of it: a damaged piece is found when it is read.
    check(disk, "row")
