"""The face that suits a client: all tools at ``/mcp?tools=all``, and chosen tools next to the three."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.mcp_client import ERAS, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel
from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import running_service
from tests.support.wire_client import ACCEPT, WireClient
from wicketgate.config.settings import Settings
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

WIRE_ERAS = pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
THREE = ["tool_browse", "tool_execute", "tool_view"]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": f"{name} {arguments['n']}"}], "structuredContent": {"own": True}}


def server(*names: str) -> StubUpstream:
    tools = [{"name": name, "inputSchema": SCHEMA} for name in names or ("add", "drop")]
    return StubUpstream(tools, answer, name="art")


def client_of(service: Any, era: str, query: str = "") -> WireClient:
    return WireClient(service, era, "/mcp", query=query)


async def listed(client: WireClient) -> list[str]:
    return [tool["name"] for tool in (await client.ask("tools/list", {}))["result"]["tools"]]


@WIRE_ERAS
@requirement("FACE-177")
@pytest.mark.parametrize(
    ("query", "every"),
    [
        ("?tools=all", True),
        ("?a=1&tools=all&result=json", True),
        ("?tools=some", False),
        ("?notools=all", False),
        ("?codemode=false", False),
        ("", False),
    ],
)
async def test_the_main_url_gives_all_tools_to_a_client_that_asks_for_them(
    both_ways: str, era: str, query: str, every: bool
) -> None:
    async with running_service(upstreams=[server()], settings={"mcp": {"direct": both_ways == "direct"}}) as service:
        client = client_of(service, era, query)
        assert await listed(client) == (["art__add", "art__drop"] if every else THREE)
        called = await client.call("art__add", {"n": 1})
        if every:
            assert called["result"]["content"] == [{"type": "text", "text": "add 1"}]
            assert called["result"]["structuredContent"] == {"own": True}
        else:
            assert "error" in called or called["result"]["isError"]


@ERAS
@requirement("FACE-177")
async def test_the_sdk_lists_calls_and_ends_its_session_at_that_url(mode: str) -> None:
    async with (
        running_service(upstreams=[server()]) as service,
        mcp_client(service, mode, path="/mcp?tools=all&x=") as client,
    ):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["art__add", "art__drop"]
        assert (await client.call_tool("art__add", {"n": 2})).structured_content == {"own": True}


@requirement("FACE-178")
async def test_a_session_belongs_to_the_face_under_which_it_was_opened() -> None:
    opening = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
    async with running_service(upstreams=[server()]) as service:
        opened = await service.http.post("/mcp?tools=all", json=message, headers=ACCEPT)
        headers = {**ACCEPT, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}

        async def status(method: str, query: str) -> int:
            body = asked if method == "POST" else None
            async with service.http.stream(method, f"/mcp{query}", headers=headers, json=body) as answer:
                return answer.status_code

        assert [await status(method, "") for method in ("POST", "GET", "DELETE")] == [404] * 3
        assert [await status(method, "?tools=all") for method in ("POST", "GET", "DELETE", "POST")] == [
            *(200, 200, 200),
            404,
        ]


@requirement("FACE-179")
async def test_the_main_url_stays_the_resource_and_the_path_of_the_metrics() -> None:
    async with running_service(upstreams=[server()]) as service:
        refused = await service.http.post("/mcp?tools=all", json={}, headers={"Authorization": "Bearer wrong"})
        assert await listed(client_of(service, MODERN, "?tools=all")) == ["art__add", "art__drop"]
        metrics = await service.metrics()
    assert refused.status_code == 401
    assert 'path="/mcp"' in metrics
    assert 'path="/mcp/namespaced"' not in metrics


ALWAYS = {"mcp": {"always": ["art:add"]}}


@WIRE_ERAS
@requirement("FACE-180", "FACE-181")
async def test_a_chosen_tool_is_listed_and_called_next_to_the_three(both_ways: str, era: str) -> None:
    settings = {"mcp": {**ALWAYS["mcp"], "direct": both_ways == "direct"}}
    async with running_service(upstreams=[server()], settings=settings) as service:
        client = client_of(service, era)
        tools = (await client.ask("tools/list", {}))["result"]["tools"]
        assert [tool["name"] for tool in tools] == [*THREE, "art__add"]
        assert tools[3]["inputSchema"] == SCHEMA
        result = (await client.call("art__add", {"n": 3}))["result"]
        assert result["content"] == [{"type": "text", "text": "add 3"}]
        assert result["structuredContent"] == {"own": True}, "the server's own result"
        wrong = (await client.call("art__add", {}))["result"]
        assert (wrong["isError"], "ARGS_INVALID" in wrong["content"][0]["text"]) == (True, True)
        assert "error" in (other := await client.call("art__drop", {"n": 1})) or other["result"]["isError"]


@requirement("FACE-182")
async def test_a_chosen_tool_is_listed_to_callers_that_may_see_it_alone() -> None:
    settings = {"mcp": {"always": ["art:*"]}, "access": [{"match": "art:drop", "visibility": "internal"}]}
    async with running_service(upstreams=[server()], settings=settings) as service:
        client = client_of(service, MODERN)
        assert await listed(client) == [*THREE, "art__add"]
        hidden, unknown = [await client.call(f"art__{name}", {"n": 1}) for name in ("drop", "gone")]
    assert str(hidden).replace("drop", "gone") == str(unknown)


@requirement("FACE-183")
async def test_at_most_twenty_tools_are_listed_next_to_the_three(caplog: pytest.LogCaptureFixture) -> None:
    many = server(*(f"t{number:02}" for number in range(22)))
    async with running_service(
        upstreams=[many], settings={"mcp": {"always": ["art:*", "art:gone", "no:*"]}}
    ) as service:
        shown = await listed(client_of(service, MODERN))
    assert shown == [*THREE, *(f"art__t{number:02}" for number in range(20))]
    assert "mcp.always matches 22 tools; the first 20 are listed" in caplog.text
    assert "no tool matches: mcp.always (art:gone)" in caplog.text
    assert "no tool matches: mcp.always (no:*)" in caplog.text


@pytest.mark.parametrize("always", [[f"art:t{number}" for number in range(21)], ["no pattern"]])
@requirement("FACE-183")
def test_a_start_with_too_many_patterns_or_a_wrong_one_is_refused(always: list[str]) -> None:
    with pytest.raises(ValidationError, match=r"mcp\.always"):
        Settings.model_validate({"mcp": {"always": always}})


@requirement("FACE-184")
async def test_the_model_behind_the_engine_has_the_three_tools_alone() -> None:
    model = ScriptModel()
    async with running_service(model, upstreams=[server()], settings=ALWAYS) as service:
        await service.chat()
    assert [tool.name for tool in model.requests[0].tools] == THREE
