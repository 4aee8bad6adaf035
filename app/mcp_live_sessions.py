"""The sessions of the handshake era that this process has in use, among all of the service (FACE-115 to FACE-120).

Any process goes on with a session of another, from what the store keeps of it. Here is nothing of the SDK: what serves
the requests of a session hangs on it as its ``part``.

A session holds no authority: each of its requests is authenticated by itself. It ends with the key that used it last
(FACE-42); a client that changes from one key of its actor to the next keeps its session.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from app.mcp_live_session import LiveSession, SessionsFull
from app.mcp_session_limit import SessionLimit
from app.mcp_session_table import SessionTable
from wicketgate.access.identity import Identity
from wicketgate.faces.mcp.kept_sessions import (
    IDLE_S,
    KeptSession,
    McpSessionStore,
    Renewal,
    SessionChange,
    SessionsAway,
)
from wicketgate.peers import NotReached, Payload, Peers
from wicketgate.storage.encoding import hashed
from wicketgate.storage.fail_modes import FailModes
from wicketgate.task_end import end_tasks

T = TypeVar("T")

log = logging.getLogger("wicketgate.mcp")

RENEW_S = 60.0
_LOOK_S = 0.5
_GRACE_S = 5.0
"""After the store may have lost sessions, the processes have so long to keep theirs again."""
_TELL_S = 1.0


class LiveSessions:
    """The sessions of a *face*, shared while ``running`` is entered. *fail* decides what this process does without the
    store. *now* is a clock in seconds. *most* bounds those in use here; *per_actor* is the operator's limit, None where
    there is none."""

    def __init__(
        self,
        face: str,
        store: McpSessionStore,
        peers: Peers,
        fail: FailModes,
        now: Callable[[], float],
        new_id: Callable[[], str],
        *,
        most: int,
        per_actor: int | None,
    ) -> None:
        self._face = face
        self._store = store
        self._peers = peers
        self._fail = fail
        self._now = now
        self._new_id = new_id
        self._live = SessionTable()
        self._tasks: set[asyncio.Task[None]] = set()
        self._operation = f"mcp_session.{face}"
        self._losses = store.losses
        self._lost_until = float("-inf")
        self.limit = SessionLimit(face, self, most, per_actor)
        peers.answer(self._operation, self._answer)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        renewing = asyncio.create_task(self._renew_for_ever(), name=f"sessions of {self._face}")
        try:
            yield
        finally:
            await end_tasks(renewing, *self._tasks)

    # What an endpoint does with a session.

    async def find(self, session_id: str, identity: Identity) -> LiveSession | None:
        """Returns the session of this actor, wherever it was opened; None if there is none.

        Raises SessionsAway if that cannot be known, and SessionsFull.
        """
        live = self._live.get(session_id)
        if live is None:
            kept = await self._told(self._join(self._name(session_id), identity.actor))
            if kept is None:
                if self._may_be_lost():
                    raise SessionsAway
                return None
            if session_id not in self._live and (full := await self.limit.full_for_joined(identity)):
                raise SessionsFull(full)
            # Another request may have been faster.
            live = self._live.get(session_id)
            if live is None:
                live = LiveSession(session_id, self._name(session_id), kept, identity, self._now())
                self._live.put(live)
        return live if live.kept.actor == identity.actor else None

    @asynccontextmanager
    async def opening(self, identity: Identity) -> AsyncIterator["Opening"]:
        """A request that opens a session, which takes a place before its body has come, among those of its actor at all
        processes and among all here. Raises SessionsFull and SessionsAway."""
        if full := self.limit.full_before(identity):
            raise SessionsFull(full)
        opening = Opening(self, self._new_id(), identity)
        try:
            # Before anybody gives way to it.
            await self._reserve(opening.id, identity.actor)
            if full := await self.limit.full_for(identity):
                raise SessionsFull(full)
            opening.take()
            yield opening
        finally:
            opening.end()
            if not opening.begun:
                self._spawn(self._release(opening.id, identity.actor))

    @contextmanager
    def used(self, live: LiveSession, identity: Identity, *, listens: bool = False) -> Iterator[None]:
        """A request in a session. *listens*: it is a stream without end, which is no call."""
        live.identity, live.ended = identity, False
        if live.last_key != identity.key_id:
            live.last_key = identity.key_id
            self._spawn(self._keep_key(live, identity.key_id))
        live.calls += not listens
        live.streams += listens
        try:
            yield
        finally:
            live.calls -= not listens
            live.streams -= listens
            live.used_at = self._now()
            self._end_if_quiet(live)

    async def end(self, live: LiveSession) -> None:
        """Ends a session for all processes. Raises SessionsAway."""
        members = await self._or_alone(self._store.end(live.name, self._holder(live.kept.actor)))
        self._drop(live)
        await self._ask(members, {"do": "end", "id": live.id})

    async def reopen(self, live: LiveSession, kept: KeptSession) -> None:
        """Keeps the facts of a further handshake. Raises SessionsAway."""
        self._keep(live, kept)
        await self._or_alone(self._store.open(live.name, kept, self._peers.own_id, self._holder(kept.actor)))

    async def change(self, live: LiveSession, change: SessionChange) -> None:
        """Keeps what the client has set; returns when the other processes know of it. Raises SessionsAway."""
        if live.kept.changed(change) == live.kept:
            return
        members = await self._or_alone(self._store.change(live.name, change))
        self._keep(live, live.kept.changed(change))
        await self._ask(members, {"do": "reload", "id": live.id})

    async def refresh(self, live: LiveSession) -> KeptSession:
        """Returns what the client has set, wherever that was; as it is known here while the store is away."""
        with suppress(SessionsAway):
            self._keep(live, await self._join(live.name, live.kept.actor) or live.kept)
        return live.kept

    async def pass_on(self, live: LiveSession, body: bytes) -> bool:
        """Gives a message to the other process where the call runs that it is about; returns false if there is none.

        Raises SessionsAway if that cannot be known: a process that counts as ended may only have stood still.
        """
        members = await self._told(self._store.members(live.name))
        others = [member for member in members if member != self._peers.own_id]
        answers = await self._ask(members, {"do": "take", "id": live.id, "body": body})
        if any(answer is not None and answer.get("taken") for answer in answers):
            return True
        if None in answers or len(answers) < len(others):
            raise SessionsAway
        return False

    # What ends sessions.

    def end_of(self, key_id: str) -> int:
        """Ends the sessions that this key used last, as soon as their calls have been answered. Returns how many."""
        ended = [live for live in self._live if live.last_key == key_id]
        for live in ended:
            live.ended = True
            self._end_if_quiet(live)
        return len(ended)

    async def renew(self) -> bool:
        """Keeps the sessions that are in use here, and leaves those that were idle for long. Returns false while the
        store is away."""
        now, renewals = self._now(), dict[str, Renewal]()
        for live in self._live:
            idle_s = now - live.used_at if live.idle else 0.0
            if idle_s >= IDLE_S:
                self._drop(live)  # the store's own clock ends it
            else:
                renewals[live.name] = Renewal(live.kept, idle_s, self._holder(live.kept.actor))
        try:
            ended = set(await self._store.renew(renewals, self._peers.own_id))
        except SessionsAway:
            return False
        for live in [live for live in self._live if live.name in ended]:
            self._drop(live)
        return True

    # What the limit asks.

    @property
    def held(self) -> int:
        """The number of sessions, those included that are being opened."""
        return self._live.total

    def by_actor(self) -> Mapping[str, int]:
        """The same of each actor. It changes with the sessions."""
        return self._live.counts

    def most_of_one(self) -> tuple[str, int]:
        """Returns an actor that holds most sessions, and how many. There has to be one."""
        return self._live.most()

    def longest_idle(self, actor: str) -> LiveSession | None:
        """Returns the session of *actor* in which nothing runs and nobody listens, and has for longest; None if there
        is none."""
        idle = [live for live in self._live.of(actor) if live.idle]
        return min(idle, key=lambda live: live.used_at, default=None)

    async def give_way(self, live: LiveSession) -> None:
        """Ends a session for which there is no room any more. Where another process has it in use, it only leaves this
        one."""
        self._drop(live)
        with suppress(SessionsAway):
            if not await self._store.leave(live.name, self._peers.own_id):
                await self._store.end(live.name, self._holder(live.kept.actor))

    async def leave(self, live: LiveSession) -> None:
        """Gives up the room of a session, which this process can take up again."""
        self._drop(live)
        with suppress(SessionsAway):
            await self._store.leave(live.name, self._peers.own_id)

    # What happens below.

    def _name(self, session_id: str) -> str:
        return hashed(f"{self._face} {session_id}")

    def _holder(self, actor: str) -> str:
        return hashed(f"{self._face} {actor}")

    async def _join(self, name: str, actor: str) -> KeptSession | None:
        """Raises SessionsAway."""
        return await self._store.join(name, actor, self._peers.own_id, self._holder(actor))

    async def _reserve(self, session_id: str, actor: str) -> None:
        """Raises SessionsFull and SessionsAway."""
        try:
            free = await self._told(
                self._store.reserve(self._name(session_id), self._holder(actor), self.limit.most_kept)
            )
        except SessionsAway:
            if self._fail.mode("sessions") == "open":
                return
            raise
        if not free:
            self.limit.refuse("actor")
            raise SessionsFull("actor")

    async def _release(self, session_id: str, actor: str) -> None:
        with suppress(SessionsAway):
            await self._store.release(self._name(session_id), self._holder(actor))

    async def _begin(self, session_id: str, kept: KeptSession, identity: Identity) -> LiveSession:
        name = self._name(session_id)
        # Without the store it is kept as soon as that is back.
        await self._or_alone(self._store.open(name, kept, self._peers.own_id, self._holder(kept.actor)))
        live = LiveSession(session_id, name, kept, identity, self._now())
        self._live.put(live)
        return live

    async def _told(self, step: Awaitable[T]) -> T:
        """Returns what the store says. Raises SessionsAway."""
        try:
            result = await step
        except SessionsAway:
            self._fail.without("sessions")
            raise
        self._fail.answered("sessions")
        return result

    async def _or_alone(self, step: Awaitable[Sequence[str] | None]) -> Sequence[str]:
        """Returns the members that have a session in use; none while this process may go on without the store.
        Raises SessionsAway where it may not."""
        try:
            return await self._told(step) or ()
        except SessionsAway:
            if self._fail.mode("sessions") == "open":
                return ()
            raise

    def _place_taken(self, actor: str) -> None:
        self._live.take_place(actor)

    def _place_given_back(self, actor: str) -> None:
        self._live.give_place_back(actor)

    def _keep(self, live: LiveSession, kept: KeptSession) -> None:
        live.kept = kept
        if self._live.get(live.id) is live:
            self._live.put(live)

    def _drop(self, live: LiveSession) -> None:
        self._live.remove(live)
        live.end()

    def _end_if_quiet(self, live: LiveSession) -> None:
        if live.ended and not live.calls and self._live.get(live.id) is live:
            self._drop(live)
            self._spawn(self._end_with_key(live))

    async def _end_with_key(self, live: LiveSession) -> None:
        """Ends a session whose last key is not good any more, unless another key has used it since elsewhere. The other
        processes see to their own calls."""
        with suppress(SessionsAway):
            kept = await self._join(live.name, live.kept.actor)
            if kept is not None and kept.key_id == live.last_key:
                await self._store.end(live.name, self._holder(live.kept.actor))
            else:
                await self._store.leave(live.name, self._peers.own_id)

    async def _keep_key(self, live: LiveSession, key_id: str) -> None:
        with suppress(SessionsAway):
            await self.change(live, SessionChange(key_id=key_id))

    def _may_be_lost(self) -> bool:
        """True for a while after the store was away: what it does not know may be known to another process."""
        if self._store.losses != self._losses:
            self._lost_until = self._now() + _GRACE_S
        return self._now() < self._lost_until

    async def _renew_for_ever(self) -> None:
        due = self._now() + RENEW_S
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self._may_be_lost() and self._now() < due:
                continue
            losses = self._store.losses
            try:
                if await self.renew():
                    self._losses, due = losses, self._now() + RENEW_S
            except Exception:
                # The last boundary of this task.
                log.exception("sessions could not be renewed")

    async def _ask(self, members: Sequence[str], payload: Payload) -> list[Payload | None]:
        """Returns the answers of the other members; None for one that may be there but gave none."""
        others = [member for member in members if member != self._peers.own_id]
        if not others:
            return []
        found = await asyncio.gather(*(self._ask_one(member, payload) for member in others))
        return [answer for answer in found if answer is None or answer]

    async def _ask_one(self, member: str, payload: Payload) -> Payload | None:
        """Returns an empty answer for a process that has ended."""
        try:
            return await self._peers.ask(member, self._operation, payload, _TELL_S)
        except NotReached as missed:
            return {} if missed.gone else None

    async def _answer(self, payload: Payload) -> Payload:
        live = self._live.get(payload["id"])
        if live is None:
            return {"taken": False}
        match payload["do"]:
            case "end":
                self._drop(live)
            case "reload":
                kept = await self.refresh(live)
                live.last_key = kept.key_id
                if live.part is not None:
                    await live.part.take_up(kept, live.identity, listens=live.streams > 0)
            case "take":
                return {"taken": await live.take(payload["body"], live.identity)}
        return {"taken": False}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Opening:
    """The place of a session that is being opened, with its *id*. *begun*: the session has been opened."""

    def __init__(self, sessions: LiveSessions, id: str, identity: Identity) -> None:
        self.id = id
        self.begun = False
        self._sessions = sessions
        self._identity = identity
        self._holds = False

    def take(self) -> None:
        self._holds = True
        self._sessions._place_taken(self._identity.actor)

    async def begin(self, kept: KeptSession) -> LiveSession:
        """Opens the session for all processes. Raises SessionsAway."""
        live = await self._sessions._begin(self.id, kept, self._identity)
        self.begun = True
        self.end()
        return live

    def end(self) -> None:
        if self._holds:
            self._holds = False
            self._sessions._place_given_back(self._identity.actor)
