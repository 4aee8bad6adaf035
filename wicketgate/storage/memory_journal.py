"""The journal of runs in this process's memory (``engine/keyed_runs.py``), bounded in bytes, number and time.

A run keeps its latest events. Events that a follower has still to read are never dropped: the run waits for it. Room is
taken from the owner who holds most (CHAT-91), first of the run that ended first, then of the largest. So no owner can
push out what another keeps within an equal share of the journal.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from wicketgate.access.shares import ShareRefused, full_scope
from wicketgate.engine.events import join_texts
from wicketgate.engine.journal import Abandoned, Claim, Entry, EventsGone

_ENTRY_BYTES = 150
"""Counted for an entry besides its event."""
_RUN_BYTES = 1024
"""Room that must be there for a run at least: its end is kept as long as its name."""
_JOIN_OVER_BYTES = 16 * 1024
"""With more than this unread, further texts are joined into one event."""
_AT_ONCE_BYTES = 32 * 1024
"""A follower is given about so much at once, which counts as read and waits in the buffer of the socket."""
_JOINED_BYTES = 8 * 1024
"""Joined events grow to about this size."""


@dataclass(frozen=True, slots=True)
class JournalBounds:
    """*unread_bytes*: the most a run may be ahead of its slowest follower. *keep_s* counts from the end of a run.
    *joins*: texts are joined while much is unread."""

    total_bytes: int = 128 * 1024 * 1024
    run_bytes: int = 1024 * 1024
    unread_bytes: int = 256 * 1024
    keep_s: float = 120.0
    max_runs: int = 20_000
    joins: bool = True


class MemoryJournal:
    """Implements Journal. *now* gives seconds on a clock that never goes back. Use from one event loop only."""

    def __init__(self, bounds: JournalBounds, now: Callable[[], float]) -> None:
        self._bounds = bounds
        self._now = now
        self._runs: dict[str, _Run] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()
        self._owners: dict[str, _Owned] = {}
        self.held_bytes = 0

    outlives = False

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> Claim:
        if known := await self.find(name):
            return known
        # Refuse a run for which there may be no room later: each live run is promised room for what its followers have
        # not read.
        owned = self._owners.setdefault(owner, _Owned())
        live = len(self._runs) - len(self._ended)
        most_live = self._bounds.total_bytes // self._bounds.unread_bytes
        most = min(self._bounds.max_runs, self._bounds.total_bytes // _RUN_BYTES)
        full = full_scope(owned.runs, len(self._runs), most, None)
        full = full or full_scope(len(owned.live), live, most_live, None)
        if full is not None:
            held = owned.runs
            self._forget_if_empty(owner)
            raise ShareRefused(full, held)
        self._runs[name] = owned.live[name] = _Run(run_id, digest, owner, unattended_since=self._now())
        owned.runs += 1
        return Claim(run_id, digest, mine=True)

    async def find(self, name: str) -> Claim | None:
        self._drop_expired()
        run = self._runs.get(name)
        return Claim(run.run_id, run.digest, mine=False) if run is not None else None

    def adopt(self, name: str, run_id: str, digest: str, owner: str, last: int) -> None:
        """Take a run over whose events up to *last* are held elsewhere. Its followers begin behind them."""
        owned = self._owners.setdefault(owner, _Owned())
        run = _Run(run_id, digest, owner, unattended_since=self._now(), first=last + 1)
        self._runs[name] = owned.live[name] = run
        owned.runs += 1

    def forget(self, name: str) -> None:
        """Drop a live run at once: its name is free, and nothing more comes for its followers."""
        run = self._runs.pop(name)
        run.ended = True
        run.notify()
        owned = self._owners[run.owner]
        del owned.live[name]
        owned.runs -= 1
        self._count(run.owner, -run.held_bytes)
        self._forget_if_empty(run.owner)

    async def claim_call(self, name: str, call_id: str) -> bool:
        claimed = self._runs[name].claimed
        first = call_id not in claimed
        claimed.add(call_id)
        return first

    async def append(
        self, name: str, events: Sequence[bytes], completed: Sequence[str] = (), part: bytes = b""
    ) -> None:
        run = self._runs[name]
        for event in events:
            # Wait for the slowest follower; a run without followers never waits.
            while run.unread_bytes() > self._bounds.unread_bytes:
                await run.changed.wait()
            self._add(run, event)
        run.notify()

    async def end(self, name: str) -> None:
        run = self._runs[name]
        run.ended = True
        self._ended[name] = self._now()
        owned = self._owners[run.owner]
        owned.ended[name] = owned.live.pop(name)
        run.notify()
        # Old runs are dropped at every claim, and when due: without a claim they would stay for ever.
        run.timer = asyncio.get_running_loop().call_later(self._bounds.keep_s + 0.01, self._drop_expired)

    async def release(self, name: str) -> bool:
        return False

    async def next_abandoned(self) -> Abandoned:
        """Wait for ever: what is in memory ends with its process."""
        never: asyncio.Future[Abandoned] = asyncio.get_running_loop().create_future()
        return await never

    @asynccontextmanager
    async def follow(self, name: str, after: int) -> AsyncGenerator["_Follower", None]:
        run = self._runs.get(name)
        if run is None:
            raise EventsGone
        # At the end the last event is given again, so that a follower learns how the run ended.
        if run.ended and after == run.last:
            after -= 1
        if not run.first - 1 <= after <= run.last:
            raise EventsGone
        follower = _Follower(run, after)
        run.followers.add(follower)
        run.notify()
        try:
            yield follower
        finally:
            run.followers.discard(follower)
            run.unattended_since = self._now()
            run.notify()

    async def wait_unattended(self, name: str, for_s: float) -> None:
        run = self._runs[name]
        while not run.ended and (run.followers or not await self._stays_unattended(run, for_s)):
            if run.followers:
                await run.changed.wait()

    async def wait_attended(self, name: str, within_s: float) -> bool:
        return not await self._stays_unattended(self._runs[name], within_s)

    async def _stays_unattended(self, run: "_Run", for_s: float) -> bool:
        """Returns true when the run had no follower for *for_s*, false as soon as it has one."""
        while not run.followers:
            left_s = run.unattended_since + for_s - self._now()
            if left_s <= 0 or run.ended:
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await run.changed.wait()
        return False

    async def aclose(self) -> None:
        for run in self._runs.values():
            if run.timer is not None:
                run.timer.cancel()
        self._runs.clear()
        self._ended.clear()
        self._owners.clear()
        self.held_bytes = 0

    def _add(self, run: "_Run", event: bytes) -> None:
        # Within the bound of the run first, then within that of the journal.
        before = run.held_bytes
        run.add(event, joins=self._bounds.joins)
        while run.held_bytes > self._bounds.run_bytes and run.drop_oldest():
            pass
        self._count(run.owner, run.held_bytes - before)
        if self.held_bytes > self._bounds.total_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Drops events of the owner who holds most; never an event that a follower has to read."""
        giving = dict(self._owners)
        while self.held_bytes > self._bounds.total_bytes and giving:
            owner = max(giving, key=lambda name: giving[name].held_bytes)
            dropped_bytes = giving[owner].drop_one()
            if dropped_bytes:
                self._count(owner, -dropped_bytes)
            else:
                del giving[owner]

    def _drop_expired(self) -> None:
        while self._ended:
            name, ended_at = next(iter(self._ended.items()))
            if self._now() - ended_at < self._bounds.keep_s:
                return
            del self._ended[name]
            run = self._runs.pop(name)
            self._count(run.owner, -run.held_bytes)
            owned = self._owners[run.owner]
            owned.ended.pop(name, None)
            owned.runs -= 1
            self._forget_if_empty(run.owner)

    def _count(self, owner: str, change_bytes: int) -> None:
        self.held_bytes += change_bytes
        self._owners[owner].held_bytes += change_bytes

    def _forget_if_empty(self, owner: str) -> None:
        if not self._owners[owner].runs:
            del self._owners[owner]


@dataclass(eq=False, slots=True)
class _Run:
    """The latest events of one run; *first* is the position of the oldest that is held."""

    run_id: str
    digest: str
    owner: str
    unattended_since: float
    entries: deque[Entry] = field(default_factory=deque)
    first: int = 1
    held_bytes: int = 0
    delivered: int = 0
    """The last position that any follower was given. Entries up to it are never joined with others."""
    undelivered_bytes: int = 0
    ended: bool = False
    timer: asyncio.TimerHandle | None = None
    claimed: set[str] = field(default_factory=set)
    """Ids of calls; as many as a run makes."""
    followers: "set[_Follower]" = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1

    def notify(self) -> None:
        """Wakes every task that waits for a change of the run."""
        # A new event for the next change: those who wait hold the old one.
        self.changed.set()
        self.changed = asyncio.Event()

    def unread_bytes(self) -> int:
        """Returns what the slowest follower has still to read; 0 without followers."""
        return max((follower.unread_bytes for follower in self.followers), default=0)

    def add(self, event: bytes, *, joins: bool) -> None:
        # Join texts that no follower has been given, while much is unread.
        tail = self.entries[-1] if self.entries else None
        joined = None
        joins = joins and self.undelivered_bytes > _JOIN_OVER_BYTES
        if joins and tail is not None and tail.position > self.delivered:
            joined = join_texts(tail.event, event) if len(tail.event) < _JOINED_BYTES else None
        if tail is not None and joined is not None:
            self.entries[-1] = Entry(tail.position, joined)
            grown = len(joined) - len(tail.event)
        else:
            self.entries.append(Entry(self.last + 1, event))
            grown = len(event) + _ENTRY_BYTES
        self.held_bytes += grown
        self.undelivered_bytes += grown
        for follower in self.followers:
            follower.unread_bytes += grown

    def entries_after(self, after: int) -> Iterator[Entry]:
        # By index, because a walk from the left would make every read as long as the run.
        return (self.entries[index] for index in range(max(after + 1 - self.first, 0), len(self.entries)))

    def mark_delivered(self, entry: Entry) -> None:
        if entry.position > self.delivered:
            self.delivered = entry.position
            self.undelivered_bytes -= _size(entry)

    def drop_oldest(self) -> bool:
        """Drops the oldest entry. Returns false if it has to stay: the only one, or one that a follower has to read."""
        if len(self.entries) <= 1:
            return False
        oldest = self.entries[0]
        if any(follower.position < oldest.position for follower in self.followers):
            return False
        self.entries.popleft()
        self.first += 1
        self.held_bytes -= _size(oldest)
        if oldest.position > self.delivered:
            self.mark_delivered(oldest)
        return True


@dataclass(slots=True)
class _Owned:
    """The runs of one owner. *ended* has those that may still give room, in the order of their ends."""

    runs: int = 0
    held_bytes: int = 0
    live: dict[str, _Run] = field(default_factory=dict)
    ended: OrderedDict[str, _Run] = field(default_factory=OrderedDict)

    def drop_one(self) -> int:
        """Drops one event. Returns its size; 0 if none may be dropped. Of the ended runs it looks at the first only,
        besides those that a follower still reads."""
        return self._drop_of_ended() or self._drop_of_live()

    def _drop_of_ended(self) -> int:
        spent: list[str] = []
        dropped_bytes = 0
        for name, run in self.ended.items():
            if len(run.entries) <= 1:
                spent.append(name)  # the end of a run stays
            elif dropped_bytes := _drop(run):
                break
        for name in spent:
            del self.ended[name]
        return dropped_bytes

    def _drop_of_live(self) -> int:
        for run in sorted(self.live.values(), key=lambda run: -run.held_bytes):
            if dropped_bytes := _drop(run):
                return dropped_bytes
        return 0


def _drop(run: _Run) -> int:
    before = run.held_bytes
    return before - run.held_bytes if run.drop_oldest() else 0


class _Follower:
    """Implements Follower."""

    def __init__(self, run: _Run, after: int) -> None:
        self._run = run
        self.position = after
        self.unread_bytes = sum(map(_size, run.entries_after(after)))

    async def next(self) -> Sequence[Entry]:
        run = self._run
        while self.position == run.last:
            if run.ended:
                return ()
            await run.changed.wait()
        # Take a bounded number of bytes, which count as read from now on.
        taken: list[Entry] = []
        taken_bytes = 0
        for entry in run.entries_after(self.position):
            taken.append(entry)
            taken_bytes += _size(entry)
            run.mark_delivered(entry)
            if taken_bytes >= _AT_ONCE_BYTES:
                break
        self.position = taken[-1].position
        self.unread_bytes -= taken_bytes
        run.notify()
        return taken


def _size(entry: Entry) -> int:
    return len(entry.event) + _ENTRY_BYTES
