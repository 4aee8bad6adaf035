"""Failures of a tool that shows an output schema: clients check structured content against it, failed or not."""

import json
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN, TOOL, scripted_server
from tests.support.service import running_service
from tests.support.wire_client import WireClient

OUTPUT = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
INPUT = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"], "additionalProperties": False}
TYPED: dict[str, Any] = {**TOOL, "name": "add", "inputSchema": INPUT, "outputSchema": OUTPUT}
PLAIN: dict[str, Any] = {**TOOL, "name": "plain", "inputSchema": INPUT}
PAGE = {"message": "Log in.", "mode": "url", "url": "https://login.example/x", "elicitationId": "e"}
ASKS = {"resultType": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": PAGE}}}


@requirement("FACE-53")
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_a_refusal_of_a_tool_with_an_output_schema_is_text_alone(era: str) -> None:
    async with (
        scripted_server({}, tools=[TYPED, PLAIN]) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        client = WireClient(service, era)
        listed = (await client.ask("tools/list", {}))["result"]["tools"]
        assert [tool.get("outputSchema") for tool in listed] == [OUTPUT, None]
        typed = (await client.call("raw__add", {"a": "one"}))["result"]
        plain = (await client.call("raw__plain", {"a": "one"}))["result"]
    assert typed["isError"] and plain["isError"]
    assert "structuredContent" not in typed
    (block,) = typed["content"]
    assert json.loads(block["text"])["error"] == "ARGS_INVALID"
    assert plain["structuredContent"] == json.loads(plain["content"][0]["text"])


@requirement("FACE-53")
async def test_a_question_that_cannot_be_put_is_a_failure_in_text_alone() -> None:
    async with (
        scripted_server({"tools/call": lambda params: {"result": ASKS}}, tools=[TYPED]) as server,
        running_service(upstreams=[server.upstream]) as service,
    ):
        answer = await WireClient(service, capabilities={"elicitation": {}}).call("raw__add", {"a": 1})
    failed = answer["result"]
    assert failed["isError"]
    assert "structuredContent" not in failed
    assert json.loads(failed["content"][0]["text"])["error"] == "UPSTREAM_ERROR"
