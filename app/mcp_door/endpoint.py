"""The ASGI endpoint of a face: who calls is tied to its session, sessions are bounded, Host and Origin are checked.

Both protocol eras share one URL, through the official SDK (guide "Serve /mcp from FastAPI").
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
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

from app.mcp_door.plain_faults import PlainFaults
from wicketgate.access.identity import Identity
from wicketgate.faces.mcp.server import EXCHANGE, calling

_SESSION_IDLE_S = 1_800

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class McpEndpoint:
    """The ASGI endpoint of a face. ``manager.run()`` must be entered once, for as long as it serves.

    Sessions of the handshake era are bounded, in all and for each actor, so that one client which opens them without
    end cannot shut out the others.
    """

    def __init__(
        self,
        server: "Server[Any]",
        *,
        hosts: Sequence[str],
        origins: Sequence[str],
        max_bytes: int,
        max_sessions: int,
        max_sessions_per_actor: int,
    ) -> None:
        self._max_sessions_per_actor = max_sessions_per_actor
        self.manager = StreamableHTTPSessionManager(
            server,
            security_settings=TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=list(origins)),
            max_request_body_size=max_bytes,
            max_sessions=max_sessions,
            session_idle_timeout=_SESSION_IDLE_S,
        )
        self._listening = _Listening(PlainFaults(self.manager.handle_request))

    @property
    def open_sessions(self) -> int:
        """Of the handshake era."""
        return len(self.manager._session_owners)

    def end_listening(self) -> None:
        """End the streams on which clients of the handshake era listen, and open none any more."""
        self._listening.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity: Identity = scope["state"]["identity"]
        # The SDK ties a session to this very type of user; with any other, a leaked session id would serve anybody.
        user = AuthenticatedUser(
            AccessToken(
                token=identity.actor,
                client_id=identity.actor,
                subject=identity.actor,
                scopes=list(identity.permissions),
            )
        )
        # httptools leaves trailing blanks on header values, and the SDK compares some of them to the body.
        headers = [(key, value.strip()) for key, value in scope["headers"]]
        if self._opens_session(scope, headers) and self._open_sessions(identity) >= self._max_sessions_per_actor:
            await _TOO_MANY_SESSIONS(scope, receive, send)
            return
        # In the handshake era the SDK lets a call run on when its client is gone, for an answer to be fetched later;
        # none is kept here, so what nobody can hear is ended (E87).
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
        # Private in 2.3.0; the SDK has no public way to ask whose sessions are open.
        owners = self.manager._session_owners.values()
        return sum(owner["client_id"] == identity.actor for owner in owners)


class _Listening:
    """ASGI: what *app* answers to GET is a stream without end, on which a client of the handshake era listens. It ends
    when the client leaves, or with ``end``: nothing is under way on it, so no stop has to wait for it."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
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
        # What the client has been sent of an answer, so that an end may complete it.
        sent: MutableMapping[str, Any] = {}

        def watched(message: MutableMapping[str, Any]) -> Awaitable[None]:
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
            await _STOPPING(scope, receive, send)
        elif stream.cancelled_caught and (sent["type"] == "http.response.start" or sent.get("more_body")):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


_STOPPING = JSONResponse(
    {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": "The service is stopping"}}, 503
)
_TOO_MANY = {"code": INTERNAL_ERROR, "message": "Too many open sessions of this actor"}
_TOO_MANY_SESSIONS = JSONResponse({"jsonrpc": "2.0", "id": None, "error": _TOO_MANY}, 503)
