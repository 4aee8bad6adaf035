"""The official MCP client of either era, through the running service's door."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.service import KEY, RunningService

NEW, OLD = "2026-07-28", "legacy"

ERAS = pytest.mark.parametrize("mode", [NEW, OLD])


@asynccontextmanager
async def mcp_client(
    service: RunningService,
    mode: str,
    key: str = KEY,
    path: str = "/mcp",
    *,
    headers: Mapping[str, str] | None = None,
    client: Mapping[str, Any] | None = None,
) -> AsyncIterator[Client]:
    """*client*: what the SDK's Client takes beyond transport and mode, such as callbacks. It asks for JSON, as programs
    do (FACE-176)."""
    sent = {"Authorization": f"Bearer {key}", **(headers or {})}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=40, verify=False) as http,  # loading authorities takes 30 ms
        Client(
            streamable_http_client(f"{service.url}{path}?result=both", http_client=http), mode=mode, **(client or {})
        ) as connected,
    ):
        yield connected


async def call_statelessly(http: httpx.AsyncClient, name: str, arguments: Mapping[str, Any]) -> httpx.Response:
    """Calls a tool at ``/mcp`` with one request, in the era without sessions."""
    params = {
        "name": name,
        "arguments": arguments,
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
            "wicketgate/result": "both",
        },
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return await http.post("/mcp", json=message, headers=headers)
