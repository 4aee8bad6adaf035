"""A result of a kind that was not agreed is an error at every face and in the engine, never an empty success."""

import json
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.scripted_server import HANDSHAKE, MODERN, TOOL, scripted_server
from tests.support.service import running_service
from tests.support.wire_client import WireClient
from wicketgate.errors import UpstreamError
from wicketgate.models.provider import ToolCall
from wicketgate.ports import LOCAL_CALL
from wicketgate.upstreams.embedded import McpClientUpstream

TASK: dict[str, Any] = {"resultType": "task", "status": "working"}
"""Without an id: no task that anyone could follow."""
ODD: dict[str, Any] = {"resultType": "com.example/odd", "content": [{"type": "text", "text": "all done"}]}
BY_FACE = {
    "namespaced": ("raw__job", {}),
    "transparent": ("tool_execute", {"tool_id": "raw:job"}),
    "gateway": ("tool_execute", {"tool_id": "raw:job"}),
    "registry": ("call", {"operation": "/raw/job"}),
}


@requirement("UP-45")
@pytest.mark.parametrize("result", [TASK, ODD], ids=["task", "odd"])
@pytest.mark.parametrize("server_era", [MODERN, HANDSHAKE])
async def test_an_unknown_type_of_result_is_an_error_at_every_face(server_era: str, result: dict[str, Any]) -> None:
    async with (
        scripted_server({"tools/call": lambda params: {"result": result}}, era=server_era) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        for era in (MODERN, HANDSHAKE):
            for face, (name, arguments) in BY_FACE.items():
                answer = await WireClient(service, era, f"/mcp/{face}").call(name, arguments)
                failed = "error" in answer or answer["result"].get("isError")
                assert failed, (era, face, answer)
                assert "not a valid MCP result" in json.dumps(answer)


@requirement("UP-45")
async def test_an_unknown_type_of_result_is_an_error_for_the_engines_model() -> None:
    model = ScriptModel(
        calls(ToolCall("c1", "tool_execute", {"tool_id": "raw:job"}, '{"tool_id": "raw:job"}')), says("ok")
    )
    async with (
        scripted_server({"tools/call": lambda params: {"result": TASK}}, era=HANDSHAKE) as server,
        running_service(model, upstreams=[server.upstream]) as service,
    ):
        events = await service.chat()
    (output,) = [data for event, data in events if event == "tool-result"]
    assert "UPSTREAM_ERROR" in json.dumps(output)


@requirement("UP-45")
@pytest.mark.parametrize("server_era", [MODERN, HANDSHAKE])
async def test_an_unknown_type_of_what_is_read_is_an_error(server_era: str) -> None:
    contents = {"contents": [{"uri": "demo://x", "text": "x"}]}
    answers = {"resources/read": lambda params: {"result": {**contents, "resultType": "com.example/odd"}}}
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}}
    async with (
        scripted_server(answers, era=server_era, capabilities=capabilities) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        answer = await WireClient(service).ask("resources/read", {"uri": "raw__demo://x"})
    assert "not a valid MCP result" in answer["error"]["message"]


@requirement("UP-45")
@pytest.mark.parametrize("kind", ["task", "input_required"])
async def test_an_unknown_type_of_an_embedded_sessions_result_is_an_error(kind: str) -> None:
    class Session:
        async def list_tools(self) -> Any:
            return {"tools": [TOOL]}

        async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
            return {"resultType": kind}

    upstream = McpClientUpstream(Session(), name="raw")
    with pytest.raises(UpstreamError, match="not valid"):
        await upstream.call_tool("job", {}, LOCAL_CALL, 5)
