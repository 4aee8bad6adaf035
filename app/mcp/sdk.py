"""The part of the MCP doors that needs the SDK, imported by the first request that does (OPS-370, OPS-371).

Requests of the newer era are the SDK's own. Of the handshake era its server answers one request at a time, with a
connection that lasts as long as the request or the stream.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import aclose_shielded, serve_one
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from starlette.requests import Request

from app.mcp.requests import App, AsgiScope
from wicketgate.access.identity import Identity
from wicketgate.faces.mcp.direct import Answer, Channel, answer_with, refused
from wicketgate.faces.mcp.fit import json_rpc
from wicketgate.faces.mcp.request import EXCHANGE, Exchange, RpcError, within
from wicketgate.faces.mcp.sdk_caller import CHANGES_KEY, restore_log_level
from wicketgate.faces.mcp.sdk_server import SdkServer
from wicketgate.faces.mcp.server import McpDoor
from wicketgate.faces.mcp.session_tokens import McpSession, SessionChange
from wicketgate.mcp_names import INTERNAL_ERROR

log = logging.getLogger("wicketgate.mcp")

# Host and Origin have been checked, as at every door.
SECURITY = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class _Outbound:
    """Implements the SDK's Outbound: what the server says to the client goes to *channel*."""

    def __init__(self, channel: Channel, *, may_ask: bool = False) -> None:
        self._channel = channel
        self.can_send_request = may_ask

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        reply = await self._channel.ask(method, params)
        if reply.error is not None:
            raise MCPError(reply.error.code, reply.error.message, reply.error.data)
        return reply.result or {}

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        await self._channel.say(json_rpc({"method": method, **({} if params is None else {"params": params})}))


class _Request(_Outbound):
    """Implements the SDK's DispatchContext of one request."""

    def __init__(self, message: Mapping[str, Any], scope: AsgiScope, channel: Channel, *, may_ask: bool) -> None:
        super().__init__(channel, may_ask=may_ask)
        http = Request(scope)
        self.request_id = message["id"]
        self.message_metadata = ServerMessageMetadata(request_context=http)
        self.transport = TransportContext(kind="streamable-http", can_send_request=may_ask, headers=http.headers)
        self.cancel_requested = anyio.Event()
        self._token = progress_token_from_params(message.get("params"))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._token is not None:
            said = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
            await self.notify("notifications/progress", {key: each for key, each in said.items() if each is not None})


Changes = Callable[[SessionChange], Awaitable[bool]]
"""Keeps what the client of a session sets for all processes; false if that is not possible at the moment."""


class SdkSide:
    """The SDK's server behind one door: requests of the handshake era, and *modern*, the ASGI endpoint of the newer
    era."""

    def __init__(self, sdk: SdkServer, modern: App) -> None:
        self._sdk = sdk
        self.modern = modern

    async def answer(
        self,
        message: Mapping[str, Any],
        scope: AsgiScope,
        session: McpSession,
        channel: Channel,
        changes: Changes | None,
    ) -> tuple[Answer, McpSession | None]:
        """Answers a request of the handshake era. Returns the agreed session too if the request opens one. Without
        *changes* there is no session, and the client is never asked."""
        connection = _connection(session)
        connection.state[CHANGES_KEY] = changes
        request = _Request(message, scope, channel, may_ask=changes is not None)
        exchange: Exchange = scope[EXCHANGE]
        id, method = message["id"], message["method"]
        try:
            with within(exchange, session.version):
                result = await serve_one(
                    self._sdk.server, request, method, message.get("params"), connection=connection, lifespan_state={}
                )
            return await answer_with(id, result, scope["state"]["identity"].actor), _agreed(method, connection)
        except RpcError as error:
            return refused(id, error.code, error.message, error.data), None
        except Exception as error:
            fault = handler_exception_to_error_data(error)
            if fault is None:
                log.exception("%s failed", method)
                return refused(id, INTERNAL_ERROR, "Internal server error"), None
            return refused(id, fault.code, fault.message, fault.data), None

    @asynccontextmanager
    async def listening(
        self, token: str, session: McpSession, channel: Channel
    ) -> AsyncIterator[Callable[[McpSession, Identity], Awaitable[None]]]:
        """Sends changes to *channel* for the time of the block. Yields a function that applies the settings of the
        client."""
        connection = _connection(session, _Outbound(channel))
        try:
            yield partial(self._sdk.take_up, connection, token)
        finally:
            await aclose_shielded(connection)


def _connection(session: McpSession, *outbound: _Outbound) -> Connection:
    client = session.client
    more: dict[str, Any] = {"outbound": outbound[0]} if outbound else {}
    connection = Connection.from_envelope(session.version, client.get("clientInfo"), client.get("capabilities"), **more)
    restore_log_level(connection, session.log_level)
    return connection


def _agreed(method: str, connection: Connection) -> McpSession | None:
    """The version and the params of a handshake that has just been made."""
    if method != "initialize" or connection.client_params is None:
        return None
    client = connection.client_params.model_dump(by_alias=True, mode="json", exclude_none=True)
    return McpSession("", connection.protocol_version, client)


@asynccontextmanager
async def sdk_serving(doors: Mapping[str, McpDoor], max_bytes: int) -> AsyncIterator[Mapping[str, SdkSide]]:
    """Serves *doors* and notifies their clients of changes within the block. Gives their sides by the name of the
    door."""
    async with AsyncExitStack() as stack:
        sides: dict[str, SdkSide] = {}
        for name, door in doors.items():
            manager = StreamableHTTPSessionManager(
                door.sdk.server, security_settings=SECURITY, max_request_body_size=max_bytes, stateless=True
            )
            await stack.enter_async_context(manager.run())
            sides[name] = SdkSide(door.sdk, manager.handle_request)
        announcing = await stack.enter_async_context(anyio.create_task_group())
        for door in doors.values():
            # What is there now is no change.
            await door.sdk.compare_list(announce=False)
            announcing.start_soon(door.sdk.announcing)
        yield sides
        announcing.cancel_scope.cancel()
