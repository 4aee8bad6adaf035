"""The journal of keyed runs over the store (CHAT-73 to CHAT-77, CHAT-110 to CHAT-129).

An event is in the store before a reader sees it, so no reader has seen what a restart forgets. What readers in this
process have still to read of its own runs is in memory too; the rest is read from the store. While that is unavailable,
runs wait for it (CHAT-126).
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from wicketgate.access.shares import ShareRefused
from wicketgate.engine.checkpoint import fate
from wicketgate.engine.events import is_end, join_texts
from wicketgate.engine.journal import LOST, UNKEPT, Abandoned, Claim, Entry, EventsGone, Follower, JournalAway
from wicketgate.errors import NotAdmitted
from wicketgate.storage.core import DamagedRow
from wicketgate.storage.process import Process
from wicketgate.storage.runs import Batch, HeldRun, SharedRuns, Taken
from wicketgate.storage.store import LOOK_S, MARK_S, Changed, StoreRemoved, StoreUnavailable
from wicketgate.task_end import end_tasks, hold

log = logging.getLogger("wicketgate.engine")

_RETRY_S = 0.1
_LATE_S = 3.0
"""After this time a step that was given up does not arrive any more."""
_JOINED_BYTES = 8 * 1024
_AT_ONCE_BYTES = 32 * 1024
"""About so many bytes of the tail go to a reader in one step. They count as read, and wait in the buffer of its
socket."""
_ATTENDED_S = 1.0
"""The pause between two notes that a reader is here."""
_UNATTENDED_S = 3.0
"""A reader elsewhere that has not been noted for this time has left."""


class _Changes:
    """Wakes all tasks that wait for a change."""

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None

    def notify(self) -> None:
        # The next change has another event: those who wait hold this one.
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, timeout_s: float | None = None) -> None:
        event = self._event = self._event or asyncio.Event()
        if timeout_s is None:
            await event.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()


@dataclass(eq=False, slots=True)
class _Live:
    """A run of this process.

    *waiting* batches are not written yet; *attempt* is being written, or it is not known whether it was. *asked* are
    the calls whose claim was asked for, *refused* those that were not durable in time. *taken*: another process holds
    the run, or may take it. *read_elsewhere*: another process had a reader of it.

    *last* is the position of the last event that readers may see, *over* whether none follows. *tail* are the events
    up to it that one of *readers* has still to read.
    """

    run: HeldRun
    unattended_since: float
    last: int
    waiting: list[Batch] = field(default_factory=list)
    attempt: Batch | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    taken: bool = False
    read_elsewhere: bool = False
    over: bool = False
    tail: deque[Entry] = field(default_factory=deque)
    tail_bytes: int = 0
    readers: "set[_Follower]" = field(default_factory=set)
    shown: _Changes = field(default_factory=_Changes)
    read: _Changes = field(default_factory=_Changes)
    attendance: _Changes = field(default_factory=_Changes)
    """Notified of new events, of progress of readers, and of readers that come and leave; all three of the end."""

    @property
    def pending(self) -> bool:
        return bool(self.waiting) or self.attempt is not None

    @property
    def leaves(self) -> bool:
        """True if nothing is added to the run here any more."""
        return self.over or self.taken

    @property
    def claim(self) -> Claim:
        return Claim(self.run.run_id, self.run.digest, mine=False)

    def show(self, events: Sequence[bytes], *, over: bool) -> None:
        if self.readers:
            self.tail.extend(Entry(position, event) for position, event in enumerate(events, self.last + 1))
            self.tail_bytes += sum(map(len, events))
        self.last += len(events)
        self.over = self.over or over
        self.shown.notify()

    def trim(self) -> None:
        """Drops the part of the tail that all readers have read."""
        needed_from = self.run.needed_from = min((reader.position for reader in self.readers), default=sys.maxsize)
        while self.tail and self.tail[0].position <= needed_from:
            self.tail_bytes -= len(self.tail.popleft().event)

    def end(self) -> None:
        """Wakes all that wait, for the end of the run or of its time here."""
        self.shown.notify()
        self.read.notify()
        self.attendance.notify()

    @contextmanager
    def read_by(self, reader: "_Follower", now: Callable[[], float]) -> Iterator[None]:
        self.readers.add(reader)
        self.trim()
        self.attendance.notify()
        try:
            yield
        finally:
            self.readers.discard(reader)
            self.unattended_since = now()
            self.trim()
            self.read.notify()
            self.attendance.notify()


class StoredJournal:
    """Implements Journal over *runs*, for *process*. *now* gives seconds on a clock that never goes back. For use from
    one event loop only."""

    def __init__(self, runs: SharedRuns, process: Process, now: Callable[[], float] = monotonic) -> None:
        self.outlives = runs.outlives
        self._runs = runs
        self._process = process
        self._now = now
        self._live: dict[str, _Live] = {}
        self._claiming: dict[str, asyncio.Event] = {}
        self._doubted: set[str] = set()
        self._look_again_at: dict[str, float] = {}
        self._disowning = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._abandoned: asyncio.Queue[Abandoned] = asyncio.Queue()
        self._takers = 0
        process.on_lost(lambda: self._begin(self._look_for_taken()))

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> Claim:
        try:
            # One at a time for a name, so that no reader joins a run that another process has taken.
            async with self._turn(name):
                return await self._claim(name, run_id, digest, owner, part)
        except StoreUnavailable:
            raise JournalAway from None

    async def _settled(self, name: str) -> None:
        """Waits until it is known which process has *name*: a claim that is under way is in memory already."""
        while (other := self._claiming.get(name)) is not None:
            await other.wait()

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncGenerator[None, None]:
        await self._settled(name)
        self._claiming[name] = done = asyncio.Event()
        try:
            yield
        finally:
            del self._claiming[name]
            done.set()

    async def _claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes) -> Claim:
        await self._free(name)
        if (live := self._live.get(name)) is not None:
            return live.claim
        try:
            run = await self._runs.claim(name, run_id, digest, owner, part)
        except ShareRefused:
            raise
        except BaseException:
            self._doubted.add(name)
            self._look_again_at[name] = asyncio.get_running_loop().time() + _LATE_S
            if not self._disowning:
                self._disowning = True
                self._begin(self._disown())
            raise
        if isinstance(run, HeldRun):
            self._hold(run)
        return Claim(run.run_id, run.digest, mine=isinstance(run, HeldRun))

    def _hold(self, run: HeldRun) -> _Live:
        self._live[run.name] = live = _Live(run, self._now(), run.events)
        return live

    async def _free(self, name: str) -> None:
        """Removes a claim that failed, which the store may have after all."""
        if name in self._doubted:
            await self._runs.disown(name)
            self._doubted.discard(name)

    async def _disown(self) -> None:
        """Frees the names of claims that failed, when the store answers, and again when no step can arrive late. One
        task for all, because an outage may leave thousands."""
        while self._look_again_at:
            for name, again_at in [*self._look_again_at.items()]:
                again = asyncio.get_running_loop().time() >= again_at
                if again and name not in self._live:
                    self._doubted.add(name)
                try:
                    async with self._turn(name):
                        await self._free(name)
                except StoreUnavailable:
                    break
                if again and self._look_again_at[name] == again_at:
                    del self._look_again_at[name]
            await asyncio.sleep(_RETRY_S)
        self._disowning = False

    async def find(self, name: str) -> Claim | None:
        await self._settled(name)
        if (live := self._live.get(name)) is not None:
            return live.claim
        try:
            kept = await self._runs.find(name)
        except StoreUnavailable:
            raise JournalAway from None
        return None if kept is None else Claim(kept.run_id, kept.digest, mine=False)

    async def append(
        self, name: str, events: Sequence[bytes], completed: Sequence[str] = (), part: bytes = b""
    ) -> None:
        live, events = self._live[name], _joined(events)
        while live.readers and live.tail_bytes > self._runs.bounds.unread_bytes and not live.taken:
            await live.read.wait()
        ends = bool(events) and is_end(events[-1])
        await self._write_at_last(live, Batch(events, (), completed, part, ends))
        live.show(events, over=ends)

    async def claim_call(self, name: str, call_id: str) -> bool:
        live = self._live[name]
        if live.taken or call_id in live.asked or call_id in live.run.claimed:
            return False
        live.asked.add(call_id)
        try:
            await self._write(live, Batch(claims=[call_id]))
        except JournalAway:
            return False
        except StoreUnavailable:
            live.refused.add(call_id)
        if call_id in live.refused:
            raise NotAdmitted("Calls of this run cannot be kept at the moment, so none that may write can run.")
        return True

    async def end(self, name: str) -> None:
        live = self._live[name]
        live.over = True
        live.end()
        await self._finish_soon(name, live)

    async def release(self, name: str) -> bool:
        live = self._live[name]
        run = live.run
        goes_on = fate(run.events, None, run.kept_until, [*run.open_calls]) == "goes_on"
        if live.taken or live.pending or not goes_on:
            return False
        live.taken = True
        try:
            await self._runs.release(run)
        except Taken:
            log.debug("a run was taken before it was released")
        except BaseException as error:
            live.taken = False
            if isinstance(error, StoreUnavailable):
                return False
            raise
        # Readers here go on to read what its next process writes.
        self._live.pop(name, None)
        live.end()
        return True

    async def next_abandoned(self) -> Abandoned:
        self._process.take_over(self._runs.kind.name, self._take_all)
        self._takers += 1
        try:
            return await self._abandoned.get()
        finally:
            self._takers -= 1

    async def _take_all(self, names: Sequence[str]) -> None:
        for name in names:
            if not self._takers:
                return  # runs that are left here while this process ends are for others
            try:
                await self._take(name)
            except StoreUnavailable:
                # It may be held by this process by now, so that no other one takes it.
                self._begin(self._at_last(partial(self._take, name)))

    async def _look_for_taken(self) -> None:
        """Writes nothing to each run, which shows whether another process has it."""
        for live in list(self._live.values()):
            with suppress(JournalAway):
                await self._write_at_last(live, Batch())

    async def _take(self, name: str) -> None:
        async with self._turn(name):
            if name not in self._live:
                run = await self._runs.take(name)
                if run is not None:
                    await self._adopt(name, run)

    async def _adopt(self, name: str, run: HeldRun) -> None:
        live = self._hold(run)
        if (found := fate(run.events, run.last_event, run.kept_until, [*run.open_calls])) != "goes_on":
            if found == "lost":
                log.error("a run was lost: its process has ended")
            await self._finish_soon(name, live)
            return
        # A process that ended without a word has had no readers for the lifetime of its mark.
        alone_s = 0.0 if run.released else min(MARK_S, await self._unattended_elsewhere_s(live))
        self._abandoned.put_nowait(Abandoned(name, run.run_id, run.parts, alone_s))

    def follow(self, name: str, after: int) -> AbstractAsyncContextManager[Follower]:
        return self._follow(name, after)

    @asynccontextmanager
    async def _follow(self, name: str, after: int) -> AsyncGenerator[Follower, None]:
        await self._settled(name)
        live = self._live.get(name)
        async with AsyncExitStack() as stack:
            reader = _Follower(self._runs, name, after, live, partial(self._go_elsewhere, stack, name))
            if live is not None:
                stack.enter_context(live.read_by(reader, self._now))
            try:
                if live is not None and not live.taken:
                    await self._begin_reading(reader, live.last, over=live.over, lost=live.run.lost)
                else:
                    run = await self._runs.find(name)
                    if run is None or run.last < 0:
                        raise EventsGone
                    await self._begin_reading(reader, run.last, over=run.ended, lost=run.lost)
                    if not run.ended:
                        await reader.listen()
            except StoreUnavailable:
                raise JournalAway from None
            yield reader

    async def _begin_reading(self, reader: "_Follower", last: int, *, over: bool, lost: bool) -> None:
        """Sets the position from which *reader* begins. Raises EventsGone and StoreUnavailable."""
        # A lost run may have shown more than a store that lost data has.
        after = min(reader.position, last) if lost else reader.position
        if over and after == last:
            after -= 1  # at the end the last event is read again
        if after > last:
            raise EventsGone
        reader.position = after
        if after < last and not reader.tail():
            first = await self._runs.read(reader.name, after)
            if first and first[0].position != after + 1:
                raise EventsGone

    async def _go_elsewhere(self, stack: AsyncExitStack, name: str) -> Changed:
        """Lets the process of a run know of a reader here, and returns the signals of the run."""
        changed = await stack.enter_async_context(self._runs.listen(name))
        attending = asyncio.create_task(self._attend(name), name="a reader of a run elsewhere")
        stack.callback(attending.cancel)
        return changed

    async def _attend(self, name: str) -> None:
        while True:
            with suppress(StoreUnavailable):
                await self._runs.attend(name)
            await asyncio.sleep(_ATTENDED_S)

    async def wait_unattended(self, name: str, for_s: float) -> None:
        live = self._live[name]
        while not live.leaves:
            if live.readers:
                await live.attendance.wait()
                continue
            # A reader elsewhere is noted every second, so it may be there still.
            elsewhere_s = max(for_s, _UNATTENDED_S) - await self._unattended_elsewhere_s(live)
            left_s = max(elsewhere_s, live.unattended_since + for_s - self._now())
            if live.readers:
                continue
            if left_s <= 0:
                return
            await live.attendance.wait(left_s)

    async def wait_attended(self, name: str, within_s: float) -> bool:
        live = self._live[name]
        while not live.readers:
            left_s = live.unattended_since + within_s - self._now()
            if left_s <= 0 or live.leaves:
                return False
            if await self._unattended_elsewhere_s(live) < _UNATTENDED_S:
                return True
            if not live.readers:
                await live.attendance.wait(min(left_s, _ATTENDED_S))
        return not live.taken

    async def _unattended_elsewhere_s(self, live: _Live) -> float:
        """While the store is unavailable, a reader that was there counts as there still."""
        try:
            quiet_s = await self._runs.unattended_s(live.run.name)
        except DamagedRow:
            return float("inf")
        except StoreUnavailable:
            return 0.0 if live.read_elsewhere else float("inf")
        live.read_elsewhere = quiet_s < _UNATTENDED_S
        return quiet_s

    async def aclose(self) -> None:
        await end_tasks(*self._tasks)
        await asyncio.gather(*(self._leave(name, live) for name, live in list(self._live.items())))

    async def _leave(self, name: str, live: _Live) -> None:
        """Releases a run that was taken and has not gone on, or ends one whose end was cancelled."""
        with suppress(StoreUnavailable):
            if not await self.release(name):
                await self._finish(name, live)

    async def _write_at_last(self, live: _Live, batch: Batch) -> None:
        """Writes *batch*, when the store is back if it is unavailable. Raises JournalAway, also if the file of the
        store has been removed for the lifetime of a mark: it may never be back."""
        live.waiting.append(batch)
        give_up_at = float("inf")
        now = asyncio.get_running_loop().time
        while True:
            try:
                return await self._flush(live)
            except StoreRemoved:
                give_up_at = min(give_up_at, now() + MARK_S)
                if now() >= give_up_at:
                    live.waiting.append(Batch([*self._runs.lost(live.run).events[:-1], UNKEPT], ends=True))
                    raise JournalAway("the file of the store was removed") from None
            except StoreUnavailable:
                give_up_at = float("inf")
            await asyncio.sleep(_RETRY_S)

    async def _write(self, live: _Live, batch: Batch) -> None:
        """Raises JournalAway, and StoreUnavailable: then *batch* is written with the next one."""
        live.waiting.append(batch)
        await self._flush(live)

    async def _at_last(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(StoreUnavailable):
                return await work()
            await asyncio.sleep(_RETRY_S)

    async def _flush(self, live: _Live) -> None:
        """Writes all that waits, in order. What may have been written is written again unchanged, alone."""
        async with live.lock:
            while live.pending:
                if live.taken:
                    raise JournalAway("the run was taken over, because this process was paused")
                if live.attempt is None:
                    live.attempt = live.waiting.pop(0)
                    while live.waiting and not live.attempt.part:
                        live.attempt = live.attempt.joined(live.waiting.pop(0))
                # A claim that was not durable in time was refused: its call does not leave.
                durable = not live.refused.issuperset(live.attempt.claims)
                try:
                    await self._runs.write(live.run, live.attempt, durable=durable)
                except StoreUnavailable:
                    live.refused.update(live.attempt.claims)
                    raise
                except Taken:
                    log.warning("a run was taken over by another process, because this one was paused")
                    live.taken = True
                    live.end()
                    raise JournalAway("the run was taken over, because this process was paused") from None
                live.attempt = None

    async def _finish(self, name: str, live: _Live) -> None:
        """Ends a run in the store. Raises StoreUnavailable."""
        with suppress(JournalAway):
            await self._flush(live)
            if not live.run.ended:
                await self._write(live, self._runs.lost(live.run))
        self._live.pop(name, None)

    async def _finish_soon(self, name: str, live: _Live) -> None:
        try:
            await self._finish(name, live)
        except StoreUnavailable:
            self._begin(self._at_last(partial(self._finish, name, live)))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        hold(asyncio.create_task(work, name="rows of runs"), self._tasks)


@dataclass(eq=False, repr=False)
class _Follower:
    """Implements Follower. *live* is the run if this process has it. *go_elsewhere* gives the signals of a run of
    another process."""

    _runs: SharedRuns
    name: str
    position: int
    _live: _Live | None
    _go_elsewhere: Callable[[], Awaitable[Changed]]

    def __post_init__(self) -> None:
        self._changed: Changed | None = None
        self._unavailable = False

    @property
    def lost(self) -> bytes:
        return UNKEPT if self._unavailable or (self._live is not None and self._live.pending) else LOST

    async def next(self) -> Sequence[Entry]:
        live = self._live
        while live is not None and not live.taken:
            if self.position < live.last:
                return self._given(self.tail() or await self._read_patiently())
            if live.over:
                return ()
            await live.shown.wait()
        return self._given(await self._read_patiently())

    def tail(self) -> Sequence[Entry]:
        """Returns the next entries, if they are in memory."""
        tail = self._live.tail if self._live is not None else ()
        entries, size = list[Entry](), 0
        if tail and (at := self.position + 1 - tail[0].position) >= 0:
            # By index: a walk from the left would make every read as long as the tail.
            while at < len(tail) and size < _AT_ONCE_BYTES:
                entries.append(tail[at])
                size += len(tail[at].event)
                at += 1
        return entries

    def _given(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        if not entries or entries[0].position != self.position + 1:
            return ()  # the end, or what this reader had still to read was dropped
        self.position = entries[-1].position
        if self._live is not None:
            self._live.trim()
            self._live.read.notify()
        return entries

    async def _read_patiently(self) -> Sequence[Entry]:
        """Returns the next entries of the store; none at the end, and if the store cannot be read for long."""
        give_up_at = float("inf")
        now = asyncio.get_running_loop().time
        while True:
            try:
                entries = await self._read()
                if entries is not None:
                    return entries
                give_up_at = float("inf")
            except DamagedRow:
                return ()
            except StoreUnavailable:
                give_up_at = min(give_up_at, now() + MARK_S)
                if now() >= give_up_at:
                    self._unavailable = True
                    return ()
                await asyncio.sleep(_RETRY_S)

    async def _read(self) -> Sequence[Entry] | None:
        """Returns None after a change of a run that has no further entries yet."""
        if self._live is not None and not self._live.taken:
            return await self._runs.read(self.name, self.position)
        if entries := await self._runs.read(self.name, self.position):
            return entries
        run = await self._runs.find(self.name)
        if run is None or run.ended:
            return await self._runs.read(self.name, self.position)  # what it wrote after the look
        if self._changed is not None:
            await self._changed.wait(LOOK_S)
        else:
            await self.listen()  # what comes from now on is signalled: look again
        return None

    async def listen(self) -> None:
        self._changed = await self._go_elsewhere()


def _joined(events: Sequence[bytes]) -> Sequence[bytes]:
    """Joins neighboring texts of one batch into one event, up to a size."""
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
