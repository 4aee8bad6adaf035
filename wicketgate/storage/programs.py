"""Programs that outlive their requests, as sealed rows (EXEC-146 to EXEC-148)."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any

from wicketgate.access.seal import Seal
from wicketgate.gateway.kept_calls import CallUnreadable
from wicketgate.gateway.programs import KeptProgram
from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed
from wicketgate.storage.process import Process
from wicketgate.storage.store import (
    NO_HOLDER,
    Changed,
    Conflict,
    Full,
    Kind,
    Put,
    Row,
    Signal,
    Store,
    StoreUnavailable,
    Take,
)

log = logging.getLogger("wicketgate.programs")

_KIND = Kind("program", most_bytes=256 * 1024 * 1024, owner_bytes=64 * 1024 * 1024, gives="row", listed=True)
_TOPIC = "approvals"
"""That of the list of approvals: a program looks at both."""
_LARGE_BYTES = 65_536
_NOT_KEPT = frozenset({"version", "writing"})


class StoredPrograms:
    """Implements ProgramStore."""

    def __init__(self, store: Store, process: Process, seal: Seal) -> None:
        self._store = store
        self._process = process
        self._seal = seal
        self._outcome: Callable[[KeptProgram], dict[str, Any]] = lambda program: {}
        self._known: dict[str, KeptProgram] = {}
        process.take_over(_KIND.name, self._lose)

    def on_lost(self, outcome: Callable[[KeptProgram], dict[str, Any]]) -> None:
        self._outcome = outcome

    async def write(self, program: KeptProgram, life_s: float) -> bool:
        owner = hashed(program.actor)
        key = _key(program.actor, program.id)
        kept = {each.name: getattr(program, each.name) for each in fields(KeptProgram) if each.name not in _NOT_KEPT}
        # In a thread: a state may have megabytes.
        data = await asyncio.to_thread(self._sealed, key, owner, kept, life_s)
        holder = self._process.id if program.status == "running" else NO_HOLDER
        put = Put(_KIND, key, data, owner, program.version, life_s, holder)
        try:
            program.version, _ = await self._store.step([put, Signal(_TOPIC)])
        except Conflict:
            return False
        except (StoreUnavailable, Full) as error:
            log.error("a program cannot be kept: %s", error)
            raise CallUnreadable from None
        return True

    async def get(self, actor: str, id: str) -> KeptProgram | None:
        try:
            row = await self._store.get(_KIND, _key(actor, id))
        except StoreUnavailable:
            raise CallUnreadable from None
        return None if row is None else await self._open(row)

    async def all(self, actor: str | None = None) -> Sequence[KeptProgram]:
        try:
            rows = await self._store.of_owner(_KIND, None if actor is None else hashed(actor))
        except StoreUnavailable:
            raise CallUnreadable from None
        # A row is opened once: each process looks at all of them every few seconds.
        known, self._known = self._known, {}
        for row in rows:
            former = known.get(row.key)
            program = former if former is not None and former.version == row.version else await self._open(row)
            if program is not None:
                program.state = ""
                self._known[row.key] = program
        return [replace(program, writing=asyncio.Lock()) for program in self._known.values()]

    @asynccontextmanager
    async def following(self) -> AsyncIterator[Changed]:
        try:
            async with self._store.listen(_TOPIC) as changed:
                yield changed
        except StoreUnavailable:
            raise CallUnreadable from None

    async def _lose(self, keys: Sequence[str]) -> None:
        """Ends the programs of processes that have ended, once for all."""
        for key in keys:
            try:
                await self._store.step([Take(_KIND, key, self._process.id)])
            except Conflict:
                continue  # it lives, or another process was first
            row = await self._store.get(_KIND, key)
            if row is not None and (program := await self._open(row)) is not None:
                program.outcome = self._outcome(program)
                await self.write(program, row.life_s or 1.0)

    def _sealed(self, key: str, owner: str, kept: dict[str, Any], life_s: float) -> bytes:
        return self._seal.seal(f"program {key}", owner, json.dumps(kept), life_s).encode()

    async def _open(self, row: Row) -> KeptProgram | None:
        return await asyncio.to_thread(self._opened, row) if len(row.data) > _LARGE_BYTES else self._opened(row)

    def _opened(self, row: Row) -> KeptProgram | None:
        """Returns None for a row that no key opens: it was changed, or is another's."""
        opened = self._seal.open(f"program {row.key}", row.owner, row.data.decode("ascii", "replace"))
        if opened is None:
            return None
        program = sound(_KIND.name, row.key, lambda: KeptProgram(**json.loads(opened.text)))
        if program is not None:
            program.version = row.version
        return program


def _key(actor: str, id: str) -> str:
    return f"{hashed(actor)}.{hashed(id)}"
