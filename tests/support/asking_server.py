"""A handshake-era MCP server over HTTP, in this process, that asks the person behind a call while the call runs.

async with asking_server() as server:
    ... server.upstream ... server.answers

Its tools, its prompt and its resource ask one question; ``twice`` asks one after the other, ``both`` two at once, and
``hang`` asks and then runs until it is cancelled. ``later`` asks when ``server.go`` is set, and tells progress.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager

from tests.support.http_service import HttpService
from wicketgate.net import Outgoing
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
TOOLS = ("ask", "twice", "both", "hang", "later")

Ctx = ServerRequestContext[Any, Any]


class AskingServer:
    def __init__(self) -> None:
        self.upstream: McpServerUpstream
        self.url = ""
        self.answers: list[str] = []
        """The actions that came, with the name of a form; ``cancelled`` for a call that ended while it asked."""
        self.calls: list[str] = []
        self.answered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go = asyncio.Event()
        self.description = "Asks."

    async def list_tools(self, ctx: Ctx, params: object) -> t.ListToolsResult:
        schema = {"type": "object"}
        return t.ListToolsResult(
            tools=[t.Tool(name=name, description=self.description, input_schema=schema) for name in TOOLS]
        )

    async def call_tool(self, ctx: Ctx, params: t.CallToolRequestParams) -> t.CallToolResult:
        self.calls.append(params.name)
        match params.name:
            case "twice":
                said = [await self._ask(ctx, "First name?"), await self._ask(ctx, "Last name?")]
            case "both":
                said = list(await asyncio.gather(self._ask(ctx, "First name?"), self._ask(ctx, "Last name?")))
            case "hang":
                said = [await self._ask(ctx, "Name?")]
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()
            case "later":
                await ctx.session.report_progress(1, 3, "before")
                said = [await self._ask(ctx, "Name?")]
                await ctx.session.report_progress(2, 3, "after")
                await self.go.wait()
                await ctx.session.report_progress(3, 3, "last")
            case _:
                said = [await self._ask(ctx, "Name?")]
        return t.CallToolResult(content=[t.TextContent(type="text", text=", ".join(said))])

    async def list_prompts(self, ctx: Ctx, params: object) -> t.ListPromptsResult:
        return t.ListPromptsResult(prompts=[t.Prompt(name="greet")])

    async def get_prompt(self, ctx: Ctx, params: t.GetPromptRequestParams) -> t.GetPromptResult:
        text = t.TextContent(type="text", text=await self._ask(ctx, "Name?"))
        return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=text)])

    async def list_resources(self, ctx: Ctx, params: object) -> t.ListResourcesResult:
        return t.ListResourcesResult(resources=[t.Resource(uri="doc:///who", name="who")])

    async def read_resource(self, ctx: Ctx, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
        part = t.TextResourceContents(uri=str(params.uri), text=await self._ask(ctx, "Name?"))
        return t.ReadResourceResult(contents=[part])

    async def _ask(self, ctx: Ctx, message: str) -> str:
        try:
            answer = await ctx.session.elicit_form(message, FORM, ctx.request_id)
        except asyncio.CancelledError:
            self.cancelled.set()
            self._note("cancelled")
            raise
        name = (answer.content or {}).get("name") if answer.action == "accept" else None
        said = answer.action if name is None else f"{answer.action} {name}"
        self._note(said)
        return said

    def _note(self, said: str) -> None:
        self.answers.append(said)
        self.answered.set()

    async def wait_for(self, questions: int) -> None:
        """Wait until so many questions had their end. Bound it."""
        while len(self.answers) < questions:
            self.answered.clear()
            await self.answered.wait()


@asynccontextmanager
async def asking_server(name: str = "old") -> AsyncIterator[AskingServer]:
    asking = AskingServer()
    server: Server[Any] = Server(
        "asking",
        on_list_tools=asking.list_tools,
        on_call_tool=asking.call_tool,
        on_list_prompts=asking.list_prompts,
        on_get_prompt=asking.get_prompt,
        on_list_resources=asking.list_resources,
        on_read_resource=asking.read_resource,
    )
    manager = StreamableHTTPSessionManager(server)
    async with manager.run(), HttpService(app=StreamableHTTPASGIApp(manager)) as service:
        asking.url = f"{service.url}/mcp"
        connect = partial(http_transport, name, asking.url, {}, outgoing=Outgoing())
        asking.upstream = McpServerUpstream(name, connect, connect_timeout_s=15, jitter=lambda: 0, mode="handshake")
        yield asking
