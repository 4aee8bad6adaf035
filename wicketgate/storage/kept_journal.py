"""The journal of runs that outlive their process, in memory for the readers here and in a store (CHAT-110 to 115).

An event is written to the store before a reader is shown it, so that nobody has seen what a restart forgets. Events of
runs that wait at once are written together. While the store is away, runs wait for it (CHAT-126).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from wicketgate.engine.checkpoint import fate
from wicketgate.engine.events import join_texts
from wicketgate.engine.journal import Abandoned, Claim, Entry, EventsGone, Follower, JournalAway
from wicketgate.errors import NotAdmitted
from wicketgate.storage.kept_followers import POLL_S, HereFirst, StoreFollower
from wicketgate.storage.lapsed_runs import LapsedRuns
from wicketgate.storage.memory_journal import MemoryJournal
from wicketgate.storage.run_store import LEASE_S, NewEvents, Part, RunStore, StoreAway
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.engine")

_LOOK_AT = 64
_JOINED_BYTES = 8 * 1024


@dataclass(eq=False, slots=True)
class _Live:
    """A run of this process. *unkept* has the events that the store has not taken yet, which no reader was shown.
    *kept_until* is the position of the last part, *open_calls* are claimed and have no result. *taken*: another process
    has the run now, or may take it."""

    last: int = 0
    next_part: int = 0
    kept_until: int | None = None
    open_calls: set[str] = field(default_factory=set)
    unkept: list[Entry] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    taken: bool = False
    ended: bool = False
    read_elsewhere: bool = False


@dataclass(eq=False, slots=True)
class _Round:
    """Runs whose events are written with one step."""

    names: set[str] = field(default_factory=set)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class KeptJournal:
    """Implements Journal over *store*. *memory* must not join texts: its positions are those of the store. Use from one
    event loop only."""

    outlives = True

    def __init__(self, memory: MemoryJournal, store: RunStore, lease_s: float = LEASE_S) -> None:
        self._memory = memory
        self._store = store
        self._lease_s = lease_s
        self._live: dict[str, _Live] = {}
        self._claiming: dict[str, asyncio.Event] = {}
        self._round: _Round | None = None
        self._writing = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tending: asyncio.Task[None] | None = None
        self._lapsed = LapsedRuns(lease_s / 3, lease_s / 2)

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> Claim:
        # One at a time for a name, so that nobody joins a run that another process has taken meanwhile.
        while (other := self._claiming.get(name)) is not None:
            await other.wait()
        if (known := await self._memory.find(name)) is not None:
            return known
        self._claiming[name] = done = asyncio.Event()
        try:
            return await self._claim(name, run_id, digest, owner, part)
        except StoreAway:
            raise JournalAway from None
        finally:
            del self._claiming[name]
            done.set()

    async def _claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes) -> Claim:
        if (kept := await self._store.find(name)) is None:
            claim = await self._memory.claim(name, run_id, digest, owner)
            try:
                kept = await self._store.claim(name, run_id, digest, owner, part)
                if kept is None:
                    self._live[name] = _Live(next_part=1, kept_until=0 if part else None)
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

    async def append(
        self, name: str, events: Sequence[bytes], completed: Sequence[str] = (), part: bytes = b""
    ) -> None:
        live = self._live[name]
        events = _joined(events)
        live.unkept += [Entry(live.last + number, event) for number, event in enumerate(events, 1)]
        live.last += len(events)
        live.completed += completed
        if part:
            live.parts.append(Part(live.next_part, live.last, part))
            live.next_part += 1
            live.kept_until = live.last
        live.open_calls.difference_update(completed)
        await self._keep(name)
        # Behind what readers were shown and the store has not, another process could not go on.
        while live.unkept and not live.taken:
            await asyncio.sleep(POLL_S)
            await self._keep(name)
        if live.taken:
            raise JournalAway("the run was taken over, because this process stood still")
        await self._memory.append(name, events)

    async def claim_call(self, name: str, call_id: str) -> bool:
        live = self._live[name]
        live.open_calls.add(call_id)
        try:
            return not live.taken and await self._store.claim_call(name, call_id)
        except StoreAway:
            raise NotAdmitted(
                "Calls of this run cannot be kept at the moment, so none that may write can run."
            ) from None

    async def end(self, name: str) -> None:
        live = self._live[name]
        if not live.taken:
            await self._memory.end(name)
        live.ended = True
        await self._finish(name)

    async def release(self, name: str) -> bool:
        live = self._live[name]
        pending = live.taken or live.unkept or live.completed or live.parts
        if pending or fate(live.last, None, live.kept_until, [*live.open_calls]) != "goes_on":
            return False
        live.taken = True
        try:
            await self._store.release(name)
        except StoreAway:
            live.taken = False
            return False
        # Readers that are here still read on what its next process writes.
        self._live.pop(name, None)
        self._memory.forget(name)
        return True

    async def next_abandoned(self) -> Abandoned:
        while True:
            try:
                names = self._lapsed.due(await self._store.lapsed(_LOOK_AT), self._now())
                for name in names:
                    taking = asyncio.create_task(self._take(name))
                    self._tasks.add(taking)
                    taking.add_done_callback(self._tasks.discard)
                    # What was taken is ours, also if nobody waits for it any more.
                    if (abandoned := await asyncio.shield(taking)) is not None:
                        return abandoned
            except StoreAway:
                # Their processes cannot renew their leases either.
                self._lapsed.forget()
            await self._lapsed.wait(self._now())

    async def _take(self, name: str) -> Abandoned | None:
        if name in self._live or await self._memory.find(name) is not None:
            return None  # it was taken from this process, which has still to notice
        orphan = await self._store.take(name)
        if orphan is None:
            return None
        parts = orphan.parts
        kept_until = parts[-1].position if parts else None
        self._live[name] = live = _Live(orphan.last, len(parts), kept_until)
        self._tend()
        shown = self._lapsed.shown(name)
        if (found := fate(orphan.last, orphan.last_event, kept_until, orphan.unfinished, shown)) != "goes_on":
            if found == "lost":
                log.error("a run was lost: the process that ran it is gone")
            live.ended = True
            await self._finish(name)
            return None
        self._memory.adopt(name, orphan.run_id, orphan.digest, orphan.owner, orphan.last)
        alone_s = min(orphan.lapsed_s, -await self._attended_elsewhere_s(name))
        return Abandoned(name, orphan.run_id, [part.data for part in parts], max(alone_s, 0.0))

    def follow(self, name: str, after: int) -> AbstractAsyncContextManager[Follower]:
        return self._follow(name, after)

    @asynccontextmanager
    async def _follow(self, name: str, after: int) -> AsyncGenerator[Follower, None]:
        async with AsyncExitStack() as stack:
            elsewhere = StoreFollower(self._store, name, after, self._lease_s, self._lapsed.seen)
            try:
                here = await stack.enter_async_context(self._memory.follow(name, after))
            except EventsGone:
                ended = await self._begin_at(elsewhere, name, after)
                if not ended:
                    self._attend(stack, name)
                follower: Follower = elsewhere
            else:
                follower = HereFirst(
                    here, elsewhere, partial(_has_moved, self._live.get(name)), partial(self._attend, stack, name)
                )
            yield follower

    async def _begin_at(self, elsewhere: StoreFollower, name: str, after: int) -> bool:
        """Let the follower begin; return whether the run has ended. Raises EventsGone and JournalAway."""
        try:
            run = await self._store.find(name)
        except StoreAway:
            raise JournalAway from None
        if run is None:
            raise EventsGone
        # The last event again at the end; a lost run may have shown more than the store could take.
        if run.ended and (after == run.last or (run.lost and after > run.last)):
            after = run.last - 1
        elif run.lapsed and after > run.last:
            self._lapsed.seen(name, after)
            after = run.last
        if not run.first - 1 <= after <= run.last:
            raise EventsGone
        elsewhere.after = after
        return run.ended

    async def wait_unattended(self, name: str, for_s: float) -> None:
        live = self._live[name]
        while not live.taken:
            await self._memory.wait_unattended(name, for_s)
            quiet_s = -await self._attended_elsewhere_s(name)
            if quiet_s >= for_s:
                return
            await asyncio.sleep(for_s - quiet_s)

    async def wait_attended(self, name: str, within_s: float) -> bool:
        live = self._live[name]
        if live.taken:
            return False
        here = asyncio.ensure_future(self._memory.wait_attended(name, within_s))
        try:
            while not here.done():
                if await self._attended_elsewhere_s(name) > 0:
                    return True
                await asyncio.wait([here], timeout=self._lease_s / 6)
            return here.result() and not live.taken
        finally:
            here.cancel()

    async def aclose(self) -> None:
        if self._tending is not None:
            await end_tasks(self._tending)
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
                events = {
                    name: NewEvents(tuple(run.unkept), tuple(run.completed), tuple(run.parts))
                    for name, run in runs.items()
                }
                taken = await self._store.append(events)
                for name, run in runs.items():
                    del run.unkept[: len(events[name].entries)]
                    del run.completed[: len(events[name].completed)]
                    del run.parts[: len(events[name].parts)]
                self._give_up(taken)
        except StoreAway:
            pass  # tried again by those who wait
        finally:
            each.done.set()

    async def _finish(self, name: str) -> None:
        live = self._live.get(name)
        if live is None:
            return  # its end was written meanwhile
        if (live.unkept or live.completed) and not live.taken:
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
                self._give_up(await self._store.renew())
            except StoreAway:
                continue
            for name, live in list(self._live.items()):
                if live.ended:
                    await self._finish(name)
                elif live.unkept or live.parts:
                    await self._keep(name)

    def _give_up(self, taken: Sequence[str]) -> None:
        """Runs that another process has taken: their readers here go on to read what that one writes."""
        for name in taken:
            live = self._live.get(name)
            if live is not None and not live.taken and not live.ended:
                log.warning("a run was taken over by another process, because this one stood still")
                live.taken = True
                self._memory.forget(name)

    def _attend(self, stack: AsyncExitStack, name: str) -> None:
        """Say that this process reads the run, until the stack ends."""
        attending = asyncio.create_task(self._keep_attended(name))
        stack.callback(attending.cancel)

    async def _keep_attended(self, name: str) -> None:
        while True:
            try:
                await self._store.attend(name, self._lease_s / 2)
            except StoreAway:
                log.debug("that a run has a reader cannot be told to its process at the moment")
            await asyncio.sleep(self._lease_s / 6)

    async def _attended_elsewhere_s(self, name: str) -> float:
        """As ``RunStore.attended_s``. While the store is away, a reader that was there is taken to be there still."""
        live = self._live[name]
        try:
            attended_s = await self._store.attended_s(name)
        except StoreAway:
            return self._lease_s / 2 if live.read_elsewhere else float("-inf")
        live.read_elsewhere = attended_s > 0
        return attended_s

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _has_moved(live: _Live | None) -> bool:
    return live is not None and live.taken


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
