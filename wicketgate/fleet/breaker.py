"""The circuit breaker: it leaves a failing upstream alone for a while, and tries it again (W-ISOLATION, gatekit G63).

Only failures of transport count: no answer in time, a lost connection, nothing there. An answer of any kind, a refusal
or an error result too, shows that it lives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

BreakerState = Literal["closed", "half_open", "open"]


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """*failures* in a row open it, 0 never does. The n-th pause is ``first_pause_s * 2 ** (n - 1)``, at most
    *longest_pause_s*; up to a half of it is left away by chance, so that many replicas do not come back as one."""

    failures: int = 5
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0


class CircuitBreaker:
    """*now* is a clock in seconds, *chance* gives 0 to 1.

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
            pause_s = min(self.policy.first_pause_s * 2.0**self._pauses, self.policy.longest_pause_s)
            self._pauses = min(self._pauses + 1, 30)
            self._until = self._now() + pause_s * (1 - self._chance() / 2)
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
