"""Runs that go on without a reader, at the wish of their clients: their number for each actor, and their giving way
(CHAT-89, CHAT-90).

Nobody waits for such a run at the moment, so it is the first to end when a stream of somebody else finds no place. Only
the runs of this process can give way.
"""

from wicketgate.access.shares import Lease, ShareRefused, Shares
from wicketgate.engine.limits import Place


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
