"""Runs that a client may come back to: one run for one Idempotency-Key (CHAT-73 to CHAT-75).

Such a run goes on by itself, into the journal; readers follow the journal, each at its own pace. Requests without a
key do not come here.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from wicketgate.access.identity import Identity
from wicketgate.access.shares import ShareRefused
from wicketgate.engine.contract import ChatRequest, InvalidRequest, call_context
from wicketgate.engine.detached import DetachedRuns
from wicketgate.engine.events import Done, ToolFailure, ToolOutput, encode, is_end
from wicketgate.engine.journal import LOST, Claim, EventsGone, Follower, Journal
from wicketgate.engine.limits import Interrupted, Interruption, Place, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.models.provider import Usage
from wicketgate.ports import NO_META, CallContext

log = logging.getLogger("wicketgate.engine")

OnDisconnect = Literal["cancel", "continue"]

MAX_READERS = 8
"""Readers of one run at once, in this process."""

_CANCELLED = encode(Done("cancelled", Usage()))


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


class RunReader:
    """One client's view of a run: encoded events with ids, from its position to the end."""

    def __init__(self, run_id: str, follower: Follower, held: AsyncExitStack, ends_with_run: bool) -> None:
        """*ends_with_run*: the key of this reader is that of the run, which goes on; the end of the key ends both."""
        self.ends_with_run = ends_with_run
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
                log.error("stream failed: the run was lost")
                yield LOST
        except Interrupted:
            # Without an id: it is no event of the run.
            if self._interruption.reason == "revoked" and not is_end(event):
                yield _CANCELLED

    async def aclose(self) -> None:
        """Release the place and the journal. Later calls do nothing."""
        await self._held.aclose()


class KeyedRuns:
    """Owns the runs with a key. *new_id* makes short ids that do not repeat, so that a later run under the same key
    has other event ids."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        streams: StreamLimit,
        detached: DetachedRuns,
        limits: ResumeLimits,
        new_id: Callable[[], str],
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._streams = streams
        self._detached = detached
        self._limits = limits
        self._new_id = new_id
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
        place = await self._enter(name, identity)
        async with AsyncExitStack() as stack:
            stack.callback(self._leave, name, place)
            # Claim the name, or find the run that has it, and follow its journal.
            claim = await self._claim(name, digest, identity.actor, resumption)
            after = _position(claim, resumption.last_event_id)
            try:
                follower = await stack.enter_async_context(self._journal.follow(name, after))
            except EventsGone:
                raise InvalidRequest(_gone(resumption)) from None
            held = stack.pop_all()
        # The claimant runs it. From here on nothing waits, so that the reader is not lost.
        if claim.mine:
            place.share()
            place.identity = identity
            self._running.add(name)
            on_disconnect = resumption.on_disconnect or self._limits.on_disconnect
            context = call_context(request, identity, source, meta)
            run = self._run(name, request, context, place, on_disconnect)
            task = asyncio.create_task(run, name=f"run {claim.run_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        own = name in self._running and place.identity.key_id == identity.key_id
        return RunReader(claim.run_id, follower, held, own)

    async def aclose(self) -> None:
        """Cancel the runs that are left. Their streams are over by now, or have no reader."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._journal.aclose()

    async def _claim(self, name: str, digest: str, owner: str, resumption: Resumption) -> Claim:
        if resumption.last_event_id is None:
            claim = await self._journal.claim(name, self._new_id(), digest, owner)
        elif (known := await self._journal.find(name)) is not None:
            claim = known
        else:
            raise InvalidRequest(_gone(resumption))
        # A key stands for one request: running a second one under it would hide it.
        if claim.digest != digest:
            raise InvalidRequest("This Idempotency-Key was used with another request; take a new key")
        return claim

    async def _run(
        self, name: str, request: ChatRequest, context: CallContext, place: Place, on_disconnect: OnDisconnect
    ) -> None:
        """Run to the end. The journal's entry ends whatever happens."""
        claim = partial(self._journal.claim_call, name)
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._end_when_unattended(name, place, on_disconnect))
                async with aclosing(self._engine.batches(request, context, place.interruption, claim)) as batches:
                    async for batch in batches:
                        completed = [event.id for event in batch if isinstance(event, ToolOutput | ToolFailure)]
                        await self._journal.append(name, [encode(event) for event in batch], completed)
                        await asyncio.sleep(0)  # a model that never waits must leave the loop to others
                watching.cancel()
        except Exception:
            # The last boundary of this task. Readers find no end in the journal, and report that.
            log.exception("a run was lost")
        finally:
            self._running.discard(name)
            if place.interruption.reason is not None:
                # Readers still hold the place; a later run under this name must not be interrupted by its past.
                self._forget(name, place)
            self._leave(name, place)
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
            # Another request for this run may have come meanwhile.
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
