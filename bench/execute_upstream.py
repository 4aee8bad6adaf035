"""A real MCP server with one tool that answers with as much text as it is asked for, for ``bench.execute``.

``python -m bench.execute_upstream`` speaks stdio; with ``--http`` it serves on a free port and prints its address.
"""

import argparse
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

HOST = "127.0.0.1"
TOOL = "fill"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "chars": {"type": "integer", "minimum": 0}},
    "required": ["number", "chars"],
    "additionalProperties": False,
}
_LINES = "".join(f"line {number:06} of a text that is kept\n" for number in range(32_000))


def text_of(number: int, chars: int) -> str:
    """Another one for each *number*, so that no store can keep two as one."""
    return (f"{number:012}\n" + _LINES[:chars])[:chars]


def make_server() -> "Server[Any]":
    async def list_tools(ctx: "ServerRequestContext[Any]", params: object) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name=TOOL, description="Fill a page with text.", input_schema=SCHEMA)])

    async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
        text = text_of(**(params.arguments or {}))
        return t.CallToolResult(content=[t.TextContent(type="text", text=text)])

    # Without the schema at hand the SDK lists the tools before each call of the newer era.
    return Server("filler", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=lambda name: SCHEMA)


async def over_stdio() -> None:
    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http() -> None:
    manager = StreamableHTTPSessionManager(make_server())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(manager))], lifespan=lifespan)
    with socket.create_server((HOST, 0)) as listener:
        print(f"listening on http://{HOST}:{listener.getsockname()[1]}/mcp", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true")
    if parser.parse_args().http:
        over_http()
    else:
        anyio.run(over_stdio)
