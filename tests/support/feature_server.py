"""A real MCP server over stdio with resources, prompts and completions. ``python -m tests.support.feature_server``

The tool ``touch`` announces that the note changed, and that both lists did, to clients of both eras; it puts a resource
into the list. Reading ``demo://missing`` is an error that names it; ``demo://asks`` asks a question first (2026-07-28).
"""

from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError

Ctx = ServerRequestContext[Any, Any]

NOTE = "demo://note"
PAGE = 2
resources = [t.Resource(name=f"r{number}", uri=f"demo://r{number}") for number in range(3)] + [
    t.Resource(name="note", uri=NOTE, description="A note.", mime_type="text/plain")
]
subscribed: list[str] = []
bus = InMemorySubscriptionBus()


async def list_tools(ctx: Ctx, params: object) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name="touch", input_schema={"type": "object"})])


async def call_tool(ctx: Ctx, params: t.CallToolRequestParams) -> t.CallToolResult:
    resources.append(t.Resource(name="new", uri=f"demo://new{len(resources)}"))
    for event in (ResourceUpdated(NOTE), ResourcesListChanged(), PromptsListChanged()):
        await bus.publish(event)
    if NOTE in subscribed:
        await ctx.session.send_resource_updated(NOTE)
    await ctx.session.send_resource_list_changed()
    await ctx.session.send_prompt_list_changed()
    text, link = t.TextContent(type="text", text=" ".join(subscribed)), t.ResourceLink(uri=NOTE, name="note")
    gone = t.ResourceLink(uri="demo://missing", name="gone")
    return t.CallToolResult(content=[text, link, gone])


async def list_resources(ctx: Ctx, params: t.PaginatedRequestParams | None) -> t.ListResourcesResult:
    start = int(params.cursor) if params and params.cursor else 0
    more = str(start + PAGE) if start + PAGE < len(resources) else None
    return t.ListResourcesResult(resources=resources[start : start + PAGE], next_cursor=more)


async def list_templates(ctx: Ctx, params: object) -> t.ListResourceTemplatesResult:
    return t.ListResourceTemplatesResult(
        resource_templates=[t.ResourceTemplate(name="by name", uri_template="demo://{name}")]
    )


async def read(ctx: Ctx, params: t.ReadResourceRequestParams) -> t.ReadResourceResult | t.InputRequiredResult:
    uri = str(params.uri)
    if uri == "demo://missing":
        raise MCPError(-32002, f"Resource '{uri}' not found", {"uri": uri})
    if uri == "demo://asks" and not params.input_responses:
        schema: Any = {"type": "object", "properties": {"name": {"type": "string"}}}
        asked = t.ElicitRequestFormParams(message="Who?", requested_schema=schema)
        return t.InputRequiredResult(input_requests={"who": t.ElicitRequest(params=asked)}, request_state="theirs")
    text = f"text of {uri}"
    if params.input_responses:
        answer = params.input_responses["who"]
        assert isinstance(answer, t.ElicitResult)
        text = f"{(answer.content or {})['name']} {params.request_state}"
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, text=text)])


async def list_prompts(ctx: Ctx, params: object) -> t.ListPromptsResult:
    return t.ListPromptsResult(prompts=[t.Prompt(name="hello", arguments=[t.PromptArgument(name="name")])])


async def get_prompt(ctx: Ctx, params: t.GetPromptRequestParams) -> t.GetPromptResult:
    if params.name != "hello":
        raise MCPError(-32602, f"Unknown prompt: {params.name}")
    content = t.TextContent(type="text", text=f"hello {(params.arguments or {}).get('name')}")
    return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=content)])


async def complete(ctx: Ctx, params: t.CompleteRequestParams) -> t.CompleteResult:
    ref = params.ref.name if isinstance(params.ref, t.PromptReference) else params.ref.uri
    return t.CompleteResult(completion=t.Completion(values=[f"{ref} {params.argument.name}={params.argument.value}"]))


async def subscribe(ctx: Ctx, params: t.SubscribeRequestParams) -> t.EmptyResult:
    subscribed.append(str(params.uri))
    return t.EmptyResult()


async def unsubscribe(ctx: Ctx, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
    subscribed.remove(str(params.uri))
    return t.EmptyResult()


async def main() -> None:
    server: Server[Any] = Server(
        "features",
        instructions="Read\nthe note first.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=ListenHandler(bus),
    )
    options = server.create_initialization_options(NotificationOptions(True, True, True))
    async with stdio_server() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, options)


if __name__ == "__main__":
    anyio.run(main)
