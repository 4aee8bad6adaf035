"""McpClientUpstream over a session that somebody has already: the SDK's own, and anything with its two methods (S1)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp import types as t
from mcp.server.lowlevel import Server

from tests.support.requirement import requirement
from tests.support.supervised import context
from wicketgate.errors import UpstreamError, UpstreamLost, UpstreamRefused
from wicketgate.gateway.archive import Execution
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.upstreams.mcp.embedded import McpClientUpstream

NAMES = ["one", "two", "three"]


def server() -> "Server[Any]":
    """Two tools a page; each answers with its name and arguments, ``three`` with an error of the protocol."""

    async def list_tools(ctx: object, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        start = int(params.cursor) if params and params.cursor else 0
        tools = [t.Tool(name=name, description="d", input_schema={"type": "object"}) for name in NAMES]
        more = str(start + 2) if start + 2 < len(tools) else None
        return t.ListToolsResult(tools=tools[start : start + 2], next_cursor=more)

    async def call_tool(ctx: object, params: t.CallToolRequestParams) -> t.CallToolResult:
        if params.name == "three":
            raise MCPError(-32011, "not today\nnor tomorrow", {"why": "closed"})
        return t.CallToolResult(content=[t.TextContent(type="text", text=f"{params.name} {params.arguments}")])

    return Server("numbers", on_list_tools=list_tools, on_call_tool=call_tool)


@requirement("S1 McpClientUpstream")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("kind", ["client", "session"])
async def test_a_session_of_the_sdk_is_an_upstream(mode: Any, kind: str) -> None:
    async with Client(server(), mode=mode) as client:
        upstream = McpClientUpstream(client if kind == "client" else client.session, name="numbers")
        assert [tool["name"] for tool in await upstream.list_tools()] == NAMES
        assert (await upstream.list_tools())[0]["inputSchema"] == {"type": "object"}
        result = await upstream.call_tool("one", {"a": 1}, context(), 5)
        assert result["content"] == [{"type": "text", "text": "one {'a': 1}"}]
        with pytest.raises(UpstreamRefused) as refused:
            await upstream.call_tool("three", {}, context(), 5)
        assert (refused.value.upstream_code, refused.value.refusal) == (-32011, "not today nor tomorrow")
        assert refused.value.data == {"why": "closed"}


class Plain:
    """Has nothing but the two methods, and speaks wire JSON."""

    async def list_tools(self) -> Mapping[str, Any]:
        return {"tools": [{"name": "search_database", "inputSchema": {"type": "object"}}], "nextCursor": "more"}

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        match arguments.get("end"):
            case "lost":
                raise MCPError(t.CONNECTION_CLOSED, "Connection closed")
            case "broken":
                raise RuntimeError("/secret/path")
        return {"content": [{"type": "text", "text": name}]}


@requirement("S1 McpClientUpstream")
async def test_anything_with_the_two_methods_is_an_upstream_of_a_runtime() -> None:
    runtime = ProxyRuntime(McpClientUpstream(Plain()))
    await runtime.refresh_catalog()
    (tool_id,) = runtime.catalog().items
    execution = await runtime.execute(tool_id, {}, context())
    assert isinstance(execution, Execution)
    assert execution.envelope.summary == "search_database"


async def test_a_session_that_fails_is_reported_in_our_words() -> None:
    upstream = McpClientUpstream(Plain(), name="plain")
    with pytest.raises(UpstreamLost, match="not known"):
        await upstream.call_tool("x", {"end": "lost"}, context(), 5)
    with pytest.raises(UpstreamError, match="plain failed") as failed:
        await upstream.call_tool("x", {"end": "broken"}, context(), 5)
    assert "secret" not in str(failed.value.as_dict())


async def test_it_announces_itself_once_and_stays() -> None:
    changes: asyncio.Queue[str] = asyncio.Queue()
    supervising = asyncio.create_task(McpClientUpstream(Plain(), name="plain").supervise(changes.put_nowait))
    async with asyncio.timeout(5):
        assert await changes.get() == "plain"
    assert not supervising.done()
    supervising.cancel()
