"""Promises to a listening client are kept: a resumed stream, acknowledged filters, and how long lists are fresh."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.contract.test_mcp_door import INITIALIZE
from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN, Answer, scripted_server
from tests.support.service import BOUND_S, FileServer, running_service
from tests.support.wire_client import ACCEPT, WireClient
from wicketgate.ports import Upstream

ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@requirement("FACE-60")
async def test_a_stream_asked_for_after_an_event_begins_as_a_new_one() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        opened = await service.http.post("/mcp", json=INITIALIZE, headers=ACCEPT)
        session = {**ACCEPT, "Mcp-Session-Id": opened.headers["mcp-session-id"], "Mcp-Protocol-Version": "2025-11-25"}
        await service.http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        async with asyncio.timeout(BOUND_S):
            asked = {**session, "Last-Event-ID": "e-1"}
            async with service.http.stream("GET", "/mcp", headers=asked) as stream:
                assert stream.status_code == 200
                assert stream.headers["content-type"].startswith("text/event-stream")


@requirement("FACE-61")
@pytest.mark.parametrize(
    ("face", "capabilities", "kept"),
    [
        ("gateway", {"tools": {}, "prompts": {}, "resources": {}}, {"toolsListChanged": True}),
        ("namespaced", {"tools": {}}, {"toolsListChanged": True}),
        ("namespaced", {"tools": {}, "prompts": {}}, {"toolsListChanged": True, "promptsListChanged": True}),
        ("namespaced", {"tools": {}, "resources": {}}, {"toolsListChanged": True, "resourcesListChanged": True}),
    ],
)
async def test_what_is_acknowledged_is_what_can_come(face: str, capabilities: Any, kept: dict[str, bool]) -> None:
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}
    params = {"notifications": ALL, "_meta": MODERN_META}
    headers = {**ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
    async with (
        scripted_server({}, capabilities=capabilities) as server,
        running_service(upstreams=[server.upstream]) as service,
        asyncio.timeout(BOUND_S),
        service.http.stream("POST", f"/mcp/{face}", json={**listen, "params": params}, headers=headers) as stream,
    ):
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                acknowledged = json.loads(line.removeprefix("data:"))
                break
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == kept


def listing(ttl_ms: object) -> dict[str, Answer]:
    fresh = {} if ttl_ms is None else {"ttlMs": ttl_ms, "cacheScope": "public"}
    return {
        "resources/list": lambda params: {"result": {"resources": [{"uri": "a:b", "name": "b"}], **fresh}},
        "resources/templates/list": lambda params: {"result": {"resourceTemplates": [], **fresh}},
        "prompts/list": lambda params: {"result": {"prompts": [{"name": "p"}], **fresh}},
    }


@requirement("FACE-62")
@pytest.mark.parametrize(
    ("ttls", "longest", "shortest"),
    [
        ((12_345, 40_000), 12_345, 1),
        ((12_345, 5), 5, 0),
        ((999_999_999,), 60_000, 30_000),
        ((12_345, None), 0, 0),
        ((-5,), 0, 0),
        (("soon",), 0, 0),
    ],
)
async def test_lists_are_fresh_as_long_as_the_least_fresh_server_says(
    ttls: tuple[object, ...], longest: int, shortest: int
) -> None:
    can: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
    async with AsyncExitStack() as stack:
        upstreams: list[Upstream] = []
        for number, ttl in enumerate(ttls):
            era = HANDSHAKE if ttl is None else MODERN
            serving = scripted_server(listing(ttl), era=era, capabilities=can, name=f"s{number}")
            upstreams.append((await stack.enter_async_context(serving)).upstream)
        service = await stack.enter_async_context(running_service(upstreams=upstreams))
        for method in ("resources/list", "resources/templates/list", "prompts/list"):
            result = (await WireClient(service).ask(method, {}))["result"]
            assert shortest <= result["ttlMs"] <= longest, (method, result)
            assert result["cacheScope"] == "private"
