"""Runs with an Idempotency-Key in Redis, for all replicas (CHAT-116 to CHAT-120).

What Redis acknowledged holds for the key, the events and the claims of calls; how long that is, its settings say
(``promises.py``). Behind Sentinel a replica of Redis has it as well.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from wicketgate.access.shares import ShareRefused, full_scope
from wicketgate.engine.events import is_end
from wicketgate.engine.journal import Entry, lost_events
from wicketgate.storage.encoding import hashed
from wicketgate.storage.measures import without_level
from wicketgate.storage.memory_journal import JournalBounds
from wicketgate.storage.redis import run_scripts as scripts
from wicketgate.storage.redis.client import WAIT_S, DamagedKeys, RedisAway, RedisLink
from wicketgate.storage.redis.run_index import GOES_ON, RELEASED, Admitted, RunIndex
from wicketgate.storage.redis.scripts import Argument, Script, Step
from wicketgate.storage.run_store import LEASE_S, LOST_KEEP_S, KeptRun, NewEvents, Orphan, Part, StoreAway

log = logging.getLogger("wicketgate.engine")

T = TypeVar("T")

_AT_ONCE_BYTES = 32 * 1024
_CHUNK_BYTES = 256 * 1024
_CHUNK_ENTRIES = 500
_STEPS_AT_ONCE = 200
_MARGIN_S = 60.0
_ONE_OUTAGE_S = 5.0
_GONE, _NOT_OURS = -2, -1
_MOST_DAMAGED = 1_000


@dataclass(slots=True)
class _Mine:
    """A run of this process, also for a Redis that has lost it. *over*: its last event is an end."""

    name: str
    run_id: str
    digest: str
    owner: str
    last: int = 0
    over: bool = False
    held_bytes: int = 0
    calls: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _State:
    run_id: str
    digest: str
    replica: str
    first: int
    last: int
    lost: bool
    ended: bool
    lapsed: bool


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some of the next events of a run."""

    name: str
    entries: Sequence[Entry]
    completed: Sequence[str] = ()
    parts: Sequence[Part] = ()


class RedisRunStore:
    """Implements RunStore for all replicas. *replica* names this process and no other. *ahead_s* is added to the time
    of Redis, which all compare. The link is closed by its owner.

    A Redis that has lost the runs of this process gets them anew, without the events from before. Bounds in all are
    those of all replicas together: give each the same.
    """

    def __init__(
        self,
        link: RedisLink,
        bounds: JournalBounds,
        replica: str,
        lease_s: float = LEASE_S,
        ahead_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._link = link
        self._bounds = bounds
        self._replica = replica
        self._lease_s = lease_s
        self._lease_ms = int(lease_s * 1_000)
        self._life_ms = int((LOST_KEEP_S + _MARGIN_S) * 1_000)
        self._ahead_s = ahead_s
        self._index = RunIndex(link, self._ahead_ms, self._life_ms, self._lease_ms)
        self._mine: dict[str, _Mine] = {}
        self._troubled_at = float("-inf")
        self._undoing: set[asyncio.Task[None]] = set()
        self._damaged: set[str] = set()

    async def claim(self, name: str, run_id: str, digest: str, owner: str, part: bytes = b"") -> KeptRun | None:
        run = _Mine(name, run_id, digest, owner)
        try:
            admitted, state = await self._run(lambda client: self._claim(client, run, part))
        except StoreAway:
            # Redis may have kept the claim; nobody goes on with it.
            undoing = asyncio.create_task(self._undo(run))
            self._undoing.add(undoing)
            undoing.add_done_callback(self._undoing.discard)
            raise
        if (full := full_scope(admitted.own, admitted.all, self._bounds.max_runs, None)) is not None:
            raise ShareRefused(full, admitted.own)
        if state is None:
            self._mine[name] = run
        if admitted.giving:
            steps = [self._step(scripts.STRIP, each) for each in admitted.giving]
            with suppress(StoreAway):
                await self._run(lambda client: self._link.scripts(client, steps, each=True))
        return None if state is None else self._kept(name, state)

    async def find(self, name: str) -> KeptRun | None:
        found = await self._read(name, "", 0)
        return None if found is None else found[0]

    async def read(self, name: str, after: int) -> tuple[KeptRun, Sequence[Entry]] | None:
        return await self._read(name, after, _AT_ONCE_BYTES)

    async def append(self, events: Mapping[str, NewEvents]) -> Sequence[str]:
        taken = [name for name in events if name not in self._mine]
        give_up_at = asyncio.get_running_loop().time() + WAIT_S
        for chunks in _together(self._chunks(events)):
            # After a Redis that was away there may be more than one second carries. What was kept stays kept.
            if asyncio.get_running_loop().time() > give_up_at:
                raise StoreAway
            taken += await self._append([chunk for chunk in chunks if chunk.name not in taken])
        return taken

    async def claim_call(self, name: str, call_id: str) -> bool:
        mine = self._mine[name]
        step = self._own_step(scripts.CLAIM_CALL, mine, _bytes(call_id), secrets.token_hex(8), self._life_ms)
        (claimed,) = await self._steps([(mine, step)], lambda done: done == 1)
        if claimed == 1:
            mine.calls.append(call_id)
        return bool(claimed == 1)

    async def end(self, name: str) -> None:
        if (mine := self._mine.get(name)) is not None:
            await self._run(lambda client: self._end(client, mine))
            self._mine.pop(name, None)

    async def renew(self) -> Sequence[str]:
        runs = list(self._mine.values())
        taken: list[str] = []
        for at in range(0, len(runs), _STEPS_AT_ONCE):
            some = runs[at : at + _STEPS_AT_ONCE]
            given = (self._lease_ms, self._life_ms)
            renewed = await self._steps([(run, self._own_step(scripts.RENEW, run, *given)) for run in some])
            held = [run for run, done in zip(some, renewed, strict=True) if done == 1]
            taken += [run.name for run, done in zip(some, renewed, strict=True) if done != 1]
            await self._count([(run, GOES_ON) for run in held])
        return taken

    async def release(self, name: str) -> None:
        # No renewal may list it anew.
        if (mine := self._mine.pop(name, None)) is None:
            return
        try:
            await self._run(
                lambda client: self._link.scripts(client, [self._own_step(scripts.RELEASE, mine)], each=True)
            )
        except StoreAway:
            self._mine[name] = mine
            raise
        with suppress(StoreAway):
            await self._count([(mine, RELEASED)])

    async def lapsed(self, most: int) -> Mapping[str, bool]:
        if self._is_patient():
            return {}
        found = await self._run(lambda client: self._index.lapsed(client, most + len(self._mine)))
        others = [(name, released) for name, released in found.items() if name not in self._mine]
        return dict(others[:most])

    async def take(self, name: str) -> Orphan | None:
        if self._is_patient() or name in self._mine:
            return None
        step = self._step(scripts.TAKE, name, self._replica, self._lease_ms, self._life_ms)
        (found,) = await self._run(lambda client: self._link.scripts(client, [step], each=True))
        try:
            orphan = None if found is None or self._is_damaged(name, found) else _orphan(found)
        except ValueError as error:
            self._is_damaged(name, DamagedKeys(str(error)))
            orphan = None
        if orphan is None:
            # One that is damaged is not taken again and again.
            await self._run(lambda client: self._index.unlist(client, name))
            return None
        calls = list(orphan.unfinished)
        ended = is_end(orphan.last_event or b"")
        self._mine[name] = mine = _Mine(
            name, orphan.run_id, orphan.digest, orphan.owner, orphan.last, ended, calls=calls
        )
        with suppress(StoreAway):
            await self._count([(mine, GOES_ON)])
        return orphan

    async def attend(self, name: str, for_s: float) -> None:
        await self._script(scripts.ATTEND, name, int(for_s * 1_000))

    async def attended_s(self, name: str) -> float:
        left_ms = await self._script(scripts.ATTENDED, name)
        return float("-inf") if left_ms is None else float(left_ms) / 1_000

    async def aclose(self) -> None:
        """Gives back what could not be claimed. The link is closed by its owner."""
        await asyncio.gather(*self._undoing)

    # Runs as they are.

    async def _claim(self, client: Any, run: _Mine, part: bytes) -> tuple[Admitted, _State | None]:
        owner = hashed(run.owner)
        admitted = await self._index.admit(client, owner, run.name, self._bounds.total_bytes)
        if full_scope(admitted.own, admitted.all, self._bounds.max_runs, None) is not None:
            await self._index.forget(client, owner, run.name)
            return admitted, None
        given = (run.run_id, run.digest, _bytes(run.owner), self._lease_ms, self._life_ms, part)
        step = self._own_step(scripts.CLAIM, run, *given)
        (found,) = await self._link.scripts(client, [step], lambda found: found is None, each=True)
        try:
            state = None if found is None or self._is_damaged(run.name, found) else _state(found)
        except ValueError as error:
            found, state = DamagedKeys(str(error)), None
        if self._is_damaged(run.name, found):
            await self._index.forget(client, owner, run.name)
            raise StoreAway
        return admitted, state

    async def _undo(self, run: _Mine) -> None:
        with suppress(StoreAway):
            await self._run(
                lambda client: self._link.scripts(client, [self._own_step(scripts.UNCLAIM, run, run.run_id)])
            )

    async def _read(self, name: str, after: int | str, most: int) -> tuple[KeptRun, Sequence[Entry]] | None:
        found = await self._script(scripts.READ, name, after, most)
        if found is None:
            return None
        try:
            state, entries = _state(found[0]), found[1]
        except ValueError as error:
            self._is_damaged(name, DamagedKeys(str(error)))
            raise StoreAway from None
        known = state.replica != self._replica or name in self._mine
        if not (known or state.ended or state.last or state.lost):
            return None  # left of a claim whose answer was lost
        pairs = zip(entries[::2], entries[1::2], strict=True)
        return self._kept(name, state), [Entry(int(position), event) for position, event in pairs]

    def _kept(self, name: str, state: _State) -> KeptRun:
        # Of its own runs a process knows better.
        lapsed = state.lapsed and name not in self._mine and not self._is_patient()
        return KeptRun(state.run_id, state.digest, state.first, state.last, state.ended, state.lost, lapsed)

    def _is_patient(self) -> bool:
        """True a while after Redis was away. Meanwhile none could renew a lease: each gets the time of one to do so."""
        since = max(self._troubled_at, self._link.back_at)
        return asyncio.get_running_loop().time() - since < self._lease_s

    async def _end(self, client: Any, mine: _Mine) -> None:
        lost: Sequence[Entry] = ()
        if not mine.over:
            (left,) = await self._link.scripts(client, [self._own_step(scripts.LOOK, mine)], each=True)
            if isinstance(left, int) or self._is_damaged(mine.name, left):
                return  # it is another's, or gone
            last, event, open_calls = left
            if not is_end(event):
                events = lost_events([_text(call) for call in open_calls], event)
                lost = [Entry(last + number, each) for number, each in enumerate(events, 1)]
        keep_ms = (int(self._bounds.keep_s * 1_000), int(max(self._bounds.keep_s, LOST_KEEP_S) * 1_000))
        given = (*keep_ms, int(_MARGIN_S * 1_000), self._bounds.run_bytes, int(bool(lost)), len(lost), *_flat(lost))
        step = self._own_step(scripts.END, mine, *given)
        (done,) = await self._link.scripts(client, [step], lambda done: not isinstance(done, int), each=True)
        if not isinstance(done, int) and not self._is_damaged(mine.name, done):
            mine.held_bytes, kept_ms = done
            await self._index.tell(client, [self._counted(mine, kept_ms)])

    async def _count(self, runs: Sequence[tuple[_Mine, int]]) -> None:
        await self._run(lambda client: self._index.tell(client, [self._counted(*each) for each in runs]))

    def _counted(self, run: _Mine, keep_ms: int) -> tuple[str, str, int, int]:
        return hashed(run.owner), run.name, run.held_bytes, keep_ms

    # Events of runs of this process.

    def _chunks(self, events: Mapping[str, NewEvents]) -> Iterator[_Chunk]:
        for name, new in events.items():
            if (mine := self._mine.get(name)) is None:
                continue
            # What is kept already, of a step that failed halfway, is not sent again.
            *before, last = _slices([entry for entry in new.entries if entry.position > mine.last])
            yield from (_Chunk(name, entries) for entries in before)
            yield _Chunk(name, last, new.completed, new.parts)

    async def _append(self, chunks: Sequence[_Chunk]) -> Sequence[str]:
        """Returns the names of the runs that are not of this process any more."""
        steps = []
        for chunk in chunks:
            given: list[Argument] = [self._lease_ms, self._life_ms, self._bounds.run_bytes]
            given += (len(chunk.entries), len(chunk.parts), *_flat(chunk.entries))
            for part in chunk.parts:
                given += (part.number, part.position, part.data)
            run = self._mine[chunk.name]
            steps.append((run, self._own_step(scripts.APPEND, run, *given, *map(_bytes, chunk.completed))))
        taken = []
        for chunk, held_bytes in zip(chunks, await self._steps(steps, _wrote), strict=True):
            mine = self._mine.get(chunk.name)
            if held_bytes < 0:
                taken.append(chunk.name)
            elif mine is not None and chunk.entries:
                mine.last, mine.held_bytes = chunk.entries[-1].position, held_bytes
                mine.over = is_end(chunk.entries[-1].event)
        return taken

    async def _steps(
        self, steps: Sequence[tuple[_Mine, Step]], wrote: Callable[[Any], bool] | None = None
    ) -> Sequence[Any]:
        """Runs steps of runs of this process; one that Redis has lost is begun anew first. One that is damaged is not
        of this process any more."""

        async def work(client: Any) -> Sequence[Any]:
            found = await self._link.scripts(client, [step for _, step in steps], wrote, each=True)
            gone = [run for (run, _), each in zip(steps, found, strict=True) if each == _GONE]
            if not gone:
                return found
            log.warning("%d runs were not in Redis any more, and are kept there anew", len(gone))
            revived: dict[str, Step] = {}
            for run in gone:
                given = (run.run_id, run.digest, _bytes(run.owner), self._lease_ms, self._life_ms, run.last)
                revived[run.name] = self._own_step(scripts.REVIVE, run, *given, *map(_bytes, run.calls))
            await self._link.scripts(client, list(revived.values()), each=True)
            return await self._link.scripts(client, [step for _, step in steps], wrote, each=True)

        found = await self._run(work) if steps else ()
        return [
            _NOT_OURS if self._is_damaged(run.name, each) else each for (run, _), each in zip(steps, found, strict=True)
        ]

    # Redis.

    def _ahead_ms(self) -> int:
        return int(self._ahead_s() * 1_000)

    def _step(self, script: Script, name: str, *arguments: Argument) -> Step:
        keys = [self._link.names.key("run", name, part) for part in ("row", "events", "calls", "parts")]
        return script, keys, (self._ahead_ms(), *arguments)

    def _own_step(self, script: Script, run: _Mine, *arguments: Argument) -> Step:
        return self._step(script, run.name, self._replica, *arguments)

    async def _script(self, script: Script, name: str, *arguments: Argument) -> Any:
        """Raises StoreAway for a run that is damaged too."""
        step = self._step(script, name, *arguments)
        (found,) = await self._run(lambda client: self._link.scripts(client, [step], each=True))
        if self._is_damaged(name, found):
            raise StoreAway
        return found

    def _is_damaged(self, name: str, found: Any) -> bool:
        """True if the run keeps its own steps from running, which the log tells once. It says nothing about others."""
        if not isinstance(found, DamagedKeys):
            return False
        if name not in self._damaged and len(self._damaged) < _MOST_DAMAGED:
            self._damaged.add(name)
            log.error(
                "a run with a key is damaged in Redis (%s): nobody goes on with it, and its Idempotency-Key gets 503. "
                "Other runs go on. UNLINK the keys that begin with %s to free it; its calls may then be made again",
                found.reason,
                self._link.names.key("run", name, ""),
            )
        return True

    async def _run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        fail = self._link.measures.fail
        try:
            found = await self._link.run(work)
        except RedisAway as away:
            now, level = asyncio.get_running_loop().time(), without_level(fail, "runs")
            # A Redis that takes no writes may answer reads in between: that is one outage.
            if now - self._troubled_at < _ONE_OUTAGE_S:
                level = logging.DEBUG
            log.log(level, "runs cannot be kept: %s", away)
            self._troubled_at = now
            raise StoreAway from None
        fail.answered("runs")
        return found


def _state(found: Any) -> _State:
    run_id, digest, replica, first, last, lost, ended, lapsed = found
    return _State(
        run_id.decode(), digest.decode(), replica.decode(), first, last, bool(lost), bool(ended), bool(lapsed)
    )


def _orphan(found: Any) -> Orphan:
    """Raises ValueError if nobody here has written it."""
    run_id, digest, owner, lapsed_ms, (last, event, open_calls), kept_parts = found
    parts = [_part(int(number), kept) for number, kept in zip(kept_parts[::2], kept_parts[1::2], strict=True)]
    return Orphan(
        run_id.decode(),
        digest.decode(),
        _text(owner),
        last,
        event or None,
        sorted(parts, key=lambda part: part.number),
        [_text(call) for call in open_calls],
        lapsed_ms / 1_000,
    )


def _part(number: int, kept: bytes) -> Part:
    position, _, data = kept.partition(b" ")
    return Part(number, int(position), data)


def _wrote(held_bytes: int) -> bool:
    return held_bytes >= 0


def _slices(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Bounded slices of *entries*, at least one."""
    part: list[Entry] = []
    size = 0
    for entry in entries:
        if part and (len(part) >= _CHUNK_ENTRIES or size >= _CHUNK_BYTES):
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry.event)
    yield part


def _together(chunks: Iterator[_Chunk]) -> Iterator[Sequence[_Chunk]]:
    """Chunks of different runs, which are sent at once."""
    some: dict[str, _Chunk] = {}
    size = 0
    for chunk in chunks:
        if some and (chunk.name in some or size > _CHUNK_BYTES or len(some) >= _STEPS_AT_ONCE):
            yield list(some.values())
            some, size = {}, 0
        some[chunk.name] = chunk
        size += sum(len(entry.event) for entry in chunk.entries) + sum(len(part.data) for part in chunk.parts)
    if some:
        yield list(some.values())


def _flat(entries: Sequence[Entry]) -> Iterator[Argument]:
    for entry in entries:
        yield entry.position
        yield entry.event


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(encoded: bytes) -> str:
    return encoded.decode("utf-8", "surrogatepass")
