"""The client behind a call, as its server is shown it: its capabilities, and what travels with the call."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.scripted_server import HANDSHAKE, MODERN, TOOL, scripted_server
from tests.support.service import running_service
from tests.support.wire_client import WireClient
from wicketgate.gate import VERSION
from wicketgate.models.provider import ToolCall
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

DONE = {"tools/call": lambda params: {"result": {"content": [], "resultType": "complete"}}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


@requirement("UP-80")
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_a_server_is_shown_the_callers_own_elicitation_and_nothing_else(era: str) -> None:
    declared: list[dict[str, Any]] = [
        {},
        {"sampling": {}, "roots": {}},
        {"elicitation": {}},
        {"elicitation": {"url": {}}},
        {"elicitation": {"form": {}, "url": {}}, "sampling": {}},
    ]
    async with (
        scripted_server(DONE) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        for capabilities in declared:
            await WireClient(service, era, capabilities=capabilities).call("raw__job")
    shown = [message["params"]["_meta"][CAPABILITIES] for message in server.seen("tools/call")]
    assert shown == [
        {},
        {},
        {"elicitation": {}},
        {"elicitation": {"url": {}}},
        {"elicitation": {"form": {}, "url": {}}},
    ]


@requirement("FACE-63")
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_an_upstream_sees_every_capability_that_the_client_of_a_call_declared(era: str) -> None:
    seen: list[Mapping[str, Any]] = []

    async def note(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        seen.append(context.caller.capabilities)
        return {"content": []}

    declared: list[dict[str, Any]] = [
        {},
        {
            "elicitation": {"url": {}},
            "sampling": {"tools": {}},
            "roots": {"listChanged": True},
            "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
        },
    ]
    stub = StubUpstream([TOOL], note, name="raw")
    async with running_service(upstreams=[stub]) as service:
        for capabilities in declared:
            await WireClient(service, era, capabilities=capabilities).call("raw__job")
    assert seen == declared


TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "a=1",
    "baggage": "u=7",
}
HEADERS = {key: value.replace("7", "8") for key, value in TRACE.items()}


@requirement("UP-81", "UP-82", "UP-83")
@pytest.mark.parametrize("server_era", [MODERN, HANDSHAKE])
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_the_callers_meta_and_trace_context_travel_to_the_server(era: str, server_era: str) -> None:
    own = {"com.example/tenant": {"a": [1]}, "plain": 1}
    ours = {"wicketgate/session": "mine", "wicketgate/correlation_id": "forged", "progressToken": 5}
    theirs = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}
    async with (
        scripted_server(DONE, era=server_era) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        client = WireClient(service, era)
        gateway = WireClient(service, era, "/mcp/gateway")
        await client.call("raw__job", meta={**own, **ours, **theirs, **TRACE}, headers=HEADERS)
        await gateway.call("tool_execute", {"tool_id": "raw:job"}, meta=own, headers=HEADERS)
        await client.call("raw__job", meta={"big": "x" * 9_000, "plain": 1, **TRACE, "traceparent": 5})
        shown = [message["params"]["_meta"] for message in server.seen("tools/call")]
        opening = server.seen("server/discover" if server_era == MODERN else "initialize")[0]["params"]
    first, second, third = ({key: value for key, value in meta.items() if _is_free(key)} for meta in shown)
    assert first == {**own, **TRACE}, "what the caller said in the message counts, not its header"
    assert second == {**own, **HEADERS}
    assert third == {"tracestate": "a=1", "baggage": "u=7"}, "too large, and of a wrong type"
    assert shown[0]["wicketgate/correlation_id"].startswith("req_")
    assert "wicketgate/session" not in shown[0]
    assert "io.modelcontextprotocol/related-task" not in shown[0]
    said = [opening.get("clientInfo") or opening["_meta"]["io.modelcontextprotocol/clientInfo"]]
    if server_era == MODERN:
        said += [meta["io.modelcontextprotocol/clientInfo"] for meta in shown]
    assert all(info == {"name": "wicketgate", "version": VERSION} for info in said)


def _is_free(key: str) -> bool:
    return key != "progressToken" and not key.startswith(("wicketgate/", "io.modelcontextprotocol/"))


@requirement("UP-82")
async def test_the_trace_context_of_other_doors_travels_too() -> None:
    call = ToolCall("c1", "tool_execute", {"tool_id": "raw:job"}, '{"tool_id": "raw:job"}')
    async with (
        scripted_server(DONE) as server,
        running_service(ScriptModel(calls(call), says("ok")), [server.upstream]) as service,
    ):
        await service.chat(headers=HEADERS)
        await service.http.post("/operations/call", json={"operation": "/raw/job"}, headers=HEADERS)
        shown = [message["params"]["_meta"] for message in server.seen("tools/call")]
    assert [{key: meta.get(key) for key in TRACE} for meta in shown] == [HEADERS, HEADERS]
