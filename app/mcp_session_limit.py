"""The sessions of the handshake era, shared among actors (FACE-39).

Such a session lasts until its client ends it, and many clients forget to. So when all are taken, the one that was idle
longest gives way, of the actor that holds most.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from wicketgate.access.identity import Identity
from wicketgate.access.shares import SCOPES, Scope, full_scope

_TIMES_KEPT = 4
"""Of an actor without a limit, all processes together keep so many times what one may have in use."""


class Sessions(Protocol):
    """The number that is shared."""

    @property
    def held(self) -> int: ...

    def by_actor(self) -> Mapping[str, int]: ...

    def most_of_one(self) -> tuple[str, int]: ...

    def longest_idle(self, actor: str) -> Any | None: ...

    async def give_way(self, live: Any) -> None: ...

    async def leave(self, live: Any) -> None: ...


class SessionLimit:
    """Implements ShareCounts for the *sessions* of one *face*: *most* in all; *per_actor* is the operator's limit, None
    where there is none, which the store counts over all processes. *most_kept* is what the store takes of an actor."""

    def __init__(self, face: str, sessions: Sessions, most: int, per_actor: int | None) -> None:
        self.kind = f"sessions_{face}"
        self.most = most
        self._sessions = sessions
        self._per_actor = per_actor
        self.most_kept = _TIMES_KEPT * most if per_actor is None else per_actor
        self._refused: dict[Scope, int] = dict.fromkeys(SCOPES, 0)

    @property
    def held(self) -> int:
        return self._sessions.held

    @property
    def refused(self) -> Mapping[Scope, int]:
        return self._refused

    def refuse(self, full: Scope) -> None:
        """Counts a refusal."""
        self._refused[full] = self._refused.get(full, 0) + 1

    def full_before(self, identity: Identity) -> Scope | None:
        """Returns what is full for a further session whoever gives way; None if it may be opened, as far as this
        process knows."""
        full = self._full(identity.actor)
        if full != "actor":
            return None
        self.refuse(full)
        return full

    async def full_for(self, identity: Identity) -> Scope | None:
        """Returns what is full for a further session, after an idle one has given way if there is one; None if it may
        be opened."""
        full = self._full(identity.actor)
        if full == "all" and await self._end_idle(identity.actor):
            full = self._full(identity.actor)
        if full is not None:
            self.refuse(full)
        return full

    async def full_for_joined(self, identity: Identity) -> Scope | None:
        """Returns what is full for a session that was opened at another process, after an idle one of its actor has
        left this process if there is one, which can be taken up again."""
        full = self._full(identity.actor)
        if full is None:
            return None
        idle = self._sessions.longest_idle(identity.actor)
        if idle is None:
            return await self.full_for(identity)
        await self._sessions.leave(idle)
        return None

    def _full(self, actor: str) -> Scope | None:
        return full_scope(self._held_by(actor), self._sessions.held, self.most, self._per_actor)

    def _held_by(self, actor: str) -> int:
        return self._sessions.by_actor().get(actor, 0)

    async def _end_idle(self, newcomer: str) -> bool:
        actor, number = self._sessions.most_of_one()
        if number <= self._held_by(newcomer):
            return False
        idle = self._sessions.longest_idle(actor)
        if idle is None:
            return False
        await self._sessions.give_way(idle)
        return True
