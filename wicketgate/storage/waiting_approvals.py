"""The calls that wait for an approval, and the decisions on them, as sealed rows (OPS-291, OPS-478 to OPS-481).

A call that waits and a decision are rows of two kinds, so that a new question never evicts a decision that stands. What
people read of a call is sealed under the ring of ``auth.seal_keys``, bound to its row. Keys of rows show nothing of
arguments: they are digests that nobody can try guesses against without the ring.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

from wicketgate.access.approvers import Vote, needs_as_json, needs_of_json
from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.engine.waiting_calls import MOST, MOST_OF_ACTOR, Change, WaitingCall
from wicketgate.errors import NotAdmitted, StoreUnavailable
from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed, packed
from wicketgate.storage.measures import StorageMeasures, without_level
from wicketgate.storage.store import LOOK_S, Conflict, Drop, Full, Kind, Put, Row, Signal, Store

log = logging.getLogger("wicketgate.approvals")

WAITING = Kind("waiting_approval", most_rows=MOST, owner_rows=MOST_OF_ACTOR, gives="row", listed=True)
DECIDED = Kind("decided_approval", most_rows=MOST, gives="row", listed=True)
_CHANGED = Signal("approvals")
_KEY = re.compile("[0-9a-f]{32}")
_TRIES = 20
_AT_ONCE = 32
"""Rows are opened in groups, between which the event loop does other work (EXEC-27)."""


_Seen = Mapping[tuple[str, str], tuple[bytes, WaitingCall]]
"""Data of rows and what they hold, by kind and key."""


class StoredWaitingCalls:
    """Implements WaitingCalls. *now* is the time of day in seconds, *new_id* gives texts that never come again.

    A row that no key of *seal* opens is skipped until it expires.
    """

    def __init__(
        self, store: Store, seal: Seal, now: Callable[[], float], new_id: Callable[[], str], measures: StorageMeasures
    ) -> None:
        self._store = store
        self._seal = seal
        self._now = now
        self._new_id = new_id
        self._fail = measures.fail

    async def waiting(self) -> list[WaitingCall]:
        return sorted(await self._listed(WAITING), key=lambda call: call.asked_at)

    async def number(self) -> int | None:
        # Only metrics read this. A failure here refuses no call, so it is not counted.
        try:
            return len(await self._store.of_owner(WAITING, None))
        except StoreUnavailable:
            return None

    async def decided(self) -> list[WaitingCall]:
        return sorted(await self._listed(DECIDED), key=lambda call: -call.decided_at)

    async def find(self, id: str) -> WaitingCall | None:
        key = id.partition(".")[0]
        call = await self._get(key) if _KEY.fullmatch(key) else None
        # The same call asks under the same key again after a decision, with another handle.
        return call if call is not None and call.id == id else None

    async def of_approval(self, actor: str, approval: str) -> WaitingCall | None:
        call = await self._get(hashed(approval))
        if call is not None and call.actor == actor:
            return call
        return next(iter(await self._decided_of(actor, lambda key: key.endswith(hashed(approval)))), None)

    async def standing(self, actor: str, tool_id: str, arguments: str) -> list[WaitingCall]:
        alike = tuple(f"{tag}." for tag in self._seal.tags(DECIDED.name, packed([actor, tool_id, arguments])))
        found = await self._decided_of(actor, lambda key: key.startswith(alike))
        return sorted((call for call in found if call.stands), key=lambda call: call.decided_at)

    async def standing_of_chat(self, actor: str, approvals: Collection[str]) -> dict[str, WaitingCall]:
        keys = {hashed(approval) for approval in approvals}
        found = await self._decided_of(actor, lambda key: key.partition(".")[2] in keys) if keys else ()
        return {call.approval: call for call in found if call.stands}

    async def add(self, call: WaitingCall) -> str:
        keys = [hashed(call.approval)] if call.from_chat else self._seal.tags(WAITING.name, _same(call))
        with self._kept():
            for _ in range(_TRIES):
                rows = [await self._store.get(WAITING, key) for key in keys]
                for found in (self._opened(WAITING, row) for row in rows if row is not None):
                    if found is not None and found.same == call.same:
                        return found.id
                version = 0 if rows[0] is None else rows[0].version  # of a row that no key opens
                asked = replace(call, id=f"{keys[0]}.{self._new_id()}", version=version)
                if await self._step([self._put(WAITING, keys[0], asked)]):
                    return asked.id
            raise StoreUnavailable("other processes write at the same time")

    async def update(self, call: WaitingCall) -> bool:
        with self._kept():
            return await self._step([self._put(WAITING if call.decision is None else DECIDED, call.key, call)])

    async def decide(self, call: WaitingCall) -> bool:
        alike = self._seal.tags(DECIDED.name, packed([call.actor, call.tool_id, call.arguments]))[0]
        put = self._put(DECIDED, f"{alike}.{hashed(call.approval)}", replace(call, version=0))
        with self._kept():
            return await self._step([put, Drop(WAITING, call.key, expect=call.version)])

    async def drop(self, call: WaitingCall) -> None:
        with self._kept():
            await self._step([Drop(WAITING, call.key, expect=call.version)])

    async def changes(self) -> AsyncGenerator[tuple[WaitingCall, Change]]:
        known: _Seen | None = None
        while True:
            try:
                async with self._store.listen(_CHANGED.topic) as changed:
                    while True:
                        before, known = known, await self._look(known or {})
                        if before is not None:
                            for change in _differences(before, known):
                                yield change
                        await changed.wait()
            except StoreUnavailable as error:
                log.debug("changes of approvals that wait are not seen: %s", error)
                await asyncio.sleep(LOOK_S)

    async def _look(self, known: _Seen) -> _Seen:
        """Opens the rows that differ from *known*."""
        found: dict[tuple[str, str], tuple[bytes, WaitingCall]] = {}
        for kind in (WAITING, DECIDED):
            for row in await self._store.of_owner(kind, None):
                name = kind.name, row.key
                data, former = known.get(name, (b"", None))
                call = former if data == row.data else self._opened(kind, row)
                if call is not None:
                    found[name] = row.data, call
        return found

    async def _listed(
        self, kind: Kind, owner: str | None = None, fits: Callable[[str], bool] = bool
    ) -> list[WaitingCall]:
        """Returns the calls of the rows whose key *fits*."""
        with self._kept():
            rows = await self._store.of_owner(kind, owner)
        found = []
        for number, row in enumerate((row for row in rows if fits(row.key)), 1):
            if (call := self._opened(kind, row)) is not None:
                found.append(call)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    async def _decided_of(self, actor: str, fits: Callable[[str], bool]) -> list[WaitingCall]:
        return [call for call in await self._listed(DECIDED, hashed(actor), fits) if call.actor == actor]

    async def _get(self, key: str) -> WaitingCall | None:
        with self._kept():
            row = await self._store.get(WAITING, key)
        return None if row is None else self._opened(WAITING, row)

    async def _step(self, ops: Sequence[Put | Drop]) -> bool:
        """Returns false if a row has changed since it was read."""
        try:
            await self._store.step([*ops, _CHANGED])
        except Conflict:
            # The client of Redis may have repeated a step whose answer was lost.
            put = ops[0]
            row = await self._store.get(put.kind, put.key) if isinstance(put, Put) else None
            return row is not None and isinstance(put, Put) and row.data == put.data
        return True

    def _put(self, kind: Kind, key: str, call: WaitingCall) -> Put:
        life_s = max(call.expires_at - self._now(), 0.1)
        owner = hashed(call.actor)
        data = self._seal.seal(f"{kind.name} {key}", owner, json.dumps(_written(call)), life_s).encode()
        return Put(kind, key, data, owner, expect=call.version, life_s=life_s)

    def _opened(self, kind: Kind, row: Row) -> WaitingCall | None:
        """Returns None for a row that no key opens, and for a damaged one, which is logged."""
        opened = self._seal.open(f"{kind.name} {row.key}", row.owner, row.data.decode("ascii", "replace"))
        if opened is None:
            return None
        read = sound(kind.name, row.key, lambda: _read(json.loads(opened.text)))
        return None if read is None else replace(read, key=row.key, version=row.version)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Raises NotAdmitted in place of StoreUnavailable."""
        try:
            yield
        except (StoreUnavailable, Full) as error:
            log.log(without_level(self._fail, "approvals"), "%s, so nothing that needs an approval can run", error)
            raise NotAdmitted("Approvals cannot be kept at the moment, so nothing that needs one can run.") from None
        self._fail.answered("approvals")


def _same(call: WaitingCall) -> bytes:
    return packed([call.actor, call.tool_id, call.definition, call.arguments, needs_as_json(call.needs)])


def _written(call: WaitingCall) -> dict[str, Any]:
    names = (each.name for each in fields(call) if each.name not in ("key", "version"))
    votes = [[vote.actor, vote.decision, vote.by, vote.at, vote.identity.row()] for vote in call.votes]
    return {**{name: getattr(call, name) for name in names}, "needs": needs_as_json(call.needs), "votes": votes}


def _read(written: dict[str, Any]) -> WaitingCall:
    """Raises ValueError, TypeError and LookupError for what ``_written`` has not written."""
    votes = tuple(
        Vote(actor, decision, tuple(by), at, Identity.of_row(identity))
        for actor, decision, by, at, identity in written["votes"]
    )
    read = {name: tuple(written[name]) for name in ("arg_names", "strange", "requests")}
    read |= {"needs": needs_of_json(written["needs"]), "votes": votes}
    return WaitingCall(**{**written, **read})


def _differences(before: _Seen, now: _Seen) -> Iterator[tuple[WaitingCall, Change]]:
    former = {call.id: call for _, call in before.values()}
    present = {call.id: call for _, call in now.values()}
    for id, call in present.items():
        was = former.get(id)
        if call.decision is not None:
            if was is None or was.decision is None:
                yield call, "decided"
        elif was is None:
            yield call, "new"
        elif was.votes != call.votes:
            yield call, "voted"
    for id, call in former.items():
        if id not in present and call.decision is None:
            yield call, "expired"
