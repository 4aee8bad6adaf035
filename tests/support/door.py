"""A client of ``/mcp`` that is spoken by hand, in a session if its era has them."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.support.service import BOUND_S, RunningService
from tests.support.wire_client import ACCEPT, messages_in
from wicketgate.faces.mcp.session_tokens import McpSession, SessionTokens

NEWER, OLDER = "2026-07-28", "2025-11-25"
OWNER = "owner_1"
ERAS = pytest.mark.parametrize("era", [NEWER, OLDER])
WAYS = pytest.mark.parametrize("direct", [True, False], ids=["direct", "sdk"])
META = {
    "io.modelcontextprotocol/protocolVersion": NEWER,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}

Message = dict[str, Any]


class Door:
    """One client at a face, in a session if its era has them."""

    def __init__(self, service: RunningService, era: str, face: str = "namespaced") -> None:
        self.service = service
        self.path = f"/mcp/{face}"
        self.era = era
        self.capabilities: Mapping[str, Any] = {}
        self.headers = {**ACCEPT, "MCP-Protocol-Version": era, "X-Correlation-ID": "corr-1"}

    async def open(self, **capabilities: Any) -> "Door":
        self.capabilities = capabilities
        if self.era == NEWER:
            return self
        params = {"protocolVersion": OLDER, "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        opened = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert opened.status_code == 200, opened.text
        self.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        assert (await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202
        return self

    def without_session(self) -> "Door":
        return Door(self.service, self.era, self.path.removeprefix("/mcp/"))

    def session_of(self, answer: httpx.Response) -> McpSession | None:
        """The session that *answer* opens, as any process reads it."""
        token = answer.headers.get("mcp-session-id")
        if token is None:
            return None
        tokens = SessionTokens(self.path.removeprefix("/mcp/"), self.service.app.state.gate.shared.seal)
        opened = tokens.open(OWNER, token)
        assert opened is not None
        return opened[1]

    async def post(self, message: object, **headers: str) -> httpx.Response:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        async with asyncio.timeout(BOUND_S):
            return await self.service.http.post(self.path, content=content, headers={**self.headers, **headers})

    async def told(self, message: object) -> Any:
        """The answer to *message*; None if it needs none."""
        answer = await self.post(message)
        return None if answer.status_code == 202 else messages_in(answer)[-1]

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, id: int | str = 1) -> httpx.Response:
        asked = dict(params or {})
        named: dict[str, str] = {}
        if self.era == NEWER:
            named = {"Mcp-Method": method, **({"Mcp-Name": asked["name"]} if "name" in asked else {})}
            own = {**META, "io.modelcontextprotocol/clientCapabilities": self.capabilities}
            asked = {"_meta": own, **asked}
        return await self.post({"jsonrpc": "2.0", "id": id, "method": method, "params": asked}, **named)

    async def call(self, name: str, id: int | str = 1, **arguments: Any) -> httpx.Response:
        return await self.ask("tools/call", {"name": name, "arguments": arguments}, id)
