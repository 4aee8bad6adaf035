"""One session of the handshake era, as a process has it in use."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from app.mcp_session_messages import Addressed, RequestId, addressed, same
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


class Running(Protocol):
    """A request of the client that is answered here without the part."""

    def cancel(self) -> None:
        """Its client has cancelled it."""
        ...

    def end(self) -> None:
        """Its session has ended."""
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
        self._running: dict[object, Running] = {}

    @property
    def idle(self) -> bool:
        return not self.calls and not self.streams

    @contextmanager
    def runs(self, id: RequestId, running: Running) -> Iterator[None]:
        """A request runs without the part. Of two with the same id the client means the later one."""
        key = same(id)
        self._running[key] = running
        try:
            yield
        finally:
            if self._running.get(key) is running:
                del self._running[key]

    def cancel(self, message: Addressed) -> bool:
        """Cancels the request that *message* is about, if that runs here without the part."""
        running = self._running.get(same(message.id)) if message.kind == "cancel" else None
        if running is not None:
            running.cancel()
        return running is not None

    async def take(self, body: bytes, identity: Identity) -> bool:
        """Takes a message that came to another process; returns false if it belongs to nothing that runs here."""
        message = addressed(body)
        if message is not None and self.cancel(message):
            return True
        return self.part is not None and await self.part.take(body, identity)

    def end(self) -> None:
        """Ends all that runs. It does not wait."""
        if self.part is not None:
            self.part.end()
        for running in self._running.values():
            running.end()
