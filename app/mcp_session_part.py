"""The SDK's part of one session: its transport and its connection, which serve the requests that reach this process."""

import logging
from collections.abc import Mapping
from typing import Any

import anyio
from anyio.abc import TaskStatus
from mcp import types as t
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from pydantic import ValidationError

from app.mcp_calls import AsgiMessage, AsgiScope, Receive, Send
from app.mcp_session_messages import Addressed, QuestionIds, addressed, same
from app.mcp_sessions import SESSION_ID
from wicketgate.access.identity import Identity
from wicketgate.faces.mcp.exchange import EXCHANGE, Exchange
from wicketgate.faces.mcp.kept_sessions import CHANGES_KEY, KeptSession, SessionChanges
from wicketgate.faces.mcp.server import McpDoor

log = logging.getLogger("wicketgate.mcp")

# Host and Origin have been checked, as at every door.
SECURITY = TransportSecuritySettings(enable_dns_rebinding_protection=False)

_NOTHING = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}'


class _Dispatcher(JSONRPCDispatcher):
    """Knows what runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.running: set[object] = set()
        self.asked: set[object] = set()
        self._ids = QuestionIds()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        id = self._ids.next()
        self.asked.add(id)
        try:
            return await super().send_raw_request(method, params, {**(opts or {}), "request_id": id}, **more)
        finally:
            self.asked.discard(id)

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        async def noted(ctx: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            id = same(ctx.request_id)
            self.running.add(id)
            try:
                return await on_request(ctx, method, params)
            finally:
                self.running.discard(id)

        await super().run(noted, on_notify, on_notify_intercept, task_status=task_status)


class SessionPart:
    """Implements Part. ``run`` runs it; with a session that was opened before, its client has introduced itself."""

    def __init__(self, door: McpDoor, session_id: str) -> None:
        self._door = door
        self._id = session_id
        self._transport = StreamableHTTPServerTransport(session_id, security_settings=SECURITY)
        self._scope = anyio.CancelScope()
        self._dispatcher: _Dispatcher | None = None
        self._connection: Connection | None = None
        self._kept: tuple[object, KeptSession] | None = None

    @property
    def ended(self) -> bool:
        return self._scope.cancel_called or self._transport.is_terminated

    async def run(
        self,
        session: KeptSession | None,
        identity: Identity,
        changes: SessionChanges,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves until the session ends here. Raises ValidationError for a session that cannot be read, before it is
        started."""
        client = None if session is None else t.InitializeRequestParams.model_validate(session.client, by_name=False)
        try:
            with self._scope:
                async with self._transport.connect() as (read, write):
                    # A client may send its next request with the first.
                    self._dispatcher = _Dispatcher(read, write, inline_methods=frozenset({"initialize"}))
                    connection = Connection.for_loop(self._dispatcher, session_id=self._id)
                    connection.state[CHANGES_KEY] = changes
                    self._connection = connection
                    if session is not None:
                        connection.client_params, connection.protocol_version = client, session.version
                        connection.initialized.set()
                        self._kept = client, session
                        await self.take_up(session, identity, listens=False)
                    task_status.started()
                    await serve_connection(
                        self._door.server, self._dispatcher, connection=connection, lifespan_state={}
                    )
        except ValidationError:
            raise
        except Exception:
            log.exception("a session of a client has failed")
        finally:
            # However it ended: what still reaches it is refused, and its streams end.
            with anyio.CancelScope(shield=True):
                if not self._transport.is_terminated:
                    await self._transport.terminate()

    def end(self) -> None:
        self._scope.cancel()

    def handshake(self, identity: Identity) -> KeptSession | None:
        """Returns the facts of a handshake that is done and not yet kept."""
        connection = self._connection
        if connection is None or connection.client_params is None:
            return None
        params = connection.client_params
        if self._kept is not None and self._kept[0] is params:
            return None
        client = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        session = KeptSession(identity.actor, identity.key_id, connection.protocol_version, client)
        self._kept = params, session
        return session

    def takes(self, message: Addressed) -> bool:
        """True if what the message is about runs here."""
        if self._dispatcher is None or self.ended:
            return False
        ids = self._dispatcher.running if message.kind == "cancel" else self._dispatcher.asked
        return same(message.id) in ids

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """ASGI: answers a request of the client."""
        await self._transport.handle_request(scope, receive, send)

    async def take(self, body: bytes, identity: Identity) -> bool:
        message = addressed(body)
        if message is None or not self.takes(message):
            return False
        await self._feed(body, identity)
        return True

    async def take_up(self, session: KeptSession, identity: Identity, *, listens: bool) -> None:
        if self._connection is not None:
            await self._door.take_up(self._connection, self._id, session, identity, listens=listens)

    async def forget_last(self, identity: Identity) -> None:
        """Gives the session a message without a meaning: the SDK keeps the last one until the next (FACE-46)."""
        if not self.ended:
            await self._feed(_NOTHING, identity)

    async def _feed(self, body: bytes, identity: Identity) -> None:
        """Gives the transport a notification or an answer, as its own client would."""
        scope: AsgiScope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": [
                (b"host", b"localhost"),
                (SESSION_ID, self._id.encode("latin-1")),
                (b"content-type", b"application/json"),
                (b"accept", b"application/json, text/event-stream"),
            ],
            "user": user_of(identity),
            "state": {"identity": identity},
            EXCHANGE: Exchange(),
        }

        async def receive() -> AsgiMessage:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start" and message["status"] not in (202, 404):
                log.error("a message could not be given to a session: status %d", message["status"])

        try:
            await self._transport.handle_request(scope, receive, send)
        except Exception:
            # The last boundary of a task: the door has to go on.
            if not self.ended:
                log.exception("a message could not be given to a session")


def user_of(identity: Identity) -> AuthenticatedUser:
    """The object that the SDK takes for the user of a request."""
    actor = identity.actor
    return AuthenticatedUser(
        AccessToken(token=actor, client_id=actor, subject=actor, scopes=list(identity.permissions))
    )
