"""A real MCP server over stdio whose tools return every type of content. ``python -m tests.support.content_server``

With ``raw`` as argument it speaks the older era's JSON-RPC by hand instead, and its one tool ``say`` answers with
exactly the JSON that it is given as ``answer``: what the SDK would never send.
"""

import base64
import json
import sys
from collections.abc import Callable
from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
WAV = b"RIFF" + bytes(range(255, -1, -1)) * 4
BLOB = bytes(range(256)) * 2

TEXT = t.TextContent(type="text", text="plain <|endoftext|> text")
IMAGE = t.ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")
AUDIO = t.AudioContent(type="audio", data=base64.b64encode(WAV).decode(), mime_type="audio/wav")
LINK = t.ResourceLink(
    type="resource_link",
    uri="file:///reports/q3.pdf",
    name="q3",
    description="The third quarter.",
    mime_type="application/pdf",
)
TEXT_RESOURCE = t.EmbeddedResource(
    type="resource",
    resource=t.TextResourceContents(uri="file:///a.md", text="# A heading", mime_type="text/markdown"),
)
BLOB_RESOURCE = t.EmbeddedResource(
    type="resource",
    resource=t.BlobResourceContents(
        uri="file:///a.bin", blob=base64.b64encode(BLOB).decode(), mime_type="application/octet-stream"
    ),
)
NOTED = t.TextContent(type="text", text="for you", annotations=t.Annotations(audience=["user"], priority=0.5))

ANSWERS: dict[str, Callable[[], t.CallToolResult]] = {
    "text": lambda: t.CallToolResult(content=[TEXT]),
    "image": lambda: t.CallToolResult(content=[IMAGE]),
    "audio": lambda: t.CallToolResult(content=[AUDIO]),
    "link": lambda: t.CallToolResult(content=[LINK]),
    "text_resource": lambda: t.CallToolResult(content=[TEXT_RESOURCE]),
    "blob_resource": lambda: t.CallToolResult(content=[BLOB_RESOURCE]),
    "structured": lambda: t.CallToolResult(content=[], structured_content={"count": 42, "status": "done"}),
    "annotated": lambda: t.CallToolResult(content=[TEXT, NOTED]),
    "failed": lambda: t.CallToolResult(content=[t.TextContent(type="text", text="no such file")], is_error=True),
    "empty": lambda: t.CallToolResult(content=[]),
    "several": lambda: t.CallToolResult(
        content=[TEXT, IMAGE, AUDIO, LINK, TEXT_RESOURCE, BLOB_RESOURCE, NOTED], structured_content={"parts": 7}
    ),
}


async def list_tools(ctx: "ServerRequestContext[Any]", params: object) -> t.ListToolsResult:
    return t.ListToolsResult(
        tools=[t.Tool(name=name, description=f"Answers {name}.", input_schema={"type": "object"}) for name in ANSWERS]
    )


async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
    return ANSWERS[params.name]()


async def serve() -> None:
    server: Server[Any] = Server("content", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_raw() -> None:
    tool = {"name": "say", "description": "Say it.", "inputSchema": {"type": "object"}}
    server = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "r", "version": "1"},
    }
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        match request["method"]:
            case "initialize":
                answer: Any = {"result": server}
            case "tools/list":
                answer = {"result": {"tools": [tool]}}
            case "tools/call":
                answer = {"result": request["params"]["arguments"]["answer"]}
            case _:
                answer = {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["raw"]:
        serve_raw()
    else:
        anyio.run(serve)
