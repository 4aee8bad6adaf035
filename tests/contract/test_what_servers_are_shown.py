"""The client behind a call, as its server is shown it: its capabilities, and what travels with the call."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.scripted_server import HANDSHAKE, MODERN, TOOL, scripted_server
from tests.support.service import running_service
from tests.support.wire_client import WireClient
from wicketgate.config.settings import UpstreamSettings
from wicketgate.config.upstreams import UpstreamMaker
from wicketgate.gate import VERSION
from wicketgate.models.provider import ToolCall
from wicketgate.net import Outgoing
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

DONE = {"tools/call": lambda params: {"result": {"content": [], "resultType": "complete"}}}
UI = "io.modelcontextprotocol/ui"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
OURS: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}}
"""The extensions of the gate itself."""


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
    assert [capabilities.pop("extensions") for capabilities in shown] == [OURS] * len(declared)
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


@requirement("UP-103")
async def test_a_server_of_the_newer_era_is_shown_whether_the_client_of_a_call_shows_pages() -> None:
    pages: dict[str, Any] = {UI: {"mimeTypes": ["a/b"]}}
    declared: list[dict[str, Any]] = [{}, {"extensions": {"x/y": {}}}, {"extensions": {**pages, "x/y": {}}}]
    async with scripted_server(DONE) as server, running_service(upstreams=[server.upstream]) as service:
        for era in (MODERN, HANDSHAKE):
            for capabilities in declared:
                await WireClient(service, era, capabilities=capabilities).call("raw__job")
    shown = [message["params"]["_meta"][CAPABILITIES] for message in server.seen("tools/call")]
    assert [one["extensions"].get(UI) for one in shown] == [None, None, {"mimeTypes": ["a/b"]}] * 2
    assert not any("x/y" in one["extensions"] for one in shown)
    own = [message["params"]["_meta"][CAPABILITIES] for message in server.seen("tools/list")]
    assert all(one["extensions"] == {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}} for one in own)


@requirement("UP-99", "UP-101")
async def test_a_task_is_shown_and_may_use_no_more_of_the_client_than_its_call() -> None:
    task: dict[str, Any] = {
        "taskId": "t",
        "status": "working",
        "createdAt": "2026-01-01T00:00:00Z",
        "ttlMs": None,
        "pollIntervalMs": 1,
    }
    prompt = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    script: dict[str, Any] = {
        "tools/call": lambda params: {"result": {**task, "resultType": "task"}},
        "tasks/get": lambda params: {
            "result": {**task, "status": "input_required", "inputRequests": {"s": prompt}, "resultType": "complete"}
        },
    }
    async with scripted_server(script) as server, running_service(upstreams=[server.upstream]) as service:
        answer = await WireClient(service, capabilities={"sampling": {}, "roots": {}}).call("raw__job")
    assert "not offered to it" in str(answer)
    shown = [one["params"]["_meta"][CAPABILITIES] for one in (*server.seen("tools/call"), *server.seen("tasks/get"))]
    assert len(shown) >= 2
    assert all(not {"sampling", "roots"} & one.keys() for one in shown)


@requirement("UP-102")
async def test_a_server_is_spoken_to_in_the_era_of_its_setting() -> None:
    async with scripted_server({}) as new, scripted_server({}, era=HANDSHAKE) as old:
        upstreams = [
            {"name": "new", "url": new.url, "era": "2026-07-28"},
            {"name": "old", "url": old.url, "era": "2025-11-25"},
            {"name": "not_old", "url": new.url, "era": "2025-11-25"},
            {"name": "not_new", "url": old.url, "era": "2026-07-28"},
        ]
        made = [UpstreamMaker(Outgoing()).upstream(UpstreamSettings.model_validate(one)) for one in upstreams]
        async with running_service(upstreams=made) as service:
            states = service.app.state.gate.fleet.statuses()
        assert {name: status.phase for name, status in states.items()} == {
            "new": "ready",
            "old": "ready",
            "not_old": "down",
            "not_new": "down",
        }
        assert "set era to client or 2026-07-28" in states["not_old"].report
        assert "set era to client or 2025-11-25" in states["not_new"].report
        assert not new.seen("notifications/initialized")


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
