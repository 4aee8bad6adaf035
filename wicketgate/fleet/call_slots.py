"""The places of one upstream: how many calls run at once, which wait, and which is next (gatekit G60).

A free place goes to the actor who holds the fewest, then to the one who waits longest. When no more may wait, room is
taken from the actor with most waiting calls, the newest first: a crowd of one cannot keep another out.
"""

import asyncio
from collections import OrderedDict, deque

Waiting = asyncio.Future[None]


class SlotRefused(Exception):
    """The call did not get a place, and will not: too many wait, or the places are closed."""


class CallSlots:
    """At most *most* running, *most_waiting* waiting. Where there is room, ``enter`` is all that it costs."""

    def __init__(self, most: int, most_waiting: int) -> None:
        self._most = most
        self._most_waiting = most_waiting
        self._held: dict[str, int] = {}
        self._queues: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self.closed = False
        self.running = 0
        self.waiting = 0

    def enter(self, actor: str) -> bool:
        """Take a place if one is free and no call waits."""
        if self.running >= self._most or self.closed:
            return False
        self._take(actor)
        return True

    async def wait(self, actor: str) -> None:
        """Wait for a place, after ``enter`` gave none. Raises SlotRefused at once when too many wait."""
        if self.closed or (self.waiting >= self._most_waiting and not self._make_room(actor)):
            raise SlotRefused
        place: Waiting = asyncio.get_running_loop().create_future()
        self._queues.setdefault(actor, deque()).append(place)
        self.waiting += 1
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled() and place.exception() is None:  # given at the very moment we were cancelled
                self.leave(actor)
            else:
                self._drop(actor, place)
            raise

    def leave(self, actor: str) -> None:
        self.running -= 1
        held = self._held[actor] - 1
        if held:
            self._held[actor] = held
        else:
            del self._held[actor]
        self._fill()

    def resize(self, most: int, most_waiting: int) -> None:
        """Other limits from now on. Calls that run or wait already stay, also above the new limits."""
        self._most, self._most_waiting = most, most_waiting
        self._fill()

    def close(self) -> None:
        """Give no more places, and refuse one to those who wait. Calls that run go on."""
        self.closed = True
        for actor in list(self._queues):
            while actor in self._queues:
                self._turn_away(actor)

    def _take(self, actor: str) -> None:
        self.running += 1
        self._held[actor] = self._held.get(actor, 0) + 1

    def _fill(self) -> None:
        while self._queues and self.running < self._most:
            # The dictionary's order is that of being served: who got a place stands last.
            actor = min(self._queues, key=lambda waiting: self._held.get(waiting, 0))
            queue = self._queues[actor]
            place = queue.popleft()
            if queue:
                self._queues.move_to_end(actor)
            else:
                del self._queues[actor]
            self.waiting -= 1
            if not place.done():  # else its caller has gone, and not run yet
                self._take(actor)
                place.set_result(None)

    def _make_room(self, newcomer: str) -> bool:
        """Turn away one call of the actor with most waiting, if that is more than *newcomer* will have."""
        greediest = max(self._queues, key=lambda actor: len(self._queues[actor]), default=newcomer)
        mine = len(self._queues.get(newcomer, ()))
        if len(self._queues.get(greediest, ())) <= mine + 1:
            return False
        self._turn_away(greediest)
        return True

    def _turn_away(self, actor: str) -> None:
        queue = self._queues[actor]
        place = queue.pop()
        if not queue:
            del self._queues[actor]
        self.waiting -= 1
        if not place.done():
            place.set_exception(SlotRefused())

    def _drop(self, actor: str, place: Waiting) -> None:
        queue = self._queues.get(actor)
        if queue is not None and place in queue:
            queue.remove(place)
            if not queue:
                del self._queues[actor]
            self.waiting -= 1
