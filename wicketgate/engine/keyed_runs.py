"""Runs that a client may come back to: one run for one Idempotency-Key (CHAT-73 to CHAT-75).

Such a run goes on by itself, into the journal; readers follow the journal, each at its own pace. Requests without a
key do not come here.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Literal, Protocol

from wicketgate.access.identity import Identity
from wicketgate.engine.contract import ChatRequest, InvalidRequest, call_context
from wicketgate.engine.events import ErrorEvent, encode, is_end
from wicketgate.engine.limits import Interrupted, Interruption, Place, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.errors import ProviderError

log = logging.getLogger("wicketgate.engine")

OnDisconnect = Literal["cancel", "continue"]

MAX_READERS = 8
"""Readers of one run at once, in this process."""

_LOST = encode(ErrorEvent(ProviderError.code, ProviderError.safe_message))


@dataclass(frozen=True, slots=True)
class Claim:
    """A run by its name. *run_id* is part of every event's id; *digest* is that of the request that took the name."""

    run_id: str
    digest: str
    mine: bool
    """True for the one caller that has to run it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event, encoded, at its *position*: 1, 2, 3 and so on."""

    position: int
    event: bytes


class JournalFull(Exception):
    """No further run can be kept now."""


class EventsGone(Exception):
    """The requested events are not kept any more, or never were."""


class Follower(Protocol):
    """One reader's position in a run."""

    async def next(self) -> Sequence[Entry]:
        """The entries since the last call, at least one; none at the end of the run.

        Also none if the owner is gone and will not append any more: then the last event was not an end.
        """
        ...


class Journal(Protocol):
    """Keeps the events of runs for clients that come back.

    Bounded in bytes, for a run and in all, and in time: a while after its end a run is forgotten, and its name is free
    again. The caller makes names that other actors cannot guess. The first to claim a name owns the run and alone
    appends; all others follow, from the beginning or from a position. No method needs more than an append-only stream
    for each run, so that a shared store can stand behind it as well as memory.
    """

    async def claim(self, name: str, run_id: str, digest: str) -> Claim:
        """Take *name* if it is free; otherwise return the claim that holds it. Exact among several processes.

        Raises JournalFull.
        """
        ...

    async def find(self, name: str) -> Claim | None:
        """The claim that holds *name*. Takes nothing."""
        ...

    async def append(self, name: str, events: Sequence[bytes]) -> None:
        """Add the owner's next events, encoded, without ids. Waits while followers have too much left to read.

        Texts that have no reader yet may be joined into one event. If space runs out, the beginning is dropped, never
        events that a follower has still to read.
        """
        ...

    async def end(self, name: str) -> None:
        """Close the run: the owner will not append any more. The time to live begins."""
        ...

    def follow(self, name: str, after: int) -> AbstractAsyncContextManager[Follower]:
        """Read from behind *after*; 0 is the beginning. A position behind the end gives the last event again.

        While the context is open, the run counts as attended. Raises EventsGone when entered.
        """
        ...

    async def wait_unattended(self, name: str, for_s: float) -> None:
        """Return when the run had no follower for *for_s*, counted from the claim at the earliest."""
        ...

    async def aclose(self) -> None:
        """Forget everything that this process holds."""
        ...


@dataclass(frozen=True, slots=True)
class ResumeLimits:
    """The time that a run may be without a reader: *reconnect_grace_s* with ``cancel``, *detached_s* with
    ``continue``."""

    reconnect_grace_s: float = 5.0
    detached_s: float = 600.0
    on_disconnect: OnDisconnect = "cancel"


@dataclass(frozen=True, slots=True)
class Resumption:
    """The headers of a client that may come back: the key, its position, and the fate of the run without a reader."""

    key: str
    last_event_id: str | None = None
    on_disconnect: OnDisconnect | None = None


class TooManyStreams(Exception):
    """There is no place for this stream now; later there may be."""


class RunReader:
    """One client's view of a run: encoded events with ids, from its position to the end."""

    def __init__(self, run_id: str, follower: Follower, held: AsyncExitStack) -> None:
        self._run_id = run_id.encode()
        self._follower = follower
        self._held = held
        self._interruption = Interruption()

    def disconnect(self) -> None:
        """End ``pieces`` where it waits: the client has gone."""
        self._interruption.request("disconnected")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Each piece holds the events that became known at once. The last event is the end of the run, unless the
        client disconnected."""
        event = b""
        try:
            while entries := await self._interruption.wait(self._follower.next()):
                event = entries[-1].event
                yield b"".join(b"id: %b-%d\n%b" % (self._run_id, entry.position, entry.event) for entry in entries)
            if not is_end(event):
                log.error("stream failed: the run was lost")
                yield _LOST
        except Interrupted:
            return

    async def aclose(self) -> None:
        """Release the place and the journal. Later calls do nothing."""
        await self._held.aclose()


class KeyedRuns:
    """Owns the runs with a key. *new_id* makes short ids that do not repeat, so that a later run under the same key
    has other event ids."""

    def __init__(
        self, engine: Engine, journal: Journal, streams: StreamLimit, limits: ResumeLimits, new_id: Callable[[], str]
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._streams = streams
        self._limits = limits
        self._new_id = new_id
        self._tasks: set[asyncio.Task[None]] = set()
        self._places: dict[str, Place] = {}

    async def open(self, request: ChatRequest, identity: Identity, resumption: Resumption) -> RunReader:
        """Start the run of this key, or join it. The reader must be closed.

        Raises InvalidRequest (another request has this key; the requested events are gone) and TooManyStreams.
        """
        name = _name(identity, resumption.key)
        digest = _digest(request, identity)
        place = self._enter(name)
        async with AsyncExitStack() as stack:
            stack.callback(self._leave, name, place)
            # Claim the name, or find the run that has it, and follow its journal.
            claim = await self._claim(name, digest, resumption)
            after = _position(claim, resumption.last_event_id)
            try:
                follower = await stack.enter_async_context(self._journal.follow(name, after))
            except EventsGone:
                raise InvalidRequest(_gone(resumption)) from None
            held = stack.pop_all()
        # The claimant runs it. From here on nothing waits, so that the reader is not lost.
        if claim.mine:
            place.share()
            detached = (resumption.on_disconnect or self._limits.on_disconnect) == "continue"
            alone_s = self._limits.detached_s if detached else self._limits.reconnect_grace_s
            run = self._run(name, request, identity, place, alone_s)
            task = asyncio.create_task(run, name=f"run {claim.run_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return RunReader(claim.run_id, follower, held)

    async def aclose(self) -> None:
        """Cancel the runs that are left. Their streams are over by now, or have no reader."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._journal.aclose()

    async def _claim(self, name: str, digest: str, resumption: Resumption) -> Claim:
        if resumption.last_event_id is None:
            try:
                claim = await self._journal.claim(name, self._new_id(), digest)
            except JournalFull:
                raise TooManyStreams from None
        elif (known := await self._journal.find(name)) is not None:
            claim = known
        else:
            raise InvalidRequest(_gone(resumption))
        # A key stands for one request: running a second one under it would hide it.
        if claim.digest != digest:
            raise InvalidRequest("This Idempotency-Key was used with another request; take a new key")
        return claim

    async def _run(self, name: str, request: ChatRequest, identity: Identity, place: Place, alone_s: float) -> None:
        """Run to the end. The journal's entry ends whatever happens."""
        context = call_context(request, identity)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._end_when_unattended(name, place.interruption, alone_s))
                async with aclosing(self._engine.batches(request, context, place.interruption)) as batches:
                    async for batch in batches:
                        await self._journal.append(name, [encode(event) for event in batch])
                        await asyncio.sleep(0)  # a model that never waits must leave the loop to others
                watching.cancel()
        except Exception:
            # The last boundary of this task. Readers find no end in the journal, and report that.
            log.exception("a run was lost")
        finally:
            if place.interruption.reason is not None:
                # Readers still hold the place; a later run under this name must not be interrupted by its past.
                self._forget(name, place)
            self._leave(name, place)
            await self._journal.end(name)

    async def _end_when_unattended(self, name: str, interruption: Interruption, alone_s: float) -> None:
        await self._journal.wait_unattended(name, alone_s)
        interruption.request("disconnected")

    def _enter(self, name: str) -> Place:
        """Take the place that a run and its readers share. Raises TooManyStreams."""
        place = self._places.get(name)
        if place is not None:
            if place.holders > MAX_READERS:
                raise TooManyStreams
            place.share()
            return place
        place = self._streams.enter()
        if place is None:
            raise TooManyStreams
        self._places[name] = place
        return place

    def _leave(self, name: str, place: Place) -> None:
        place.leave()
        if not place.holders:
            self._forget(name, place)

    def _forget(self, name: str, place: Place) -> None:
        if self._places.get(name) is place:
            del self._places[name]


def _name(identity: Identity, key: str) -> str:
    """A hash, so that no key that a client makes up reaches another actor's run."""
    return hashlib.sha256(json.dumps([identity.actor, key]).encode()).hexdigest()


def _digest(request: ChatRequest, identity: Identity) -> str:
    """Digest of the request without its trace id, and of the permissions that it is run with."""
    content = request.model_dump(mode="json")
    content["metadata"].pop("correlation_id")
    text = json.dumps([content, sorted(identity.permissions)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _position(claim: Claim, last_event_id: str | None) -> int:
    """The position in *last_event_id*; 0 without one. Raises InvalidRequest for an id that is not of this run."""
    if last_event_id is None:
        return 0
    run_id, _, position = last_event_id.rpartition("-")
    if run_id != claim.run_id or not (position.isascii() and position.isdigit() and len(position) < 16):
        raise InvalidRequest("Last-Event-ID names no event of this run")
    return int(position)


def _gone(resumption: Resumption) -> str:
    if resumption.last_event_id is None:
        return "The beginning of this run is not kept any more; send Last-Event-ID, or take a new Idempotency-Key"
    return "The events behind Last-Event-ID are not kept; repeat the request without it, or take a new Idempotency-Key"
