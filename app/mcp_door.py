"""The MCP doors: each face over HTTP at its own path, kept running together and notified of changes.

Both protocol eras share one URL, through the official SDK. Here a session is tied to
its caller, sessions are bounded, and malformed messages are refused in our own words.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import TaskGroup
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from app.mcp_calls import AsgiMessage, AsgiScope, CountedCalls, Receive, Send
from app.mcp_faults import with_own_faults
from app.mcp_listening import Listening
from app.mcp_refusals import too_many
from app.mcp_session_limit import SessionLimit
from app.mcp_sessions import SESSION_ID, KeyedSessions, end_session, forget_last, opens_session, session_of, user_of
from wicketgate.access.authenticator import NO_LONGER_VALID, KeyUse
from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.access.shares import ShareCounts, Shares
from wicketgate.faces.assembly import Face
from wicketgate.faces.mcp.exchange import EXCHANGE, Exchange
from wicketgate.faces.mcp.opening import BODY_BYTES, SMALL_BYTES
from wicketgate.faces.mcp.server import McpDoor, calling
from wicketgate.fleet.member import loop_time

SESSION_IDLE_S = 1_800
_LAST_EVENT_ID = b"last-event-id"


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """The bound on an actor's sessions also bounds its streams of ``subscriptions/listen``."""

    max_bytes: int
    max_values: int
    max_sessions: int
    max_sessions_per_actor: int | None


class McpDoors:
    """*endpoints* by the face's name. They serve inside ``running``. *calls* bounds the requests under way at all."""

    def __init__(
        self, faces: Mapping[str, Face], *, version: str, seal: Seal, limits: DoorLimits, calls: Shares
    ) -> None:
        streams = limits.max_sessions_per_actor
        self._doors = {
            name: McpDoor(face, name=name, version=version, seal=seal, max_streams_per_actor=streams)
            for name, face in faces.items()
        }
        self.endpoints = {name: McpEndpoint(name, door, limits, calls) for name, door in self._doors.items()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for endpoint in self.endpoints.values():
                await stack.enter_async_context(endpoint.running())
            announcing = await stack.enter_async_context(anyio.create_task_group())
            for door in self._doors.values():
                announcing.start_soon(door.announcer.run)
            yield
            announcing.cancel_scope.cancel()

    def end_listening(self) -> None:
        """End the streams on which clients get notifications: in the newer era with a last frame, in the handshake era
        with the end of the stream. Nobody is asked any more who answers with another request."""
        for door in self._doors.values():
            door.announcer.close()
            door.ask_no_more()
        for endpoint in self.endpoints.values():
            endpoint.end_listening()

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """End the sessions of the handshake era that this key used last; returns how many (FACE-42)."""
        return {"sessions": sum(endpoint.sessions.end_of(key_id) for endpoint in self.endpoints.values())}

    def session_counts(self) -> list[ShareCounts]:
        """The counts of sessions of the handshake era, by face."""
        return [endpoint.session_limit for endpoint in self.endpoints.values()]

    def catalog_changed(self) -> None:
        """Notify the clients of each face whose list of tools differs."""
        for door in self._doors.values():
            door.list_changed()

    def access_changed(self) -> None:
        """Notify the clients of each face that their lists of the same catalog may differ."""
        for door in self._doors.values():
            door.access_changed()


class McpEndpoint:
    """The ASGI endpoint of a face. ``running`` must be entered once, for as long as it serves.

    Sessions of the handshake era and calls under way are shared among actors, so that one client which opens them
    without end cannot shut out the others.
    """

    def __init__(self, face: str, door: McpDoor, limits: DoorLimits, calls: Shares) -> None:
        self._prepare = door.prepare
        self.manager = StreamableHTTPSessionManager(
            door.server,
            # Host and Origin have been checked, as at every door.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=limits.max_bytes,
            max_sessions=limits.max_sessions,
            session_idle_timeout=SESSION_IDLE_S,
        )
        self._listening = Listening(with_own_faults(self.manager.handle_request, limits.max_values))
        # Private in 2.3.0; the SDK has no public access to the owners of sessions.
        self.sessions = KeyedSessions(lambda: self.manager._session_owners, self._end_session, loop_time)
        self.session_limit = SessionLimit(
            face,
            self.sessions,
            partial(end_session, self.manager.handle_request),
            limits.max_sessions,
            limits.max_sessions_per_actor,
        )
        self._tasks: TaskGroup | None = None
        self._counted = CountedCalls(self._serve, calls)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.manager.run(), anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    def end_listening(self) -> None:
        """End the streams on which clients of the handshake era listen, and open no more."""
        self._listening.end()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self._counted(scope, receive, send)

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        identity: Identity = scope["state"]["identity"]
        # httptools leaves trailing blanks on header values, and the SDK compares some of them to the body. It
        # would fail to resume after an event, because no event is kept: such a stream is a new one.
        headers = [(key, value.strip()) for key, value in scope["headers"] if key != _LAST_EVENT_ID]
        scope = {**scope, "headers": headers}
        if not opens_session(scope):
            await self._serve_request(scope, receive, send)
        elif full := await self.session_limit.full_for(identity):
            await too_many("open sessions", full)(scope, receive, send)
        else:
            with self.sessions.opening(identity) as begin:
                await self._serve_request(scope, receive, _watched(begin, send))

    async def _serve_request(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        identity: Identity = scope["state"]["identity"]
        # In the handshake era the SDK lets a call run on after its client has left, so that the answer can be fetched
        # later. No answer is kept here, so the call is ended (CHAT-72).
        exchange = Exchange()
        calling.set(identity)
        use: KeyUse = scope["state"]["key_use"]
        if scope["method"] == "POST":
            use.end = partial(_revoke, exchange, use, use.end)
        session_id = session_of(scope) or ""
        served: AsgiScope = {**scope, "user": user_of(identity), EXCHANGE: exchange}
        try:
            if scope["method"] == "POST":
                await self._prepare(identity)
            with self.sessions.used(session_id, identity, listens=scope["method"] == "GET"):
                await self._listening(served, receive, send)
        finally:
            exchange.end()
            if session_id and served.get(BODY_BYTES, 0) > SMALL_BYTES and self._tasks is not None:
                self._tasks.start_soon(forget_last, self.manager.handle_request, session_id, identity)

    def _end_session(self, session_id: str, identity: Identity) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(end_session, self.manager.handle_request, session_id, identity)


def _watched(begin: Callable[[str], None], send: Send) -> Send:
    """Calls *begin* with the id of the session that the answer opens."""

    async def watched(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            for key, value in message["headers"]:
                if key.lower() == SESSION_ID:
                    begin(value.decode("latin-1"))
        await send(message)

    return watched


def _revoke(exchange: Exchange, use: KeyUse, refuse: Callable[[], None]) -> None:
    """Ends a POST whose key is not good any more: with a JSON-RPC error in an answer that has begun, otherwise with
    *refuse* (FACE-40)."""
    exchange.end(NO_LONGER_VALID)
    if not use.answering:
        refuse()
