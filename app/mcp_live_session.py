"""One session of the handshake era, as a process has it in use."""

import asyncio
from typing import Protocol

from wicketgate.access.identity import Identity
from wicketgate.access.shares import Scope
from wicketgate.faces.mcp.kept_sessions import KeptSession


class SessionsFull(Exception):
    """There is no room for a further session, of the actor or at all."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.scope = scope


class Part(Protocol):
    """Serves the requests of one session in this process."""

    async def take(self, body: bytes, identity: Identity) -> bool:
        """Takes a message that came to another process; returns false if it belongs to nothing that runs here."""
        ...

    async def take_up(self, session: KeptSession, identity: Identity, *, listens: bool) -> None:
        """Puts in force what the client has set at another process."""
        ...

    def end(self) -> None:
        """Ends all that runs. It must not wait."""
        ...


class LiveSession:
    """*identity* used it last here, *used_at* is when. *last_key* used it last anywhere, as far as is known here.
    *calls*: requests under way, without *streams*, on which its client listens."""

    def __init__(self, id: str, name: str, kept: KeptSession, identity: Identity, now: float) -> None:
        self.id = id
        self.name = name
        self.kept = kept
        self.identity = identity
        self.last_key = kept.key_id
        self.calls = 0
        self.streams = 0
        self.used_at = now
        self.ended = False
        """True when it ends as soon as its calls have been answered."""
        self.part: Part | None = None
        self.part_made = asyncio.Lock()

    @property
    def idle(self) -> bool:
        return not self.calls and not self.streams
