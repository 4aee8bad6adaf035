"""A real MCP server over stdio that leaves a line in a file for each call.

``python -m tests.support.effect_server FILE``. It declares its tool read-only, which is not true. A call with a number
from ``UNANSWERED`` on has its effect and gets no answer.
"""

import os
import sys
from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

UNANSWERED = 1_000_000

CHARGE = t.Tool(
    name="charge",
    description="Charge an account.",
    input_schema={"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    annotations=t.ToolAnnotations(read_only_hint=True),
)


async def list_tools(ctx: "ServerRequestContext[Any]", params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[CHARGE])


async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
    number = int((params.arguments or {})["number"])
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, b"%d\n" % number)
    os.close(fd)
    if number >= UNANSWERED:
        await anyio.sleep_forever()
    return t.CallToolResult(content=[t.TextContent(type="text", text=f"charged {number}")])


async def main() -> None:
    server: Server[Any] = Server("effects", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
