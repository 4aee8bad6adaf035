"""The sessions of the handshake era as this process knows them (FACE-115 to FACE-120).

A session is the token that its client carries, so each process serves it. The store has a row for what was set later or
for the end of a session: a process looks at it when it first sees the session, once a minute after that, and after a
signal while a call runs or the client listens. Without the store sessions are served all the same.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

from app.mcp.requests import Addressed, RequestId, addressed, same
from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal, SealedText
from wicketgate.faces.mcp.message import ReplyMessage, reply_in
from wicketgate.faces.mcp.session_tokens import McpSession, SessionChange, SessionTokens
from wicketgate.heavy_work import run_queued
from wicketgate.storage.mcp_sessions import MESSAGE_S, SessionState, StoredMcpSessions, Subject
from wicketgate.storage.store import LOOK_S, StoreUnavailable
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.mcp")

LOOK_AGAIN_S = 60.0
_KNOWN = 10_000
"""The sessions that a process remembers. Any other one is opened from its token again."""
_PURPOSE = "mcp message"
_LARGE_BYTES = 65_536
_COUNTED_BITS = 20


class Running(Protocol):
    """A request of the client that is answered here."""

    def cancel(self) -> None:
        """Its client has cancelled it."""
        ...

    def end(self) -> None:
        """Its session has ended."""
        ...


@dataclass(frozen=True, slots=True)
class SessionListener:
    """The stream on which the client listens in this process. *take_up* applies what the client has set, maybe at
    another process; *end* ends the stream and must not wait."""

    take_up: Callable[[McpSession, Identity], Awaitable[None]]
    end: Callable[[], None]


class LiveSession:
    """*identity* used it last here. *sealed* is the opened *token*."""

    def __init__(
        self, token: str, sealed: SealedText, session: McpSession, identity: Identity, now: Callable[[], float]
    ) -> None:
        self.token = token
        self.id = sealed.uid
        self.sealed = sealed
        self.session = session
        self.identity = identity
        self.version = 0
        self.look_at = 0.0
        """The time of the next look at its row."""
        self.ended = False
        self.listener: SessionListener | None = None
        self.calls = 0
        self.watcher: asyncio.Task[None] | None = None
        self._now = now
        self._running: dict[object, list[tuple[Running, float]]] = {}
        self._questions: dict[object, asyncio.Future[ReplyMessage]] = {}
        # Integers, which every client can read, and no other process uses in the session: an answer may come to any.
        self._question_ids = count(secrets.randbits(52 - _COUNTED_BITS) << _COUNTED_BITS)

    def begin(self, id: RequestId | None, running: Running) -> None:
        """A request runs until ``finish``. Of two with the same id the client means the later one."""
        self._running.setdefault(same(id), []).append((running, self._now()))

    def finish(self, id: RequestId | None, running: Running) -> None:
        key = same(id)
        alike = self._running[key] = [each for each in self._running[key] if each[0] is not running]
        if not alike:
            del self._running[key]

    @contextmanager
    def asks(self) -> Iterator[tuple[int, "asyncio.Future[ReplyMessage]"]]:
        """Opens a question for the time of the block. Yields its id and the future of its reply."""
        id, reply = next(self._question_ids), asyncio.get_running_loop().create_future()
        self._questions[id] = reply
        try:
            yield id, reply
        finally:
            del self._questions[id]

    def takes(self, message: Addressed, body: bytes) -> bool:
        """Accepts a message about something that runs here; returns false for any other, and for a malformed answer."""
        match message.kind:
            case "cancel":
                alike = self._running.get(same(message.id), ())
                for running, _ in alike[-1:]:
                    running.cancel()
                return bool(alike)
            case "answer":
                question, reply = self._questions.get(same(message.id)), reply_in(body)
                if question is not None and reply is not None and not question.done():
                    question.set_result(reply)
                return question is not None and reply is not None
            case _:
                # No question waits longer for its progress.
                return same(message.id) in self._questions

    def awaited(self) -> dict[Subject, float]:
        """The subjects of messages that would end or continue something here, and when it began."""
        found: dict[Any, float] = {("answer", id): 0.0 for id in self._questions}
        return found | {("cancel", id): alike[-1][1] for id, alike in self._running.items()}

    def end(self) -> None:
        """Ends all that runs. It does not wait."""
        self.ended = True
        if self.listener is not None:
            self.listener.end()
        for running, _ in [each for alike in self._running.values() for each in alike]:
            running.end()


class LiveSessions:
    """The sessions of a *face*. *now* is a clock in seconds."""

    def __init__(self, face: str, seal: Seal, stored: StoredMcpSessions, now: Callable[[], float]) -> None:
        self._tokens = SessionTokens(face, seal)
        self._seal = seal
        self._stored = stored
        self._now = now
        self._known: OrderedDict[str, LiveSession] = OrderedDict()

    async def find(self, token: str, identity: Identity) -> LiveSession | None:
        """Returns the session of this actor, wherever it was opened; None if there is none, or it has ended."""
        live = self._known.get(token)
        if live is None:
            opened = self._tokens.open(identity.actor, token)
            if opened is None:
                return None
            live = LiveSession(token, *opened, identity, self._now)
            await self._look(live)
            live = self._keep(live)
        elif live.session.actor != identity.actor or self._tokens.expired(live.sealed):
            return None
        else:
            self._known.move_to_end(token)
            if self._now() >= live.look_at:
                await self._look(live)
        live.identity = identity
        return None if live.ended else live

    def open(self, identity: Identity, version: str, client: Mapping[str, Any]) -> str:
        """Returns the token of a new session. *client*: the params of ``initialize``."""
        token = self._tokens.issue(identity.actor, version, client)
        opened = self._tokens.open(identity.actor, token)
        assert opened is not None
        live = self._keep(LiveSession(token, *opened, identity, self._now))
        live.look_at = self._now() + LOOK_AGAIN_S
        return token

    async def end(self, live: LiveSession) -> None:
        """Ends a session for all processes. Raises StoreUnavailable."""
        await self._stored.end(live.id, live.session.actor)
        live.end()

    async def change(self, live: LiveSession, change: SessionChange) -> bool:
        """Keeps what the client has set. Returns false if that is not possible at the moment."""
        try:
            state = await self._stored.change(
                live.id, live.session.actor, change.log_level, change.follow, change.unfollow
            )
        except StoreUnavailable as error:
            log.warning("what a client set for its session was not stored: %s", error)
            return False
        self._apply(live, state)
        await self._tell_listener(live)
        return True

    async def post(self, live: LiveSession, message: Addressed, body: bytes) -> None:
        """Keeps a message for the process where the call runs that it is about. Raises StoreUnavailable."""
        if message.kind == "progress":
            return  # No question waits longer for its progress.
        sealed = partial(self._seal.seal, _PURPOSE, live.id, body.decode("latin-1"), MESSAGE_S)
        text = sealed() if len(body) < _LARGE_BYTES else await run_queued(sealed, live.session.actor)
        await self._stored.post(live.id, live.session.actor, _subject(message), text.encode())

    @contextmanager
    def calling(self, live: LiveSession) -> Iterator[None]:
        """Within the block messages of other processes reach calls of the session."""
        live.calls += 1
        if live.watcher is None:
            live.watcher = asyncio.create_task(self._watch(live, LOOK_S), name="calls of a session")
        try:
            yield
        finally:
            live.calls -= 1
            if not live.calls:
                live.watcher.cancel()
                live.watcher = None

    @asynccontextmanager
    async def listening(self, live: LiveSession, listener: SessionListener) -> AsyncIterator[None]:
        """Within the block the client listens: it hears of what it sets elsewhere, and its stream ends with the
        session."""
        live.listener = listener
        watcher = asyncio.create_task(self._watch(live, LOOK_AGAIN_S, looks=True), name="stream of a session")
        try:
            await self._tell_listener(live)
            yield
        finally:
            live.listener = None
            await end_tasks(watcher)

    async def _tell_listener(self, live: LiveSession) -> None:
        if live.listener is not None and not live.ended:
            await live.listener.take_up(live.session, live.identity)

    async def _watch(self, live: LiveSession, every_s: float, *, looks: bool = False) -> None:
        """*looks*: the row of the session is read at once."""
        while not live.ended:
            try:
                async with self._stored.listen(live.id) as changed:
                    while not live.ended:
                        if looks or self._now() >= live.look_at:
                            await self._look(live)
                        await self._deliver(live)
                        began = self._now()
                        await changed.wait(every_s)
                        looks = self._now() - began < every_s  # after a signal
            except StoreUnavailable:
                await asyncio.sleep(LOOK_S)
            except Exception:
                # The last boundary of this task.
                log.exception("messages of a session were not delivered")
                await asyncio.sleep(LOOK_S)

    async def _look(self, live: LiveSession) -> None:
        live.look_at, before = self._now() + LOOK_AGAIN_S, live.version
        try:
            state = await self._stored.look(live.id)
        except StoreUnavailable as error:
            log.debug("the row of a session was not read: %s", error)
            return
        # A row that the store has lost changes nothing, nor does one that was read before a change here. An end counts
        # always, because a new row may have the version of one that was lost.
        if state.ended or (state.version and state.version != before == live.version):
            self._apply(live, state)
            await self._tell_listener(live)

    def _apply(self, live: LiveSession, state: SessionState) -> None:
        live.version = state.version
        live.session = replace(live.session, log_level=state.log_level, uris=state.uris)
        if state.ended:
            live.end()

    async def _deliver(self, live: LiveSession) -> None:
        """Gives calls here the messages that came to other processes. Raises StoreUnavailable."""
        for subject, began in live.awaited().items():
            message = await self._stored.message(live.id, subject)
            # A cancellation from before the request was for an earlier one with this id.
            if message is None or (subject[0] == "cancel" and message.age_s > self._now() - began):
                continue
            text = message.text.decode(errors="replace")
            sealed = await run_queued(partial(self._seal.open, _PURPOSE, live.id, text), live.session.actor)
            if sealed is None:
                log.error("a message about %s %s of session %s is damaged: not delivered", *subject, live.id)
            elif (about := addressed(body := sealed.text.encode("latin-1"))) is not None:
                live.takes(about, body)
            await self._stored.drop(live.id, subject)

    def _keep(self, live: LiveSession) -> LiveSession:
        """Returns the session that is known by its token: another request may have been faster."""
        live = self._known.setdefault(live.token, live)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return live


def _subject(message: Addressed) -> Subject:
    return message.kind, same(message.id)  # type: ignore[return-value]
