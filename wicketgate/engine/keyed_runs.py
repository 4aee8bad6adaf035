"""Runs that a client may come back to: one run for one Idempotency-Key (CHAT-73 to CHAT-75).

Such a run goes on by itself, into the journal; readers follow the journal, each at its own pace. Requests without a
key do not come here.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from wicketgate.access.identity import Identity, Standing, always_good
from wicketgate.access.shares import ShareRefused
from wicketgate.engine.checkpoint import Recorder, RunState, Saved, read_parts
from wicketgate.engine.contract import ChatRequest, InvalidRequest, OnDisconnect, call_context
from wicketgate.engine.events import Done, Event, ToolFailure, ToolOutput, encode, is_end
from wicketgate.engine.journal import Abandoned, Claim, EventsGone, Follower, Journal, JournalAway, lost_events
from wicketgate.engine.limits import DetachedRuns, Interrupted, Interruption, Place, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.log_text import correlation_id
from wicketgate.models.provider import Usage
from wicketgate.ports import NO_META
from wicketgate.task_end import cancel_all, end_tasks, hold

log = logging.getLogger("wicketgate.engine")

MAX_READERS = 8
"""Readers of one run at once, in this process."""

_FINDING_PLACES = 16
"""Runs of other processes that look for a place here at once."""
_TRY_AGAIN_S = 1.0
_LAST_EVENTS_S = 0.5
"""The wait of an interrupted run for its journal. Connections are cut a second behind the drain."""

_CANCELLED = encode(Done("cancelled", Usage()))
_STATE_BYTES = 4 * 1024 * 1024
"""Bytes of its conversation that are kept of one run, so that another process can continue it. That is about a million
tokens, the largest window of models; a run with more ends with its process."""


@dataclass(frozen=True, slots=True)
class ResumeLimits:
    """The time that a run may be without a reader: *reconnect_grace_s* with ``cancel``, *detached_s* with
    ``continue``."""

    reconnect_grace_s: float = 5.0
    detached_s: float = 600.0
    on_disconnect: OnDisconnect = "cancel"

    def alone_s(self, on_disconnect: OnDisconnect) -> float:
        return self.reconnect_grace_s if on_disconnect == "cancel" else self.detached_s


@dataclass(frozen=True, slots=True)
class Resumption:
    """The headers of a client that may come back: the key, its position, and the fate of the run without a reader."""

    key: str
    last_event_id: str | None = None
    on_disconnect: OnDisconnect | None = None


class RunReader:
    """One client's view of a run: encoded events with ids, from its position to the end."""

    def __init__(
        self, run_id: str, follower: Follower, place: Place, held: AsyncExitStack, ends_with_run: bool
    ) -> None:
        """*ends_with_run*: the key of this reader is that of the run, which goes on; the end of the key ends both."""
        self.ends_with_run = ends_with_run
        self._place = place
        self._run_id = run_id.encode()
        self._follower = follower
        self._held = held
        self._interruption = Interruption()

    def disconnect(self) -> None:
        """End ``pieces`` where it waits: the client has gone."""
        self._interruption.request("disconnected")

    def revoke(self) -> None:
        """End ``pieces`` with ``done`` (cancelled): the reader's key is not good any more. The run goes on."""
        self._interruption.request("revoked")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Each piece holds the events that became known at once. The last event is the end of the run, unless the
        client disconnected."""
        event = b""
        try:
            while entries := await self._interruption.wait(self._follower.next()):
                event = entries[-1].event
                yield b"".join(b"id: %b-%d\n%b" % (self._run_id, entry.position, entry.event) for entry in entries)
            if not is_end(event):
                # Without an id: it is no event of the run.
                if self._place.interruption.reason not in (None, "disconnected"):
                    yield _CANCELLED
                else:
                    log.error("stream failed: the run was lost")
                    yield self._follower.lost
        except Interrupted:
            if self._interruption.reason == "revoked" and not is_end(event):
                yield _CANCELLED

    async def aclose(self) -> None:
        """Release the place and the journal. Later calls do nothing."""
        await self._held.aclose()


class _Writing:
    """The batches of a run on their way into its journal, one behind the other. An interruption ends the wait for the
    journal, so that the engine can end its model and its tools. What the run has said is written all the same, but its
    readers wait for that no longer than ``_LAST_EVENTS_S``."""

    def __init__(self, journal: Journal, name: str, interruption: Interruption) -> None:
        self._journal = journal
        self._name = name
        self._interruption = interruption
        self._under_way: set[asyncio.Task[None]] = set()
        self._give_up_at = float("inf")

    async def append(self, events: Sequence[bytes], completed: Sequence[str], part: bytes) -> None:
        """Raises JournalAway."""
        await self.settled()
        batch = asyncio.create_task(self._journal.append(self._name, events, completed, part))
        self._under_way.add(batch)
        if self._interruption.reason is None:
            with suppress(Interrupted):
                await self._interruption.wait(asyncio.shield(batch))
                self._under_way.clear()

    async def settled(self) -> None:
        """Wait until all is written; only an interruption leaves something to wait for. Raises JournalAway."""
        if not self._under_way:
            return
        now = asyncio.get_running_loop().time()
        self._give_up_at = min(self._give_up_at, now + _LAST_EVENTS_S)
        done, self._under_way = await asyncio.wait(self._under_way, timeout=max(self._give_up_at - now, 0.0))
        for batch in done:
            batch.result()

    async def aclose(self) -> None:
        """Leave what is not written to the journal, which writes it when it can."""
        await end_tasks(*self._under_way)


@dataclass(eq=False, repr=False)
class KeyedRuns:
    """Owns the runs with a key. *new_id* makes short ids that do not repeat, so that a later run under the same key
    has other event ids."""

    _engine: Engine
    _journal: Journal
    _streams: StreamLimit
    _detached: DetachedRuns
    _limits: ResumeLimits
    _new_id: Callable[[], str]

    def __post_init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._places: dict[str, Place] = {}
        self._running: set[str] = set()

    async def open(
        self,
        request: ChatRequest,
        identity: Identity,
        resumption: Resumption,
        source: str = "",
        meta: Mapping[str, Any] = NO_META,
    ) -> RunReader:
        """Start the run of this key, or join it. The reader must be closed. *meta* as in CallContext.

        Raises InvalidRequest (another request has this key; the requested events are gone), ShareRefused and
        JournalAway.
        """
        name = _name(identity, resumption.key)
        digest = _digest(request, identity)
        on_disconnect = resumption.on_disconnect or self._limits.on_disconnect
        context = call_context(request, identity, source, meta)
        recorder = Recorder(_STATE_BYTES)
        place = await self._enter(name, identity)
        async with AsyncExitStack() as stack:
            stack.callback(self._leave, name, place)
            # Claim the name, or find the run that has it, and follow its journal.
            first = recorder.first(request, context, on_disconnect) if self._journal.outlives else b""
            for at_last in (False, True):
                claim = await self._claim(name, digest, identity.actor, resumption, first)
                after = _position(claim, resumption.last_event_id)
                try:
                    follower = await stack.enter_async_context(self._journal.follow(name, after))
                    break
                except EventsGone:
                    # The time of the key may have ended since it was found: then it is new again.
                    if at_last:
                        raise InvalidRequest(_gone(resumption)) from None
            held = stack.pop_all()
        # The claimant runs it. From here on nothing waits, so that the reader is not lost.
        if claim.mine:
            place.share()
            saved = Saved(context, on_disconnect, request, recorder)
            self._begin(self._run(name, saved, place), claim.run_id)
        # A run that begins here has not set its identity yet.
        own = claim.mine or (name in self._running and place.identity.key_id == identity.key_id)
        return RunReader(claim.run_id, follower, place, held, own)

    async def begins(self, identity: Identity, resumption: Resumption) -> bool:
        """Returns true if there is no run of this key yet. Raises JournalAway."""
        return resumption.last_event_id is None and await self._journal.find(_name(identity, resumption.key)) is None

    async def take_over(self, standing: Standing = always_good) -> None:
        """Go on with the runs that other processes have left, until cancelled. *standing* is asked for the identity of
        each: without it the run ends with ``done`` (cancelled)."""
        finding_places = asyncio.Semaphore(_FINDING_PLACES)
        while True:
            await finding_places.acquire()
            try:
                abandoned = await self._journal.next_abandoned()
            except Exception:
                # The last boundary of this task: the next look has to come all the same.
                log.exception("runs of ended processes could not be searched for")
                finding_places.release()
                await asyncio.sleep(_TRY_AGAIN_S)
                continue
            self._begin(self._go_on(abandoned, standing, finding_places.release), abandoned.run_id)

    async def aclose(self) -> None:
        """Cancel the runs that are left. Their streams are over by now, or have no reader."""
        await cancel_all(self._tasks)
        await self._journal.aclose()

    def _begin(self, run: Coroutine[Any, Any, None], run_id: str) -> None:
        hold(asyncio.create_task(run, name=f"run {run_id}"), self._tasks)

    async def _claim(self, name: str, digest: str, owner: str, resumption: Resumption, first: bytes) -> Claim:
        if resumption.last_event_id is None:
            claim = await self._journal.claim(name, self._new_id(), digest, owner, first)
        elif (known := await self._journal.find(name)) is not None:
            claim = known
        else:
            raise InvalidRequest(_gone(resumption))
        # A key stands for one request: running a second one under it would hide it.
        if claim.digest != digest:
            raise InvalidRequest("This Idempotency-Key was used with another request; take a new key")
        return claim

    async def _go_on(self, abandoned: Abandoned, standing: Standing, placed: Callable[[], None]) -> None:
        """Go on with a run that another process has left, or end it. *placed* is called once it has its place."""
        name = abandoned.name
        try:
            found = await self._resumed(abandoned, standing)
        except Exception:
            # The last boundary of this task: what was kept is from outside of this process.
            log.exception("a run was lost: it could not be continued")
            found = [*lost_events([])]
        finally:
            placed()
        if isinstance(found, list):
            try:
                await self._journal.append(name, found)
            except JournalAway:
                log.warning("a run was taken over by another process before it ended here")
            finally:
                await self._journal.end(name)
        else:
            await self._run(name, *found)

    async def _resumed(self, abandoned: Abandoned, standing: Standing) -> tuple[Saved, Place] | list[bytes]:
        """Return the run and its place; or the events with which it ends."""
        saved = read_parts(abandoned.parts, _STATE_BYTES)
        correlation_id.set(saved.context.correlation_id)
        identity, usage = saved.context.identity, Usage()
        if isinstance(saved.start, RunState):
            usage = saved.start.usage
        if not standing(identity):
            log.warning("a run of an ended process was cancelled: its key %s is no longer valid", identity.key_id)
            return [encode(Done("cancelled", usage))]
        # Its time without a reader may be over: one may come now, where its process could not have been reached.
        too_long = abandoned.alone_s > self._limits.alone_s(saved.on_disconnect)
        if too_long and not await self._journal.wait_attended(abandoned.name, self._limits.reconnect_grace_s):
            return [encode(Done("cancelled", usage))]
        place = await self._place_of(abandoned.name, identity)
        if place is None:
            log.error("a run was lost: no stream was free for it")
            return [*lost_events([])]
        log.warning("a run continues here: its process has ended")
        return saved, place

    async def _place_of(self, name: str, identity: Identity) -> Place | None:
        """The place of the readers that are here, otherwise one of its own as soon as there is one; None if there is
        none for as long as a run may be without readers."""
        until = asyncio.get_running_loop().time() + self._limits.detached_s
        while True:
            if (place := self._places.get(name)) is not None:
                place.share()
                return place
            try:
                return await self._enter(name, identity)
            except ShareRefused:
                if asyncio.get_running_loop().time() > until:
                    return None
                await asyncio.sleep(_TRY_AGAIN_S)

    async def _run(self, name: str, saved: Saved, place: Place) -> None:
        """Run to the end. The journal's entry ends whatever happens. A share of the place is given up then."""
        place.identity = saved.context.identity
        place.hands_over = self._journal.outlives
        released = False
        self._running.add(name)
        claim = partial(self._journal.claim_call, name)
        writing = _Writing(self._journal, name, place.interruption)
        states: list[RunState] = []
        keep = states.append if self._journal.outlives else None
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._end_when_unattended(name, place, saved.on_disconnect))
                engine_run = self._engine.batches(saved.start, saved.context, place.interruption, claim, keep)
                async with aclosing(engine_run) as batches:
                    async for batch in batches:
                        completed = [event.id for event in batch if isinstance(event, ToolOutput | ToolFailure)]
                        await writing.settled()
                        if place.interruption.reason == "handed_over" and _is_cut_short(batch):
                            released = saved.recorder.resumes and await self._journal.release(name)
                            if released:
                                log.info("a run was released, so that another process continues it")
                                break
                            place.interruption.reason = "cancelled"
                        part = saved.recorder.next(states.pop()) if states else b""
                        await writing.append([encode(event) for event in batch], completed, part)
                        await asyncio.sleep(0)  # a model that never waits must leave the loop to others
                await writing.settled()
                watching.cancel()
        except* JournalAway as away:
            log.warning("a run ends here: %s", away.exceptions[0])
        except* Exception:
            # The last boundary of this task. Readers find no end in the journal, and report that.
            log.exception("a run was lost")
        finally:
            await writing.aclose()
            self._running.discard(name)
            if place.interruption.reason is not None:
                # Readers still hold the place; a later run under this name must not be interrupted by its past.
                self._forget(name, place)
            self._leave(name, place)
            if not released:
                await self._journal.end(name)

    async def _end_when_unattended(self, name: str, place: Place, on_disconnect: OnDisconnect) -> None:
        if on_disconnect == "cancel":
            await self._journal.wait_unattended(name, self._limits.reconnect_grace_s)
        else:
            await self._wait_alone(name, place)
        place.interruption.request("disconnected")

    async def _wait_alone(self, name: str, place: Place) -> None:
        """Return when the run has been without a reader for as long as it may. One for which the actor has no room
        among its detached runs waits as with ``cancel``."""
        attended = True
        while attended:
            await self._journal.wait_unattended(name, 0)
            try:
                detached = await self._detached.admit(place)
                alone_s = self._limits.detached_s if detached else self._limits.reconnect_grace_s
                attended = await self._journal.wait_attended(name, alone_s)
            finally:
                self._detached.forget(place)

    async def _enter(self, name: str, identity: Identity) -> Place:
        """Take the place that a run and its readers share. Raises ShareRefused."""
        place = self._places.get(name)
        if place is None:
            taken = await self._streams.enter(identity)
            # Another request for this run may have come in the meantime.
            place = self._places.setdefault(name, taken)
            if place is taken:
                return place
            taken.leave()
        if place.holders > MAX_READERS:
            raise ShareRefused("actor")
        place.share()
        return place

    def _leave(self, name: str, place: Place) -> None:
        place.leave()
        if not place.holders:
            self._forget(name, place)

    def _forget(self, name: str, place: Place) -> None:
        if self._places.get(name) is place:
            del self._places[name]


def _is_cut_short(batch: Sequence[Event]) -> bool:
    return any(isinstance(event, Done) and event.finish_reason == "cancelled" for event in batch)


def _name(identity: Identity, key: str) -> str:
    """A hash, so that no key that a client makes up reaches another actor's run."""
    return hashlib.sha256(json.dumps([identity.actor, key]).encode()).hexdigest()


def _digest(request: ChatRequest, identity: Identity) -> str:
    """Digest of the request without its trace id, and of the permissions that it is run with."""
    content = request.model_dump_json(exclude={"metadata": {"correlation_id", "client_context"}})
    # A client may write the same context in another order.
    others = json.dumps([request.metadata.client_context, sorted(identity.permissions)], sort_keys=True)
    return hashlib.sha256(f"{content}{others}".encode()).hexdigest()


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
