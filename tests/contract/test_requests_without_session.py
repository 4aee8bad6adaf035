"""Requests of the handshake era that name no session."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.contract.test_approvals_over_mcp import GATED
from tests.contract.test_mcp_door import INITIALIZE
from tests.support.asking_server import asking_server
from tests.support.requirement import requirement
from tests.support.service import OTHER_KEY, FileServer, RunningService, running_service
from tests.support.wire_client import ACCEPT, messages_in

pytestmark = pytest.mark.usefixtures("both_ways")

READ = {"name": "files__read_file", "arguments": {"path": "a.md"}}


async def post(
    service: RunningService, method: str, params: Any = None, path: str = "/mcp/namespaced", **headers: str
) -> httpx.Response:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, **({} if params is None else {"params": params})}
    return await service.http.post(path, json=body, headers={**ACCEPT, **headers})


def answer(response: httpx.Response) -> Mapping[str, Any]:
    assert response.status_code == 200, response.text
    assert "mcp-session-id" not in response.headers
    return messages_in(response)[-1]


@requirement("FACE-200")
@pytest.mark.parametrize("version", ["none", "", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_lists_calls_and_pings_are_served_without_a_session(version: str) -> None:
    named = {"MCP-Protocol-Version": version} if version != "none" else {}
    files = FileServer()
    async with running_service(upstreams=[files]) as service:
        await post(service, "initialize", INITIALIZE["params"])
        listed = answer(await post(service, "tools/list", **named))
        called = answer(await post(service, "tools/call", READ, **named))
        large = {**READ, "arguments": {"path": "a" * 70_000}}
        assert not answer(await post(service, "tools/call", large, **named))["result"]["isError"]
        assert answer(await post(service, "ping", **named)) == {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert "files__read_file" in {tool["name"] for tool in listed["result"]["tools"]}
    # Titles and output schemas came with 2025-06-18.
    assert ("structuredContent" in str(listed)) is False
    assert (called["id"], called["result"]["content"]) == (7, [{"type": "text", "text": "contents of a.md"}])
    assert "resultType" not in called["result"]


@requirement("FACE-200")
async def test_nothing_is_asked_of_a_client_without_a_session() -> None:
    files = FileServer()
    async with (
        asking_server() as server,
        running_service(upstreams=[server.upstream, files], settings=GATED) as service,
    ):
        waits = answer(await post(service, "tools/call", READ))["result"]
        asks = answer(await post(service, "tools/call", {"name": "old__ask", "arguments": {}}))["result"]
    assert waits["isError"] and "wicketgate approvals approve" in str(waits["content"])
    assert server.answers == [] or "accept" not in str(asks)
    assert files.calls == []


@requirement("FACE-200", "FACE-32")
async def test_a_request_without_a_session_needs_its_key_and_permissions() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        refused = await post(service, "tools/call", READ, Authorization="")
        other = answer(await post(service, "tools/list", Authorization=f"Bearer {OTHER_KEY}"))
        unknown = await post(service, "tools/list", **{"Mcp-Session-Id": "unknown"})
        nameless = await post(service, "tools/list", **{"Mcp-Session-Id": ""})
    assert refused.status_code == 401
    assert isinstance(other["result"]["tools"], list)
    assert (unknown.status_code, nameless.status_code) == (404, 404)


@requirement("FACE-201", "FACE-4")
@pytest.mark.parametrize("method", ["resources/list", "prompts/list", "logging/setLevel", "tasks/list", "unknown"])
async def test_any_other_request_needs_a_session(method: str) -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        params = {"level": "info"} if method == "logging/setLevel" else {}
        response = await post(service, method, params)
        note = await service.http.post("/mcp", json={"jsonrpc": "2.0", "method": "tools/list"}, headers=ACCEPT)
        listening = await service.http.get("/mcp", headers=ACCEPT)
    assert "result" not in response.text
    assert note.status_code in (202, 400) and listening.status_code == 400
