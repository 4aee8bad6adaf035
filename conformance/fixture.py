"""The server behind the gate of the client matrix: one tool for each column. ``python -m conformance.fixture FILE``

It writes a line to FILE for each call of ``wait`` that was cancelled. With ``--handshake`` it knows the older era only.
"""

import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Ctx = ServerRequestContext[Any, Any]

STEPS = 60
NOTE = "note://today"
SPACED = "file:///a b.txt"
_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
_NAME: Any = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_PAGE = "https://example.com/connect"

bus = InMemorySubscriptionBus()
subscribed: set[str] = set()


def _tool(name: str, schema: dict[str, Any] | None = None, **more: Any) -> t.Tool:
    return t.Tool(name=name, description=f"Tool {name}.", input_schema=schema or {"type": "object"}, **more)


TOOLS = [
    _tool("echo", _TEXT, output_schema=_TEXT, annotations=t.ToolAnnotations(destructive_hint=False)),
    _tool("region", _REGION),
    _tool("array"),
    _tool("fail"),
    _tool("steps"),
    _tool("wait"),
    _tool("form"),
    _tool("url"),
    _tool("link"),
    _tool("touch"),
]


def _text(text: str, **more: Any) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(type="text", text=text)], **more)


async def _asked(ctx: Ctx, params: t.CallToolRequestParams, question: Any) -> t.ElicitResult | None:
    """The reply to *question*, asked as the era of this connection asks; None: it has to be asked first."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        reply = (params.input_responses or {}).get("q")
        return reply if isinstance(reply, t.ElicitResult) else None
    if isinstance(question, t.ElicitRequestURLParams):
        return await ctx.session.elicit_url(question.message, question.url, "e1", related_request_id=ctx.request_id)
    return await ctx.session.elicit_form(question.message, question.requested_schema, related_request_id=ctx.request_id)


class Fixture:
    def __init__(self, log: Path) -> None:
        self._log = log

    async def call_tool(self, ctx: Ctx, params: t.CallToolRequestParams) -> t.CallToolResult | t.InputRequiredResult:
        arguments = params.arguments or {}
        match params.name:
            case "echo":
                return _text(arguments["text"], structured_content={"text": arguments["text"]})
            case "region":
                return _text(f"region={arguments.get('region')}")
            case "array":
                return _text("[1, 2]", structured_content=[1, 2])
            case "fail":
                return _text("it went wrong", is_error=True)
            case "steps":
                for number in range(1, STEPS + 1):
                    await ctx.session.report_progress(number, STEPS, f"step {number}")
                return _text("all steps")
            case "wait":
                await ctx.session.report_progress(1, None, "waiting")
                try:
                    await anyio.sleep_forever()
                finally:
                    with self._log.open("a") as log:
                        log.write("cancelled\n")
            case "form" | "url":
                question: Any = t.ElicitRequestFormParams(message="Who?", requested_schema=_NAME)
                if params.name == "url":
                    question = t.ElicitRequestURLParams(message="Connect.", url=_PAGE, elicitation_id="e1")
                reply = await _asked(ctx, params, question)
                if reply is None:
                    return t.InputRequiredResult(
                        input_requests={"q": t.ElicitRequest(params=question)}, request_state="asked"
                    )
                return _text(f"{reply.action} {(reply.content or {}).get('name', '')}".strip())
            case "link":
                link = t.ResourceLink(type="resource_link", name="note", uri=NOTE)
                return t.CallToolResult(content=[link])
            case "touch":
                await bus.publish(ResourceUpdated(NOTE))
                if NOTE in subscribed:
                    await ctx.session.send_resource_updated(NOTE)
                return _text("touched")
        raise MCPError(-32602, f"Unknown tool: {params.name}")


async def _list_tools(ctx: Ctx, params: object) -> t.ListToolsResult:
    return t.ListToolsResult(tools=TOOLS)


async def _list_resources(ctx: Ctx, params: object) -> t.ListResourcesResult:
    return t.ListResourcesResult(resources=[t.Resource(name="note", uri=NOTE), t.Resource(name="spaced", uri=SPACED)])


async def _list_templates(ctx: Ctx, params: object) -> t.ListResourceTemplatesResult:
    template = t.ResourceTemplate(name="notes", uri_template="note://{day}")
    return t.ListResourceTemplatesResult(resource_templates=[template])


async def _read(ctx: Ctx, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
    uri = str(params.uri)
    if uri != SPACED and not uri.startswith("note://"):
        raise MCPError(-32602, "Resource not found", {"uri": uri})
    return t.ReadResourceResult(contents=[t.TextResourceContents(uri=uri, text=f"text of {uri}")])


async def _list_prompts(ctx: Ctx, params: object) -> t.ListPromptsResult:
    return t.ListPromptsResult(prompts=[t.Prompt(name="hello", arguments=[t.PromptArgument(name="name")])])


async def _prompt(ctx: Ctx, params: t.GetPromptRequestParams) -> t.GetPromptResult:
    content = t.TextContent(type="text", text=f"hello {(params.arguments or {}).get('name')}")
    return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=content)])


async def _complete(ctx: Ctx, params: t.CompleteRequestParams) -> t.CompleteResult:
    return t.CompleteResult(completion=t.Completion(values=[f"{params.argument.value}da"]))


async def _subscribe(ctx: Ctx, params: t.SubscribeRequestParams) -> t.EmptyResult:
    subscribed.add(str(params.uri))
    return t.EmptyResult()


async def _unsubscribe(ctx: Ctx, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
    subscribed.discard(str(params.uri))
    return t.EmptyResult()


async def main(log: Path, *, handshake: bool) -> None:
    server: Server[Any] = Server(
        "fixture",
        on_list_tools=_list_tools,
        on_call_tool=Fixture(log).call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read,
        on_list_prompts=_list_prompts,
        on_get_prompt=_prompt,
        on_completion=_complete,
        on_subscribe_resource=_subscribe,
        on_unsubscribe_resource=_unsubscribe,
        on_subscriptions_listen=ListenHandler(bus),
    )
    options = server.create_initialization_options(NotificationOptions(True, True, True))
    async with stdio_server() as (read_stream, write_stream), anyio.create_task_group() as tasks:
        send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](1)

        async def relay() -> None:
            async with send:
                async for message in read_stream:
                    if handshake and (refusal := _unknown(message)):
                        await write_stream.send(refusal)
                    else:
                        await send.send(message)

        tasks.start_soon(relay)
        await server.run(receive, write_stream, options)


def _unknown(message: SessionMessage | Exception) -> SessionMessage | None:
    """The answer of a server of the older era to a probe of the newer one: a method that it does not know."""
    request = message.message if isinstance(message, SessionMessage) else None
    if not isinstance(request, t.JSONRPCRequest) or request.method != "server/discover":
        return None
    error = t.ErrorData(code=-32601, message="Method not found")
    return SessionMessage(t.JSONRPCError(jsonrpc="2.0", id=request.id, error=error))


if __name__ == "__main__":
    anyio.run(lambda: main(Path(sys.argv[1]), handshake="--handshake" in sys.argv))
