"""The MCP client of a request that came through the SDK, and what the SDK keeps of its session."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, cast

from mcp import types as t
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import InvalidRequestState, RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.faces.mcp.caller import ANSWERS_WITHIN_S, LEVELS, McpCaller, reaches
from wicketgate.faces.mcp.questions import read_question, wire
from wicketgate.faces.mcp.request import McpRequest, RpcError
from wicketgate.faces.mcp.session_tokens import SessionChange
from wicketgate.mcp_names import HANDSHAKE_PROTOCOL_VERSIONS, INTERNAL_ERROR

Ctx = ServerRequestContext[Any, Any]

CHANGES_KEY = "wicketgate.session_changes"
"""The key, in the ``state`` of a connection, of the function that stores a SessionChange of its client for all
processes. It returns false if it cannot at the moment."""

_LEVEL_KEY = "wicketgate.log_level"
_PURPOSE = "request state"


_NOTIFICATIONS: Mapping[str, type[t.LoggingMessageNotification | t.ElicitCompleteNotification]] = {
    "notifications/message": t.LoggingMessageNotification,
    "notifications/elicitation/complete": t.ElicitCompleteNotification,
}


class ClientCaller(McpCaller):
    """The client of a request that came through the SDK."""

    def __init__(self, ctx: Ctx) -> None:
        super().__init__(ctx)
        self._ctx = ctx

    @cached_property
    def capabilities(self) -> Mapping[str, Any]:
        can = self._ctx.session.client_capabilities
        return {} if can is None else wire(can)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if (self._ctx.meta or {}).get("progress_token") is not None:
            self._outbox.put(lambda: self._ctx.session.report_progress(progress, total, message))

    async def log(self, level: str, data: object, logger: str | None) -> None:
        if self._wants(level):
            self._send("notifications/message", {"level": level, "data": data, "logger": logger})

    async def _put(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        question, result_type = read_question(method, params)
        metadata = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        try:
            answer = await self._ctx.session.send_request(question, result_type, metadata=metadata)
        except MCPError as error:
            raise RpcError(error.code, error.message, error.data) from error
        return wire(answer, "result_type")

    def _send(self, method: str, params: Mapping[str, Any]) -> None:
        session, id = self._ctx.session, self._ctx.request_id
        notification = _NOTIFICATIONS[method].model_validate({"method": method, "params": params}, by_name=False)
        self._outbox.put(lambda: session.send_notification(notification, related_request_id=id))

    def _wants(self, level: str) -> bool:
        """Compares with the level that the client set, with this request in the newer era or for its session."""
        if level not in LEVELS:
            return False
        if self._ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return level in allowed_log_levels(self._ctx.protocol_version, self._ctx.meta)
        return reaches(level, connection_of(self._ctx).state.get(_LEVEL_KEY, ""))


async def set_log_level(ctx: Ctx, params: t.SetLevelRequestParams) -> t.EmptyResult:
    """``logging/setLevel`` of the handshake era: the lowest level that this session gets from now on."""
    await keep_change(ctx, SessionChange(log_level=params.level))
    restore_log_level(connection_of(ctx), params.level)
    return t.EmptyResult()


def restore_log_level(connection: Connection, level: str) -> None:
    """The level that the client of this connection has set, maybe at another process; empty for none."""
    if level in LEVELS:
        connection.state[_LEVEL_KEY] = level


async def keep_change(ctx: Ctx, change: SessionChange) -> None:
    """Keep what the client has set for all processes that serve its session. Raises RpcError."""
    keep: Callable[[SessionChange], Awaitable[bool]] | None = connection_of(ctx).state.get(CHANGES_KEY)
    if keep is not None and not await keep(change):
        raise RpcError(INTERNAL_ERROR, "This cannot be kept at the moment. Try again.")


def connection_of(ctx: Ctx) -> Connection:
    """The connection, which lasts as long as the client's session. The SDK 2.3.0 has no public access to it."""
    return ctx.session._connection


class _Codec:
    """Seals states for the SDK, which adds the claims (actor, tool, arguments, face) to the sealed text."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def seal(self, payload: bytes) -> str:
        return self._seal.seal(_PURPOSE, "", payload.decode(), ANSWERS_WITHIN_S)

    def unseal(self, token: str) -> bytes:
        sealed = self._seal.open(_PURPOSE, "", token)
        if sealed is None or self._seal.expired(sealed):
            raise InvalidRequestState("not sealed here, or expired")
        return sealed.text.encode()


def seal_states(seal: Seal, audience: str, who: Callable[[Ctx], Identity]) -> RequestStateBoundary:
    """Middleware that seals a state that goes out, and opens one that comes back or refuses the call (-32602)."""
    security = RequestStateSecurity(
        codec=_Codec(seal), ttl=ANSWERS_WITHIN_S, bind_principal=lambda ctx: who(ctx).actor, audience=audience
    )
    return RequestStateBoundary(security, default_audience=audience)


async def seal_state(boundary: RequestStateBoundary, asked: McpRequest, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """*result* as *boundary* lets it out. Of *asked* the SDK reads what an McpRequest has. Raises RpcError."""

    async def answered(ctx: Any) -> Any:
        return result

    try:
        sealed: Any = await boundary(cast(Any, asked), answered)
    except MCPError as error:
        raise RpcError(error.code, error.message, error.data) from None
    return cast(Mapping[str, Any], sealed)
