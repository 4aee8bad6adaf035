"""A server over HTTP of both eras of MCP: it answers each call with its era, or with its session if it has one."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.scripted_server import HANDSHAKE, MODERN
from wicketgate.net import Credentials, Outgoing
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

INFO = {"name": "both", "version": "1"}
FRESH = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class BothEras:
    """A server of both eras, which answers each call with the era that it came in."""

    def __init__(self, extensions: Mapping[str, Any] | None = None, *, handshake: bool = True) -> None:
        self.methods: list[str] = []
        self.sessions: set[str] = set()
        self.handshake = handshake
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.asked = asyncio.Event()
        self._capabilities = {"tools": {}, "extensions": extensions or {}}

    async def reply(self, seen: Seen) -> Reply:
        if seen.method != "POST":
            return Reply(status=405)
        message = json.loads(seen.body)
        method, params = message["method"], message.get("params") or {}
        self.methods.append(method)
        session, headers = seen.headers.get("mcp-session-id"), dict[str, str]()
        if method == "initialize":
            self.asked.set()
            await self.is_open.wait()
            headers["mcp-session-id"] = f"s-{len(self.methods)}"
            self.sessions.update(headers.values())
        elif session is not None and session not in self.sessions:
            return Reply(status=404)
        if "id" not in message:
            return Reply(status=202)
        answer = {"jsonrpc": "2.0", "id": message["id"], **self._outcome(method, params, session)}
        return Reply(json.dumps(answer).encode(), headers={"content-type": "application/json", **headers})

    def _outcome(self, method: str, params: Mapping[str, Any], session: str | None) -> Mapping[str, Any]:
        fresh = FRESH if "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {}) else {}
        match method:
            case "server/discover":
                return {"result": {"supportedVersions": [MODERN], "capabilities": self._capabilities, **fresh}}
            case "initialize" if self.handshake:
                return {
                    "result": {"protocolVersion": HANDSHAKE, "capabilities": self._capabilities, "serverInfo": INFO}
                }
            case "tools/list":
                return {"result": {"tools": [{"name": "era", "inputSchema": {"type": "object"}}], **fresh}}
            case "tools/call" | "resources/read":
                return {"result": {"content": [{"type": "text", "text": MODERN if fresh else session}], **fresh}}
        return {"error": {"code": -32601, "message": "Method not found"}}


@asynccontextmanager
async def both_eras_server(
    server: BothEras,
    mode: Mode = "auto",
    forward: Collection[str] = (),
    credentials: Credentials | None = None,
) -> AsyncIterator[McpServerUpstream]:
    async with HttpService(server.reply) as service:
        connect = partial(
            http_transport, "both", f"{service.url}/mcp", {}, outgoing=Outgoing(), credentials=credentials
        )
        upstream = McpServerUpstream(
            "both", connect, connect_timeout_s=15, jitter=lambda: 0, mode=mode, forward=forward
        )
        yield upstream
