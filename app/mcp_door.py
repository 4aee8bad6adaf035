"""The MCP doors: each face over HTTP at its own path, kept running together and notified of changes.

Both protocol eras share one URL, through the official SDK. Here a session is tied to
its caller, sessions are bounded, Host and Origin are checked, and malformed messages are refused in our own words.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INTERNAL_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse

from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.faces.assembly import Face
from wicketgate.faces.mcp.envelope import Fault, fault_of
from wicketgate.faces.mcp.server import EXCHANGE, McpDoor, calling

_SESSION_IDLE_S = 1_800

# The answers that the SDK gives to a message that it does not understand.
_SUSPECT = (202, 400)

AsgiMessage = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """*hosts* and *origins* are the accepted headers. The bound on an actor's sessions also bounds its streams of
    ``subscriptions/listen``."""

    hosts: Sequence[str]
    origins: Sequence[str]
    max_bytes: int
    max_sessions: int
    max_sessions_per_actor: int


class McpDoors:
    """*endpoints* by the face's name. They serve inside ``running``."""

    def __init__(self, faces: Mapping[str, Face], *, version: str, seal: Seal, limits: DoorLimits) -> None:
        streams = limits.max_sessions_per_actor
        self._doors = {
            name: McpDoor(face, name=name, version=version, seal=seal, max_streams_per_actor=streams)
            for name, face in faces.items()
        }
        self.endpoints = {name: McpEndpoint(door.server, limits) for name, door in self._doors.items()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for endpoint in self.endpoints.values():
                await stack.enter_async_context(endpoint.manager.run())
            announcing = await stack.enter_async_context(anyio.create_task_group())
            for door in self._doors.values():
                announcing.start_soon(door.announcer.run)
            yield
            announcing.cancel_scope.cancel()

    def end_listening(self) -> None:
        """End the streams on which clients get notifications: in the newer era with a last frame, in the handshake era
        with the end of the stream."""
        for door in self._doors.values():
            door.announcer.close()
        for endpoint in self.endpoints.values():
            endpoint.end_listening()

    def open_sessions(self) -> int:
        """The sessions of the handshake era at all doors."""
        return sum(endpoint.open_sessions for endpoint in self.endpoints.values())

    def catalog_changed(self) -> None:
        """Notify the clients of each face whose list of tools differs."""
        for door in self._doors.values():
            door.list_changed()

    def access_changed(self) -> None:
        """Notify the clients of each face that their lists of the same catalog may differ."""
        for door in self._doors.values():
            door.access_changed()


class McpEndpoint:
    """The ASGI endpoint of a face. ``manager.run()`` must be entered once, for as long as it serves.

    Sessions of the handshake era are bounded, in all and for each actor, so that one client which opens them without
    end cannot shut out the others.
    """

    def __init__(self, server: "Server[Any]", limits: DoorLimits) -> None:
        self._max_sessions_per_actor = limits.max_sessions_per_actor
        self.manager = StreamableHTTPSessionManager(
            server,
            security_settings=TransportSecuritySettings(
                allowed_hosts=list(limits.hosts), allowed_origins=list(limits.origins)
            ),
            max_request_body_size=limits.max_bytes,
            max_sessions=limits.max_sessions,
            session_idle_timeout=_SESSION_IDLE_S,
        )
        self._listening = _Listening(_with_own_faults(self.manager.handle_request))

    @property
    def open_sessions(self) -> int:
        """The number of sessions of the handshake era."""
        return len(self.manager._session_owners)

    def end_listening(self) -> None:
        """End the streams on which clients of the handshake era listen, and open no more."""
        self._listening.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity: Identity = scope["state"]["identity"]
        # The SDK ties a session to exactly this type of user. With any other, a leaked session id would serve anyone.
        actor = identity.actor
        user = AuthenticatedUser(
            AccessToken(token=actor, client_id=actor, subject=actor, scopes=list(identity.permissions))
        )
        # httptools leaves trailing blanks on header values, and the SDK compares some of them to the body.
        headers = [(key, value.strip()) for key, value in scope["headers"]]
        if self._opens_session(scope, headers) and self._open_sessions(identity) >= self._max_sessions_per_actor:
            await _unavailable("Too many open sessions of this actor")(scope, receive, send)
            return
        # In the handshake era the SDK lets a call run on after its client has left, so that the answer can be fetched
        # later. No answer is kept here, so the call is ended (CHAT-72).
        exchange = anyio.CancelScope()
        calling.set(identity)
        try:
            await self._listening({**scope, "headers": headers, "user": user, EXCHANGE: exchange}, receive, send)
        finally:
            exchange.cancel()

    @staticmethod
    def _opens_session(scope: Scope, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        names = {key: value for key, value in headers if key in (b"mcp-session-id", b"mcp-protocol-version")}
        version = names.get(b"mcp-protocol-version", b"").decode("latin-1")
        handshake = not version or version in HANDSHAKE_PROTOCOL_VERSIONS
        return handshake and scope["method"] == "POST" and b"mcp-session-id" not in names

    def _open_sessions(self, identity: Identity) -> int:
        # Private in 2.3.0; the SDK has no public access to the owners of sessions.
        owners = self.manager._session_owners.values()
        return sum(owner["client_id"] == identity.actor for owner in owners)


class _Listening:
    """ASGI: the answer of *app* to GET is a stream without end, on which a client of the handshake era listens.

    It ends when the client leaves, or with ``end``. No call runs on it, so a stop need not wait for it.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: set[anyio.CancelScope] = set()
        self._ended = False

    def end(self) -> None:
        self._ended = True
        for stream in self._open:
            stream.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            return await self._app(scope, receive, send)
        # The last message sent, so that an end may complete the answer.
        sent: AsgiMessage = {}

        def watched(message: AsgiMessage) -> Awaitable[None]:
            nonlocal sent
            sent = message
            return send(message)

        with anyio.CancelScope() as stream:
            if self._ended:
                stream.cancel()
            self._open.add(stream)
            try:
                await self._app(scope, receive, watched)
            finally:
                self._open.discard(stream)
        if stream.cancelled_caught and not sent:
            await _unavailable("The service is stopping")(scope, receive, send)
        elif stream.cancelled_caught and (sent["type"] == "http.response.start" or sent.get("more_body")):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _unavailable(message: str) -> JSONResponse:
    return JSONResponse(Fault(INTERNAL_ERROR, message).as_json(), 503)


def _with_own_faults(app: App) -> App:
    """ASGI: refuses malformed messages in place of the SDK (FACE-4, FACE-5, ROUTE-2).

    An answer of *app* that may be to a malformed message is held back until the message has been checked.
    """

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await app(scope, receive, send)
            return
        body: list[bytes] = []
        held: list[AsgiMessage] = []
        passing = False

        async def keeping() -> AsgiMessage:
            message = await receive()
            if message["type"] == "http.request":
                body.append(message.get("body", b""))
            return message

        async def holding(message: AsgiMessage) -> None:
            nonlocal passing
            # Most answers pass at once.
            if not passing and message["type"] == "http.response.start" and message["status"] not in _SUSPECT:
                passing = True
                body.clear()
            if passing:
                await send(message)
                return
            # A suspect answer is complete: send it, or the fault of the message in its place.
            held.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                passing = True
                fault = fault_of(b"".join(body)) if body else None
                if fault is not None:
                    await JSONResponse(fault.as_json(), 400)(scope, receive, send)
                    return
                for each in held:
                    await send(each)

        await app(scope, keeping, holding)

    return checked
