"""An MCP server over HTTP with a script: of either era, it notes every message and answers as it is told.

async with scripted_server({"tools/call": lambda params: {"result": {...}}}, era=MODERN) as server:
    ... server.upstream ... server.seen("tools/call")[0]["params"]["_meta"]
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tests.support.http_service import HttpService, Reply, Seen
from wicketgate.net import Outgoing
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.task_follower import TaskBounds
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
TOOL: Mapping[str, Any] = {"name": "job", "description": "Start a job.", "inputSchema": {"type": "object"}}

Outcome = Mapping[str, Any]
"""``{"result": ...}`` or ``{"error": ...}``."""
Answer = Callable[[Mapping[str, Any]], Outcome]


class ScriptedServer:
    def __init__(
        self, answers: Mapping[str, Answer], era: str, tools: Sequence[Mapping[str, Any]], capabilities: Any
    ) -> None:
        self.messages: list[Mapping[str, Any]] = []
        self.refusal: Reply | None = None
        """The reply to every request, in place of an answer."""
        self.turned_away = asyncio.Event()
        self.service: HttpService
        self.upstream: McpServerUpstream
        self.url = ""
        self._answers = answers
        self._era = era
        self._tools = tools
        self._capabilities = capabilities

    def seen(self, method: str) -> list[Mapping[str, Any]]:
        """The messages of *method* so far."""
        return [message for message in self.messages if message.get("method") == method]

    def reply(self, seen: Seen) -> Reply:
        if self.refusal is not None:
            self.turned_away.set()
            return self.refusal
        if seen.method != "POST":
            return Reply(status=405)
        message = json.loads(seen.body)
        self.messages.append(message)
        if "id" not in message or "method" not in message:
            return Reply(status=202)
        outcome = self._outcome(message["method"], message.get("params") or {})
        return Reply(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode())

    def _outcome(self, method: str, params: Mapping[str, Any]) -> Outcome:
        if method in self._answers:
            return self._answers[method](params)
        fresh = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self._era == MODERN else {}
        match method:
            case "server/discover" if self._era == MODERN:
                return {"result": {"supportedVersions": [MODERN], "capabilities": self._capabilities, **fresh}}
            case "initialize" if self._era == HANDSHAKE:
                info = {"name": "scripted", "version": "1"}
                agreed = {"protocolVersion": HANDSHAKE, "capabilities": self._capabilities, "serverInfo": info}
                return {"result": agreed}
            case "tools/list":
                return {"result": {"tools": list(self._tools), **fresh}}
            case "ping":
                return {"result": {}}
        return {"error": {"code": -32601, "message": "Method not found"}}


@asynccontextmanager
async def scripted_server(
    answers: Mapping[str, Answer],
    *,
    era: str = MODERN,
    tools: Sequence[Mapping[str, Any]] = (TOOL,),
    capabilities: Any = None,
    name: str = "raw",
    tasks: TaskBounds | None = None,
) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(answers, era, tools, {"tools": {}} if capabilities is None else capabilities)
    async with HttpService(server.reply) as service:
        server.url = f"{service.url}/mcp"
        server.service = service
        connect = partial(http_transport, name, f"{service.url}/mcp", {}, outgoing=Outgoing())
        server.upstream = McpServerUpstream(
            name,
            connect,
            connect_timeout_s=15,
            jitter=lambda: 0,
            mode="handshake" if era == HANDSHAKE else "auto",
            tasks=tasks or TaskBounds(),
        )
        yield server
