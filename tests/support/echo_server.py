"""A real MCP server over stdio whose tools show what reached them. ``python -m tests.support.echo_server``"""

import json
import os
import sys
from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

TOOLS = [
    t.Tool(
        name="echo",
        description="Give back the text, and the _meta that came with the call.",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    ),
    t.Tool(name="environment", description="Names of the environment variables.", input_schema={"type": "object"}),
    t.Tool(name="die", description="End this process at once.", input_schema={"type": "object"}),
    t.Tool(name="pid", description="The process id.", input_schema={"type": "object"}),
    t.Tool(name="sleep", description="Never answers.", input_schema={"type": "object"}),
    t.Tool(name="refuse", description="Answers with a protocol error.", input_schema={"type": "object"}),
]


async def list_tools(ctx: "ServerRequestContext[Any]", params: object) -> t.ListToolsResult:
    return t.ListToolsResult(tools=TOOLS)


async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
    match params.name:
        case "echo":
            shown: Any = {"text": (params.arguments or {}).get("text"), "meta": dict(ctx.meta or {})}
        case "environment":
            shown = {"names": sorted(os.environ)}
        case "pid":
            shown = {"pid": os.getpid()}
        case "sleep":
            await anyio.sleep_forever()
        case "refuse":
            raise MCPError(-32011, "not today\n" + "x" * 1000)
        case _:
            sys.stderr.write("giving up\n")
            sys.stderr.flush()
            os._exit(3)
    return t.CallToolResult(content=[t.TextContent(type="text", text=json.dumps(shown))], structured_content=shown)


async def main() -> None:
    server: Server[Any] = Server(
        sys.argv[1] if sys.argv[1:] else "echo", on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
