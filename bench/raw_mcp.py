"""Lean MCP clients of both eras, over HTTP and over stdio, for benchmarks of what they talk to.

The official client costs more than a gateway, so on two cores it would be the bottleneck. These send what the official
one sends with a call, read an answer that is JSON or a stream of events, and check nothing else.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal

import msgspec

from wicketgate.net import HttpClient, Outgoing, body_of
from wicketgate.net.sse import SseDecoder
from wicketgate.net.transport import Target, Transport

Era = Literal["2026", "handshake"]
VERSIONS: Mapping[Era, str] = {"2026": "2026-07-28", "handshake": "2025-11-25"}

_CLIENT = {"name": "bench", "version": "1"}
_META = {
    "io.modelcontextprotocol/protocolVersion": VERSIONS["2026"],
    "io.modelcontextprotocol/clientInfo": _CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
_MAX_BYTES = 2**26
_CONNECT_S = 10.0
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class RawClient(ABC):
    def __init__(self, era: Era) -> None:
        self._era = era
        self._ids = count(1)

    async def list_tools(self) -> list[str]:
        """The names on the first page. Raises RuntimeError."""
        return [tool["name"] for tool in (await self._ask("tools/list", {}))["tools"]]

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result. Raises RuntimeError when the answer is another one."""
        return await self._ask("tools/call", {"name": name, "arguments": arguments})

    async def open(self) -> None:
        """The handshake, in its era."""
        if self._era == "handshake":
            params = {"protocolVersion": VERSIONS[self._era], "capabilities": {}, "clientInfo": _CLIENT}
            await self._ask("initialize", params)
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self._era == "2026":
            params["_meta"] = _META
        message = await self._send({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params})
        match message:
            case {"result": dict(result)}:
                return result
        raise RuntimeError(f"{method} was not answered with a result: {message!r:.300}")

    @abstractmethod
    async def _send(self, message: Mapping[str, Any]) -> Any:
        """The answer to *message*; None to a notification. Raises RuntimeError."""


@asynccontextmanager
async def raw_http(url: str, era: Era, headers: Mapping[str, str] | None = None) -> AsyncIterator[RawClient]:
    http = HttpClient(Outgoing())
    try:
        client = _Http(http.transport, url, era, headers or {})
        await client.open()
        yield client
    finally:
        await http.aclose()


@asynccontextmanager
async def raw_stdio(line: Sequence[str], folder: Path) -> AsyncIterator[RawClient]:
    """A client of the command *line*, in the handshake era, which all servers over stdio know."""
    process = await asyncio.create_subprocess_exec(
        *line,
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_MAX_BYTES,
    )
    client = _Stdio(process)
    try:
        await client.open()
        yield client
    finally:
        client.reading.cancel()
        if process.returncode is None:
            process.terminate()
        await process.wait()


class _Http(RawClient):
    def __init__(self, transport: Transport, url: str, era: Era, headers: Mapping[str, str]) -> None:
        super().__init__(era)
        self._transport = transport
        own = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self._target = Target("POST", url, {**own, "MCP-Protocol-Version": VERSIONS[era], **headers})
        self._session: dict[str, str] = {}

    async def _send(self, message: Mapping[str, Any]) -> Any:
        headers = self._session
        if self._era == "2026":
            headers = {"Mcp-Method": message["method"]}
            if name := message["params"].get("name"):
                headers["Mcp-Name"] = name
        response = await self._transport.send(self._target, _encode(message), headers, connect_s=_CONNECT_S)
        try:
            body, cut = await body_of(response).gather(_MAX_BYTES)
        finally:
            await response.aclose()
        if response.status_code >= 300 or cut:
            raise RuntimeError(f"HTTP {response.status_code}: {bytes(body[:300])!r}")
        if session := response.headers.get("mcp-session-id"):
            self._session = {"Mcp-Session-Id": session}
        if "id" not in message:
            return None
        if response.headers["content-type"].startswith("application/json"):
            return _decode(body)
        for event in SseDecoder(_MAX_BYTES, _MAX_BYTES).feed(bytes(body)):
            found = _decode(event.data) if event.data else {}
            if found.get("id") == message["id"]:
                return found
        raise RuntimeError("the stream ended without an answer")


class _Stdio(RawClient):
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__("handshake")
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.reading = asyncio.get_running_loop().create_task(self._read())

    async def _send(self, message: Mapping[str, Any]) -> Any:
        self._stdin.write(_encode(message) + b"\n")
        await self._stdin.drain()
        if "id" not in message:
            return None
        if self.reading.done():
            raise RuntimeError("the process has ended")
        waiting = self._waiting[message["id"]] = asyncio.get_running_loop().create_future()
        return await waiting

    async def _read(self) -> None:
        try:
            while line := await self._stdout.readline():
                message = _decode(line)
                if (waiting := self._waiting.pop(message.get("id"), None)) is not None and not waiting.done():
                    waiting.set_result(message)
        finally:
            # Also after a line that is no message.
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(RuntimeError("the process has ended"))
