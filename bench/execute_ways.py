"""The ways to one tool that ``bench.execute`` compares, each opened as its users open it, all alive at once.

- *direct*: the official client on the upstream itself.
- *in process*: ``tool_execute`` of the gateway face in the caller's own process, as the engine calls it.
- *2026*, *handshake*: ``tool_execute`` over ``/mcp`` of the real service, by the official client in either era.

Each HTTP upstream is one process for all; of the stdio upstream each of them starts its own.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import yaml
from mcp import Client, StdioServerParameters
from mcp import types as t
from mcp.client.streamable_http import streamable_http_client

from app.local_key import new_key
from app.metrics import Metrics
from bench.catalogs import ROOT
from bench.execute_upstream import TOOL
from tests.support.process import children, program
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.gate import Gate
from wicketgate.ports import CallContext

T = TypeVar("T")

ERAS = {"2026": "2026-07-28", "handshake": "legacy"}
UPSTREAMS = ("stdio", "http", "handshake")
"""The last is an HTTP server that knows only the handshake era."""
_CALLER = CallContext(Identity("bench", ("tools:*",)), "bench", "bench")
_BOUND_S = 60.0
_POLL_S = 0.05

Call = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Runs the upstream's tool once with these arguments. Raises RuntimeError when the answer is not a good one."""

Structured = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]
"""Calls a meta-tool; its structured content."""


@dataclass(frozen=True, slots=True)
class Way:
    """*gateway* is the process of the gateway, if it is one of its own, and *upstream* the one that it talks to."""

    name: str
    call: Call
    upstream: int
    gateway: int | None = None


@asynccontextmanager
async def open_ways() -> AsyncIterator[dict[str, list[Way]]]:
    """By upstream, ``direct`` first."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(program("bench.execute_upstream", "--http"))
        url = (await server.wait_for(r"listening on (http://\S+)", "stdout")).group(1)
        old = await stack.enter_async_context(program("bench.execute_upstream", "--handshake"))
        old_url = (await old.wait_for(r"listening on (http://\S+)", "stdout")).group(1)
        filler = {"stdio": server.process.pid, "http": server.process.pid, "handshake": old.process.pid}

        stdio = StdioServerParameters(command=sys.executable, args=["-m", "bench.execute_upstream"], cwd=ROOT)
        (pid,), client = await _and_children(stack.enter_async_context(Client(stdio)))
        ways = {"stdio": [Way("direct", _direct(client), pid)]}
        for upstream, address, mode in (("http", url, "auto"), ("handshake", old_url, "legacy")):
            direct = _direct(await stack.enter_async_context(_client(address, {}, mode)))
            ways[upstream] = [Way("direct", direct, filler[upstream])]

        upstreams = [
            {"name": "stdio", "command": [sys.executable, "-m", "bench.execute_upstream"], "cwd": str(ROOT)},
            {"name": "http", "url": url},
            {"name": "handshake", "url": old_url},
        ]
        (filler["stdio"],), face = await _and_children(stack.enter_async_context(_face(upstreams)))
        for upstream in UPSTREAMS:
            ways[upstream].append(Way("in process", await _executed(face, upstream), filler[upstream]))

        key, digest = new_key("bench")
        gateway_url, gateway = await stack.enter_async_context(_gateway(upstreams, digest))
        (filler["stdio"],) = children(gateway)
        for era, mode in ERAS.items():
            headers = {"Authorization": f"Bearer {key}"}
            door = _meta_tools(await stack.enter_async_context(_client(f"{gateway_url}/mcp", headers, mode)))
            for upstream in UPSTREAMS:
                ways[upstream].append(Way(era, await _executed(door, upstream), filler[upstream], gateway))
        yield ways


def _direct(client: Client) -> Call:
    async def call(arguments: Mapping[str, Any]) -> None:
        result = await client.call_tool(TOOL, dict(arguments))
        match result.content:
            case [t.TextContent(text=text)] if not result.is_error and len(text) == arguments["chars"]:
                return
        raise RuntimeError(f"the upstream's answer is not good: {result.content!r:.300}")

    return call


async def _executed(meta_tool: Structured, upstream: str) -> Call:
    """``tool_execute`` of the upstream's tool, whose id is browsed as soon as it is there."""
    async with asyncio.timeout(_BOUND_S):
        browse = {"path": f"/{upstream}"}
        while not (cards := ((await meta_tool("tool_browse", browse)) or {}).get("cards")):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
    (tool_id,) = (card["id"] for card in cards)

    async def call(arguments: Mapping[str, Any]) -> None:
        envelope = await meta_tool("tool_execute", {"tool_id": tool_id, "args": dict(arguments)})
        match envelope:
            case {"status": "ok", "artifacts": [{"size_bytes": size}]} if size == arguments["chars"]:
                return
        raise RuntimeError(f"the gateway's answer is not good: {envelope!r:.300}")

    return call


def _meta_tools(client: Client) -> Structured:
    async def call(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        structured: Mapping[str, Any] | None = (await client.call_tool(name, dict(arguments))).structured_content
        return structured

    return call


@asynccontextmanager
async def _face(upstreams: list[dict[str, Any]]) -> AsyncIterator[Structured]:
    async with Gate(Settings.model_validate({"upstreams": upstreams}), meter=Metrics()) as gate:

        async def call(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            return (await gate.surface.call(name, arguments, _CALLER)).structured

        await gate.wait_ready()
        yield call


@asynccontextmanager
async def _gateway(upstreams: list[dict[str, Any]], digest: str) -> AsyncIterator[tuple[str, int]]:
    """The service, started as a user starts it: its address and its process."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "wicketgate.yaml"
        keys = [{"id": "bench", "sha256": digest, "actor": "bench", "permissions": ["tools:*"]}]
        config.write_text(yaml.safe_dump({"auth": {"keys": keys}, "upstreams": upstreams}))
        async with program("app", "serve", "--config", str(config), "--port", "0") as gateway:
            url = (await gateway.wait_for(r"ready on (http://\S+)")).group(1)
            yield url, gateway.process.pid


@asynccontextmanager
async def _client(url: str, headers: Mapping[str, str], mode: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=dict(headers), timeout=_BOUND_S, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http, max_sse_event_size=None), mode=mode) as client,
    ):
        yield client


async def _and_children(opening: Awaitable[T]) -> tuple[list[int], T]:
    """The value of *opening*, and the processes that it started."""
    before = children(os.getpid())
    opened = await opening
    return [pid for pid in children(os.getpid()) if pid not in before], opened
