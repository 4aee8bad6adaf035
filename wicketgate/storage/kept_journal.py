"""The journal of runs that outlive their process, in memory for the readers here and in a store (CHAT-110 to 115).

An event is written to the store before a reader is shown it, so that nobody has seen what a restart forgets. Events of
runs that wait at once are written together. While the store is away, runs go on and are written later.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from wicketgate.engine.events import join_texts
from wicketgate.engine.journal import Claim, Entry, EventsGone, Follower, JournalAway
from wicketgate.errors import NotAdmitted
from wicketgate.storage.memory_journal import MemoryJournal
from wicketgate.storage.run_store import LEASE_S, NewEvents, RunStore, StoreAway

log = logging.getLogger("wicketgate.engine")

_POLL_S = 0.1
_JOINED_BYTES = 8 * 1024


@dataclass(eq=False, slots=True)
class _Live:
    """A run of this process. *unkept* has the events that the store has not taken yet."""

    last: int = 0
    unkept: list[Entry] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    taken: bool = False
    ended: bool = False


@dataclass(eq=False, slots=True)
class _Round:
    """Runs whose events are written with one step."""

    names: set[str] = field(default_factory=set)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class KeptJournal:
    """Implements Journal over *store*. *memory* must not join texts: its positions are those of the store. *run_bytes*
    bounds what waits for a store that is away. Use from one event loop only."""

    def __init__(self, memory: MemoryJournal, store: RunStore, run_bytes: int, lease_s: float = LEASE_S) -> None:
        self._memory = memory
        self._store = store
        self._run_bytes = run_bytes
        self._lease_s = lease_s
        self._live: dict[str, _Live] = {}
        self._claiming: dict[str, asyncio.Event] = {}
        self._round: _Round | None = None
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tending: asyncio.Task[None] | None = None

    async def claim(self, name: str, run_id: str, digest: str, owner: str) -> Claim:
        # One at a time for a name, so that nobody joins a run that another process has taken meanwhile.
        while (other := self._claiming.get(name)) is not None:
            await other.wait()
        if (known := await self._memory.find(name)) is not None:
            return known
        self._claiming[name] = done = asyncio.Event()
        try:
            return await self._claim(name, run_id, digest, owner)
        except StoreAway:
            raise JournalAway from None
        finally:
            del self._claiming[name]
            done.set()

    async def _claim(self, name: str, run_id: str, digest: str, owner: str) -> Claim:
        if (kept := await self._store.find(name)) is None:
            claim = await self._memory.claim(name, run_id, digest, owner)
            try:
                kept = await self._store.claim(name, run_id, digest, owner)
                if kept is None:
                    self._live[name] = _Live()
                    self._tend()
                    return claim
            finally:
                if name not in self._live:
                    self._memory.forget(name)
        return Claim(kept.run_id, kept.digest, mine=False)

    async def find(self, name: str) -> Claim | None:
        if (known := await self._memory.find(name)) is not None:
            return known
        try:
            kept = await self._store.find(name)
        except StoreAway:
            raise JournalAway from None
        return None if kept is None else Claim(kept.run_id, kept.digest, mine=False)

    async def append(self, name: str, events: Sequence[bytes], completed: Sequence[str] = ()) -> None:
        live = self._live[name]
        events = _joined(events)
        live.unkept += [Entry(live.last + number, event) for number, event in enumerate(events, 1)]
        live.last += len(events)
        live.completed += completed
        await self._keep(name)
        if live.taken:
            raise JournalAway("the run was given up, because this process stood still")
        await self._memory.append(name, events)

    async def claim_call(self, name: str, call_id: str) -> bool:
        try:
            return not self._live[name].taken and await self._store.claim_call(name, call_id)
        except StoreAway:
            raise NotAdmitted(
                "Calls of this run cannot be kept at the moment, so none that may write can run."
            ) from None

    async def end(self, name: str) -> None:
        await self._memory.end(name)
        self._live[name].ended = True
        await self._finish(name)

    def follow(self, name: str, after: int) -> AbstractAsyncContextManager[Follower]:
        return self._follow(name, after)

    @asynccontextmanager
    async def _follow(self, name: str, after: int) -> AsyncGenerator[Follower, None]:
        if await self._memory.find(name) is not None:
            async with self._memory.follow(name, after) as here:
                yield here
            return
        try:
            run = await self._store.find(name)
        except StoreAway:
            raise JournalAway from None
        if run is None:
            raise EventsGone
        # The last event again at the end; a lost run may have shown more than the store could take.
        if run.ended and (after == run.last or (run.lost and after > run.last)):
            after = run.last - 1
        if not run.first - 1 <= after <= run.last:
            raise EventsGone
        attending = None if run.ended else asyncio.create_task(self._attend(name))
        try:
            yield _StoreFollower(self._store, name, after, self._lease_s)
        finally:
            if attending is not None:
                attending.cancel()

    async def wait_unattended(self, name: str, for_s: float) -> None:
        await self._memory.wait_unattended(name, for_s)
        while (left_s := await self._attended_elsewhere_s(name)) > 0:
            await asyncio.sleep(left_s)
            await self._memory.wait_unattended(name, for_s)

    async def wait_attended(self, name: str, within_s: float) -> bool:
        here = asyncio.ensure_future(self._memory.wait_attended(name, within_s))
        try:
            while not here.done():
                if await self._attended_elsewhere_s(name) > 0:
                    return True
                await asyncio.wait([here], timeout=self._lease_s / 6)
            return here.result()
        finally:
            here.cancel()

    async def aclose(self) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.gather(self._tending, return_exceptions=True)
        # A run that was cancelled while its end was written is ended here; otherwise its readers would wait for the
        # lease to lapse.
        await asyncio.gather(*self._tasks, *map(self._finish, [*self._live]), return_exceptions=True)
        await self._store.aclose()
        await self._memory.aclose()

    async def _keep(self, name: str) -> None:
        """Wait until the store has taken the events of a run, or is found to be away."""
        if self._round is None:
            self._round = _Round()
            task = asyncio.create_task(self._write(self._round))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._round.names.add(name)
        await self._round.done.wait()

    async def _write(self, each: _Round) -> None:
        try:
            # While one round is written, the next one gathers.
            async with self._writing:
                self._round = None
                runs = {name: self._live[name] for name in each.names if name in self._live}
                events = {name: NewEvents(tuple(run.unkept), tuple(run.completed)) for name, run in runs.items()}
                taken = await self._store.append(events)
                for name, run in runs.items():
                    del run.unkept[: len(events[name].entries)]
                    del run.completed[: len(events[name].completed)]
                    run.taken |= name in taken
        except StoreAway:
            for run in runs.values():
                self._trim(run)
        finally:
            each.done.set()

    def _trim(self, run: _Live) -> None:
        held = sum(len(entry.event) for entry in run.unkept)
        while held > self._run_bytes and len(run.unkept) > 1:
            held -= len(run.unkept.pop(0).event)

    async def _finish(self, name: str) -> None:
        live = self._live[name]
        if live.unkept or live.completed:
            await self._keep(name)
        if not live.unkept or live.taken:
            try:
                await self._store.end(name)
            except StoreAway:
                return  # tried again by _tending
            self._live.pop(name, None)

    def _tend(self) -> None:
        if self._tending is None or self._tending.done():
            self._tending = asyncio.create_task(self._renew(), name="leases of runs")

    async def _renew(self) -> None:
        """Renew the lease, and write what the store did not take before, as long as there are runs."""
        while self._live:
            await asyncio.sleep(self._lease_s / 4)
            try:
                await self._store.renew()
            except StoreAway:
                continue
            for name, live in list(self._live.items()):
                if live.ended:
                    await self._finish(name)
                elif live.unkept:
                    await self._keep(name)

    async def _attend(self, name: str) -> None:
        while True:
            try:
                await self._store.attend(name, self._lease_s / 2)
            except StoreAway:
                log.warning("that a run has a reader cannot be told to its process at the moment")
            await asyncio.sleep(self._lease_s / 6)

    async def _attended_elsewhere_s(self, name: str) -> float:
        try:
            return await self._store.attended_s(name)
        except StoreAway:
            return 0.0


class _StoreFollower:
    """Implements Follower for a run of another process, or of one that is gone."""

    def __init__(self, store: RunStore, name: str, after: int, patience_s: float) -> None:
        self._store = store
        self._name = name
        self._after = after
        self._patience_s = patience_s

    async def next(self) -> Sequence[Entry]:
        away_since: float | None = None
        now = asyncio.get_running_loop().time
        while True:
            try:
                found = await self._store.read(self._name, self._after)
            except StoreAway:
                away_since = now() if away_since is None else away_since
                if now() - away_since > self._patience_s:
                    return ()
            else:
                away_since = None
                if found is None:
                    return ()
                run, entries = found
                if entries and entries[0].position != self._after + 1:
                    return ()  # what this reader had still to read was dropped
                if entries:
                    self._after = entries[-1].position
                    return entries
                if run.ended:
                    return ()
            await asyncio.sleep(_POLL_S)


def _joined(events: Sequence[bytes]) -> Sequence[bytes]:
    """Neighbouring texts of one batch as one event, up to a size."""
    if len(events) < 2:
        return events
    joined = [events[0]]
    for event in events[1:]:
        both = join_texts(joined[-1], event) if len(joined[-1]) < _JOINED_BYTES else None
        if both is None:
            joined.append(event)
        else:
            joined[-1] = both
    return joined
