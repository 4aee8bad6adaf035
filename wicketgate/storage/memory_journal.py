"""The journal of runs in this process's memory (``engine/keyed_runs.py``), bounded in bytes, number and time.

A run keeps its latest events. Events that a follower has still to read are never dropped: the run waits for it.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from wicketgate.engine.events import join_texts
from wicketgate.engine.keyed_runs import Claim, Entry, EventsGone, JournalFull

_ENTRY_BYTES = 150
"""Counted for an entry besides its event."""
_JOIN_OVER_BYTES = 16 * 1024
"""With more than this unread, further texts are joined into one event."""
_AT_ONCE_BYTES = 32 * 1024
"""A follower is given about so much at once, which counts as read and waits in the buffer of the socket."""
_JOINED_BYTES = 8 * 1024
"""Joined events grow to about this size."""


@dataclass(frozen=True, slots=True)
class JournalBounds:
    """*unread_bytes*: the most a run may be ahead of its slowest follower. *keep_s* counts from the end of a run."""

    total_bytes: int = 128 * 1024 * 1024
    run_bytes: int = 1024 * 1024
    unread_bytes: int = 256 * 1024
    keep_s: float = 120.0
    max_runs: int = 20_000


class MemoryJournal:
    """Implements Journal. *now* gives seconds on a clock that never goes back. Use from one event loop only."""

    def __init__(self, bounds: JournalBounds, now: Callable[[], float]) -> None:
        self._bounds = bounds
        self._now = now
        self._runs: dict[str, _Run] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()
        self.held_bytes = 0

    async def claim(self, name: str, run_id: str, digest: str) -> Claim:
        if known := await self.find(name):
            return known
        # Refuse a run for which there may be no room later.
        live = len(self._runs) - len(self._ended)
        # Each live run is promised room for what its followers have not read.
        if (
            len(self._runs) >= self._bounds.max_runs
            or (live + 1) * self._bounds.unread_bytes > self._bounds.total_bytes
        ):
            raise JournalFull
        self._runs[name] = _Run(run_id, digest, unattended_since=self._now())
        return Claim(run_id, digest, mine=True)

    async def find(self, name: str) -> Claim | None:
        self._drop_expired()
        run = self._runs.get(name)
        return Claim(run.run_id, run.digest, mine=False) if run is not None else None

    async def append(self, name: str, events: Sequence[bytes]) -> None:
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
        run.notify()
        # Old runs are dropped at every claim, and when due: without a claim they would stay for ever.
        run.timer = asyncio.get_running_loop().call_later(self._bounds.keep_s + 0.01, self._drop_expired)

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
        while True:
            # A follower stops the clock; the next one to leave starts it anew.
            left_s = run.unattended_since + for_s - self._now()
            if not run.followers and left_s <= 0:
                return
            try:
                async with asyncio.timeout(None if run.followers else left_s):
                    await run.changed.wait()
            except TimeoutError:
                continue

    async def aclose(self) -> None:
        for run in self._runs.values():
            if run.timer is not None:
                run.timer.cancel()
        self._runs.clear()
        self._ended.clear()
        self.held_bytes = 0

    def _add(self, run: "_Run", event: bytes) -> None:
        # Within the bound of the run first, then within that of the journal.
        before = run.held_bytes
        run.add(event)
        while run.held_bytes > self._bounds.run_bytes and run.drop_oldest():
            pass
        self.held_bytes += run.held_bytes - before
        if self.held_bytes > self._bounds.total_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Drops events of the run that ended first, then of the largest; never an event that a follower has to read."""
        ended = (self._runs[name] for name in list(self._ended))
        live = sorted((run for run in self._runs.values() if not run.ended), key=lambda run: -run.held_bytes)
        for run in (*ended, *live):
            before = run.held_bytes
            while self.held_bytes - (before - run.held_bytes) > self._bounds.total_bytes and run.drop_oldest():
                pass
            self.held_bytes -= before - run.held_bytes
            if self.held_bytes <= self._bounds.total_bytes:
                return

    def _drop_expired(self) -> None:
        while self._ended:
            name, ended_at = next(iter(self._ended.items()))
            if self._now() - ended_at < self._bounds.keep_s:
                return
            del self._ended[name]
            self.held_bytes -= self._runs.pop(name).held_bytes


@dataclass(eq=False, slots=True)
class _Run:
    """The latest events of one run; *first* is the position of the oldest that is held."""

    run_id: str
    digest: str
    unattended_since: float
    entries: deque[Entry] = field(default_factory=deque)
    first: int = 1
    held_bytes: int = 0
    delivered: int = 0
    """The last position that any follower was given. Entries up to it are never joined with others."""
    undelivered_bytes: int = 0
    ended: bool = False
    timer: asyncio.TimerHandle | None = None
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

    def add(self, event: bytes) -> None:
        # Join texts that no follower has been given, while much is unread.
        tail = self.entries[-1] if self.entries else None
        joined = None
        if tail is not None and tail.position > self.delivered and self.undelivered_bytes > _JOIN_OVER_BYTES:
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
        oldest = self.entries[0]
        if len(self.entries) == 1 or any(follower.position < oldest.position for follower in self.followers):
            return False
        self.entries.popleft()
        self.first += 1
        self.held_bytes -= _size(oldest)
        if oldest.position > self.delivered:
            self.mark_delivered(oldest)
        return True


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
