"""The breaker of one upstream: leaves it alone while it fails, for those whom that concerns (UP-19, UP-48 to UP-52).

Only failures of transport count: no answer in time, a lost connection, nothing there. An answer of any kind, a refusal
or an error result too, shows that the upstream lives.

Each actor has a breaker of its own, which its own failures open. That of the upstream opens for all, so it wants
evidence that one actor cannot make by what it calls: failures of several actors without an answer to anyone between
them, or a ping of ours that is not answered. It decides only; ``Member`` sends the pings.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from wicketgate.ports import PingAnswer

BreakerState = Literal["closed", "half_open", "open"]

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
    """The breaker of one caller's calls. *now* is a clock in seconds, *chance* gives 0 to 1.

    ``begin`` before a call; then exactly one of ``succeeded``, ``failed`` and ``undecided`` with what it gave. Calls
    that began before the state last changed no longer decide anything.
    """

    def __init__(self, policy: BreakerPolicy, now: Callable[[], float], chance: Callable[[], float]) -> None:
        self.policy = policy
        self._now = now
        self._chance = chance
        self._failed = 0
        self._pauses = 0
        self._until = 0.0
        self._era = 0
        self.state: BreakerState = "closed"
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
        if self.state == "half_open" or 0 < self.policy.failures <= self._failed:
            self._until = self._now() + self.policy.pause_s(self._pauses, self._chance())
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

    def _change(self, state: BreakerState) -> None:
        self.state = state
        self._failed = 0
        self._era += 1


class Ticket(NamedTuple):
    """A call that was let through: its actor, the era of that actor's breaker and of the upstream's, and the number of
    answers that the upstream had given by then."""

    actor: str
    own_era: int
    era: int
    answers: int


_MAX_ACTORS = 1_000
"""Actors whose failures are kept; the one heard of least recently is forgotten first."""
_MAX_PROBES = 3
"""Calls that try a half open upstream at the same time, each of another actor."""


class UpstreamBreaker:
    """*pings*: the upstream can be pinged; ``next_ping_s`` says when, ``pinged`` takes what came of it. Otherwise the
    next calls try it, no actor twice in a row while others may.

    ``begin`` before a call; then exactly one of ``succeeded``, ``failed`` and ``undecided`` with what it gave.
    """

    def __init__(
        self, policy: BreakerPolicy, now: Callable[[], float], chance: Callable[[], float], *, pings: bool
    ) -> None:
        self._policy = policy
        self._now = now
        self._chance = chance
        self._pings = pings
        self._own: OrderedDict[str, CircuitBreaker] = OrderedDict()
        # The number of answers so far, and the failures by actor since the last one.
        self._answers = 0
        self._failures: dict[str, int] = {}
        self._doubt = False
        self._era = 0
        self._pauses = 0
        self._until = 0.0
        self._probing: set[str] = set()
        self._tried_last = ""
        self._tries_again = 0.0
        self.state: BreakerState = "closed"
        self.opened = 0
        """The number of times it has opened for all."""

    @property
    def policy(self) -> BreakerPolicy:
        return self._policy

    @policy.setter
    def policy(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        for own in self._own.values():
            own.policy = policy

    def begin(self, actor: str) -> Ticket | None:
        """None when the call must not be made now."""
        if self.state != "closed" and not self._may_probe(actor):
            return None
        own, own_era = self._own.get(actor), 0
        if own is not None:
            self._own.move_to_end(actor)
            era = own.begin()
            if era is None:
                return None
            own_era = era
        if self.state != "closed":
            if self.state == "open":
                self._change("half_open")
            self._probing.add(actor)
        return Ticket(actor, own_era, self._era, self._answers)

    def retry_after_s(self, actor: str) -> float:
        """Seconds until a call of *actor* may be tried; 0 if it may be tried now, or while a probe runs, whose end is
        unknown."""
        own = self._own.get(actor)
        own_s = 0.0 if own is None else own.retry_after_s()
        if self.state != "open":
            return own_s
        until = self._tries_again if actor == self._tried_last else self._until
        return max(0.0, own_s, until - self._now())

    def held_off(self) -> int:
        """The number of actors whose own breaker is not closed."""
        return sum(own.state == "half_open" or own.retry_after_s() > 0 for own in self._own.values())

    def succeeded(self, ticket: Ticket) -> None:
        """An answer to anyone shows that the upstream lives, also if the call began before it opened."""
        self._answers += 1
        own = self._own.get(ticket.actor)
        if own is not None:
            own.succeeded(ticket.own_era)
        if self._failures:
            self._failures.clear()
        self._doubt, self._pauses = False, 0
        self._close()

    def failed(self, ticket: Ticket) -> None:
        own = self._own_of(ticket.actor)
        own.failed(ticket.own_era)
        if not self._policy.failures or ticket.answers != self._answers:
            return  # it answered others meanwhile
        self._failures[ticket.actor] = self._failures.get(ticket.actor, 0) + 1
        if self._is_probe(ticket):
            self._tried_last = ticket.actor
            self._open()
        elif self.state == "closed":
            several = self._several()
            if self._pings:
                self._doubt = several or own.state != "closed"
            elif several:
                self._open()

    def undecided(self, ticket: Ticket) -> None:
        """Report that the caller left, or the call never went out. If it was a probe, another call is one."""
        own = self._own.get(ticket.actor)
        if own is not None:
            own.undecided(ticket.own_era)
        if self._is_probe(ticket):
            self._probing.discard(ticket.actor)
            if not self._probing:
                self._until = self._now()
                self._change("open")

    def next_ping_s(self) -> float | None:
        """Seconds until it is to be pinged; None while no ping is wanted."""
        if not self._pings or self.state == "half_open":
            return None
        if self.state == "open":
            return max(0.0, self._until - self._now())
        return 0.0 if self._doubt else None

    def pinged(self, answer: PingAnswer | None) -> None:
        """Report what came of a ping; None: no answer. An answer to a caller meanwhile counts for more."""
        if self.state == "closed" and not self._doubt:
            return
        self._doubt = False
        if answer == "answered":
            self._failures.clear()
            self._close()
        elif answer is None or (self.state == "closed" and self._several()):
            self._open()
        elif self.state == "open":
            self._change("half_open")

    def reconnected(self) -> None:
        """There is a new session: calls may try it, without waiting for the end of a pause."""
        for own in self._own.values():
            own.reconnected()
        if self._pings:
            self._close()  # what made the session was an answer to us
        elif self.state == "open":
            self._until = self._tries_again = self._now()

    def _may_probe(self, actor: str) -> bool:
        if self.state == "open" and (self._pings or self._now() < self._until):
            return False
        if actor == self._tried_last and self._now() < self._tries_again:
            return False
        return actor not in self._probing and len(self._probing) < _MAX_PROBES

    def _is_probe(self, ticket: Ticket) -> bool:
        return self.state == "half_open" and ticket.era == self._era and ticket.actor in self._probing

    def _several(self) -> bool:
        """True if the failures since the last answer are enough, with at most half of them one actor's."""
        enough = self._policy.failures
        most = (enough + 1) // 2
        return len(self._failures) > 1 and sum(min(failed, most) for failed in self._failures.values()) >= enough

    def _own_of(self, actor: str) -> CircuitBreaker:
        own = self._own.get(actor)
        if own is None:
            own = self._own[actor] = CircuitBreaker(self._policy, self._now, self._chance)
            if len(self._own) > _MAX_ACTORS:
                self._own.popitem(last=False)
        self._own.move_to_end(actor)
        return own

    def _open(self) -> None:
        pause_s = self._policy.pause_s(self._pauses, self._chance())
        self._pauses += 1
        self._until = self._now() + pause_s
        # Who tried in vain leaves the next try to others for a while.
        self._tries_again = self._until + pause_s
        self.opened += 1
        self._change("open")

    def _close(self) -> None:
        if self.state != "closed":
            self._tried_last = ""
            self._change("closed")

    def _change(self, state: BreakerState) -> None:
        self.state = state
        self._failures.clear()
        self._probing.clear()
        self._doubt = False
        self._era += 1
