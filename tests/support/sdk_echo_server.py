"""The tools of ``echo_server``, served by the official SDK. ``python -m tests.support.sdk_echo_server [NAME]``"""

import json
from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from tests.support.echo_server import NAME, REFUSAL, TOOLS, shown


async def list_tools(ctx: "ServerRequestContext[Any]", params: object) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool.model_validate(tool) for tool in TOOLS])


async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
    match params.name:
        case "sleep":
            await anyio.sleep_forever()
        case "refuse":
            raise MCPError(*REFUSAL)
    meta = dict(ctx.meta or {})
    value = shown({"name": params.name, "arguments": params.arguments, "_meta": meta})
    return t.CallToolResult(content=[t.TextContent(type="text", text=json.dumps(value))], structured_content=value)


async def main() -> None:
    server: Server[Any] = Server(NAME, on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
