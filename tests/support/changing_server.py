"""A real MCP server over HTTP whose tools change while it runs: ``python -m tests.support.changing_server``.

It takes a free port and reports it on stdout. The tool ``add`` puts a tool of the given name into the list and
announces it, to clients of both eras. The list is given two tools a page.
"""

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import anyio
import uvicorn
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from starlette.applications import Starlette
from starlette.routing import Route

ADD = t.Tool(name="add", description="Add a tool.", input_schema={"type": "object", "properties": {"name": {}}})
PAGE = 2

tools = [ADD]
sessions: set[Any] = set()
bus = InMemorySubscriptionBus()


async def list_tools(ctx: "ServerRequestContext[Any]", params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
    start = int(params.cursor) if params and params.cursor else 0
    more = str(start + PAGE) if start + PAGE < len(tools) else None
    return t.ListToolsResult(tools=tools[start : start + PAGE], next_cursor=more)


async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
    name = (params.arguments or {})["name"]
    tools.append(t.Tool(name=name, description=f"The {name} tool.", input_schema={"type": "object"}))
    await bus.publish(ToolsListChanged())
    for session in list(sessions):
        with anyio.move_on_after(1):
            await session.send_tool_list_changed()
    return t.CallToolResult(content=[t.TextContent(type="text", text="added")])


async def initialized(ctx: "ServerRequestContext[Any]", params: object) -> None:
    sessions.add(ctx.session)


class ChangingServer(Server[Any]):
    """Announces ``listChanged`` to clients of the handshake era too."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True), *args, **kwargs)


def main() -> None:
    server = ChangingServer(
        "changing", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=ListenHandler(bus)
    )
    server.add_notification_handler("notifications/initialized", t.NotificationParams, initialized)
    manager = StreamableHTTPSessionManager(server)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            print(f"listening on {listener.getsockname()[1]}.", flush=True)
            yield

    app = Starlette(routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(manager))], lifespan=lifespan)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
