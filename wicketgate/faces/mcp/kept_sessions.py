"""Sessions of the handshake era as the processes of a service share them (FACE-115).

A process that is asked for a session of another goes on with it from what is kept here: the facts of the handshake and
what the client has set since. It does not matter which of them the client reaches.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

IDLE_S = 1_800.0
"""A session in which nothing runs and nobody listens ends after so long."""
MEMBER_S = 180.0
"""A process that has renewed a session so long ago does not have it any more."""
ENDED_S = 300.0
"""The end of a session is remembered so long, for the processes that have not heard of it."""

RESERVED_S = 120.0
"""A place to which no session has come is free after so long."""


class SessionsAway(Exception):
    """Raised while the store does not answer: whether there is such a session is not known."""


@dataclass(frozen=True, slots=True)
class KeptSession:
    """*client*: the params of ``initialize``, as they came. *key_id*: the key that used it last. *log_level* is empty
    until the client sets one. *uris*: the resources that it has subscribed to."""

    actor: str
    key_id: str
    version: str
    client: Mapping[str, Any]
    log_level: str = ""
    uris: frozenset[str] = frozenset()

    def changed(self, change: "SessionChange") -> "KeptSession":
        return replace(
            self,
            key_id=self.key_id if change.key_id is None else change.key_id,
            log_level=change.log_level or self.log_level,
            uris=(self.uris | {change.follow} if change.follow else self.uris) - {change.unfollow},
        )


@dataclass(frozen=True, slots=True)
class SessionChange:
    """A change of some facts; the others stay as they are. *follow* and *unfollow* are URIs of resources."""

    key_id: str | None = None
    log_level: str = ""
    follow: str = ""
    unfollow: str = ""


@dataclass(frozen=True, slots=True)
class Renewal:
    """*idle_s*: since its last use at the process that renews it. *holder* as for McpSessionStore."""

    session: KeptSession
    idle_s: float
    holder: str


class McpSessionStore(Protocol):
    """Keeps sessions by *name*, letters and digits. *member* is the id of the process that asks. *holder*, letters and
    digits too, stands for the actor at the face of the session: each session that is kept has one place of its holder,
    however many processes have it in use. All raise SessionsAway, within a second."""

    @property
    def losses(self) -> int:
        """Counts the times after which it may have lost sessions."""
        ...

    async def reserve(self, name: str, holder: str, most: int) -> bool:
        """Takes a place for a session that is to be opened within ``RESERVED_S``; returns false if the holder has
        *most* others."""
        ...

    async def release(self, name: str, holder: str) -> None:
        """Gives the place back to which no session came."""
        ...

    async def open(self, name: str, session: KeptSession, member: str, holder: str) -> None:
        """Keeps a session in place of what was kept of it. It takes its place also without a reservation."""
        ...

    async def join(self, name: str, actor: str, member: str, holder: str) -> KeptSession | None:
        """Returns the session of *actor*, which *member* has in use from now on; None if there is none, it has ended,
        or it is another actor's, for which nothing changes."""
        ...

    async def renew(self, renewals: Mapping[str, Renewal], member: str) -> Collection[str]:
        """Keeps sessions that *member* has in use, and again those that the store has lost. Returns the names of those
        that have ended."""
        ...

    async def change(self, name: str, change: SessionChange) -> Sequence[str]:
        """Returns the members that have it in use."""
        ...

    async def members(self, name: str) -> Sequence[str]: ...

    async def leave(self, name: str, member: str) -> Sequence[str]:
        """Returns the other members that have it in use."""
        ...

    async def end(self, name: str, holder: str) -> Sequence[str]:
        """Ends the session for all processes; returns the members that had it in use."""
        ...

    async def aclose(self) -> None: ...


class SessionChanges(Protocol):
    """Keeps what the client of a session has set; it is done when every process knows it."""

    async def changed(self, change: SessionChange) -> None:
        """Raises SessionsAway."""
        ...


CHANGES_KEY = "wicketgate.session_changes"
"""Under this key of a connection's ``state`` stands the SessionChanges of a session that is kept."""
