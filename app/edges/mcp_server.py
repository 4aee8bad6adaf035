"""A face as an MCP server: both protocol eras on one URL, through the official SDK (guide "Serve /mcp from FastAPI").

What is settled here: a face's failures are results with ``isError``, never exceptions (the SDK shows an exception's
text to clients of the older era); a session belongs to the credential that opened it; Host and Origin are checked.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

import anyio
from mcp import types as t
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse

from app.auth.identity import Identity
from app.errors import UpstreamError
from app.faces.surface import SurfaceTool, ToolSurface, UnknownTool
from app.gateway.ports import CallContext
from app.gateway.sessions import session_key
from app.wire.correlation import correlation_id

log = logging.getLogger("wicketgate.mcp")

SESSION_META_KEY = "wicketgate/session"
"""A client of the era without sessions may name its browsing session under this key of ``_meta`` (DESIGN §3)."""

_TOOLS_FRESH_MS = 60_000
_SESSION_IDLE_S = 1_800

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def mcp_server(surface: ToolSurface, *, version: str, instructions: str) -> "Server[Any]":
    """The low-level server of one face."""
    tools = {tool.name: tool for tool in surface.tools(_NOBODY)}

    async def list_tools(ctx: "ServerRequestContext[Any]", params: object) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[_tool(tool) for tool in surface.tools(_context(ctx))])

    async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
        result = None
        try:
            with _exchange(ctx):
                result = await surface.call(params.name, params.arguments, _context(ctx))
        except UnknownTool:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}") from None
        except Exception:
            log.exception("tools/call failed")
            body = UpstreamError("The call failed inside the gateway.").as_dict()
            return t.CallToolResult(
                content=[t.TextContent(type="text", text=body["message"])], structured_content=body, is_error=True
            )
        if result is None:
            raise MCPError(REQUEST_TIMEOUT, "The client has left.")
        return t.CallToolResult.model_validate(
            {
                "content": result.content,
                "structuredContent": result.structured,
                "isError": result.is_error,
            },
            by_name=False,
        )

    def input_schema(name: str) -> Mapping[str, Any] | None:
        # Without it the SDK lists all tools before each call of the newer era.
        tool = tools.get(name)
        return tool.input_schema if tool else None

    return Server(
        "wicketgate",
        version=version,
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=input_schema,
        cache_hints={"tools/list": CacheHint(_TOOLS_FRESH_MS, "private")},
    )


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
        scope["state"]["exchange"] = exchange
        try:
            await self.manager.handle_request({**scope, "headers": headers, "user": user}, receive, send)
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


_TOO_MANY = {"code": INTERNAL_ERROR, "message": "Too many open sessions of this actor"}
_TOO_MANY_SESSIONS = JSONResponse({"jsonrpc": "2.0", "id": None, "error": _TOO_MANY}, 503)

_NOBODY = CallContext(Identity("nobody"), "-", "-")


def _tool(tool: SurfaceTool) -> t.Tool:
    return t.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        annotations=t.ToolAnnotations(read_only_hint=True) if tool.read_only else None,
    )


def _context(ctx: "ServerRequestContext[Any]") -> CallContext:
    """Who calls, from what the middleware left on the request."""
    request = ctx.request
    if request is None:
        raise RuntimeError("this server is made for HTTP")
    identity: Identity = request.state.identity
    return CallContext(identity, correlation_id.get(), _session(ctx, identity, request.headers))


def _exchange(ctx: "ServerRequestContext[Any]") -> anyio.CancelScope:
    """Cancelled once the HTTP exchange that brought this call is over."""
    assert ctx.request is not None
    exchange: anyio.CancelScope = ctx.request.state.exchange
    return exchange


def _session(ctx: "ServerRequestContext[Any]", identity: Identity, headers: Mapping[str, str]) -> str:
    """The browsing session (DESIGN §3): the handshake's own; in the newer era, where that header means nothing, the
    one that the client names, or the actor's."""
    if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        return session_key("mcp", identity.actor, headers.get("mcp-session-id", ""))
    named = (ctx.meta or {}).get(SESSION_META_KEY)
    return session_key("named", identity.actor, named if isinstance(named, str) else "")
