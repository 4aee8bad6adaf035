"""The MCP server of ``make chaos``: each effect is a line of a file, on the disk before the call goes on.

``python -m bench.chaos_upstream FILE`` prints its port. ``/bank`` has tools that write and read, ``/desk`` one that
asks the person behind the call, and speaks the handshake era only.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from bench.chaos_story import BANK, DESK, FORM, TOOLS, answer, pause_s
from bench.execute_upstream import HOST, HandshakeOnly

Ctx = ServerRequestContext[Any, Any]


def make_server(name: str, effects: int) -> "Server[Any]":
    listed = [t.Tool.model_validate(tool, by_name=False) for tool in TOOLS[name]]
    schemas = {tool["name"]: tool["inputSchema"] for tool in TOOLS[name]}

    async def list_tools(ctx: Ctx, params: object) -> t.ListToolsResult:
        return t.ListToolsResult(tools=listed)

    async def call_tool(ctx: Ctx, params: t.CallToolRequestParams) -> t.CallToolResult:
        number = int((params.arguments or {})["number"])
        if params.name == "sign":
            said = await ctx.session.elicit_form(f"Who signs {number}?", FORM, ctx.request_id)
            if said.action != "accept":
                return _text(f"nobody signed {number}")
            text = f"{(said.content or {}).get('name')} signed {number}"
        else:
            text = answer(params.name, number)
        if params.name != "look":
            os.write(effects, b"%d\n" % number)
            await asyncio.to_thread(os.fsync, effects)
        await asyncio.sleep(pause_s(number))
        return _text(text)

    return Server(name, on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=schemas.get)


def _text(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(type="text", text=text)])


def main(file: str) -> None:
    effects = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    bank, desk = (StreamableHTTPSessionManager(make_server(name, effects)) for name in (BANK, DESK))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in (bank, desk):
                await stack.enter_async_context(manager.run())
            yield

    app = Starlette(
        routes=[
            Route(f"/{BANK}", endpoint=StreamableHTTPASGIApp(bank)),
            Route(f"/{DESK}", endpoint=HandshakeOnly(StreamableHTTPASGIApp(desk))),
        ],
        lifespan=lifespan,
    )
    with socket.create_server((HOST, 0), backlog=512) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
