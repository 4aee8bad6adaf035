"""A real MCP server that tells accounts by their bearer tokens, in both eras over streamable HTTP, or over SSE.

``whoami`` says whose token came with the request, ``slow`` waits until ``release``, ``admin`` needs a scope, ``touch``
announces that the account's resource has changed; ``only_<account>`` is a tool of that account alone. ``account://me``,
the prompt ``hello`` and its completions are the account's own. ``echo`` repeats the credential of its request.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.prompt_server import serving_app

Ctx = ServerRequestContext[Any, Any]
ME = "account://me"


class AccountServer:
    """*tokens* gives the account of each token that is good now; change it at any time. *admins* are the tokens that
    may call ``admin``. *seen* counts requests by the credential that they came with."""

    def __init__(self, *, sse: bool = False) -> None:
        self.tokens: dict[str, str] = {}
        self.admins: set[str] = set()
        self.seen: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.release = asyncio.Event()
        self.slow = 0
        self.away = False
        self.url = ""
        self._sse = sse
        self._buses: dict[str, InMemorySubscriptionBus] = {}
        self._sessions: dict[str, set[Any]] = {}
        self._server: Server[Any] = Server(
            "accounts",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read,
            on_list_resource_templates=self._templates,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=self._listen,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AccountServer"]:
        app = self._over_sse() if self._sse else self._over_http()
        async with serving_app(self.door(app)) as url:
            self.url = f"{url}/{'sse' if self._sse else 'mcp'}"
            yield self

    def door(self, app: ASGIApp) -> ASGIApp:
        """What stands in front of *app*, and lets in who has a token."""
        return _Door(self, app)

    async def _list_tools(self, ctx: Ctx, params: object) -> t.ListToolsResult:
        names = ["whoami", "slow", "admin", "touch", "echo", f"only_{_account(ctx)}"]
        hints = t.ToolAnnotations(read_only_hint=True)
        return t.ListToolsResult(
            tools=[
                t.Tool(name=name, description=name, input_schema={"type": "object"}, annotations=hints)
                for name in names
            ]
        )

    async def _call_tool(self, ctx: Ctx, params: t.CallToolRequestParams) -> t.CallToolResult:
        account = _account(ctx)
        self.calls[account, params.name] += 1
        text = account
        match params.name:
            case "slow":
                self.slow += 1
                await self.release.wait()
            case "touch":
                await self._bus(account).publish(ResourceUpdated(ME))
                for session in list(self._sessions.get(account, ())):
                    await session.send_resource_updated(ME)
            case "echo":
                assert ctx.request is not None
                text = ctx.request.headers["authorization"]
            case name if name.startswith("only_") and name != f"only_{account}":
                return t.CallToolResult(content=[t.TextContent(type="text", text=f"no {name} here")], is_error=True)
        await asyncio.sleep(0)
        return t.CallToolResult(content=[t.TextContent(type="text", text=text)])

    async def _list_resources(self, ctx: Ctx, params: object) -> t.ListResourcesResult:
        account = _account(ctx)
        return t.ListResourcesResult(
            resources=[t.Resource(name="me", uri=ME), t.Resource(name=account, uri=f"account://{account}/box")]
        )

    async def _templates(self, ctx: Ctx, params: object) -> t.ListResourceTemplatesResult:
        account = _account(ctx)
        return t.ListResourceTemplatesResult(
            resource_templates=[t.ResourceTemplate(name=account, uri_template=f"account://{account}/{{box}}")]
        )

    async def _read(self, ctx: Ctx, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.TextResourceContents(uri=str(params.uri), text=_account(ctx))])

    async def _subscribe(self, ctx: Ctx, params: t.SubscribeRequestParams) -> t.EmptyResult:
        self._sessions.setdefault(_account(ctx), set()).add(ctx.session)
        return t.EmptyResult()

    async def _unsubscribe(self, ctx: Ctx, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
        self._sessions.get(_account(ctx), set()).discard(ctx.session)
        return t.EmptyResult()

    async def _listen(self, ctx: Ctx, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        return await ListenHandler(self._bus(_account(ctx)))(ctx, params)

    async def _list_prompts(self, ctx: Ctx, params: object) -> t.ListPromptsResult:
        return t.ListPromptsResult(prompts=[t.Prompt(name="hello"), t.Prompt(name=f"of_{_account(ctx)}")])

    async def _get_prompt(self, ctx: Ctx, params: t.GetPromptRequestParams) -> t.GetPromptResult:
        text = t.TextContent(type="text", text=_account(ctx))
        return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=text)])

    async def _complete(self, ctx: Ctx, params: t.CompleteRequestParams) -> t.CompleteResult:
        return t.CompleteResult(completion=t.Completion(values=[_account(ctx)]))

    def _bus(self, account: str) -> InMemorySubscriptionBus:
        return self._buses.setdefault(account, InMemorySubscriptionBus())

    def _over_http(self) -> ASGIApp:
        manager = StreamableHTTPSessionManager(self._server)

        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with manager.run():
                yield

        return Starlette(routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(manager))], lifespan=lifespan)

    def _over_sse(self) -> ASGIApp:
        transport = SseServerTransport("/messages/")

        async def listen(request: Request) -> Response:
            async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
                options = self._server.create_initialization_options(NotificationOptions(resources_changed=True))
                await self._server.run(read, write, options)
            return Response()

        return Starlette(
            routes=[Route("/sse", endpoint=listen), Mount("/messages/", app=transport.handle_post_message)]
        )


class _Door:
    """Lets in who has a good token, and says why it does not let in others."""

    def __init__(self, server: AccountServer, app: ASGIApp) -> None:
        self._server = server
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        server, headers = self._server, dict(scope["headers"])
        credential = headers.get(b"authorization", b"").decode()
        server.seen[credential] += 1
        token = credential.removeprefix("Bearer ")
        account = server.tokens.get(token)
        if server.away:
            await Response(status_code=500)(scope, receive, send)
            return
        if account is None:
            await Response(status_code=401, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})(
                scope, receive, send
            )
            return
        body, receive = await _read_ahead(receive) if scope["method"] == "POST" else (b"", receive)
        if b'"admin"' in body and token not in server.admins:
            challenge = 'Bearer error="insufficient_scope", scope="read admin"'
            await Response(status_code=403, headers={"WWW-Authenticate": challenge})(scope, receive, send)
            return
        if b'"initialize"' in body or b"server/discover" in body:
            server.opened[account] += 1
        if scope["method"] == "DELETE":
            server.ended[account] += 1
        scope["account"] = account
        await self._app(scope, receive, send)


async def _read_ahead(receive: Receive) -> tuple[bytes, Receive]:
    messages, body = [], b""
    while True:
        message = await receive()
        messages.append(message)
        body += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body"):
            break

    async def again() -> Any:
        return messages.pop(0) if messages else await receive()

    return body, again


def _account(ctx: Ctx) -> str:
    assert ctx.request is not None
    account: str = ctx.request.scope["account"]
    return account
