"""The MCP doors: each face over HTTP at its own path, kept running together and notified of changes.

Both protocol eras share one URL. Here a request goes to the one that it belongs to, and ends with its client and key.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from app.json_body import given_again
from app.mcp_calls import AsgiScope, CountedCalls, Receive, Send
from app.mcp_direct import DirectWay
from app.mcp_faults import read_message, with_own_faults
from app.mcp_handshake import OPENING, HandshakeEndpoint
from app.mcp_listening import Listening
from app.mcp_live_session import SessionsFull
from app.mcp_live_sessions import LiveSessions
from app.mcp_refusals import sessions_away, too_many
from app.mcp_session_part import SECURITY, user_of
from app.mcp_sessions import of_handshake_era, opens_session, session_of
from wicketgate.access.authenticator import NO_LONGER_VALID, KeyUse
from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.access.shares import ShareCounts, Shares
from wicketgate.faces.assembly import Face
from wicketgate.faces.mcp.direct import DirectDoor
from wicketgate.faces.mcp.direct_requests import Head, head_of
from wicketgate.faces.mcp.exchange import EXCHANGE, Exchange
from wicketgate.faces.mcp.kept_sessions import McpSessionStore, SessionsAway
from wicketgate.faces.mcp.server import McpDoor, calling
from wicketgate.fleet.member import loop_time
from wicketgate.peers import Peers
from wicketgate.storage.fail_modes import FailModes

_LAST_EVENT_ID = b"last-event-id"
_NO_VERSION = (b"mcp-protocol-version", b"")


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """The bound on an actor's sessions also bounds its streams of ``subscriptions/listen``."""

    max_bytes: int
    max_values: int
    max_sessions: int
    max_sessions_per_actor: int | None
    direct: bool = True
    """Frequent requests are answered past the SDK's server."""


class McpDoors:
    """*endpoints* by the face's name. They serve inside ``running``. *calls* bounds the requests under way at all."""

    def __init__(
        self,
        faces: Mapping[str, Face],
        *,
        version: str,
        seal: Seal,
        limits: DoorLimits,
        calls: Shares,
        kept: McpSessionStore,
        peers: Peers,
        fail: FailModes,
    ) -> None:
        streams = limits.max_sessions_per_actor
        self._doors = {
            name: McpDoor(face, name=name, version=version, seal=seal, max_streams_per_actor=streams)
            for name, face in faces.items()
        }
        self.endpoints = {
            name: McpEndpoint(door, _sessions(name, kept, peers, fail, limits), limits, calls)
            for name, door in self._doors.items()
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for endpoint in self.endpoints.values():
                await stack.enter_async_context(endpoint.running())
            announcing = await stack.enter_async_context(anyio.create_task_group())
            for door in self._doors.values():
                # Nobody listens yet: what is there now is no change.
                await door.compare_list()
                announcing.start_soon(door.announcing)
            yield
            announcing.cancel_scope.cancel()

    def end_listening(self) -> None:
        """End the streams on which clients get notifications: in the newer era with a last frame, in the handshake era
        with the end of the stream."""
        for door in self._doors.values():
            door.announcer.close()
        for endpoint in self.endpoints.values():
            endpoint.end_listening()

    def ask_no_more(self) -> None:
        """Nobody can come back any more: the port is closed."""
        for door in self._doors.values():
            door.ask_no_more()

    async def answered(self) -> None:
        """Return when no held call waits for its client, nor a client of any process for one."""
        for door in self._doors.values():
            await door.answered()

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """End the sessions of the handshake era that this key used last; returns how many (FACE-42)."""
        return {"sessions": sum(endpoint.sessions.end_of(key_id) for endpoint in self.endpoints.values())}

    def session_counts(self) -> list[ShareCounts]:
        """The counts of sessions of the handshake era, by face."""
        return [endpoint.sessions.limit for endpoint in self.endpoints.values()]

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

    def __init__(self, door: McpDoor, sessions: LiveSessions, limits: DoorLimits, calls: Shares) -> None:
        self._prepare = door.prepare
        # For requests without a session, in either era.
        self._stateless = StreamableHTTPSessionManager(
            door.server, security_settings=SECURITY, max_request_body_size=limits.max_bytes, stateless=True
        )
        self.sessions = sessions
        self._handshake = HandshakeEndpoint(door, sessions)
        self._direct = DirectWay(DirectDoor(door), sessions) if limits.direct else None
        self._max_values = limits.max_values
        self._by_sdk = Listening(with_own_faults(self._by_era))
        self._counted = CountedCalls(self._serve, calls)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._stateless.run(), self._handshake.running():
            yield

    def end_listening(self) -> None:
        """End the streams on which clients of the handshake era listen, and open no more."""
        self._by_sdk.end()

    # Returns the awaitable and awaits nothing itself: one frame less for each step of a request.
    def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._counted(scope, receive, send)

    async def _serve(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        posted = scope["method"] == "POST"
        head = head_of(scope["headers"]) if posted and self._direct is not None else None
        try:
            if not posted:
                await self._serve_by_sdk(scope, Exchange(), receive, send)
            else:
                await self._serve_posted(scope, head, receive, send)
        except SessionsFull as full:
            await too_many("open sessions", full.scope)(scope, receive, send)
        except SessionsAway:
            await sessions_away()(scope, receive, send)

    async def _serve_posted(self, scope: AsgiScope, head: Head | None, receive: Receive, send: Send) -> None:
        """*head*: the request may be taken past the SDK."""
        # In the handshake era the SDK lets a call run on after its client has left, so that the answer can be fetched
        # later. No answer is kept here, so the call is ended (CHAT-72).
        exchange = Exchange()
        use: KeyUse = scope["state"]["key_use"]
        use.end = partial(_revoke, exchange, use, use.end)
        await self._prepare(scope["state"]["identity"])
        body = await read_message(scope, receive, send, self._max_values)
        if body is None:
            return
        scope[EXCHANGE] = exchange
        direct = self._direct
        if direct is not None and head is not None and await direct.serve(head, body, scope, receive, send, exchange):
            return
        try:
            async with AsyncExitStack() as place:
                if opens_session(scope, body):
                    opening = self.sessions.opening(scope["state"]["identity"])
                    scope = {**scope, OPENING: await place.enter_async_context(opening)}
                await self._serve_by_sdk(scope, exchange, given_again(body, receive), send)
        finally:
            exchange.end()

    async def _serve_by_sdk(self, scope: AsgiScope, exchange: Exchange, receive: Receive, send: Send) -> None:
        identity: Identity = scope["state"]["identity"]
        calling.set(identity)
        # httptools leaves trailing blanks on header values, and the SDK compares some of them to the body. It
        # would fail to resume after an event, because no event is kept: such a stream is a new one. An empty
        # version is none.
        stripped = ((key, value.strip()) for key, value in scope["headers"] if key != _LAST_EVENT_ID)
        headers = [each for each in stripped if each != _NO_VERSION]
        served: AsgiScope = {**scope, "headers": headers, "user": user_of(identity), EXCHANGE: exchange}
        await self._by_sdk(served, receive, send)

    async def _by_era(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        without_session = scope["method"] == "POST" and session_of(scope) is None and OPENING not in scope
        if without_session or not of_handshake_era(scope):
            await self._stateless.handle_request(scope, receive, send)
        else:
            await self._handshake(scope, receive, send)


def _sessions(face: str, kept: McpSessionStore, peers: Peers, fail: FailModes, limits: DoorLimits) -> LiveSessions:
    return LiveSessions(
        face,
        kept,
        peers,
        fail,
        loop_time,
        lambda: secrets.token_hex(16),
        most=limits.max_sessions,
        per_actor=limits.max_sessions_per_actor,
    )


def _revoke(exchange: Exchange, use: KeyUse, refuse: Callable[[], None]) -> None:
    """Ends a POST whose key is not good any more: with a JSON-RPC error in an answer that has begun, otherwise with
    *refuse* (FACE-40)."""
    if use.answering:
        exchange.end(NO_LONGER_VALID)
    else:
        refuse()
