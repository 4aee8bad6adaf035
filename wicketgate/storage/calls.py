"""Calls that outlive their requests, as rows of the shared store (EXEC-47, FACE-105 to FACE-110).

The process that runs a call holds its row. What clients say at other processes are rows of a second kind, sealed; their
owner is the process that has to read them, so one listing and one signal serve all of its calls.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from time import time
from typing import Any

from wicketgate.access.seal import Seal
from wicketgate.gateway.kept_calls import (
    ANSWERS_WITHIN_S,
    MAX_KEPT_BYTES,
    MOST_BYTES,
    CallUnreadable,
    Row,
    Said,
    Written,
    lost,
    plain,
)
from wicketgate.results.firewall import is_bulky
from wicketgate.storage.core import DamagedRow, sound
from wicketgate.storage.encoding import hashed
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.process import Process
from wicketgate.storage.store import (
    NO_HOLDER,
    Changed,
    Conflict,
    Drop,
    Fence,
    Full,
    Kind,
    Put,
    Signal,
    Store,
    StoreUnavailable,
    Take,
)
from wicketgate.storage.store import Row as StoredRow

log = logging.getLogger("wicketgate.calls")

_SAID = Kind("call_said", listed=True)
_PURPOSE = "call"
_SEALED_S = 86_400.0
"""Longer than what is sealed is kept: rows lapse by themselves."""
_FIELDS = {"process": str, "label": str, "door": str, "questions": dict, "outcome": dict | None}
_LARGE_BYTES = 1024 * 1024
_FIRST_TERM = 1
"""A row has one holder in its life, so the term of the fence is known."""


class StoredCalls:
    """Implements CallStore. *most_bytes* bounds the rows of all processes together: give each the same."""

    def __init__(self, store: Store, process: Process, seal: Seal, most_bytes: int = MOST_BYTES) -> None:
        self.process = process.id
        self._store = store
        self._mark = process
        self._seal = seal
        self._kind = Kind("call", most_bytes=most_bytes, owner_bytes=most_bytes // 2, gives="row")
        self._failed = False
        process.take_over(self._kind.name, self._lose)

    @classmethod
    def alone(cls) -> "StoredCalls":
        """The rows of a process that shares them with no other."""
        store = MemoryStore()
        return cls(store, Process(store), Seal((), secrets.token_bytes(32), time, lambda: secrets.token_hex(8)))

    def key(self, owner: str, id: str) -> str:
        return f"{hashed(owner)}.{hashed(id)}"

    async def write(self, owner: str, id: str, row: Row, life_s: float, *, begun: bool, ended: bool) -> Written:
        key = self.key(owner, id)
        data = await _packed(row)
        if len(data) > MAX_KEPT_BYTES:
            return "full"
        holder = (NO_HOLDER if ended else None) if begun else (None if ended else self.process)
        put = Put(self._kind, key, data, hashed(owner), None if begun else 0, life_s, holder)
        fence = Fence(self._kind, key, self.process, _FIRST_TERM) if begun else None
        try:
            await self._store.step([put, Signal(_topic(key))], fence=fence)
        except Full:
            return "full"
        except Conflict:
            return await self._again(owner, id, row, life_s, begun=begun, ended=ended)
        except StoreUnavailable as error:
            log.log(logging.DEBUG if self._failed else logging.ERROR, "a call is not written: %s", error)
            self._failed = True
            return "unavailable"
        self._failed = False
        return "kept"

    async def get(self, key: str) -> Row | None:
        with _readable():
            return await self._row(key)

    def on_lost(self, listener: Callable[[], None]) -> None:
        self._mark.on_lost(listener)

    async def lives(self, process: str) -> bool:
        return process == self.process or not await self._mark.ended(process)

    async def drop(self, key: str) -> bool:
        with _readable():
            (dropped,) = await self._store.step([Drop(self._kind, key)])
        return bool(dropped)

    async def say(
        self, key: str, process: str, name: str, value: Any, life_s: float = ANSWERS_WITHIN_S, expect: int | None = 0
    ) -> int:
        data = self.seal(key, [name, value]).encode()
        put = Put(_SAID, f"{key}.{hashed(name)}", data, hashed(process), expect, life_s)
        with _readable():
            try:
                version, _ = await self._store.step([put, Signal(_inbox(process))])
            except Conflict:
                return 0
        return version

    async def unsay(self, said: Sequence[Said]) -> None:
        with _readable():
            for each in said:
                try:
                    await self._store.step([Drop(_SAID, f"{each.key}.{hashed(each.name)}", each.version)])
                except Conflict:
                    continue  # written again since then

    async def heard(self) -> Sequence[Said]:
        with _readable():
            rows = await self._store.of_owner(_SAID, hashed(self.process))
        heard = (sound(_SAID.name, row.key, partial(self._read, row)) for row in rows)
        return [said for said in heard if said is not None]

    def _read(self, row: StoredRow) -> Said:
        """Raises ValueError, TypeError and AttributeError for a damaged row."""
        key, _, digest = row.key.rpartition(".")
        name, value = self.open(key, row.data.decode("ascii", "replace"))
        if hashed(name) != digest:
            raise ValueError
        return Said(key, name, value, row.version)

    def listening(self) -> AbstractAsyncContextManager[Changed]:
        return self._listening(_inbox(self.process))

    def following(self, key: str) -> AbstractAsyncContextManager[Changed]:
        return self._listening(_topic(key))

    async def _again(self, owner: str, id: str, row: Row, life_s: float, *, begun: bool, ended: bool) -> Written:
        """Writes after a conflict: a first write that was done, although the store did not say so, or a later one of a
        row that the store has lost."""
        try:
            found = await self._store.get(self._kind, self.key(owner, id))
        except StoreUnavailable:
            return "unavailable"
        if (found is not None) == begun:
            return "lost" if begun else "unavailable"
        return await self.write(owner, id, row, life_s, begun=not begun, ended=ended)

    async def _row(self, key: str) -> dict[str, Any] | None:
        """Raises StoreUnavailable, also for a damaged row."""
        if (found := await self._store.get(self._kind, key)) is None:
            return None
        try:
            row = await _unpacked(found.data)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not all(isinstance(row.get(name), kind) for name, kind in _FIELDS.items()):
            raise DamagedRow(self._kind.name, key)
        return row

    async def _lose(self, keys: Sequence[str]) -> None:
        """Ends the calls of processes that have ended: as lost, once for all (FACE-110)."""
        for key in keys:
            try:
                (term,) = await self._store.step([Take(self._kind, key, self.process)])
                if (row := await self._row(key)) is not None:
                    outcome = {"error": plain(lost(row["label"]))}
                    data = await _packed({**row, "questions": {}, "unkept": False, "outcome": outcome})
                    put = Put(self._kind, key, data, holder=NO_HOLDER)
                    fence = Fence(self._kind, key, self.process, term)
                    await self._store.step([put, Signal(_topic(key))], fence=fence)
            except (Conflict, Full, DamagedRow):
                continue  # it lives, another process was first, or the row is damaged, which is logged

    @asynccontextmanager
    async def _listening(self, topic: str) -> AsyncIterator[Changed]:
        with _readable():
            async with self._store.listen(topic) as changed:
                yield changed

    def seal(self, key: str, value: Any) -> str:
        return self._seal.seal(_PURPOSE, key, json.dumps(value, default=dict), _SEALED_S)

    def open(self, key: str, sealed: str) -> Any:
        opened = self._seal.open(_PURPOSE, key, sealed)
        if opened is None:
            raise ValueError("not sealed by a process of this service")
        return json.loads(opened.text)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as error:
        log.debug("a call is not read: %s", error)
        raise CallUnreadable from None


def _topic(key: str) -> str:
    return f"call.{key}"


def _inbox(process: str) -> str:
    return f"calls.{hashed(process)}"


async def _packed(row: Row) -> bytes:
    if is_bulky(row):
        return (await asyncio.to_thread(json.dumps, row, default=dict)).encode()
    return json.dumps(row, default=dict).encode()


async def _unpacked(data: bytes) -> Any:
    """Raises ValueError."""
    return json.loads(data) if len(data) < _LARGE_BYTES else await asyncio.to_thread(json.loads, data)
