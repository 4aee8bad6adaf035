"""The forms in which MCP clients of the three tools get a result: text for models, JSON for programs."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import running_service
from tests.support.wire_client import WireClient
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

PNG = b"\x89PNG\r\n\x1a\n"
ERAS = pytest.mark.parametrize("era", [MODERN, HANDSHAKE])


async def draw(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    picture = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
    parts = [picture] if name == "chart" else []
    return {"content": [{"type": "text", "text": '{"n": 1}'}, *parts], "structuredContent": {"n": 1}}


def server() -> StubUpstream:
    return StubUpstream([{"name": name, "inputSchema": {}} for name in ("number", "chart")], draw, name="art")


@ERAS
@requirement("FACE-176", "EXEC-97")
@pytest.mark.parametrize(
    ("query", "meta", "default", "form"),
    [
        ("", {}, "text", "text"),
        ("", {}, "json", "json"),
        ("?result=both", {}, "text", "both"),
        ("?x=1&result=json", {}, "text", "json"),
        ("?result=odd", {}, "text", "text"),
        ("?result=json", {"wicketgate/result": "text"}, "both", "text"),
        ("", {"wicketgate/result": "json"}, "text", "json"),
        ("", {"wicketgate/result": ["odd"]}, "text", "text"),
    ],
)
async def test_a_client_gets_the_form_that_it_asks_for(
    both_ways: str, era: str, query: str, meta: dict[str, Any], default: str, form: str
) -> None:
    settings = {"mcp": {"result": default, "direct": both_ways == "direct"}}
    async with running_service(upstreams=[server()], settings=settings) as service:
        client = WireClient(service, era, "/mcp", query=query)
        result = (await client.call("tool_execute", {"tool_id": "art:number"}, meta=meta))["result"]
    (block,) = result["content"]
    assert ("structuredContent" in result) is (form != "text")
    if form == "json":
        assert json.loads(block["text"]) == result["structuredContent"]
    else:
        assert block["text"] == '{"n": 1}', "the page of the result: its text, unchanged"
    if form != "text":
        shown = result["structuredContent"]
        assert (shown["structured_content"], shown["artifacts"]) == ({"n": 1}, [])


@ERAS
@requirement("FACE-176")
async def test_a_picture_reaches_the_model_in_every_form(era: str) -> None:
    async with running_service(upstreams=[server()]) as service:
        client = WireClient(service, era, "/mcp", query="")
        page = (await client.call("tool_execute", {"tool_id": "art:chart"}))["result"]["content"][0]["text"]
        handle = page.rpartition("[artifact ")[2].split()[0]
        viewed = (await client.call("tool_view", {"handle": handle, "selector": {"type": "head"}}))["result"]
    assert "structuredContent" not in viewed
    assert viewed["content"][1] == {
        "type": "image",
        "data": base64.b64encode(PNG).decode(),
        "mimeType": "image/png",
    }


@ERAS
@requirement("FACE-176")
async def test_a_failure_is_its_json_as_text(era: str) -> None:
    async with running_service(upstreams=[server()]) as service:
        client = WireClient(service, era, "/mcp", query="")
        failed = (await client.call("tool_execute", {"tool_id": "art:none"}))["result"]
    assert (failed["isError"], "structuredContent" in failed) == (True, False)
    assert json.loads(failed["content"][0]["text"])["error"] == "HYDRATE_FAILED"


@ERAS
@requirement("FACE-192")
async def test_a_tool_called_by_its_own_name_over_mcp_gets_a_result_that_names_tool_execute(
    both_ways: str, era: str
) -> None:
    async with running_service(upstreams=[server()], settings={"mcp": {"direct": both_ways == "direct"}}) as service:
        client = WireClient(service, era, "/mcp")
        answers = [await client.call(name, {}) for name in ("number", "art__number", "nope")]
    for answer in answers[:2]:
        assert answer["result"]["isError"] is True
        assert "tool_execute" in answer["result"]["content"][0]["text"]
        assert "art:number#" in answer["result"]["content"][0]["text"]
    assert answers[2]["error"]["message"] == "Unknown tool: nope"
