"""Shares of what is bounded in number, streams and calls under way, among the actors (ACCESS-36 to ACCESS-38).

Where the operator sets a limit for each actor, that limit counts. Otherwise an actor gets a place as long as it holds
fewer than four times as many as are free. So a single actor may hold four fifths of all, the last fifth stays for
others, and of what they leave a newcomer gets its part again: the more actors there are, the less each may hold, and
nobody has to be counted. Who holds more than that gets nothing new until enough is free. Below five places nothing is
kept back.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import Literal, Protocol

import msgspec

Scope = Literal["actor", "all", "away"]
"""The part that is full: the actor's share, or all places. ``away``: the places of this actor cannot be counted."""

SCOPES: tuple[Scope, ...] = ("actor", "all")
"""Those of every counter; ``away`` is for counters that processes share."""

RETRY_AFTER_S = 1
"""Told to anyone who is refused. Nobody knows when a place becomes free, and at this pace attempts cost little."""

_TIMES_THE_FREE = 4


def too_many_text(things: str, scope: Scope) -> str:
    """The message to a client whose request found no place among the *things*."""
    if scope == "away":
        return f"The {things} of this actor cannot be counted; nothing was run. Try again in a moment."
    whose = " of this actor" if scope == "actor" else ""
    return f"Too many {things}{whose}; nothing was run. Try again in a moment."


def full_scope(held: int, held_by_all: int, most: int, per_actor: int | None) -> Scope | None:
    """Returns what is full for an actor that holds *held* of *held_by_all* places; None if it may have one more.

    *per_actor* is the operator's limit, None where there is none.
    """
    free = most - held_by_all
    if per_actor is not None and held >= per_actor:
        return "actor"
    if free <= 0:
        return "all"
    return "actor" if per_actor is None and held >= _TIMES_THE_FREE * free else None


class ShareRefused(Exception):
    """There is no place now; later there may be. *held* is the number that the actor holds."""

    def __init__(self, scope: Scope, held: int = 0) -> None:
        super().__init__(f"no place: {scope}")
        self.scope = scope
        self.held = held


class Lease(msgspec.Struct, frozen=True):
    """The right of *actor* to one place. *id* is unique among all leases of a kind, also of several processes."""

    id: str
    actor: str


class ShareCounts(Protocol):
    """The counts of one *kind* of places, of which there are *most*."""

    @property
    def kind(self) -> str: ...

    @property
    def most(self) -> int: ...

    @property
    def held(self) -> int:
        """The number of places that this process holds."""
        ...

    @property
    def refused(self) -> Mapping[Scope, int]:
        """The number of refusals by this process."""
        ...


class Shares(ShareCounts, Protocol):
    """Places of one kind, bounded for this process, and for each actor in all processes that count together.

    A process that dies gives nothing back, so a counter that processes share lets its leases lapse when it renews them
    no longer. Renewing is the implementation's own work: holders only take and give back.
    """

    async def take(self, actor: str, make_room: Callable[[int], bool] | None = None) -> Lease:
        """Take a place. Does not wait for one to become free; counters in memory do not wait at all.

        If all are taken, *make_room* is called with the number that the actor holds. If it returns true, a lease was
        given back, and the place is tried for once more. Raises ShareRefused. After a cancellation nothing is held.
        """
        ...

    def give_back(self, lease: Lease) -> None:
        """Give the place back and return at once; a shared counter gets to know of it later. Later calls do nothing."""
        ...


class CountedShares:
    """Implements Shares for one process. Use from one event loop only. Ids of leases begin with *prefix*."""

    def __init__(self, kind: str, most: int, per_actor: int | None = None, *, prefix: str = "") -> None:
        self.kind = kind
        self.most = most
        self._per_actor = per_actor
        self._prefix = prefix
        self._ids = count(1)
        self._leases: dict[str, Lease] = {}
        self._by_actor: dict[str, int] = {}
        self.refused: dict[Scope, int] = dict.fromkeys(SCOPES, 0)

    @property
    def held(self) -> int:
        return len(self._leases)

    def holds(self, lease: Lease) -> bool:
        return lease.id in self._leases

    async def take(self, actor: str, make_room: Callable[[int], bool] | None = None) -> Lease:
        full = self._full_for(actor)
        if full == "all" and make_room is not None and make_room(self._by_actor.get(actor, 0)):
            full = self._full_for(actor)
        held = self._by_actor.get(actor, 0)
        if full is not None:
            self.refused[full] += 1
            raise ShareRefused(full, held)
        lease = Lease(f"{self._prefix}{next(self._ids)}", actor)
        self._leases[lease.id] = lease
        self._by_actor[actor] = held + 1
        return lease

    def give_back(self, lease: Lease) -> None:
        if self._leases.pop(lease.id, None) is None:
            return
        left = self._by_actor[lease.actor] - 1
        if left:
            self._by_actor[lease.actor] = left
        else:
            del self._by_actor[lease.actor]

    def _full_for(self, actor: str) -> Scope | None:
        return full_scope(self._by_actor.get(actor, 0), len(self._leases), self.most, self._per_actor)
