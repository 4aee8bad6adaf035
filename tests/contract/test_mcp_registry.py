"""``/mcp/registry`` with the official client in both protocol eras (FACE-22, FACE-32)."""

from typing import Any

from tests.support.mcp_client import ERAS, mcp_client
from tests.support.requirement import requirement
from tests.support.service import KEY, READER_KEY, FileServer, running_service

HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@ERAS
@requirement("FACE-22", "FACE-27")
async def test_a_client_of_either_era_finds_learns_and_calls(mode: str) -> None:
    async with (
        running_service(upstreams=[FileServer()]) as service,
        mcp_client(service, mode, path="/mcp/registry") as client,
    ):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search", "schema", "call", "batch"]
        found = (await client.call_tool("search", {"query": "read"})).structured_content
        assert found and found["operations"][0]["name"] == "/files/read_file"
        spec = (await client.call_tool("schema", {"name": "/files/read_file"})).structured_content
        assert spec and spec["input_schema"]["required"] == ["path"]
        call = {"operation": "/files/read_file", "input": {"path": "a"}}
        assert (await client.call_tool("call", call)).structured_content == {"result": "contents of a"}
        batch = (await client.call_tool("batch", {"calls": [call, {"operation": "no/such"}]})).structured_content
        assert batch and [item["isError"] for item in batch["results"]] == [False, True]


@requirement("FACE-32")
async def test_who_calls_is_said_by_each_request_and_not_by_its_session() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        opening = message(
            "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "0"}
        )
        opened = await service.http.post("/mcp/registry", json=opening, headers=HEADERS)
        assert "Call `search`" in opened.text
        session = {**HEADERS, "Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
        listing = message("tools/call", name="search", arguments={})
        totals = []
        for key in (KEY, READER_KEY):
            headers = {**session, "Authorization": f"Bearer {key}"}
            answer = await service.http.post("/mcp/registry", json=listing, headers=headers)
            totals.append((answer.status_code, '"total":4' in answer.text or '\\"total\\":4' in answer.text))
        assert totals[0] == (200, True)
        assert totals[1] != (200, True)
