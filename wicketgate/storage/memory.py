"""The ``Store`` over ``Core``, and that of a single process: over a database in memory, without a thread, a lock or a
disk."""

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from wicketgate.storage.core import SCHEMA, Core, Pieces
from wicketgate.storage.signals import Listeners, Waiter
from wicketgate.storage.store import (
    LISTED,
    MARK_S,
    Beat,
    Conflict,
    Fence,
    Full,
    Grant,
    Kind,
    Op,
    Refused,
    Row,
    Signal,
    Window,
    Wish,
)

T = TypeVar("T")


class CoreStore:
    """Implements Store for memory and for a file, which differ in how work reaches the database. *sender* is the id
    under which other processes find the signals of this one; empty if there are none."""

    def __init__(self, sender: str = "") -> None:
        self._sender = sender
        self._listeners = Listeners()

    async def _read(self, work: Callable[[Core], T]) -> T:
        raise NotImplementedError

    async def _write(self, work: Callable[[Core], T], *, durable: bool = False) -> T:
        """Runs *work* in a transaction."""
        raise NotImplementedError

    async def get(self, kind: Kind, key: str) -> Row | None:
        return await self._read(lambda core: core.get(kind, key))

    async def of_owner(self, kind: Kind, owner: str | None, most: int = LISTED) -> Sequence[Row]:
        return await self._read(lambda core: core.of_owner(kind, owner, most))

    async def read_log(self, kind: Kind, key: str, log: int, after: int, most: int = 64) -> Sequence[tuple[int, bytes]]:
        return await self._read(lambda core: core.read_log(kind, key, log, after, most))

    async def step(self, ops: Sequence[Op], *, fence: Fence | None = None, durable: bool = False) -> Sequence[int]:
        topics = [op.topic for op in ops if isinstance(op, Signal)]

        def work(core: Core) -> list[int] | Conflict | Full:
            try:
                done = core.step(ops, fence)
            except (Conflict, Full) as refused:  # not raised: what it evicted is committed
                return refused
            if topics and self._sender:
                core.signal(topics, self._sender)
            return done

        done = await self._write(work, durable=durable)
        if isinstance(done, Exception):
            raise done
        self._listeners.wake(topics)
        return done

    async def beat(self, process: str, *, mark_s: float = MARK_S) -> Beat:
        return await self._write(lambda core: core.beat(process, mark_s))

    async def alive(self, process: str) -> bool:
        return await self._read(lambda core: not core.is_ended(process))

    async def count(self, windows: Sequence[Window], *, peek: bool = False) -> Refused | None:
        return await self._write(lambda core: core.count(windows, peek=peek))

    async def places(self, kind: str, process: str, limit: int, wishes: Sequence[Wish]) -> Sequence[Grant]:
        return await self._write(lambda core: core.places(kind, process, limit, wishes))

    @asynccontextmanager
    async def listen(self, topic: str) -> AsyncIterator[Waiter]:
        with self._listeners.listening(topic) as waiter:
            yield waiter


class _WholePieces(Pieces):
    """Large data as it came: the database would copy it while the event loop waits (EXEC-27)."""

    def __init__(self, disk: sqlite3.Connection) -> None:
        super().__init__(disk)
        self._whole = whole = dict[int, bytes]()

        # Has no reference to *disk*: Python could not collect a cycle with the functions of a connection.
        def drop(row: int) -> None:
            whole.pop(row, None)

        disk.create_function("drop_whole", 1, drop)
        disk.execute("CREATE TEMP TRIGGER whole_out AFTER DELETE ON row BEGIN SELECT drop_whole(old.id); END")

    def get(self, row: int) -> bytes:
        return self._whole.get(row, b"")

    def put(self, row: int, data: bytes) -> None:
        self._whole[row] = data

    def drop(self, row: int) -> None:
        self._whole.pop(row, None)


class MemoryStore(CoreStore):
    """Implements Store. *now* gives seconds on a clock that never goes back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._disk = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._disk.executescript(SCHEMA)
        self._core = Core(self._disk, now, _WholePieces(self._disk))

    async def aclose(self) -> None:
        self._disk.close()

    async def _read(self, work: Callable[[Core], T]) -> T:
        return work(self._core)

    async def _write(self, work: Callable[[Core], T], *, durable: bool = False) -> T:
        self._disk.execute("BEGIN")
        try:
            done = work(self._core)
        except BaseException:
            self._disk.rollback()
            raise
        self._disk.execute("COMMIT")
        return done
