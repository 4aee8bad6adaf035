"""Runs that a client may come back to: one run for one Idempotency-Key, whoever reads it (DESIGN §3 "The engine").

Such a run goes on by itself, into the journal; readers follow the journal, each at its own pace. A request without a
key has nothing to do with any of this.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Literal

from wicketgate.access.identity import Identity
from wicketgate.engine.call_context import call_context
from wicketgate.engine.contract import ChatRequest, InvalidRequest
from wicketgate.engine.events import ErrorEvent, encode, is_end
from wicketgate.engine.journal import Claim, EventsGone, Follower, Journal, JournalFull
from wicketgate.engine.limits import Interrupted, Interruption, Place, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.errors import ProviderError

log = logging.getLogger("wicketgate.engine")

OnDisconnect = Literal["cancel", "continue"]

MAX_READERS = 8
"""Of one run at once, in this process."""

_LOST = encode(ErrorEvent(ProviderError.code, ProviderError.safe_message))


@dataclass(frozen=True, slots=True)
class ResumeLimits:
    """How long a run may be without a reader: with ``cancel`` *reconnect_grace_s*, with ``continue`` *detached_s*."""

    reconnect_grace_s: float = 5.0
    detached_s: float = 600.0
    on_disconnect: OnDisconnect = "cancel"


@dataclass(frozen=True, slots=True)
class Resumption:
    """What a client sends besides the body: the key, where it was, and what shall become of the run without it."""

    key: str
    last_event_id: str | None = None
    on_disconnect: OnDisconnect | None = None


class NoPlace(Exception):
    """There is no place for this stream now; later there may be."""


class KeyedRuns:
    """*new_id* makes short ids that do not repeat, so that a later run under the same key has other event ids."""

    def __init__(
        self, engine: Engine, journal: Journal, streams: StreamLimit, limits: ResumeLimits, new_id: Callable[[], str]
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._streams = streams
        self._limits = limits
        self._new_id = new_id
        self._tasks: set[asyncio.Task[None]] = set()
        self._shared: dict[str, _SharedPlace] = {}

    async def open(self, request: ChatRequest, identity: Identity, resumption: Resumption) -> "Reader":
        """Start the run of this key, or join it. The reader must be closed.

        Raises InvalidRequest (another request has this key; the events asked for are gone) and NoPlace.
        """
        name = _name(identity, resumption.key)
        digest = _digest(request, identity)
        place = self._enter(name)
        try:
            claim = await self._claim(name, digest, resumption)
            after = _position(claim, resumption.last_event_id)
            reader = Reader(claim.run_id, place)
            try:
                await reader.follow(self._journal, name, after)
            except EventsGone:
                raise InvalidRequest(_gone(resumption)) from None
        except BaseException:
            place.leave()
            raise
        if claim.mine:
            place.enter()
            patience_s = (
                self._limits.detached_s
                if (resumption.on_disconnect or self._limits.on_disconnect) == "continue"
                else self._limits.reconnect_grace_s
            )
            task = asyncio.create_task(
                self._run(name, request, identity, place, patience_s), name=f"run {claim.run_id}"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return reader

    async def aclose(self) -> None:
        """End what still runs, where it is. Their streams are over by now, or nobody reads them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._journal.aclose()

    async def _claim(self, name: str, digest: str, resumption: Resumption) -> Claim:
        if resumption.last_event_id is None:
            try:
                claim = await self._journal.claim(name, self._new_id(), digest)
            except JournalFull:
                raise NoPlace from None
        elif (known := await self._journal.find(name)) is not None:
            claim = known
        else:
            raise InvalidRequest(_gone(resumption))
        if claim.digest != digest:
            raise InvalidRequest("This Idempotency-Key was used with another request; take a new key")
        return claim

    async def _run(
        self, name: str, request: ChatRequest, identity: Identity, place: "_SharedPlace", patience_s: float
    ) -> None:
        """The run itself, as long as it takes; it ends the journal's entry whatever happens."""
        watching = asyncio.create_task(self._end_when_left(name, place.interruption, patience_s))
        try:
            context = call_context(request, identity)
            async with aclosing(self._engine.batches(request, context, place.interruption)) as batches:
                async for batch in batches:
                    await self._journal.append(name, [encode(event) for event in batch])
                    await asyncio.sleep(0)  # a model that never waits must leave the loop to others
        except Exception:
            # The last boundary of this task. Readers find no end in the journal, and are told so.
            log.exception("a run was lost")
        finally:
            watching.cancel()
            if place.interruption.reason is not None:
                # Who still reads keeps the place; a later run under this name must not be told to end because of it.
                self._forget(name, place)
            place.leave()
            await self._journal.end(name)

    async def _end_when_left(self, name: str, interruption: Interruption, patience_s: float) -> None:
        await self._journal.wait_unattended(name, patience_s)
        interruption.request("disconnected")

    def _enter(self, name: str) -> "_SharedPlace":
        """A run and its readers hold one place together. Raises NoPlace."""
        shared = self._shared.get(name)
        if shared is None:
            place = self._streams.enter()
            if place is None:
                raise NoPlace
            shared = self._shared[name] = _SharedPlace(place, partial(self._forget, name))
        elif shared.holders > MAX_READERS:
            raise NoPlace
        shared.enter()
        return shared

    def _forget(self, name: str, shared: "_SharedPlace") -> None:
        if self._shared.get(name) is shared:
            del self._shared[name]


class _SharedPlace:
    """One place of the stream limit, given back by the last who holds it."""

    def __init__(self, place: Place, free: Callable[["_SharedPlace"], None]) -> None:
        self._place = place
        self._free = free
        self.holders = 0

    @property
    def interruption(self) -> Interruption:
        return self._place.interruption

    def enter(self) -> None:
        self.holders += 1

    def leave(self) -> None:
        self.holders -= 1
        if self.holders == 0:
            self._free(self)
            self._place.leave()


class Reader:
    """One client's view of a run: encoded events with ids, from where it left off to the end."""

    def __init__(self, run_id: str, place: _SharedPlace) -> None:
        self._run_id = run_id.encode()
        self._place = place
        self._stack = AsyncExitStack()
        self._follower: Follower | None = None
        self._interruption = Interruption()

    async def follow(self, journal: Journal, name: str, after: int) -> None:
        self._follower = await self._stack.enter_async_context(journal.follow(name, after))

    def leave(self) -> None:
        """The client has gone: the pieces end where they wait."""
        self._interruption.request("disconnected")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Each holds what became known at once. The last event is the end of the run, unless the client left."""
        follower, event = self._follower, b""
        assert follower is not None
        try:
            while entries := await self._interruption.wait(follower.next()):
                event = entries[-1].event
                yield b"".join(b"id: %b-%d\n%b" % (self._run_id, entry.position, entry.event) for entry in entries)
            if not is_end(event):
                log.error("stream failed: the run was lost")
                yield _LOST
        except Interrupted:
            return

    async def aclose(self) -> None:
        """Once more does nothing."""
        if self._follower is not None:
            self._follower = None
            self._place.leave()
            await self._stack.aclose()


def _name(identity: Identity, key: str) -> str:
    """Hashed, so that no key that a client makes up reaches another actor's run."""
    return hashlib.sha256(json.dumps([identity.actor, key]).encode()).hexdigest()


def _digest(request: ChatRequest, identity: Identity) -> str:
    """Of what makes the request this one: all but its trace id, and the permissions that it is run with."""
    content = request.model_dump(mode="json")
    content["metadata"].pop("correlation_id")
    told = json.dumps([content, sorted(identity.permissions)], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def _position(claim: Claim, last_event_id: str | None) -> int:
    """Raises InvalidRequest for an id that no event of this run has."""
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
