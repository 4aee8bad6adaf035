"""The library in a program of one's own: sessions, several upstreams, browsing, and no identity."""

import asyncio
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import Client, ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from tests.support.process import ROOT, START_BOUND_S
from tests.support.requirement import requirement
from wicketgate import (
    CallContext,
    CatalogError,
    ExposureMode,
    Identity,
    McpClientUpstream,
    McpGatewayServer,
    McpProxyServer,
    MultiplexUpstream,
    ProxyRuntime,
    StubUpstream,
)
from wicketgate.errors import (
    UpstreamError,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnclear,
)

ECHO = StdioServerParameters(command=sys.executable, args=["-m", "tests.support.echo_server"], cwd=str(ROOT))


def tool(name: str, *properties: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in properties}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, "_meta": {"version": "1"}}


async def say_name(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": f"{name} for {context.identity.actor}"}]}


@requirement("LIB-5")
async def test_a_session_of_the_sdk_is_an_upstream() -> None:
    async with asyncio.timeout(START_BOUND_S), stdio_client(ECHO) as streams, ClientSession(*streams) as session:
        await session.initialize()
        runtime = ProxyRuntime(McpClientUpstream(session, name="echo"))
        await runtime.refresh_catalog()
        (card, *_) = (await runtime.browse_query("give back the text")).cards
        said = (await runtime.execute(card.id, {"text": "hi"})).envelope
        assert card.namespace == "echo"
        assert '"text": "hi"' in said.summary and "wicketgate/correlation_id" in said.summary
        with pytest.raises(UpstreamRefused) as refused:
            await runtime.execute(next(i for i in runtime.catalog().items if "refuse" in i), {})
        assert refused.value.upstream_code == -32011


@requirement("LIB-5", "LIB-7")
async def test_a_client_of_the_sdk_is_an_upstream_beside_a_stub() -> None:
    async with asyncio.timeout(START_BOUND_S), Client(ECHO) as client:
        stub = StubUpstream([tool("github.create_issue", "title")], say_name)
        runtime = ProxyRuntime(MultiplexUpstream([McpClientUpstream(client), stub]))
        await runtime.refresh_catalog()
        assert [card.id for card in (await runtime.browse_path("/")).cards] == ["/github", "/mcp"]
        said = await runtime.execute("github:create_issue@1", {"title": "x"})
        assert said.envelope.summary == "github.create_issue for local"
        (echo,) = [item for item in runtime.catalog().all() if item.name == "echo"]
        assert '"text": "hi"' in (await runtime.execute(echo.id, {"text": "hi"})).envelope.summary


def session(list_tools: Any, call_tool: Any = None) -> Any:
    async def none(name: str, arguments: dict[str, Any]) -> None:
        return None

    return SimpleNamespace(list_tools=list_tools, call_tool=call_tool or none)


@requirement("LIB-5")
async def test_every_page_of_a_list_is_read_however_the_session_takes_its_cursor() -> None:
    pages: dict[str | None, dict[str, Any]] = {
        None: {"tools": [tool("a")], "nextCursor": "2"},
        "2": {"tools": [tool("b")], "nextCursor": "2"},  # a server that repeats itself
    }

    async def by_cursor(cursor: str | None = None) -> dict[str, Any]:
        return pages[cursor]

    async def by_params(*, params: Any = None) -> dict[str, Any]:
        return pages[params and params.cursor]

    async def first_only() -> dict[str, Any]:
        return pages[None]

    for list_tools in (by_cursor, by_params):
        listed = await McpClientUpstream(session(list_tools)).list_tools()
        assert [each["name"] for each in listed] == ["a", "b"]
    with pytest.raises(UpstreamError, match="takes no cursor"):
        await McpClientUpstream(session(first_only)).list_tools()


@requirement("LIB-6")
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (MCPError(-32602, "no\nsuch tool", {"hint": 1}), UpstreamRefused),
        (MCPError(-32001, "late"), UpstreamTimeout),
        (MCPError(-32000, "closed"), UpstreamLost),
        (TimeoutError(), UpstreamTimeout),
        (ConnectionResetError("secret"), UpstreamLost),
        (UpstreamUnavailable("ours"), UpstreamUnavailable),
        (RuntimeError("secret"), UpstreamUnclear),
    ],
)
async def test_what_a_session_raises_is_a_failure_in_our_words(raised: Exception, expected: type[Exception]) -> None:
    async def list_tools() -> dict[str, Any]:
        return {"tools": [tool("t")]}

    async def call_tool(name: str, arguments: dict[str, Any]) -> None:
        raise raised

    runtime = ProxyRuntime(McpClientUpstream(session(list_tools, call_tool)))
    await runtime.refresh_catalog()
    with pytest.raises(expected) as failure:
        await runtime.execute("mcp:t@1", {})
    assert type(failure.value) is expected
    assert "secret" not in str(failure.value)
    if isinstance(failure.value, UpstreamRefused):
        assert failure.value.as_dict()["details"]["upstream_message"] == "no such tool"


@requirement("LIB-6")
async def test_an_answer_that_is_no_result_is_a_failure() -> None:
    async def list_tools() -> dict[str, Any]:
        return {"tools": [tool("t")]}

    runtime = ProxyRuntime(McpClientUpstream(session(list_tools)))
    await runtime.refresh_catalog()
    with pytest.raises(UpstreamError, match="not valid"):
        await runtime.execute("mcp:t@1", {})

    async def no_tools() -> dict[str, Any]:
        return {}

    report = await ProxyRuntime(McpClientUpstream(session(no_tools))).refresh_catalog()
    assert report.stale


@requirement("BROWSE-20", "BROWSE-21", "BROWSE-23", "LIB-4")
async def test_cache_stable_browsing_is_one_flag() -> None:
    tools = [tool("alpha"), tool("beta"), tool("gamma")]
    plain, stable = (ProxyRuntime(StubUpstream(tools, say_name, name="n"), cache_stable=flag) for flag in (False, True))
    for runtime in (plain, stable):
        await runtime.refresh_catalog()
        await runtime.execute("n:gamma@1", {})
    assert [card.name for card in (await plain.browse_path("/n")).cards] == ["alpha", "beta", "gamma"]
    assert [card.name for card in (await stable.browse_path("/n")).cards] == [
        "gamma",
        "__cache_breakpoint__",
        "alpha",
        "beta",
    ]
    # A caller with an identity of its own has a session of its own.
    ann = CallContext(Identity("ann", ("*",)), "-", "ann")
    assert [card.name for card in (await stable.browse_path("/n", ann)).cards] == ["alpha", "beta", "gamma"]


@requirement("LIB-9")
async def test_a_server_serves_the_mode_that_it_is_for() -> None:
    stub = StubUpstream([])
    for server, other in ((McpGatewayServer, ExposureMode.TRANSPARENT), (McpProxyServer, ExposureMode.GATEWAY)):
        with pytest.raises(ValueError, match=server.mode.name):
            server(ProxyRuntime(stub, mode=other))


@requirement("CARD-14", "LIB-7")
async def test_unnamed_upstreams_that_give_one_tool_twice_collide() -> None:
    runtime = ProxyRuntime(MultiplexUpstream([StubUpstream([tool("a.b")]), StubUpstream([tool("a.b")])]))
    with pytest.raises(CatalogError, match=r"upstream1.*upstream2"):
        await runtime.refresh_catalog()


@requirement("LIB-8")
def test_a_runtime_is_used_from_several_event_loops_one_after_the_other() -> None:
    runtime = ProxyRuntime(StubUpstream([tool("a.b")], say_name), cache_stable=True)

    async def many() -> list[str]:
        async with asyncio.TaskGroup() as group:
            refreshed = [group.create_task(runtime.refresh_catalog()) for _ in range(5)]
            calls = [group.create_task(runtime.execute("a:b@1", {})) for _ in range(100)]
        assert {task.result().tools for task in refreshed} == {1}
        return [task.result().envelope.summary for task in calls]

    asyncio.run(runtime.refresh_catalog())
    for _ in range(2):
        assert asyncio.run(many()) == ["a.b for local"] * 100
