"""The tools that the suite's scenarios of tasks call by name. ``python -m conformance.slow_tools``

They are plain tools: it is the gate that makes a task of a call that takes its time, or asks after a while.
"""

from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

Ctx = ServerRequestContext[Any, Any]

A_WHILE_S = 1.0
"""Longer than ``tasks.after_s`` of the gate in this run."""

_NUMBER, _TEXT = {"type": "number"}, {"type": "string"}
_FORM: Any = {"type": "object", "properties": {"answer": {"type": "string"}}}
TOOLS: dict[str, dict[str, Any]] = {
    "greet": {"name": _TEXT},
    "slow_compute": {"seconds": _NUMBER, "label": _TEXT},
    "failing_job": {},
    "protocol_error_job": {},
    "confirm_delete": {"filename": _TEXT},
    "multi_input": {},
    "test_tool_with_task": {},
}
# What each asks a person, by key.
_QUESTIONS = {"confirm_delete": ("confirm",), "multi_input": ("first", "second"), "test_tool_with_task": ("user_name",)}


async def _list_tools(ctx: Ctx, params: object) -> t.ListToolsResult:
    tools = [
        t.Tool(name=name, description=f"Tool {name}.", input_schema={"type": "object", "properties": properties})
        for name, properties in TOOLS.items()
    ]
    return t.ListToolsResult(tools=tools)


async def _call_tool(ctx: Ctx, params: t.CallToolRequestParams) -> t.CallToolResult | t.InputRequiredResult:
    arguments, replies = params.arguments or {}, params.input_responses or {}
    match params.name:
        case "greet":
            return _said(f"Hello, {arguments.get('name')}!")
        case "slow_compute":
            await anyio.sleep(float(arguments.get("seconds", 0)))
            return _said(f"computed {arguments.get('label')}")
        case "failing_job":
            await anyio.sleep(A_WHILE_S)
            return _said("the job failed", is_error=True)
        case "protocol_error_job":
            await anyio.sleep(A_WHILE_S)
            raise MCPError(-32603, "the job broke")
        case "test_tool_with_task" if replies:
            await anyio.sleep(A_WHILE_S)
            return _said(f"done for {_content(replies)}")
        case "test_tool_with_task":
            return _asks(params.name)
        case "confirm_delete" | "multi_input":
            if len(replies) == len(_QUESTIONS[params.name]):
                return _said(f"{arguments.get('filename')}: {_content(replies)}")
            await anyio.sleep(A_WHILE_S)
            return _asks(params.name)
    raise MCPError(-32602, f"Unknown tool: {params.name}")


def _asks(name: str) -> t.InputRequiredResult:
    requests: Any = {
        key: t.ElicitRequest(params=t.ElicitRequestFormParams(message=f"{key}?", requested_schema=_FORM))
        for key in _QUESTIONS[name]
    }
    return t.InputRequiredResult(input_requests=requests, request_state=name)


def _content(replies: Any) -> str:
    return ", ".join(str(reply.content) for reply in replies.values())


def _said(text: str, **more: Any) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(type="text", text=text)], **more)


async def main() -> None:
    server: Server[Any] = Server("slow-tools", on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
