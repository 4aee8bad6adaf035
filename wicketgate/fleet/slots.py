"""The slots for the calls of one upstream (UP-17, UP-18, UP-60).

A free slot goes to the actor who holds the fewest; of equals, to one that did not get the last slot, then to the one
who waits longest. No actor gets more than its share of them: those that last as long as they may would otherwise leave
nothing to others until their end. When no more may wait, room is taken from the actor with most waiting calls, the
newest first: a crowd of one cannot keep another out.
"""

import asyncio
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from wicketgate.access.shares import full_scope

Slot = asyncio.Future[None]
"""A slot that a call waits for; done when it is given or refused."""

Waiting = tuple[Slot, int]
"""A slot with its weight."""


class SlotRefused(Exception):
    """The call did not get a slot, and will not: too many wait, or the slots are closed."""


class CallSlots:
    """At most *most* running, *most_waiting* waiting. Where there is room, ``enter`` is all that it costs.

    An actor gets at most *per_actor* if that is set, and its share otherwise. A call may have the *weight* of several,
    at most four fifths of *most*. Lighter calls don't pass a heavy one that waits, unless their actors hold less.
    """

    def __init__(self, most: int, most_waiting: int = sys.maxsize, per_actor: int | None = None) -> None:
        self.most = most
        self.per_actor = per_actor
        self._most_waiting = most_waiting
        self._held: dict[str, int] = {}
        # In the order of being served: the actor who got a slot last stands last.
        self._queues: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self._last = ""
        self.closed = False
        self.running = 0
        self.waiting = 0

    def enter(self, actor: str, weight: int = 1) -> bool:
        """Take a slot if one is free for *actor*."""
        if self.closed or not self._may_take(actor, weight) or (weight > 1 and self._queues):
            return False
        self._take(actor, weight)
        return True

    async def wait(self, actor: str, weight: int = 1) -> None:
        """Wait for a slot, after ``enter`` gave none. Raises SlotRefused at once when too many wait."""
        if self.closed or (self.waiting >= self._most_waiting and not self._make_room(actor)):
            raise SlotRefused
        slot: Slot = asyncio.get_running_loop().create_future()
        self._queues.setdefault(actor, deque()).append((slot, weight))
        self.waiting += 1
        self._fill()
        try:
            await slot
        except asyncio.CancelledError:
            if not slot.cancelled() and slot.exception() is None:  # given at the very moment of the cancellation
                self.leave(actor, weight)
            else:
                self._dequeue(actor, (slot, weight))
            raise

    def leave(self, actor: str, weight: int = 1) -> None:
        self.running -= weight
        self._held[actor] -= weight
        if not self._held[actor]:
            del self._held[actor]
        self._fill()

    def resize(self, most: int, most_waiting: int) -> None:
        """Apply other limits from now on. Calls that run or wait already stay, also above the new limits."""
        self.most, self._most_waiting = most, most_waiting
        self._fill()

    def close(self) -> None:
        """Give no more slots, and refuse one to the calls that wait. Calls that run go on."""
        self.closed = True
        for actor in list(self._queues):
            while actor in self._queues:
                self._refuse_newest(actor)

    def _take(self, actor: str, weight: int) -> None:
        self._last = actor
        self.running += weight
        self._held[actor] = self._held.get(actor, 0) + weight

    def _may_take(self, actor: str, weight: int) -> bool:
        return full_scope(self._held.get(actor, 0), self.running + weight - 1, self.most, self.per_actor) is None

    def _fill(self) -> None:
        while self._queues and self.running < self.most:
            actor = min(self._queues, key=lambda waiting: (self._held.get(waiting, 0), waiting == self._last))
            slot, weight = self._queues[actor][0]
            if not self._may_take(actor, weight):
                return  # and no other may pass: they hold more
            self._queues.move_to_end(actor)
            self._dequeue(actor, (slot, weight))
            if not slot.done():  # otherwise its caller was cancelled and has not run yet
                self._take(actor, weight)
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
        slot, weight = self._queues[actor][-1]
        self._dequeue(actor, (slot, weight))
        if not slot.done():
            slot.set_exception(SlotRefused())

    def _dequeue(self, actor: str, waiting: Waiting) -> None:
        queue = self._queues.get(actor)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            if not queue:
                del self._queues[actor]
            self.waiting -= 1


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, CallSlots]] = WeakKeyDictionary()


def shared_slots(name: str, most: Callable[[], int]) -> CallSlots:
    """Returns the slots *name*, which all users on the running event loop share. Any number of users may wait."""
    slots = _shared.setdefault(asyncio.get_running_loop(), {})
    if name not in slots:
        slots[name] = CallSlots(most())
    return slots[name]
