"""Reaches a gate from a terminal: in this process from a configuration, or a running service by its URL.

Both ways offer the same: calls of meta-tools, and the events of a chat.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.engine.contract import ChatRequest
from wicketgate.errors import ConfigError
from wicketgate.faces.surface import ToolSurface
from wicketgate.gate import Gate
from wicketgate.net import HttpClient
from wicketgate.net.outgoing import shown_origin, trouble_of
from wicketgate.net.sse import SseDecoder
from wicketgate.ports import CallContext, session_key
from wicketgate.results.bulk import read_object

_CONNECT_S = 10.0
_ANSWER_S = 30.0
_NO_URL = "--url (or WG_URL) is no URL of a service; it looks like http://127.0.0.1:8080"
_MOST_ASKED = 50
"""Each short id costs a request."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """*text* is for people, *structured* for programs."""

    text: str
    structured: Mapping[str, Any]
    is_error: bool


class LocalGate:
    """A gate in this process."""

    def __init__(self, gate: Gate, identity: Identity) -> None:
        self._surface: ToolSurface = gate.surface
        self._engine = gate.engine
        self._runtime = gate.runtime
        self._identity = identity

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        session = session_key("terminal", self._identity.actor, "")
        context = CallContext(self._identity, f"cli_{secrets.token_hex(8)}", session)
        result = await self._surface.call(tool, arguments, context)
        return ToolAnswer(_text(result.content), result.structured, result.is_error)

    async def chat(self, body: Mapping[str, Any]) -> AsyncGenerator[tuple[str, Mapping[str, Any]], None]:
        """Yields name and data of each event, to the last one."""
        async with aclosing(self._engine.run(ChatRequest.model_validate(body), self._identity)) as events:
            async for event in events:
                yield event.name, event.data()

    async def short_ids(self, tool_ids: Sequence[str]) -> Mapping[str, str]:
        """Gives ``namespace:name`` for those of *tool_ids* that it names, and no other tool that the caller may use."""
        named = self._runtime.catalog().named
        visible = self._runtime.visible(CallContext(self._identity, "-", "-"))
        shorts = {tool_id: _short(tool_id) for tool_id in tool_ids}
        return {
            tool_id: short
            for tool_id, short in shorts.items()
            if [each for each in named(short) if visible is None or visible(each)] == [tool_id]
        }


class RemoteGate:
    """A running service. *http* has its URL as the base, without a path. Every method raises ConfigError."""

    def __init__(self, http: HttpClient, *, with_key: bool) -> None:
        self._http = http
        self._with_key = with_key

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        answer = await self._call(tool, arguments)
        # A terminal waits for as long as a call takes.
        while answer.structured.get("status") == "running":
            again = {"handle": answer.structured.get("handle"), "selector": answer.structured.get("next")}
            answer = await self._call("tool_view", again)
        return answer

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        # A single POST of MCP without sessions.
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": dict(arguments), "_meta": _META},
        }
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": _VERSION,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }
        response = await self._receive(self._http.post("/mcp/gateway", json=message, headers=headers, timeout=None))
        reply = _reply(response)
        result = reply.get("result")
        if not isinstance(result, Mapping):
            error = reply.get("error")
            reason = error.get("message") if isinstance(error, Mapping) else reply.get("message")
            raise ConfigError(f"the service refused it (HTTP {response.status_code}): {reason or 'no reason given'}")
        return ToolAnswer(
            _text(result.get("content") or []), result.get("structuredContent") or {}, bool(result.get("isError"))
        )

    async def chat(self, body: Mapping[str, Any]) -> AsyncGenerator[tuple[str, Mapping[str, Any]], None]:
        request = self._http.build_request(
            "POST",
            "/engine/chat",
            json=body,
            timeout=httpx.Timeout(_CONNECT_S, read=None),
            extensions={"max_bytes": None},
        )
        response = await self._receive(self._http.send(request, stream=True))
        try:
            if response.status_code != 200:
                await response.aread()
                _agreed(response)
            decoder = SseDecoder()
            async for data in response.aiter_bytes():
                for event in decoder.feed(data):
                    yield event.name, _data(event.data)
        except httpx.HTTPError:
            raise ConfigError("the connection to the service was lost") from None
        finally:
            await response.aclose()

    async def short_ids(self, tool_ids: Sequence[str]) -> Mapping[str, str]:
        # The service gives an operation for a name without version and hash only if it names that one alone.
        asked = tool_ids[:_MOST_ASKED]
        found = await asyncio.gather(*map(self._is_named, map(_short, asked)))
        return {tool_id: _short(tool_id) for tool_id, named in zip(asked, found, strict=True) if named}

    async def _is_named(self, short: str) -> bool:
        try:
            response = await self._http.get("/operations/schema", params={"name": "/" + short.replace(":", "/", 1)})
        except httpx.HTTPError:
            return False
        return response.status_code == 200

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Mapping[str, Any]:
        """Returns the JSON object that the service answers with. Raises ConfigError, with the service's reason."""
        sending = self._http.request(method, path, json=body, params=query, timeout=httpx.Timeout(_ANSWER_S))
        return _agreed(await self._receive(sending))

    async def _receive(self, sending: Any) -> httpx.Response:
        try:
            response: httpx.Response = await sending
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            told = trouble_of(error).told(str(self._http.base_url), "--url (or WG_URL)")
            raise ConfigError(f"cannot reach the service: {told}; wicketgate serve starts one") from None
        if response.status_code == 401:
            await response.aread()
            reason = "the service does not know this key" if self._with_key else "a key is missing"
            raise ConfigError(f"the service refused it (HTTP 401): {reason}; give it by --key, or in WG_KEY")
        return response


AskedGate = LocalGate | RemoteGate


@asynccontextmanager
async def open_remote(url: str, key: str | None) -> AsyncIterator[RemoteGate]:
    """Opens the service at *url*. Raises ConfigError."""
    if not shown_origin(url).startswith(("http://", "https://")):
        raise ConfigError(_NO_URL)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        outgoing = outgoing_rules(Settings())
        client = HttpClient(outgoing, base_url=url, headers=headers, timeout=httpx.Timeout(_CONNECT_S))
    except httpx.InvalidURL:
        raise ConfigError(_NO_URL) from None
    async with client as http:
        yield RemoteGate(http, with_key=bool(key))


@asynccontextmanager
async def open_gate(
    settings: Settings, identity: Identity, url: str | None, key: str | None
) -> AsyncIterator[AskedGate]:
    """Opens the service at *url*, or without one a gate in this process. Raises ConfigError."""
    if url:
        async with open_remote(url, key) as remote:
            yield remote
        return
    from app.commands.check import connected

    async with connected(settings) as gate:
        yield LocalGate(gate, identity)


_VERSION = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "wicketgate-cli", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
    "wicketgate/result": "both",
}


def _short(tool_id: str) -> str:
    """*tool_id* without version and hash."""
    return tool_id.partition("#")[0].partition("@")[0]


def _data(text: bytes) -> Mapping[str, Any]:
    data = read_object(text)
    if data is None:
        raise ConfigError("the answer is not that of a Wicketgate engine; is --url right?")
    return data


def _reply(response: httpx.Response) -> Mapping[str, Any]:
    """Returns the JSON object of an answer: its body, or the last event of its stream. Empty if there is none."""
    text = response.text
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        text = next((line[5:] for line in reversed(text.splitlines()) if line.startswith("data:")), "")
    return read_object(text) or {}


def _agreed(response: httpx.Response) -> Mapping[str, Any]:
    """Returns the JSON object of an answer with status 200. Raises ConfigError for any other."""
    reply = _reply(response)
    if response.status_code != 200:
        reason = reply.get("message", "no reason given")
        raise ConfigError(f"the service refused it (HTTP {response.status_code}): {reason}")
    return reply


def _text(content: Sequence[Mapping[str, Any]]) -> str:
    parts = (
        str(block.get("text", ""))
        if block.get("type") == "text"
        else f"[{block.get('type')} {block.get('mimeType', '')}]"
        for block in content
    )
    return "\n".join(parts)
