"""A real MCP server over stdio with skills (io.modelcontextprotocol/skills). ``python -m tests.support.skill_server``

The tool ``revise`` changes the text of the skill ``refunds``, with its entry, and announces that resources changed.
"""

import hashlib
from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged
from mcp.shared.exceptions import MCPError

Ctx = ServerRequestContext[Any, Any]

EXTENSION = "io.modelcontextprotocol/skills"
FILES = {
    "skill://acme/refunds/SKILL.md": "---\nname: refunds\ndescription: Process refund requests\n---\nSee forms/A.md.\n",
    "skill://acme/refunds/forms/A.md": "Ask for the order number.\n",
    "skill://daily/SKILL.md": "---\nname: daily\ndescription: Assemble the report of the day\n---\nToday.\n",
}
DESCRIPTIONS = {"acme/refunds": "Process refund requests", "daily": "Assemble the report of the day"}
bus = InMemorySubscriptionBus()
files = dict(FILES)


def entry(path: str) -> dict[str, Any]:
    root = f"skill://{path}"
    resources = [
        {"uri": uri, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", "size": len(text.encode())}
        for uri, text in files.items()
        if uri.startswith(f"{root}/")
    ]
    name = path.rpartition("/")[2]
    return {
        "uri": f"{root}/SKILL.md",
        "frontmatter": {"name": name, "description": DESCRIPTIONS[path]},
        "resources": "dynamic" if name == "daily" else resources,
    }


async def list_skills(ctx: Ctx, params: t.PaginatedRequestParams) -> dict[str, Any]:
    """One skill a page."""
    first = params.cursor is None
    page = {"skills": [entry("acme/refunds" if first else "daily")], "ttlMs": 5_000, "cacheScope": "public"}
    return {**page, "nextCursor": "2"} if first else page


async def get_skill(ctx: Ctx, params: t.ReadResourceRequestParams) -> dict[str, Any]:
    path = str(params.uri).removeprefix("skill://").removesuffix("/SKILL.md")
    if path not in DESCRIPTIONS:
        raise MCPError(-32602, f"No skill is served at {params.uri}")
    return {"skill": entry(path), "ttlMs": 5_000, "cacheScope": "public"}


async def read_directory(ctx: Ctx, params: t.ReadResourceRequestParams) -> dict[str, Any]:
    root = f"{params.uri}/"
    below = {uri.removeprefix(root).partition("/")[0::2] for uri in files if uri.startswith(root)}
    if not below:
        raise MCPError(-32602, f"{params.uri} is not a directory resource")
    children = [
        {"uri": root + name, "name": name, **({"mimeType": "inode/directory"} if rest else {})}
        for name, rest in sorted(below)
    ]
    return {"resources": children}


async def list_tools(ctx: Ctx, params: object) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name="revise", input_schema={"type": "object"})])


async def call_tool(ctx: Ctx, params: t.CallToolRequestParams) -> t.CallToolResult:
    files["skill://acme/refunds/SKILL.md"] += "Revised.\n"
    await bus.publish(ResourcesListChanged())
    await ctx.session.send_resource_list_changed()
    return t.CallToolResult(content=[t.TextContent(type="text", text="revised")])


async def list_resources(ctx: Ctx, params: object) -> t.ListResourcesResult:
    """The ``SKILL.md`` of each, named and described as its frontmatter says."""
    skills = map(entry, DESCRIPTIONS)
    shown = [t.Resource(uri=one["uri"], mime_type="text/markdown", **one["frontmatter"]) for one in skills]
    return t.ListResourcesResult(resources=shown)


async def read(ctx: Ctx, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
    uri = str(params.uri)
    if uri not in files:
        raise MCPError(-32602, f"Resource '{uri}' not found", {"uri": uri})
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, mime_type="text/markdown", text=files[uri])])


async def main() -> None:
    server: Server[Any] = Server(
        "skills",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read,
        on_subscriptions_listen=ListenHandler(bus),
    )
    server.extensions[EXTENSION] = {"directoryRead": True}
    server.add_request_handler("skills/list", t.PaginatedRequestParams, list_skills)
    server.add_request_handler("skills/get", t.ReadResourceRequestParams, get_skill)
    server.add_request_handler("resources/directory/read", t.ReadResourceRequestParams, read_directory)
    options = server.create_initialization_options(NotificationOptions(False, True, False))
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, options)


if __name__ == "__main__":
    anyio.run(main)
