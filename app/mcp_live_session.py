"""One session of the handshake era, as a process has it in use."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from app.mcp_session_messages import Addressed, QuestionIds, RequestId, addressed, same
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


class Question(Protocol):
    """A question to the client of a request that is answered here without the part."""

    def take(self, body: bytes) -> bool:
        """Takes the client's answer; returns false for what is none."""
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
        self._running: dict[object, list[Running]] = {}
        self._questions: dict[object, Question] = {}
        self._question_ids = QuestionIds()

    @property
    def idle(self) -> bool:
        return not self.calls and not self.streams

    @contextmanager
    def runs(self, id: RequestId, running: Running) -> Iterator[None]:
        """A request runs without the part. Of two with the same id the client means the later one."""
        key = same(id)
        alike = self._running.setdefault(key, [])
        alike.append(running)
        try:
            yield
        finally:
            alike.remove(running)
            if not alike:
                del self._running[key]

    @contextmanager
    def asks(self, question: Question) -> Iterator[int]:
        """*question* is open without the part, under the id that this gives."""
        id = self._question_ids.next()
        self._questions[id] = question
        try:
            yield id
        finally:
            del self._questions[id]

    def takes(self, message: Addressed, body: bytes) -> bool:
        """Takes a message that is about something that runs here without the part; returns false for any other."""
        match message.kind:
            case "cancel":
                alike = self._running.get(same(message.id), ())
                for running in alike[-1:]:
                    running.cancel()
                return bool(alike)
            case "answer":
                question = self._questions.get(same(message.id))
                return question is not None and question.take(body)
            case _:
                # No question waits longer for its progress.
                return same(message.id) in self._questions

    async def take(self, body: bytes, identity: Identity) -> bool:
        """Takes a message that came to another process; returns false if it belongs to nothing that runs here."""
        message = addressed(body)
        if message is not None and self.takes(message, body):
            return True
        return self.part is not None and await self.part.take(body, identity)

    def end(self) -> None:
        """Ends all that runs. It does not wait."""
        if self.part is not None:
            self.part.end()
        for running in [each for alike in self._running.values() for each in alike]:
            running.end()
