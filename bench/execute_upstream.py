"""A real MCP server with one tool that answers with as much text, or as many rows of structured content, as it is
asked for, for ``bench.execute`` and ``bench.pause_causes``.

``python -m bench.execute_upstream`` speaks stdio; with ``--http`` it serves on a free port and prints its address, and
with ``--handshake`` it does so as a server that knows only the handshake era.
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
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

HOST = "127.0.0.1"
TOOL = "fill"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer"},
        "chars": {"type": "integer", "minimum": 0},
        "rows": {"type": "integer", "minimum": 0},
    },
    "required": ["number", "chars"],
    "additionalProperties": False,
}
_LINES = "".join(f"line {number:06} of a text that is kept\n" for number in range(32_000))


def text_of(number: int, chars: int) -> str:
    """Another one for each *number*, so that no store can keep two as one."""
    return (f"{number:012}\n" + _LINES * (chars // len(_LINES) + 1))[:chars]


def rows_of(number: int, rows: int) -> list[dict[str, Any]]:
    """A table of some 100 bytes a row, as structured content."""
    return [
        {
            "id": number * 1_000_000 + row,
            "name": f"customer {row:07}",
            "city": "Amsterdam",
            "open": row % 3 == 0,
            "due": 1.5 * row,
        }
        for row in range(rows)
    ]


def make_server() -> "Server[Any]":
    async def list_tools(ctx: "ServerRequestContext[Any]", params: object) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name=TOOL, description="Fill a page with text.", input_schema=SCHEMA)])

    async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
        arguments = dict(params.arguments or {})
        rows = arguments.pop("rows", 0)
        if rows:
            return t.CallToolResult(content=[], structured_content={"rows": rows_of(arguments["number"], rows)})
        text = text_of(**arguments)
        return t.CallToolResult(content=[t.TextContent(type="text", text=text)])

    # Without the schema at hand the SDK lists the tools before each call of the newer era.
    return Server("filler", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=lambda name: SCHEMA)


async def over_stdio() -> None:
    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


class HandshakeOnly:
    """An ASGI application that refuses requests of 2026-07-28, as servers do that were written before it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        version = dict(scope.get("headers", ())).get(b"mcp-protocol-version", b"").decode()
        if version in MODERN_PROTOCOL_VERSIONS:
            refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "unsupported version"}}
            await JSONResponse(refusal, 400)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def over_http(*, handshake_only: bool) -> None:
    manager = StreamableHTTPSessionManager(make_server())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    endpoint: ASGIApp = StreamableHTTPASGIApp(manager)
    if handshake_only:
        endpoint = HandshakeOnly(endpoint)
    app = Starlette(routes=[Route("/mcp", endpoint=endpoint)], lifespan=lifespan)
    with socket.create_server((HOST, 0)) as listener:
        print(f"listening on http://{HOST}:{listener.getsockname()[1]}/mcp", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--handshake", action="store_true")
    options = parser.parse_args()
    if options.http or options.handshake:
        over_http(handshake_only=options.handshake)
    else:
        anyio.run(over_stdio)
