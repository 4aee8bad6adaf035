"""Runs with an Idempotency-Key that end with their process."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from wicketgate.access.shares import ShareRefused, full_scope
from wicketgate.engine.journal import Entry
from wicketgate.storage.runs import Batch, HeldRun, JournalBounds, KeptRun, SharedRuns
from wicketgate.storage.store import Fence, Store


@dataclass(eq=False, slots=True)
class _Own:
    run: HeldRun
    entries: deque[Entry] = field(default_factory=deque)


class MemoryRuns(SharedRuns):
    """Keeps runs in objects: rows of a store in memory would cost more CPU than the rest of a chat. *now* gives seconds
    on a clock that never goes back."""

    outlives = False

    def __init__(self, store: Store, process: str, bounds: JournalBounds, now: Callable[[], float] = monotonic) -> None:
        super().__init__(store, process, bounds)
        self._now = now
        self._all: dict[str, _Own] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()
        self._runs_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()
        """By owner: all runs, and the bytes of those that have ended."""

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> HeldRun | KeptRun:
        if (kept := await self.find(name)) is not None:
            return kept
        held = self._runs_of[owner]
        if (full := full_scope(held, len(self._all), self.bounds.max_runs, None)) is not None:
            raise ShareRefused(full, held)
        run = HeldRun(name, run_id, digest, owner, Fence(self.kind, name, self._process, 1))
        self._all[name] = _Own(run)
        self._runs_of[owner] += 1
        return run

    async def find(self, name: str) -> KeptRun | None:
        self._forget_expired()
        if (own := self._all.get(name)) is None:
            return None
        run = own.run
        return KeptRun(run.run_id, run.digest, run.events if own.entries else -1, run.ended, lost=False)

    async def write(self, run: HeldRun, batch: Batch, *, durable: bool = False) -> None:
        own = self._all[run.name]
        own.entries.extend(Entry(position, event) for position, event in enumerate(batch.events, run.events + 1))
        self._apply(run, batch)
        while own.entries and own.entries[0].position < run.sizes[0][0]:
            own.entries.popleft()
        if batch.ends:
            self._ended[run.name] = self._now() + self.bounds.keep_s
            self._bytes_of[run.owner] += run.held_bytes
            self._make_room()
            # Without further requests expired runs would stay.
            asyncio.get_running_loop().call_later(self.bounds.keep_s + 0.01, self._forget_expired)

    async def read(self, name: str, after: int) -> Sequence[Entry]:
        own = self._all.get(name)
        return [entry for entry in own.entries if entry.position > after] if own is not None else ()

    def _make_room(self) -> None:
        """Takes room from the owner who holds most, of the run that ended first."""
        while sum(self._bytes_of.values()) > self.bounds.total_bytes:
            owner = max(self._bytes_of, key=self._bytes_of.__getitem__)
            own = next(own for name in self._ended if (own := self._all[name]).entries and own.run.owner == owner)
            self._drop_events(own)

    def _drop_events(self, own: _Own) -> None:
        _take_off(self._bytes_of, own.run.owner, own.run.held_bytes)
        own.run.held_bytes = 0
        own.entries.clear()

    def _forget_expired(self) -> None:
        while self._ended and next(iter(self._ended.values())) <= self._now():
            name, _ = self._ended.popitem(last=False)
            own = self._all.pop(name)
            self._drop_events(own)
            _take_off(self._runs_of, own.run.owner, 1)


def _take_off(counts: Counter[str], owner: str, number: int) -> None:
    """Keeps no zeros, of which there would be one for each actor ever seen."""
    counts[owner] -= number
    if not counts[owner]:
        del counts[owner]
