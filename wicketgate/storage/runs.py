"""Runs with an Idempotency-Key as rows of the shared store (CHAT-110 to CHAT-129).

A run is a row with two logs: its events, and *notes* for the process that goes on with it. Only the process that holds
the row appends to them, behind its fence, and a process that takes the row has read all notes first. So a claim of a
call is a plain note, and what was claimed before is known without asking.
"""

import logging
import sys
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from wicketgate.access.shares import ShareRefused
from wicketgate.engine.events import is_end
from wicketgate.engine.journal import Entry, lost_events
from wicketgate.results.bulk import utf8
from wicketgate.storage.core import DamagedRow
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.measures import StorageMeasures, without_level
from wicketgate.storage.process import RELEASED
from wicketgate.storage.store import (
    NO_HOLDER,
    Append,
    Changed,
    Conflict,
    Drop,
    Fence,
    Full,
    Kind,
    Op,
    Put,
    Row,
    Signal,
    Store,
    StoreUnavailable,
    Take,
)

log = logging.getLogger("wicketgate.engine")

T = TypeVar("T")

LOST_KEEP_S = 86_400.0
"""The time for which a lost run is kept: its client may have been away with its server."""
_EVENTS, _NOTES = 0, 1
_CLAIM, _RESULT, _PART = b"c", b"d", b"p"
"""The first byte of a note."""
_READ_AT_ONCE = 16
_READER = Kind("run_reader")
_READER_LIFE_S = 3_600.0
"""The life of the row of a reader elsewhere, whose remaining life says when the reader was there."""


@dataclass(frozen=True, slots=True)
class JournalBounds:
    """*run_bytes*: of one run. *total_bytes*: of all runs that have ended. *unread_bytes*: the most a run may be ahead
    of its slowest reader. *keep_s* counts from the end of a run."""

    total_bytes: int = 128 * 1024 * 1024
    run_bytes: int = 1024 * 1024
    unread_bytes: int = 256 * 1024
    keep_s: float = 120.0
    max_runs: int = 20_000


class Taken(Exception):
    """Raised if another process holds the run by now, because this one stood still."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run as any process sees it. *last* is the position of its last event, -1 if the events were evicted. *lost*: a
    process that ran it ended before the run did."""

    run_id: str
    digest: str
    last: int
    ended: bool
    lost: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """What a process adds to its run in one step. *claims* are calls about to leave. *completed* are calls whose
    results are among *events*. *part* is what another process needs to go on behind them. A run has nothing behind a
    batch that *ends*."""

    events: Sequence[bytes] = ()
    claims: Sequence[str] = ()
    completed: Sequence[str] = ()
    part: bytes = b""
    ends: bool = False

    def joined(self, later: "Batch") -> "Batch":
        """Returns both as one batch. One of them at most has a part, which belongs to the end of its events."""
        return Batch(
            [*self.events, *later.events],
            [*self.claims, *later.claims],
            [*self.completed, *later.completed],
            later.part or self.part,
            self.ends or later.ends,
        )


@dataclass(eq=False, slots=True)
class HeldRun:
    """A run that this process holds. *released*: the process that held it before gave it up, and did not just end.
    *parts* are all that are needed to go on from *kept_until*. *open_calls* were claimed and have no result; *claimed*
    are all that ever were."""

    name: str
    run_id: str
    digest: str
    owner: str
    fence: Fence
    lost: bool = False
    released: bool = False
    events: int = 0
    notes: int = 0
    last_event: bytes | None = None
    kept_until: int | None = None
    parts: list[bytes] = field(default_factory=list)
    claimed: set[str] = field(default_factory=set)
    open_calls: dict[str, None] = field(default_factory=dict)
    ended: bool = False
    sizes: deque[tuple[int, int]] = field(default_factory=deque)
    """The position and size of each event in the log; of a run that was taken, those since then."""
    held_bytes: int = 0
    needed_from: int = sys.maxsize
    """Events behind this position are not dropped: a reader in this process has still to read them."""

    def read_note(self, note: bytes) -> None:
        """Raises UnicodeDecodeError for a note that no process has written."""
        what, data = note[:1], note[1:]
        if what == _PART:
            self.kept_until = int.from_bytes(data[:8])
            self.parts.append(data[8:])
            return
        call = data.decode("utf-8", "surrogatepass")
        if what == _CLAIM:
            self.claimed.add(call)
            self.open_calls[call] = None
        else:
            self.open_calls.pop(call, None)


class SharedRuns:
    """*process* is the id of this process's mark. Every method raises StoreUnavailable, which it logs."""

    outlives = True

    def __init__(
        self, store: Store, process: str, bounds: JournalBounds, measures: StorageMeasures | None = None
    ) -> None:
        self._store = store
        self._process = process
        self.bounds = bounds
        self._measures = measures or StorageMeasures()
        self._damaged: set[str] = set()
        self.kind = Kind(
            "run",
            most_bytes=bounds.total_bytes,
            most_rows=bounds.max_runs,
            owner_rows=bounds.max_runs // 2,
            gives="logs",
        )

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> HeldRun | KeptRun:
        """Returns the run that has *name*: a new one of this process if the name was free. Raises ShareRefused if no
        more runs can be kept."""
        run = HeldRun(name, run_id, digest, owner, Fence(self.kind, name, self._process, 1))
        row = Put(self.kind, name, _data(run), hashed(owner), expect=0, holder=self._process, size=0)
        batch = Batch(part=part)
        try:
            await self._step([row, *self._logged(run, batch)], durable=True)
        except Conflict:
            kept = await self.find(name)
            if kept is None:
                return await self.claim(name, run_id, digest, owner, part)  # it expired just now
            if kept.run_id != run_id:
                return kept
            # Our own step, repeated because its answer was lost.
        except Full as full:
            raise ShareRefused("actor" if full.scope == "owner" else "all") from None
        self._apply(run, batch)
        return run

    async def disown(self, name: str) -> None:
        """Removes a claim of this process whose caller has left, if the store has it."""
        try:
            await self._step([Drop(self.kind, name)], Fence(self.kind, name, self._process, 1))
        except (Conflict, DamagedRow):
            log.debug("the claim of a run had not reached the store")

    async def find(self, name: str) -> KeptRun | None:
        row = await self._read(self._store.get(self.kind, name))
        if row is None:
            return None
        run_id, digest, _, lost = _values(row)
        ended = row.holder is None
        return KeptRun(run_id, digest, row.ends[_EVENTS], ended, lost or (not ended and row.term > 1))

    async def write(self, run: HeldRun, batch: Batch, *, durable: bool = False) -> None:
        """Adds *batch* to *run*. The same batch may be written again if it is not known whether it was. Raises
        Taken."""
        ops = self._logged(run, batch)
        if batch.ends:
            size = run.held_bytes + sum(map(len, batch.events))
            lost = run.lost or not _ends(run, batch)
            keep_s = max(self.bounds.keep_s, LOST_KEEP_S) if lost else self.bounds.keep_s
            ops.append(
                Put(self.kind, run.name, _data(run, lost=lost), life_s=keep_s, holder=NO_HOLDER, size=size),
            )
        if batch.events or batch.ends:
            ops.append(Signal(_topic(run.name)))
        try:
            try:
                await self._step(ops, run.fence, durable=durable)
            except Full:
                # Only live runs are left, which never give way: this one ends without its last events.
                ended = Put(self.kind, run.name, None, holder=NO_HOLDER, size=0, life_s=LOST_KEEP_S)
                await self._step([ended, Signal(_topic(run.name))], run.fence)
        except Conflict as conflict:
            if not (batch.ends and await self._is_ended_by(run)):
                if conflict.at >= 0:
                    await self._end_shortened(run)
                raise Taken from conflict
        except DamagedRow as damaged:
            await self._give_up(run.fence)
            raise Taken from damaged
        self._apply(run, batch)

    async def _end_shortened(self, run: HeldRun) -> None:
        """Ends a run of this process that the store has, but without the last of what it had acknowledged: nobody else
        takes it while this process lives."""
        with suppress(Taken):
            if (kept := await self._taken(run.name, run.fence)) is not None:
                await self.write(kept, self.lost(kept))

    def lost(self, run: HeldRun) -> Batch:
        """Returns the end of a run that did not come to its own."""
        return Batch(lost_events(list(run.open_calls), run.last_event), ends=True)

    async def release(self, run: HeldRun) -> None:
        """Gives up *run*, so that another process can take it at once. Raises Taken."""
        try:
            await self._step([Put(self.kind, run.name, None, holder=""), Signal(RELEASED)], run.fence)
        except Conflict as conflict:
            raise Taken from conflict

    async def take(self, name: str) -> HeldRun | None:
        """Takes a run whose process has ended or has released it; if it is this process's own, the run is read again.
        None if that cannot be: another process was faster, or the run has ended or is damaged."""
        if name in self._damaged:
            return None
        try:
            before = await self._read(self._store.get(self.kind, name))
            if before is None or before.holder is None:
                return None
            term = before.term
            if before.holder != self._process:
                (term,) = await self._step([Take(self.kind, name, self._process)])
        except Conflict:
            return None
        except DamagedRow:
            self._damaged.add(name)
            return None
        fence = Fence(self.kind, name, self._process, term)
        try:
            run = await self._taken(name, fence)
        except DamagedRow:
            await self._give_up(fence)
            return None
        if run is not None:
            run.released = before.holder == ""
        return run

    async def _give_up(self, fence: Fence) -> None:
        """Ends a damaged run as it is."""
        self._damaged.add(fence.key)
        with suppress(Conflict, DamagedRow):
            ended = Put(self.kind, fence.key, None, holder=NO_HOLDER, life_s=LOST_KEEP_S)
            await self._step([ended, Signal(_topic(fence.key))], fence)

    async def _taken(self, name: str, fence: Fence) -> HeldRun | None:
        """Reads a run of this process, which no other process changes."""
        row = await self._read(self._store.get(self.kind, name))
        if row is None:
            return None
        run_id, digest, owner, _ = _values(row)
        run = HeldRun(name, run_id, digest, owner, fence, lost=True, events=row.ends[_EVENTS], notes=row.ends[_NOTES])
        try:
            notes = await self._notes(name)
            for note in notes:
                run.read_note(note)
        except UnicodeDecodeError:
            raise DamagedRow("run", name) from None
        if len(notes) != run.notes:
            raise DamagedRow("run", name)  # a claim may be missing
        if run.events > 0:
            for entry in await self.read(name, run.events - 1):
                run.last_event = entry.event
            run.sizes.append((run.events, 0))
        return run

    async def read(self, name: str, after: int) -> Sequence[Entry]:
        """Returns some of the events behind *after*. The first one does not follow *after* if events were dropped."""
        found = await self._read(self._store.read_log(self.kind, name, _EVENTS, after, _READ_AT_ONCE))
        return [Entry(position, event) for position, event in found]

    def listen(self, name: str) -> AbstractAsyncContextManager[Changed]:
        """Signals that the run has new events, or its end."""
        return self._store.listen(_topic(name))

    async def attend(self, name: str) -> None:
        """Notes that another process than that of the run has a reader of it."""
        await self._step([Put(_READER, name, b"", life_s=_READER_LIFE_S)])

    async def unattended_s(self, name: str) -> float:
        """Returns the seconds since a reader elsewhere was there; infinity if there was none."""
        row = await self._read(self._store.get(_READER, name))
        return float("inf") if row is None or row.life_s is None else max(_READER_LIFE_S - row.life_s, 0.0)

    def _logged(self, run: HeldRun, batch: Batch) -> list[Op]:
        ops: list[Op] = []
        if batch.events:
            ops.append(Append(self.kind, run.name, _EVENTS, run.events, batch.events, self._cut(run, batch)))
        notes = _notes_of(run, batch)
        if notes or batch.ends:
            # Notes are needed only while the run goes on.
            cut = run.notes + len(notes) if batch.ends else 0
            ops.append(Append(self.kind, run.name, _NOTES, run.notes, notes, cut))
        return ops

    def _cut(self, run: HeldRun, batch: Batch) -> int:
        """Returns the position up to which events are dropped, so that those of one run stay within their bound."""
        held = run.held_bytes + sum(map(len, batch.events))
        cut = 0
        for position, size in run.sizes:
            if held <= self.bounds.run_bytes or position > run.needed_from:
                break
            held, cut = held - size, position
        return cut

    def _apply(self, run: HeldRun, batch: Batch) -> None:
        """Applies to *run* what the store has taken."""
        cut = self._cut(run, batch)
        while run.sizes and run.sizes[0][0] <= cut:
            run.held_bytes -= run.sizes.popleft()[1]
        notes = _notes_of(run, batch)
        run.notes += len(notes)
        for note in notes:
            run.read_note(note)
        for event in batch.events:
            run.events += 1
            run.sizes.append((run.events, len(event)))
            run.held_bytes += len(event)
            run.last_event = event
        run.ended = run.ended or batch.ends

    async def _notes(self, name: str) -> list[bytes]:
        notes: list[bytes] = []
        after = 0
        while found := await self._read(self._store.read_log(self.kind, name, _NOTES, after, _READ_AT_ONCE)):
            notes += [note for _, note in found]
            after = found[-1][0]
        return notes

    async def _is_ended_by(self, run: HeldRun) -> bool:
        """True if the end of *run* was written before: the next term is that of nobody."""
        row = await self._read(self._store.get(self.kind, run.name))
        return row is not None and row.holder is None and row.term == run.fence.term + 1

    async def _step(self, ops: Sequence[Op], fence: Fence | None = None, *, durable: bool = False) -> Sequence[int]:
        return await self._read(self._store.step(ops, fence=fence, durable=durable))

    async def _read(self, asked: Awaitable[T]) -> T:
        fail = self._measures.fail
        try:
            found = await asked
        except DamagedRow:
            raise  # it is logged, and says nothing of other rows
        except StoreUnavailable as unavailable:
            log.log(without_level(fail, "runs"), "runs cannot be kept or read: %s", unavailable)
            raise
        fail.answered("runs")
        return found


def _topic(name: str) -> str:
    """Returns the topic of the signals that a run has new events."""
    return f"run.{name}"


def _ends(run: HeldRun, batch: Batch) -> bool:
    last = batch.events[-1] if batch.events else run.last_event
    return last is not None and is_end(last)


def _notes_of(run: HeldRun, batch: Batch) -> list[bytes]:
    if not (batch.claims or batch.completed or batch.part):
        return []  # as most batches, which are texts
    notes = [_CLAIM + utf8(call) for call in batch.claims]
    notes += [_RESULT + utf8(call) for call in batch.completed if call in run.claimed or call in batch.claims]
    if batch.part:
        notes.append(_PART + (run.events + len(batch.events)).to_bytes(8) + batch.part)
    return notes


def _data(run: HeldRun, *, lost: bool = False) -> bytes:
    return packed([run.run_id, run.digest, run.owner, lost])


def _values(row: Row) -> tuple[str, str, str, bool]:
    try:
        run_id, digest, owner, lost = unpacked(row.data)
    except (ValueError, TypeError):
        raise DamagedRow("run", row.key) from None
    return str(run_id), str(digest), str(owner), bool(lost)
