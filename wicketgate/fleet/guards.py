"""The guards of one upstream: slots for its calls, and a breaker (UP-17 to UP-19).

A free slot goes to the actor who holds the fewest, then to the one who waits longest. When no more may wait, room is
taken from the actor with most waiting calls, the newest first: a crowd of one cannot keep another out.

The breaker leaves a failing upstream alone for a while, and tries it again. Only failures of transport count: no answer
in time, a lost connection, nothing there. An answer of any kind, a refusal or an error result too, shows that it lives.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Slot = asyncio.Future[None]
"""A slot that a call waits for; done when it is given or refused."""


class SlotRefused(Exception):
    """The call did not get a slot, and will not: too many wait, or the slots are closed."""


class CallSlots:
    """At most *most* running, *most_waiting* waiting. Where there is room, ``enter`` is all that it costs."""

    def __init__(self, most: int, most_waiting: int) -> None:
        self._most = most
        self._most_waiting = most_waiting
        self._held: dict[str, int] = {}
        # In the order of being served: the actor who got a slot last stands last.
        self._queues: OrderedDict[str, deque[Slot]] = OrderedDict()
        self.closed = False
        self.running = 0
        self.waiting = 0

    def enter(self, actor: str) -> bool:
        """Take a slot if one is free and no call waits."""
        if self.running >= self._most or self.closed:
            return False
        self._take(actor)
        return True

    async def wait(self, actor: str) -> None:
        """Wait for a slot, after ``enter`` gave none. Raises SlotRefused at once when too many wait."""
        if self.closed or (self.waiting >= self._most_waiting and not self._make_room(actor)):
            raise SlotRefused
        slot: Slot = asyncio.get_running_loop().create_future()
        self._queues.setdefault(actor, deque()).append(slot)
        self.waiting += 1
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled() and slot.exception() is None:  # given at the very moment of the cancellation
                self.leave(actor)
            else:
                self._dequeue(actor, slot)
            raise

    def leave(self, actor: str) -> None:
        self.running -= 1
        self._held[actor] -= 1
        if not self._held[actor]:
            del self._held[actor]
        self._fill()

    def resize(self, most: int, most_waiting: int) -> None:
        """Apply other limits from now on. Calls that run or wait already stay, also above the new limits."""
        self._most, self._most_waiting = most, most_waiting
        self._fill()

    def close(self) -> None:
        """Give no more slots, and refuse one to the calls that wait. Calls that run go on."""
        self.closed = True
        for actor in list(self._queues):
            while actor in self._queues:
                self._refuse_newest(actor)

    def _take(self, actor: str) -> None:
        self.running += 1
        self._held[actor] = self._held.get(actor, 0) + 1

    def _fill(self) -> None:
        while self._queues and self.running < self._most:
            actor = min(self._queues, key=lambda waiting: self._held.get(waiting, 0))
            slot = self._queues[actor][0]
            self._queues.move_to_end(actor)
            self._dequeue(actor, slot)
            if not slot.done():  # otherwise its caller was cancelled and has not run yet
                self._take(actor)
                slot.set_result(None)

    def _make_room(self, newcomer: str) -> bool:
        """Refuse one call of the actor with most waiting, if that is more than *newcomer* will have."""
        greediest = max(self._queues, key=lambda actor: len(self._queues[actor]), default=newcomer)
        mine = len(self._queues.get(newcomer, ()))
        if len(self._queues.get(greediest, ())) <= mine + 1:
            return False
        self._refuse_newest(greediest)
        return True

    def _refuse_newest(self, actor: str) -> None:
        slot = self._queues[actor][-1]
        self._dequeue(actor, slot)
        if not slot.done():
            slot.set_exception(SlotRefused())

    def _dequeue(self, actor: str, slot: Slot) -> None:
        queue = self._queues.get(actor)
        if queue is not None and slot in queue:
            queue.remove(slot)
            if not queue:
                del self._queues[actor]
            self.waiting -= 1


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
