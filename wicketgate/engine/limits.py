"""The places of streams, shared among actors, and the ways to stop a running one (CHAT-22, CHAT-78).

A run without a reader is counted for each actor. No client waits for it, so it is the first to end when another actor's
stream finds no place (CHAT-89, CHAT-90). Only the runs of this process can give way.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

from wicketgate.access.identity import Identity
from wicketgate.access.shares import Lease, ShareRefused, Shares
from wicketgate.gateway.lifecycle import Lifecycle

T = TypeVar("T")

EndReason = Literal["cancelled", "disconnected", "revoked", "handed_over"]
"""``disconnected``: no reader is left. ``revoked``: its key is not good any more. Only metrics tell them apart; the
stream says ``cancelled`` each time (CHAT-92). ``handed_over``: its process ends, and another one may go on with it."""


class Interrupted(Exception):
    """The run was asked to end; nothing failed."""


class Interruption:
    """Ends one run where it waits, without a task or a queue of its own.

    The run awaits through ``wait``; ``request`` may come from anywhere on the loop. It cancels the current wait, and
    ``wait`` raises Interrupted there and at every later call.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelled: asyncio.Task[Any] | None = None
        self._others_requests = 0
        self.reason: EndReason | None = None
        """The reason of the first request; None before it."""
        self.helpers: Collection[asyncio.Task[Any]] = ()
        """Tasks that work for the run where it waits. They are cancelled with it, so that none takes one more step."""

    def request(self, reason: EndReason = "cancelled") -> None:
        if self.reason is not None:
            return
        self.reason = reason
        # A run that does not wait now finds the reason at its next wait.
        if self._waiting is not None:
            self._waiting.cancel()
            self._cancelled = self._waiting
        self.cancel_helpers()

    def cancel_helpers(self) -> None:
        """Cancel the helpers, each once: a second cancellation would disturb what they do about the first."""
        helpers, self.helpers = self.helpers, ()
        for task in helpers:
            task.cancel()

    async def wait(self, awaitable: Awaitable[T]) -> T:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self.reason is not None:
            # Not awaited at all: an awaitable that is always ready would never be cancelled, and the run never end.
            close = getattr(awaitable, "close", None)  # a coroutine that is never awaited would warn
            if close is not None:
                close()
            raise Interrupted
        # The method of asyncio.timeout, without its clock, because every token of a model passes here. The loop is
        # given because finding it makes a system call.
        self._waiting = task = asyncio.current_task(self._loop)
        self._others_requests = 0 if task is None else task.cancelling()
        try:
            return await awaitable
        except asyncio.CancelledError:
            # A cancellation by others, if there is one besides ours, takes precedence.
            if self._cancelled is not None and self._withdraw() <= self._others_requests:
                raise Interrupted from None
            raise
        finally:
            self._waiting = None
            if self._cancelled is not None:
                # The awaitable completed in spite of the cancellation; the next wait raises.
                self._withdraw()

    def _withdraw(self) -> int:
        """Withdraw our cancellation; return how many remain."""
        task, self._cancelled = self._cancelled, None
        return 0 if task is None else task.uncancel()


class Place:
    """One stream's place, the identity that its run acts for, and the handle by which the run is ended. A run and its
    readers share one."""

    __slots__ = ("_free", "_lease", "_shares", "hands_over", "holders", "identity", "interruption")

    def __init__(self, identity: Identity, lease: Lease, shares: Shares, free: Callable[["Place"], None]) -> None:
        self.identity = identity
        self._lease = lease
        self._shares = shares
        self._free = free
        self.holders = 1
        self.interruption = Interruption()
        self.hands_over = False
        """True for a run that another process could go on with."""

    def share(self) -> None:
        self.holders += 1

    def leave(self) -> None:
        """Give up one share. The last one frees the place; later calls do nothing."""
        if self.holders:
            self.holders -= 1
            if not self.holders:
                self._shares.give_back(self._lease)
                self._free(self)

    def make_way(self) -> None:
        """End the run where it waits, and free its place at once: it only has its end to write."""
        self.interruption.request()
        self._shares.give_back(self._lease)


class StreamLimit:
    """Admits streams as *shares* has places; one that gets none is refused before its response starts.

    *make_room* ends a stream for an actor that holds so many, and returns whether it did.
    """

    def __init__(self, shares: Shares, make_room: Callable[[int], bool] | None = None) -> None:
        self._shares = shares
        self._make_room = make_room
        self._places: set[Place] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def active(self) -> int:
        return len(self._places)

    async def enter(self, identity: Identity) -> Place:
        """Take a place. Raises ShareRefused."""
        lease = await self._shares.take(identity.actor, self._make_room)
        place = Place(identity, lease, self._shares, self._free)
        self._places.add(place)
        self._empty.clear()
        return place

    def end_all(self) -> None:
        """End every run that holds a place where it waits: with ``done`` (cancelled), unless it can be handed over."""
        for place in self._places:
            place.interruption.request("handed_over" if place.hands_over else "cancelled")

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """End every run that this key has started where it waits, with ``done`` (cancelled). Returns their number."""
        places = [place for place in self._places if place.identity.key_id == key_id]
        for place in places:
            place.interruption.request("revoked")
        return {"streams": len(places)}

    async def wait_empty(self) -> None:
        await self._empty.wait()

    def _free(self, place: Place) -> None:
        self._places.discard(place)
        if not self._places:
            self._empty.set()


DrainPhase = Literal["serving", "settling", "draining"]


class Drain:
    """Stops upstreams and streams in order: none are new, those that run go on for a while, then each ends properly
    (OPS-24, OPS-36).

    A door calls ``request_begun`` and ``request_ended`` around each request that the end has to wait for, and names
    with ``wait_for`` what may come back without one.
    """

    def __init__(self, lifecycle: Lifecycle, streams: StreamLimit) -> None:
        self._lifecycle = lifecycle
        self._streams = streams
        self._followers: list[Callable[[], None]] = []
        self._waited_for: list[Callable[[], Awaitable[None]]] = []
        self._requests = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.phase: DrainPhase = "serving"

    def follow(self, step: Callable[[], None]) -> None:
        """Call *step* when the drain begins."""
        self._followers.append(step)

    def wait_for(self, over: Callable[[], Awaitable[None]]) -> None:
        """Let the end wait until *over* returns."""
        self._waited_for.append(over)

    def request_begun(self) -> None:
        self._requests += 1
        self._quiet.clear()

    def request_ended(self) -> None:
        self._requests -= 1
        if not self._requests:
            self._quiet.set()

    def started(self) -> bool:
        """True once the upstreams had their turn."""
        return self._lifecycle.started()

    def running(self) -> tuple[int, int]:
        """The number of streams that the end waits for, and of other requests."""
        return self._streams.active, max(self._requests - self._streams.active, 0)

    def settle(self) -> None:
        """Report that the service is not ready, and serve on: load balancers look at readiness now and then only."""
        if self.phase == "serving":
            self.phase = "settling"
            self._lifecycle.settle()

    def begin(self, drain_s: float) -> None:
        """Take nothing new from now on. Streams that still run after *drain_s* end with ``done`` (cancelled), calls
        with UpstreamLost.

        A second call may shorten the time.
        """
        self.phase = "draining"
        for step in self._followers:
            step()
        self._lifecycle.stop_after(drain_s)
        asyncio.get_running_loop().call_later(drain_s, self._streams.end_all)

    async def wait(self) -> None:
        """Return when the last stream is over, detached runs among them, and the last request is answered."""
        await self._streams.wait_empty()
        for over in self._waited_for:
            await over()
        await self._quiet.wait()


class DetachedRuns:
    """*shares* bounds them; each has its place among the streams besides."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        # By actor, the one that was detached last at the end.
        self._leases: dict[str, dict[Place, Lease]] = {}

    async def admit(self, place: Place) -> bool:
        """Count the run that lost its last reader. Returns false if the actor has no room for one more."""
        actor = place.identity.actor
        try:
            lease = await self._shares.take(actor)
        except ShareRefused:
            return False
        self._leases.setdefault(actor, {})[place] = lease
        return True

    def forget(self, place: Place) -> None:
        """Count the run no longer: a reader is back, or it is over. Does nothing for a run that is not counted."""
        actor = place.identity.actor
        own = self._leases.get(actor, {})
        lease = own.pop(place, None)
        if lease is not None:
            self._shares.give_back(lease)
            if not own:
                del self._leases[actor]

    def give_way(self, held: int) -> bool:
        """End a run in favour of an actor that holds *held* streams: of the actor with most runs here, the one that was
        detached last. Returns false if no actor has more than *held*."""
        actor = max(self._leases, key=lambda name: len(self._leases[name]), default="")
        own = self._leases.get(actor, {})
        if len(own) <= held:
            return False
        place = next(reversed(own))
        self.forget(place)
        place.make_way()
        return True
