"""The ways to one tool that ``bench.execute`` compares, each opened as its users open it, all alive at once.

- *direct*: the official client on the upstream itself.
- *in process*: ``tool_execute`` of the gateway face in the caller's own process, as the engine calls it.
- *gateway*, *namespaced*: the faces of the real service at ``/mcp``, one process, by a lean client in either era.
- *mcp-proxy*, *FastMCP*: other gateways, by the same lean client.

Each HTTP upstream is one process for all; of the stdio upstream each of them starts its own.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx2
import yaml
from mcp import Client, StdioServerParameters
from mcp import types as t
from mcp.client.streamable_http import streamable_http_client

from app.local_key import new_key
from app.metrics import Metrics
from bench.catalogs import ROOT
from bench.execute_peers import find_peer, peer_client
from bench.execute_rows import DIRECT, GATEWAY, IN_PROCESS, NAMESPACED, PEERS, UPSTREAMS, WAYS
from bench.execute_upstream import TOOL
from bench.quiet_process import quiet_process
from bench.raw_mcp import Era, RawClient, raw_http
from tests.support.process import children
from wicketgate.access.identity import Identity
from wicketgate.catalog.card_lines import read_card_lines
from wicketgate.config.settings import Settings
from wicketgate.gate import Gate
from wicketgate.ports import CallContext

T = TypeVar("T")

_CALLER = CallContext(Identity("bench", ("tools:*",)), "bench", "bench")
_BOUND_S = 60.0
_POLL_S = 0.05
_STDIO = (sys.executable, "-m", "bench.execute_upstream")
_SDK_MODES = {"http": "auto", "handshake": "legacy"}

Call = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Runs the upstream's tool once with these arguments. Raises RuntimeError when the answer is not a good one."""

MetaTool = Callable[[str, Mapping[str, Any]], Awaitable[str]]
"""Calls a tool of the gateway face; its structured content."""


@dataclass(frozen=True, slots=True)
class Way:
    """*gateway* is the process of the gateway, if it is one of its own, and *upstream* the one that it talks to; None
    where that changes from call to call."""

    name: str
    call: Call
    upstream: int | None
    gateway: int | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """*ways* by upstream, in the order of ``WAYS``. *notes* say what could not be opened."""

    ways: Mapping[str, list[Way]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@asynccontextmanager
async def open_ways(upstreams: Sequence[str] = UPSTREAMS, wanted: Collection[str] = WAYS) -> AsyncIterator[Opened]:
    """*wanted* are names of ways; the direct one is always there."""
    async with AsyncExitStack() as stack:
        # The upstreams.
        targets: dict[str, str | Sequence[str]] = {"stdio": _STDIO}
        pids: dict[str, int] = {}
        for name, option in (("http", "--http"), ("handshake", "--handshake")):
            if name in upstreams:
                server = await stack.enter_async_context(quiet_process(*_STDIO, option))
                targets[name] = (await server.wait_for(r"listening on (http://\S+)")).group(1)
                pids[name] = server.pid
        opened = Opened({name: [] for name in upstreams})
        # Directly.
        for name in upstreams:
            started, client = await _and_children(stack.enter_async_context(_official(name, targets[name])))
            opened.ways[name].append(Way(DIRECT, _direct(client), *(started or [pids[name]])))
        # Through this program.
        configured = [_configured(name, targets[name]) for name in upstreams]
        if IN_PROCESS in wanted:
            started, face = await _and_children(stack.enter_async_context(_face(configured)))
            for name in upstreams:
                call = await _executed(face, name)
                opened.ways[name].append(Way(IN_PROCESS, call, *(started if name == "stdio" else [pids[name]])))
        doors = [way for way in (*GATEWAY, *NAMESPACED) if way in wanted]
        if doors:
            url, key, gateway = await stack.enter_async_context(serving(configured))
            pids["stdio"] = next(iter(children(gateway)), 0)
            for way in doors:
                door = await stack.enter_async_context(door_client(way, url, key))
                for name in upstreams:
                    call = await door_call(way, door, name)
                    opened.ways[name].append(Way(way, call, pids[name], gateway))
        # Through others.
        for way in (way for way in PEERS if way in wanted):
            peer = find_peer(way)
            if isinstance(peer, str):
                opened.notes.append(peer)
                continue
            for name in upstreams:
                try:
                    other, gateway = await stack.enter_async_context(peer_client(way, peer, targets[name]))
                    call = await _named(other, TOOL)
                    await call({"number": 0, "chars": 100})
                except (RuntimeError, TimeoutError, OSError) as error:
                    opened.notes.append(f"{way} is left out over {name}: {error!s:.200}")
                    continue
                upstream = pids[name] if name in _SDK_MODES else next(iter(children(gateway)), None)
                opened.ways[name].append(Way(way, call, upstream, gateway))
        yield opened


@asynccontextmanager
async def serving(upstreams: list[dict[str, Any]]) -> AsyncIterator[tuple[str, str, int]]:
    """The service in front of *upstreams*, started as a user starts it: its address, a key, its process."""
    key, digest = new_key("bench")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "wicketgate.yaml"
        keys = [{"id": "bench", "sha256": digest, "actor": "bench", "permissions": ["tools:*"]}]
        config.write_text(yaml.safe_dump({"auth": {"keys": keys}, "upstreams": upstreams}))
        line = (sys.executable, "-m", "app", "serve", "--config", str(config), "--port", "0")
        async with quiet_process(*line) as gateway:
            url = (await gateway.wait_for(r"ready on (http://\S+)")).group(1)
            yield url, key, gateway.pid


@asynccontextmanager
async def door_client(way: str, url: str, key: str) -> AsyncIterator[RawClient]:
    face, era = way.split()
    headers = {"Authorization": f"Bearer {key}"}
    async with raw_http(f"{url}/mcp/{face}", cast(Era, era), headers) as client:
        yield client


async def door_call(way: str, client: RawClient, upstream: str) -> Call:
    """The upstream's tool behind a face of the service."""
    if way in NAMESPACED:
        return await _named(client, f"{upstream}__{TOOL}")

    async def meta_tool(name: str, arguments: Mapping[str, Any]) -> str:
        return str((await client.call_tool(name, arguments))["content"][0]["text"])

    return await _executed(meta_tool, upstream)


def _configured(name: str, target: str | Sequence[str]) -> dict[str, Any]:
    if isinstance(target, str):
        return {"name": name, "url": target}
    return {"name": name, "command": list(target), "cwd": str(ROOT)}


def _direct(client: Client) -> Call:
    async def call(arguments: Mapping[str, Any]) -> None:
        result = await client.call_tool(TOOL, dict(arguments))
        match result.content:
            case [t.TextContent(text=text)] if not result.is_error and len(text) == arguments["chars"]:
                return
        raise RuntimeError(f"the upstream's answer is not good: {result.content!r:.300}")

    return call


async def _executed(meta_tool: MetaTool, upstream: str) -> Call:
    """``tool_execute`` of the upstream's tool, whose id is browsed as soon as it is there."""
    async with asyncio.timeout(_BOUND_S):
        browse = {"path": f"/{upstream}"}
        while not (cards := read_card_lines(await meta_tool("tool_browse", browse))):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
    (tool_id,) = (card.id for card in cards)

    async def call(arguments: Mapping[str, Any]) -> None:
        page = await meta_tool("tool_execute", {"tool_id": tool_id, "args": dict(arguments)})
        if len(page) != arguments["chars"] and "; go on: tool_view text:" not in page:
            raise RuntimeError(f"the gateway's answer is not good: {page!r:.300}")

    return call


async def _named(client: RawClient, tool: str) -> Call:
    """The tool under this name, as soon as it is there."""
    async with asyncio.timeout(_BOUND_S):
        while tool not in await client.list_tools():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def call(arguments: Mapping[str, Any]) -> None:
        result = await client.call_tool(tool, arguments)
        match result:
            case {"content": [{"type": "text", "text": str(text)}]} if len(text) == arguments["chars"]:
                return
        raise RuntimeError(f"the gateway's answer is not good: {result!r:.300}")

    return call


@asynccontextmanager
async def _face(upstreams: list[dict[str, Any]]) -> AsyncIterator[MetaTool]:
    async with Gate(Settings.model_validate({"upstreams": upstreams}), meter=Metrics()) as gate:

        async def call(name: str, arguments: Mapping[str, Any]) -> str:
            return (await gate.surface.call(name, arguments, _CALLER)).shown

        await gate.wait_ready()
        yield call


@asynccontextmanager
async def _official(name: str, target: str | Sequence[str]) -> AsyncIterator[Client]:
    if not isinstance(target, str):
        command, *args = target
        async with Client(StdioServerParameters(command=command, args=args, cwd=ROOT)) as client:
            yield client
        return
    async with (
        httpx2.AsyncClient(timeout=_BOUND_S, trust_env=False) as http,
        Client(
            streamable_http_client(target, http_client=http, max_sse_event_size=None), mode=_SDK_MODES[name]
        ) as client,
    ):
        yield client


async def _and_children(opening: Awaitable[T]) -> tuple[list[int], T]:
    """The processes that *opening* started, and its value."""
    before = children(os.getpid())
    opened = await opening
    return [pid for pid in children(os.getpid()) if pid not in before], opened
