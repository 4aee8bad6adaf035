"""The fleet and its members: upstreams, each guarded so that it fails alone (ROUTE-9, UP-4).

Every call goes through the slots and the breaker of its upstream (``guards.py``) and its deadline, in which waiting
counts. Where there is room, that is a few look-ups and one timer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from wicketgate.errors import (
    CatalogError,
    GatewayError,
    InputRequired,
    RateLimited,
    UpstreamLost,
    UpstreamResting,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.fleet.features import Features, GuardedFeatures, HasFeatures
from wicketgate.fleet.guards import BreakerPolicy, BreakerState, CallSlots, CircuitBreaker, SlotRefused
from wicketgate.ports import CallContext, Upstream, UpstreamStatus

log = logging.getLogger("wicketgate.fleet")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """*listing_s*: within which a list of tools must have ended, whatever the upstream itself allows."""

    max_concurrent: int = 64
    max_queued: int = 256
    listing_s: float = 30.0
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


@dataclass(frozen=True, slots=True)
class MemberState:
    """The state of one upstream at this moment. *connected_s*: seconds since its newest session began; None if there
    never was one, or there is nothing to connect. The three counts only grow."""

    status: UpstreamStatus
    breaker: BreakerState
    in_flight: int
    queued: int
    connected_s: float | None
    connections: int
    breaker_opened: int
    turned_away: int


def loop_time() -> float:
    """Seconds on the clock of the running event loop."""
    return asyncio.get_running_loop().time()


class Member:
    """*now* is a clock in seconds; *chance* gives 0 to 1 and spreads what many replicas would do at once."""

    def __init__(
        self,
        upstream: Upstream,
        limits: UpstreamLimits | None = None,
        *,
        now: Callable[[], float] = loop_time,
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        limits = limits or UpstreamLimits()
        self.name = upstream.name
        self.upstream = upstream
        self._slots = CallSlots(limits.max_concurrent, limits.max_queued)
        self._breaker = CircuitBreaker(limits.breaker, now, chance)
        self._limits = limits
        self._now = now
        self._deadlines: set[asyncio.Timeout] = set()
        self._ended = False
        self._idle: asyncio.Event | None = None
        self._connections = 0
        self._connected_at: float | None = None
        self._turned_away = 0
        self.features: Features | None = None
        if isinstance(upstream, HasFeatures):
            self.features = GuardedFeatures(self.name, upstream.features, self.guarded, lambda: self._limits.listing_s)

    def state(self) -> MemberState:
        return MemberState(
            self.upstream.status,
            self._breaker.state,
            self._slots.running,
            self._slots.waiting,
            None if self._connected_at is None else self._now() - self._connected_at,
            self._connections,
            self._breaker.opened,
            self._turned_away,
        )

    def limit(self, limits: UpstreamLimits) -> None:
        """Other limits from now on; what runs and waits already stays."""
        self._limits = limits
        self._slots.resize(limits.max_concurrent, limits.max_queued)
        self._breaker.policy = limits.breaker

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """As Upstream; a supervisor that fails is started again after a pause, and the others go on."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self.upstream.supervise(partial(self._changed, changed))
                return
            except Exception:
                log.exception("%s: its supervisor failed; it is started again in %g s", self.name, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        """As Upstream, but it ends: what never ends its list is UpstreamTimeout."""
        listing_s = self._limits.listing_s
        try:
            async with asyncio.timeout(listing_s) as deadline:
                return await self.upstream.list_tools()
        except TimeoutError:
            if not deadline.expired():
                raise
            raise UpstreamTimeout(f"{self.name} did not give all its tools within {listing_s:g} s.") from None

    def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Coroutine[Any, Any, Mapping[str, Any]]:
        """As Upstream, and as ``guarded``."""
        return self.guarded(context, timeout_s, partial(self.upstream.call_tool, name, arguments, context))

    async def guarded(
        self, context: CallContext, timeout_s: float, run: Callable[[float], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """*run*, given the time that is left, in one of the slots; over within *timeout_s*, waiting for a slot
        included. This is the one deadline of a call: an upstream is cancelled when it has passed.

        Sets ``context.marks.left`` when *run* begins. Raises what *run* raises, RateLimited when there is no slot,
        UpstreamResting while the breaker is open, and UpstreamTimeout.
        """
        actor, left_s, placed, breaker = context.identity.actor, timeout_s, False, self._breaker
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                # A slot: at once where there is room, otherwise in the queue.
                if not self._slots.enter(actor):
                    left_s = await self._queue(actor, timeout_s)
                placed = True
                self._deadlines.add(deadline)
                try:
                    # The breaker: from here on, exactly one of its three verdicts follows.
                    era = breaker.begin()
                    if era is None:
                        raise self._resting()
                    context.marks.left = True
                    try:
                        result = await run(left_s)
                    except (UpstreamUnavailable, UpstreamTimeout, UpstreamLost):
                        breaker.failed(era)
                        raise
                    except (GatewayError, InputRequired):
                        breaker.succeeded(era)
                        raise
                    except BaseException:
                        if deadline.expired() and not self._ended:
                            breaker.failed(era)
                        else:
                            breaker.undecided(era)
                        raise
                    breaker.succeeded(era)
                    return result
                finally:
                    self._deadlines.discard(deadline)
                    self._slots.leave(actor)
                    if self._idle is not None and not self._slots.running:
                        self._idle.set()
        except TimeoutError:
            if not deadline.expired():
                raise
            if not placed:
                raise self._too_busy() from None
            if self._ended:
                raise UpstreamLost(
                    f"{self.name} was taken out of service while the tool ran; whether it took effect is not known."
                ) from None
            raise UpstreamTimeout(f"{self.name} did not answer within {timeout_s:g} s.") from None

    async def retire(self, drain_s: float) -> None:
        """Take no more calls; those that run may go on for *drain_s*, and are then ended. They all have ended after."""
        self._slots.close()
        if not self._slots.running:
            return
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(drain_s):
                await self._idle.wait()
        except TimeoutError:
            self._ended = True
            for deadline in self._deadlines:
                if not deadline.expired():
                    deadline.reschedule(loop_time())
            await self._idle.wait()

    async def _queue(self, actor: str, timeout_s: float) -> float:
        """Wait for a slot. Returns the rest of the time."""
        if self._breaker.retry_after_s():
            raise self._resting()
        began = self._now()
        try:
            await self._slots.wait(actor)
        except SlotRefused:
            if self._slots.closed:
                raise UpstreamUnavailable(f"{self.name} is being taken out of service; nothing was run.") from None
            raise self._too_busy() from None
        return max(0.001, timeout_s - (self._now() - began))

    def _changed(self, changed: Callable[[str], None], _: str) -> None:
        connections = self.upstream.status.connections
        if connections != self._connections:
            self._connections = connections
            self._connected_at = self._now()
            self._breaker.reconnected()
        changed(self.name)

    def _too_busy(self) -> RateLimited:
        self._turned_away += 1
        limits = self._limits
        return RateLimited(
            f"{self.name} is busy: it runs at most {limits.max_concurrent} calls at once, and too many wait. "
            "Nothing was run. Make fewer calls at a time, or try again in a moment.",
            details={"scope": "upstream", "limit": limits.max_concurrent, "queue": limits.max_queued},
        )

    def _resting(self) -> UpstreamResting:
        self._turned_away += 1
        retry_after_s = round(self._breaker.retry_after_s(), 1)
        when = f"in {retry_after_s:g} s" if retry_after_s else "in a moment"
        return UpstreamResting(
            f"{self.name} failed several times in a row and is left alone for now. Nothing was run. Try again {when}, "
            "or use another tool.",
            details={"retry_after_s": retry_after_s},
        )


Listing = Sequence[Mapping[str, Any]]


class MultiplexUpstream:
    """Upstreams by name. A call goes to the one that owns the tool; a listing asks them all at once.

    Which they are may change while it is in use: *members* is replaced whole, by one assignment.
    """

    def __init__(self, upstreams: Sequence[Upstream | Member]) -> None:
        """An upstream that is not a Member yet becomes one, with the default limits.

        An upstream without a name gets one by its position; the namespaces of its tools are inferred from their names.
        """
        members = [one if isinstance(one, Member) else Member(one) for one in upstreams]
        self.unnamed = frozenset(f"upstream{place}" for place, one in enumerate(members, start=1) if not one.name)
        for place, member in enumerate(members, start=1):
            member.name = member.name or f"upstream{place}"
        self.members = by_name(members)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.members)

    def statuses(self) -> dict[str, UpstreamStatus]:
        return {name: member.upstream.status for name, member in self.members.items()}

    def states(self) -> dict[str, MemberState]:
        return {name: member.state() for name, member in self.members.items()}

    async def list_tools(self, names: Collection[str] | None = None) -> dict[str, Listing | GatewayError]:
        """Definitions by upstream name; an upstream that fails gives its error, the others their tools."""
        chosen = [member for name, member in self.members.items() if names is None or name in names]
        listings = await asyncio.gather(*map(_list_one, chosen))
        return {member.name: listing for member, listing in zip(chosen, listings, strict=True)}

    def member(self, server: str) -> Member:
        """Raises UpstreamUnavailable for a server that is not there."""
        member = self.members.get(server)
        if member is None:
            raise UpstreamUnavailable(f"Unknown server '{server}'.")
        return member


def by_name(members: Sequence[Member]) -> Mapping[str, Member]:
    """Raises CatalogError when two have the same name."""
    found = {member.name: member for member in members}
    if len(found) != len(members):
        raise CatalogError("two upstreams have the same name")
    return found


async def _list_one(member: Member) -> Listing | GatewayError:
    try:
        return await member.list_tools()
    except GatewayError as error:
        return error
