"""An MCP server of either era over HTTP, in this process, whose tool uses the model and the folders of the client.

async with sampling_server(HANDSHAKE, forward=("sampling",)) as server:
    ... server.upstream ... server.declared

Its tool ``use`` asks for all of *wanted* (``sampling``, ``roots``): in-line in the handshake era, by ``input_required``
in the newer one. It gives the answers as its structured content; ``error <code>`` for a refusal.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from mcp import MCPError
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager

from tests.support.http_service import HttpService
from tests.support.scripted_server import MODERN
from wicketgate.net import Outgoing
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

PROMPT: dict[str, Any] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Sum\u202e up."}}],
    "maxTokens": 50,
    "includeContext": "allServers",
    "systemPrompt": "Be short.",
}

Ctx = ServerRequestContext[Any, Any]


class SamplingServer:
    def __init__(self, wanted: Sequence[str], prompt: dict[str, Any]) -> None:
        self.upstream: McpServerUpstream
        self.wanted = wanted
        self.prompt = prompt
        self.called = 0
        self.declared: list[dict[str, Any]] = []
        """The capabilities that each call was shown; of the handshake, in that era."""

    async def list_tools(self, ctx: Ctx, params: object) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool(name="use", description="Uses.", input_schema={"type": "object"})])

    async def call_tool(
        self, ctx: Ctx, params: t.CallToolRequestParams
    ) -> t.CallToolResult | t.InputRequiredResult | dict[str, Any]:
        self.called += 1
        can = ctx.session.client_capabilities
        self.declared.append(can.model_dump(by_alias=True, mode="json", exclude_none=True) if can else {})
        requests = {"sampling": ("sampling/createMessage", self.prompt), "roots": ("roots/list", None)}
        if ctx.protocol_version == MODERN:
            given = (ctx.params or {}).get("inputResponses")
            if given is None and self.wanted:
                asks = {name: _request(*requests[name]) for name in self.wanted}
                return {"resultType": "input_required", "inputRequests": asks, "requestState": "mine"}
        else:
            given = {name: await self._ask(ctx, *requests[name]) for name in self.wanted}
        return t.CallToolResult(content=[t.TextContent(type="text", text="done")], structured_content=dict(given or {}))

    async def _ask(self, ctx: Ctx, method: str, params: dict[str, Any] | None) -> Any:
        answers = {"roots/list": (t.ListRootsRequest, t.ListRootsResult)}
        kinds = answers.get(method, (t.CreateMessageRequest, t.CreateMessageResultWithTools))
        try:
            answer = await ctx.session.send_request(
                kinds[0].model_validate(_request(method, params), by_name=False), kinds[1]
            )
        except MCPError as error:
            return f"error {error.code}"
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"result_type"})


def _request(method: str, params: dict[str, Any] | None) -> dict[str, Any]:
    return {"method": method} if params is None else {"method": method, "params": params}


@asynccontextmanager
async def sampling_server(
    era: str,
    *,
    wanted: Sequence[str] = ("sampling", "roots"),
    forward: Sequence[str] = (),
    prompt: dict[str, Any] = PROMPT,
) -> AsyncIterator[SamplingServer]:
    sampling = SamplingServer(wanted, prompt)
    server: Server[Any] = Server("sampling", on_list_tools=sampling.list_tools)
    server.add_request_handler("tools/call", t.CallToolRequestParams, sampling.call_tool)
    manager = StreamableHTTPSessionManager(server)
    async with manager.run(), HttpService(app=StreamableHTTPASGIApp(manager)) as service:
        connect = partial(http_transport, "raw", f"{service.url}/mcp", {}, outgoing=Outgoing())
        sampling.upstream = McpServerUpstream(
            "raw",
            connect,
            connect_timeout_s=15,
            jitter=lambda: 0,
            mode="modern" if era == MODERN else "handshake",
            forward=forward,
        )
        yield sampling
