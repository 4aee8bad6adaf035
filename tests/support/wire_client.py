"""One request to a face by hand, in either era, and its answer as it stands on the wire."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.scripted_server import HANDSHAKE, MODERN
from tests.support.service import RunningService

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | {
    f"tasks/{verb}": "taskId" for verb in ("get", "update", "cancel")
}


@dataclass(frozen=True)
class WireClient:
    """*capabilities* are declared as they stand. *query* asks for JSON too, as programs do."""

    service: RunningService
    era: str = MODERN
    path: str = "/mcp/namespaced"
    capabilities: Mapping[str, Any] | None = None
    query: str = "?result=both"

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The whole answer, with ``result`` or ``error``."""
        messages = await self.messages(method, params, meta=meta, headers=headers)
        return next(one for one in messages if "result" in one or "error" in one)

    async def messages(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """All that comes until the answer, the notifications too."""
        headers = {**ACCEPT, "MCP-Protocol-Version": self.era, **(headers or {})}
        own: dict[str, Any] = dict(meta or {})
        if self.era == MODERN:
            named = {"Mcp-Name": params[_NAMED[method]]} if method in _NAMED else {}
            headers = {"Mcp-Method": method, **named, **headers}
            own |= {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": dict(self.capabilities or {}),
            }
        else:
            opening = {
                "protocolVersion": HANDSHAKE,
                "capabilities": dict(self.capabilities or {}),
                "clientInfo": {"name": "wire", "version": "1"},
            }
            opened = await self._post("initialize", opening, 0, headers)
            headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
            await self._post("notifications/initialized", {}, None, headers)
        asked = {**params, **({"_meta": own} if own else {})}
        return messages_in(await self._post(method, asked, 1, headers))

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, more: Mapping[str, Any] | None = None, **given: Any
    ) -> dict[str, Any]:
        return await self.ask("tools/call", {"name": name, "arguments": dict(arguments or {}), **(more or {})}, **given)

    async def _post(
        self, method: str, params: Mapping[str, Any], id: int | None, headers: Mapping[str, str]
    ) -> httpx.Response:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": dict(params)}
        if id is not None:
            message["id"] = id
        return await self.service.http.post(self.path + self.query, json=message, headers=dict(headers))


def messages_in(response: httpx.Response) -> list[dict[str, Any]]:
    """The messages in *response*, in JSON or in a stream of events."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        lines = [line.removeprefix("data:") for line in response.text.splitlines() if line.startswith("data:")]
        return [json.loads(line) for line in lines if line.strip()]
    return [response.json()]
