"""The fleet and its members: upstreams, each guarded so that it fails alone (ROUTE-9, UP-4).

Every call goes through the slots (``slots.py``) and the breaker (``breaker.py``) of its upstream and its deadline, in
which waiting counts. Where there is room, that is a few look-ups and one timer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from wicketgate.access.shares import RETRY_AFTER_S
from wicketgate.errors import (
    CatalogError,
    ConnectRequired,
    GatewayError,
    InputRequired,
    IssuerAway,
    RateLimited,
    UpstreamLost,
    UpstreamResting,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.fleet.breaker import BreakerPolicy, BreakerState, UpstreamBreaker
from wicketgate.fleet.edge import CleanListing, Edge, KnownSecrets
from wicketgate.fleet.features import (
    FeatureChange,
    FeatureKind,
    FeatureList,
    Features,
    FeatureSupport,
    HasFeatures,
)
from wicketgate.fleet.patience import PatientCaller, PatientDeadline
from wicketgate.fleet.slots import CallSlots, SlotRefused
from wicketgate.login.user_credentials import GrantName
from wicketgate.measures import CallCounts
from wicketgate.ports import SILENT, CallContext, HasPing, HasSpellings, PerUser, Upstream, UpstreamStatus

log = logging.getLogger("wicketgate.fleet")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_PING_S = 5.0
_LOOK_S = 1.0
"""A pause can be over early, so a longer one is slept in pieces."""


_OUTCOMES = ("ok", "error", "asked", "login", "timeout", "lost", "unavailable", "cancelled", "fault")

MAX_QUEUED = 256
"""Calls that wait for a slot: more would reach their deadlines before a slot is free."""


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """*listing_s*: within which a list of tools must have ended, whatever the upstream itself allows."""

    max_concurrent: int = 64
    max_queued: int = MAX_QUEUED
    listing_s: float = 30.0
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


@dataclass(frozen=True, slots=True)
class MemberState:
    """The state of one upstream at this moment. *connected_s*: seconds since its newest session began; None if there
    never was one, or there is nothing to connect. *breaker* is the state for all callers; *held_off* is the number of
    actors whose own failures keep their calls away. *connections*, *breaker_opened* and *turned_away* only grow.
    *calls* counts the calls that were sent; it is live, not a copy."""

    status: UpstreamStatus
    breaker: BreakerState
    in_flight: int
    queued: int
    connected_s: float | None
    connections: int
    breaker_opened: int
    held_off: int
    turned_away: int
    calls: CallCounts = field(default_factory=lambda: CallCounts(_OUTCOMES))


def loop_time() -> float:
    """Seconds on the clock of the running event loop."""
    return asyncio.get_running_loop().time()


class Member:
    """*now* is a clock in seconds; *chance* gives 0 to 1 and spreads what many replicas would do at once. *secrets* are
    masked in all that the upstream says."""

    def __init__(
        self,
        upstream: Upstream,
        limits: UpstreamLimits | None = None,
        *,
        now: Callable[[], float] = loop_time,
        chance: Callable[[], float] = lambda: 0.0,
        secrets: KnownSecrets | None = None,
    ) -> None:
        limits = limits or UpstreamLimits()
        self.name = upstream.name
        self.upstream = upstream
        self.edge = Edge(secrets)
        self._tools: CleanListing[Mapping[str, Any]] = CleanListing()
        self._slots = CallSlots(limits.max_concurrent, limits.max_queued)
        self._breaker = UpstreamBreaker(limits.breaker, now, chance, pings=isinstance(upstream, HasPing))
        self._pinging: asyncio.Task[None] | None = None
        self._limits = limits
        self._now = now
        self._deadlines: set[PatientDeadline] = set()
        self.supervised = False
        self._ended = False
        self._leaving = ""
        self._idle: asyncio.Event | None = None
        self._connections = 0
        self._connected_at: float | None = None
        self._turned_away = 0
        self._calls = CallCounts(_OUTCOMES)
        self.features = GuardedFeatures(self, upstream.features) if isinstance(upstream, HasFeatures) else None

    def state(self) -> MemberState:
        return MemberState(
            self.upstream.status,
            self._breaker.state,
            self._slots.running,
            self._slots.waiting,
            None if self._connected_at is None else self._now() - self._connected_at,
            self._connections,
            self._breaker.opened,
            self._breaker.held_off(),
            self._turned_away,
            self._calls,
        )

    def masked(self, text: str) -> str:
        """Returns *text*, which may have been cut within a credential, with a mark in the place of each credential of
        the gate for this upstream."""
        return self.edge.secrets.mask_cut(text)

    def support(self) -> FeatureSupport | None:
        """The features of its server; None while that is not connected, and where it can have none."""
        return None if self.features is None else self.features.support

    def limit(self, limits: UpstreamLimits) -> None:
        """Other limits from now on; what runs and waits already stays."""
        self._limits = limits
        self._slots.resize(limits.max_concurrent, limits.max_queued)
        self._breaker.policy = limits.breaker

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """As Upstream; a supervisor that fails is started again after a pause, and the others go on."""
        self.supervised = True
        pause_s = _FIRST_PAUSE_S
        try:
            while True:
                try:
                    await self.upstream.supervise(partial(self._changed, changed))
                    return
                except Exception:
                    log.exception("%s: its supervisor failed; it is started again in %g s", self.name, pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        finally:
            self._end_pings()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        """As Upstream, but it ends: what never ends its list is UpstreamTimeout."""
        async with self.listing("tools"):
            self._tools = await self.edge.listed(await self.upstream.list_tools(), self._tools)
            return self._tools.cleaned

    async def list_skills(self) -> Sequence[Mapping[str, Any]]:
        """The entries of its skills; none if it has none. As ``list_tools``."""
        support = self.support()
        if self.features is None or support is None or not support.skills:
            return []
        return (await self.features.list_all("skills")).items

    @asynccontextmanager
    async def listing(self, what: str) -> AsyncIterator[None]:
        """Bounds the time of reading a list. Raises UpstreamTimeout."""
        listing_s = self._limits.listing_s
        try:
            async with asyncio.timeout(listing_s) as deadline:
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            raise UpstreamTimeout(f"{self.name} did not give all its {what} within {listing_s:g} s.") from None

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        context: CallContext,
        timeout_s: float,
        task_s: float = 0.0,
    ) -> Coroutine[Any, Any, Mapping[str, Any]]:
        """As Upstream, and as ``guarded``."""
        return self.guarded(context, timeout_s, partial(self.upstream.call_tool, name, arguments), task_s)

    async def guarded(
        self,
        context: CallContext,
        timeout_s: float,
        run: Callable[[CallContext, float], Awaitable[Mapping[str, Any]]],
        task_s: float = 0.0,
    ) -> Mapping[str, Any]:
        """*run*, given its context and the time that is left, in one of the slots; over within *timeout_s*, waiting for
        a slot included, and the time in which a person is asked left out (UP-104); within *task_s*, if that is longer,
        once the server goes on with it as a task, and with *timeout_s* again at each progress that the caller hears
        (UP-133). This is the one deadline of a call: an upstream is cancelled when it has passed. What it says is
        cleaned at the edge.

        Sets ``context.marks.left`` when *run* begins. Raises what *run* raises, RateLimited when there is no slot,
        UpstreamResting while the breaker is open, and UpstreamTimeout.
        """
        actor, left_s, placed, breaker = context.identity.actor, timeout_s, False, self._breaker
        began: float | None = None
        outcome = "ok"

        def prolong() -> None:
            if deadline.becomes_task() and context.on_task is not None:
                context.on_task()

        deadline = PatientDeadline(timeout_s, task_s)
        try:
            with deadline:
                # A slot: at once where there is room, otherwise in the queue.
                if not self._slots.enter(actor):
                    left_s = await self._queue(actor, timeout_s)
                placed = True
                self._deadlines.add(deadline)
                try:
                    # The breaker: from here on, exactly one of its three verdicts follows.
                    ticket = breaker.begin(actor)
                    if ticket is None:
                        raise self._resting(actor)
                    context.marks.left = True
                    began = self._now()
                    context.marks.prolong = prolong
                    try:
                        result = await run(self._heard_by(context, deadline), left_s)
                    except (ConnectRequired, IssuerAway):
                        # A fact about this caller's account, and none about the server.
                        outcome = "login"
                        breaker.undecided(ticket)
                        self._look_after()
                        raise
                    except (UpstreamUnavailable, UpstreamTimeout, UpstreamLost) as error:
                        outcome = _outcome_of(error)
                        breaker.failed(ticket)
                        self._look_after()
                        raise
                    except (GatewayError, InputRequired) as error:
                        outcome = "asked" if isinstance(error, InputRequired) else "error"
                        breaker.succeeded(ticket)
                        if (cleaned := await self.edge.failure(error)) is not error:
                            raise cleaned from None
                        raise
                    except BaseException as error:
                        outcome = "lost" if self._ended else "timeout" if deadline.expired else _outcome_of(error)
                        if deadline.expired and not self._ended:
                            breaker.failed(ticket)
                        else:
                            breaker.undecided(ticket)
                        self._look_after()
                        raise
                    breaker.succeeded(ticket)
                    if result.get("isError"):
                        outcome = "error"
                    return result if self.edge.leaves(result) else await self.edge.result(result)
                finally:
                    if began is not None:
                        self._calls.ended(outcome, self._now() - began)
                    context.marks.prolong = None
                    self._deadlines.discard(deadline)
                    deadline.over()
                    self._slots.leave(actor)
                    if self._idle is not None and not self._slots.running:
                        self._idle.set()
        except TimeoutError:
            if not deadline.expired:
                raise
            if not placed:
                raise self._too_busy() from None
            if self._ended:
                raise UpstreamLost(f"{self._leaving}; the call was ended while the tool ran.") from None
            raise UpstreamTimeout(f"{self.name} did not answer within {deadline.words}.") from None

    async def retire(self, drain_s: float) -> None:
        """Takes no more calls, because the upstream leaves the configuration. Calls that run may go on for *drain_s*,
        and are then ended. Returns when none is left."""
        self._close(f"{self.name} is being taken out of service")
        self._end_pings()
        if not self._slots.running:
            return
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(drain_s):
                await self._idle.wait()
        except TimeoutError:
            self._end_calls()
            await self._idle.wait()

    def stop(self) -> None:
        """Takes no more calls, because the gate stops, and ends those that run: their callers get UpstreamLost."""
        self._close("The gate is stopping")
        self._end_calls()

    def _close(self, why: str) -> None:
        self._leaving = why
        self._slots.close()

    def _end_calls(self) -> None:
        self._ended = True
        for deadline in self._deadlines:
            deadline.end()

    def _heard_by(self, context: CallContext, deadline: PatientDeadline) -> CallContext:
        """*context* with a caller who is given what the upstream says, cleaned, and has time to answer; what it is
        given of progress puts the deadline off."""
        if context.caller is not SILENT:
            return context.having(caller=self.edge.hearing(PatientCaller(context.caller, deadline)))
        return context

    async def _queue(self, actor: str, timeout_s: float) -> float:
        """Wait for a slot. Returns the rest of the time."""
        if self._breaker.retry_after_s(actor):
            raise self._resting(actor)
        began = self._now()
        try:
            await self._slots.wait(actor)
        except SlotRefused:
            if self._slots.closed:
                raise UpstreamUnavailable(f"{self._leaving}; nothing was run.") from None
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
            details={
                "scope": "upstream",
                "limit": limits.max_concurrent,
                "queue": limits.max_queued,
                "retry_after_s": RETRY_AFTER_S,
            },
        )

    def _resting(self, actor: str) -> UpstreamResting:
        self._turned_away += 1
        self._look_after()
        retry_after_s = round(self._breaker.retry_after_s(actor), 1)
        when = f"in {retry_after_s:g} s" if retry_after_s else "in a moment"
        failed = "" if self._breaker.state != "closed" else "for you "
        return UpstreamResting(
            f"{self.name} failed {failed}several times in a row and is left alone for now. Nothing was run. Try again "
            f"{when}, or use another tool.",
            details={"scope": "actor" if failed else "upstream", "retry_after_s": retry_after_s},
        )

    def _look_after(self) -> None:
        """Ping the upstream, now or when its pause is over, as long as the breaker wants that."""
        if self._pinging is None and self._breaker.next_ping_s() is not None and not self._slots.closed:
            self._pinging = asyncio.get_running_loop().create_task(self._ping_until_decided())

    def _end_pings(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()

    async def _ping_until_decided(self) -> None:
        try:
            while (wait_s := self._breaker.next_ping_s()) is not None:
                if wait_s:
                    await asyncio.sleep(min(wait_s, _LOOK_S))
                else:
                    self._breaker.pinged(answered=await self._pinged())
        finally:
            self._pinging = None

    async def _pinged(self) -> bool:
        """Pings the upstream. Returns whether it answered."""
        assert isinstance(self.upstream, HasPing)
        try:
            async with asyncio.timeout(_PING_S):
                await self.upstream.ping(_PING_S)
        except (GatewayError, TimeoutError):
            return False
        except Exception:
            log.exception("%s: its ping failed unexpectedly", self.name)
            return False
        return True


def _outcome_of(error: BaseException) -> str:
    match error:
        case UpstreamTimeout():
            return "timeout"
        case UpstreamLost():
            return "lost"
        case UpstreamUnavailable():
            return "unavailable"
    return "fault" if isinstance(error, Exception) else "cancelled"


class GuardedFeatures:
    """Implements Features behind the same slots, breaker and deadlines as the tools (UP-19).

    Lists are the gateway's own questions: they take no slot of a caller's.
    """

    def __init__(self, member: Member, features: Features) -> None:
        self._member = member
        self._features = features

    @property
    def support(self) -> FeatureSupport | None:
        support = self._features.support
        if support is None or not support.instructions:
            return support
        return replace(support, instructions=self._member.edge.secrets.certain.mask_cut(support.instructions))

    @property
    def accounts(self) -> PerUser | None:
        return self._features.accounts

    async def list_all(self, kind: FeatureKind, account: GrantName | None = None) -> FeatureList:
        async with self._member.listing(kind):
            found = await self._features.list_all(kind, account)
            return replace(found, items=await self._member.edge.listing(found.items))

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """Raises as ``Member.call_tool``."""
        return await self._member.guarded(context, timeout_s, partial(self._features.request, method, params))

    def follow(self, uris: frozenset[str], actor: str = "") -> None:
        self._features.follow(uris, actor)

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        self._features.watch(heard)


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

    def spellings(self) -> dict[str, tuple[str, ...]]:
        """The servers' own spellings of their names, by upstream; those that give none are left out."""
        having = ((name, m.upstream) for name, m in self.members.items() if isinstance(m.upstream, HasSpellings))
        return {name: upstream.spellings for name, upstream in having if upstream.spellings}

    def states(self) -> dict[str, MemberState]:
        return {name: member.state() for name, member in self.members.items()}

    async def list_tools(self, names: Collection[str] | None = None) -> dict[str, Listing | GatewayError]:
        """Definitions by upstream name; an upstream that fails gives its error, the others their tools."""
        chosen = [member for name, member in self.members.items() if names is None or name in names]
        listings = await asyncio.gather(*(_or_error(member.list_tools) for member in chosen))
        return {member.name: listing for member, listing in zip(chosen, listings, strict=True)}

    async def list_skills(self, names: Collection[str] | None = None) -> dict[str, Listing | GatewayError]:
        """Entries of skills by upstream name, as ``list_tools``; none of an upstream that is not connected."""
        chosen = [member for name, member in self.members.items() if names is None or name in names]
        known = [member for member in chosen if member.support() is not None]
        listings = await asyncio.gather(*(_or_error(member.list_skills) for member in known))
        return {member.name: listing for member, listing in zip(known, listings, strict=True)}

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


async def _or_error(list_all: Callable[[], Awaitable[Listing]]) -> Listing | GatewayError:
    # Called here: a task that is cancelled before it runs would leave a coroutine that was made outside.
    try:
        return await list_all()
    except GatewayError as error:
        return error
