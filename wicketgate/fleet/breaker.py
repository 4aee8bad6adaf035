"""The breaker of one upstream: leaves it alone while it fails, for those whom that concerns (UP-19, UP-48 to UP-52).

Only failures of transport count: no answer in time, a lost connection, nothing there. An answer of any kind, a refusal
or an error result too, shows that the upstream lives.

Each actor has a breaker of its own, which its own failures open. That of the upstream opens for all, so it wants
evidence that no actor can make by what it calls: our own ping that is not answered. It decides only; ``Member`` sends
the pings.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

BreakerState = Literal["closed", "open"]
"""That of an upstream, for all callers."""
_OwnState = Literal["closed", "half_open", "open"]

_MAX_DOUBLINGS = 30
"""More would not fit a float in the end: an upstream may be gone for weeks."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """*failures* in a row open it, 0 never does. *longest_pause_s* bounds a pause, which begins at *first_pause_s*."""

    failures: int = 5
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0

    def pause_s(self, pauses: int, chance: float) -> float:
        """Seconds of the pause after so many *pauses*: each is twice the one before. Up to a half is left away by
        *chance*, 0 to 1, so that many replicas do not come back as one."""
        doubled = self.first_pause_s * 2.0 ** min(pauses, _MAX_DOUBLINGS)
        return min(doubled, self.longest_pause_s) * (1 - chance / 2)


class CircuitBreaker:
    """The breaker of one caller's calls. *policy* returns the current policy, *now* seconds, *chance* a number
    from 0 to 1.

    ``begin`` before a call; then exactly one of ``succeeded``, ``failed`` and ``undecided`` with what it gave. Calls
    that began before the state last changed no longer decide anything.
    """

    def __init__(
        self, policy: Callable[[], BreakerPolicy], now: Callable[[], float], chance: Callable[[], float]
    ) -> None:
        self._policy = policy
        self._now = now
        self._chance = chance
        self._failed = 0
        self._pauses = 0
        self._until = 0.0
        self._era = 0
        self.state: _OwnState = "closed"
        self.opened = 0
        """The number of times it has opened."""

    def begin(self) -> int | None:
        """The era that the call belongs to; None when it must not be made now."""
        if self.state == "closed":
            return self._era
        if self.state == "half_open" or self._now() < self._until:
            return None
        self._change("half_open")
        return self._era

    def retry_after_s(self) -> float:
        """Seconds until a call may be tried; 0 if it may be tried now, or while a probe runs, whose end is unknown."""
        return max(0.0, self._until - self._now()) if self.state == "open" else 0.0

    def succeeded(self, era: int) -> None:
        if era != self._era:
            return
        self._failed = 0
        if self.state == "half_open":
            self._pauses = 0
            self._change("closed")

    def failed(self, era: int) -> None:
        if era != self._era:
            return
        self._failed += 1
        policy = self._policy()
        if self.state == "half_open" or 0 < policy.failures <= self._failed:
            self._until = self._now() + policy.pause_s(self._pauses, self._chance())
            self._pauses += 1
            self.opened += 1
            self._change("open")

    def undecided(self, era: int) -> None:
        """Report that the caller left, or the call never went out. If it was the probe, the next call is one."""
        if era == self._era and self.state == "half_open":
            self._until = self._now()
            self._change("open")

    def reconnected(self) -> None:
        """There is a new session: the next call may try it, without waiting for the end of the pause."""
        if self.state == "open":
            self._until = self._now()

    def _change(self, state: _OwnState) -> None:
        self.state = state
        self._failed = 0
        self._era += 1


class Ticket(NamedTuple):
    """A call that was let through: its actor, the era of that actor's breaker, and the number of answers that the
    upstream had given by then."""

    actor: str
    own_era: int
    answers: int


_MAX_ACTORS = 1_000
"""Actors whose failures are kept; the one heard of least recently is forgotten first."""


class UpstreamBreaker:
    """*pings*: the upstream can be pinged; ``next_ping_s`` says when, ``pinged`` takes the result. The breaker of
    one that cannot be pinged never opens for all callers.

    ``begin`` before a call; then exactly one of ``succeeded``, ``failed`` and ``undecided`` with what it gave.
    """

    def __init__(
        self, policy: BreakerPolicy, now: Callable[[], float], chance: Callable[[], float], *, pings: bool
    ) -> None:
        self.policy = policy
        self._now = now
        self._chance = chance
        self._pings = pings
        self._own: OrderedDict[str, CircuitBreaker] = OrderedDict()
        # The number of answers so far, and of failures since the last one.
        self._answers = 0
        self._failed = 0
        self._doubt = False
        self._pauses = 0
        self._until = 0.0
        self.state: BreakerState = "closed"
        self.opened = 0
        """The number of times it has opened for all."""

    def begin(self, actor: str) -> Ticket | None:
        """None when the call must not be made now."""
        if self.state == "open":
            return None
        own, era = self._own.get(actor), 0
        if own is not None:
            self._own.move_to_end(actor)
            begun = own.begin()
            if begun is None:
                return None
            era = begun
        return Ticket(actor, era, self._answers)

    def retry_after_s(self, actor: str) -> float:
        """Seconds until a call of *actor* may be tried; 0 if it may be tried now, or while a probe runs, whose end is
        unknown."""
        own = self._own.get(actor)
        own_s = 0.0 if own is None else own.retry_after_s()
        return max(own_s, self._until - self._now()) if self.state == "open" else own_s

    def held_off(self) -> int:
        """The number of actors whose own breaker is not closed."""
        return sum(own.state == "half_open" or own.retry_after_s() > 0 for own in self._own.values())

    def succeeded(self, ticket: Ticket) -> None:
        """An answer to anyone shows that the upstream lives, also if the call began before it opened."""
        self._answers += 1
        own = self._own.get(ticket.actor)
        if own is not None:
            own.succeeded(ticket.own_era)
        self._close()

    def failed(self, ticket: Ticket) -> None:
        self._own_of(ticket.actor).failed(ticket.own_era)
        if ticket.answers == self._answers:  # it answered nobody in the meantime
            self._failed += 1
            if self._pings and 0 < self.policy.failures <= self._failed:
                self._doubt = True

    def undecided(self, ticket: Ticket) -> None:
        """Report that the caller left, or the call never went out."""
        own = self._own.get(ticket.actor)
        if own is not None:
            own.undecided(ticket.own_era)

    def next_ping_s(self) -> float | None:
        """Seconds until it is to be pinged; None while no ping is wanted."""
        if self.state == "open":
            return max(0.0, self._until - self._now())
        return 0.0 if self._doubt else None

    def pinged(self, *, answered: bool) -> None:
        """Records the result of a ping. An answer to a caller since then takes precedence."""
        if answered:
            self._close()
        elif self.state == "open" or self._doubt:
            self._until = self._now() + self.policy.pause_s(self._pauses, self._chance())
            self._pauses += 1
            self.opened += 1
            self.state = "open"

    def reconnected(self) -> None:
        """There is a new session, which was an answer to us: calls may try it, without waiting for the end of a
        pause."""
        for own in self._own.values():
            own.reconnected()
        self._close()

    def _own_of(self, actor: str) -> CircuitBreaker:
        own = self._own.get(actor)
        if own is None:
            own = self._own[actor] = CircuitBreaker(lambda: self.policy, self._now, self._chance)
            if len(self._own) > _MAX_ACTORS:
                self._own.popitem(last=False)
        self._own.move_to_end(actor)
        return own

    def _close(self) -> None:
        self.state = "closed"
        self._failed, self._doubt, self._pauses = 0, False, 0
