"""A real MCP server of many tools over HTTP, whose list is paged and changes on demand, for ``bench.pause``.

``python -m bench.big_upstream --tools 10000 --page 500``. ``POST /control`` with ``{"shown": n}`` lists the first n
tools, with ``{"rename": true}`` gives one tool another name; both announce ``list_changed``.
"""

import argparse
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import anyio
import uvicorn
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.catalogs import corpus, routing_data

HOST = "127.0.0.1"


class _Server(Server[Any]):
    # The HTTP manager passes no options, and listChanged would be false for clients of the older era.
    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, *args, **kwargs)


class BigUpstream:
    """*tools* in pages of *page*; only the first *shown* of them are listed."""

    def __init__(self, tools: Sequence[t.Tool], page: int, shown: int) -> None:
        self._tools = list(tools)
        self._page = page
        self._shown = shown
        self._renamed = 0
        self._bus = InMemorySubscriptionBus()
        self._sessions: set[ServerSession] = set()

    def server(self) -> "Server[Any]":
        server = _Server(
            "big",
            version="1",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._bus),
            get_tool_input_schema=lambda name: {"type": "object"},
        )
        server.add_notification_handler("notifications/initialized", t.NotificationParams, self._initialized)
        return server

    async def control(self, request: Request) -> JSONResponse:
        order = await request.json()
        self._shown = order.get("shown", self._shown)
        if order.get("rename"):
            number = self._renamed * 37 % self._shown
            self._renamed += 1
            tool = self._tools[number]
            self._tools[number] = tool.model_copy(update={"name": f"{tool.name}_r{self._renamed}"})
        await self._bus.publish(ToolsListChanged())
        for session in list(self._sessions):
            with anyio.move_on_after(1):
                await session.send_tool_list_changed()
        return JSONResponse({"shown": self._shown})

    async def _list(
        self, ctx: "ServerRequestContext[Any]", params: t.PaginatedRequestParams | None
    ) -> t.ListToolsResult:
        start = int(params.cursor) if params and params.cursor else 0
        end = min(start + self._page, self._shown)
        return t.ListToolsResult(tools=self._tools[start:end], next_cursor=str(end) if end < self._shown else None)

    async def _call(self, ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
        return t.CallToolResult(content=[t.TextContent(type="text", text=params.name)])

    async def _initialized(self, ctx: "ServerRequestContext[Any]", params: t.NotificationParams | None) -> None:
        self._sessions.add(ctx.session)


def make_app(upstream: BigUpstream) -> Starlette:
    manager = StreamableHTTPSessionManager(upstream.server())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    routes = [
        Route("/mcp", endpoint=StreamableHTTPASGIApp(manager)),
        Route("/control", endpoint=upstream.control, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--page", type=int, default=500)
    parser.add_argument("--shown", type=int, default=1)
    options = parser.parse_args()
    definitions = corpus(options.tools, 0, routing_data()).definitions
    tools = [t.Tool.model_validate(definition, by_name=False) for definition in definitions]
    app = make_app(BigUpstream(tools, options.page, options.shown))
    with socket.create_server((HOST, 0)) as listener:
        server = _Uvicorn(uvicorn.Config(app, log_level="critical", access_log=False))
        threading.Thread(target=server.stop_with_stdin, daemon=True).start()
        print(f"listening on http://{HOST}:{listener.getsockname()[1]}", flush=True)
        server.run(sockets=[listener])


class _Uvicorn(uvicorn.Server):
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = True  # an open MCP stream would otherwise hold the end back
        super().handle_exit(sig, frame)

    def stop_with_stdin(self) -> None:
        """The parent is gone when stdin ends."""
        while os.read(sys.stdin.fileno(), 4096):
            pass
        self.force_exit = self.should_exit = True


if __name__ == "__main__":
    main()
