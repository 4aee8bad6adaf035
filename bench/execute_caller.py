"""The client of one way to the upstream's tool, in a process of its own.

``python -m bench.execute_caller SPEC``, see ``Spec``. It prints an empty object when it is connected. For each order on
stdin, a line of JSON with the arguments of ``run_calls``, it prints what that returns. ``{"failed": reason}`` comes
instead of either.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

import uvloop

from bench.catalogs import ROOT
from bench.execute_rows import DIRECT, IN_PROCESS, NAMESPACED, PEERS
from bench.execute_upstream import TOOL
from bench.raw_mcp import Era, RawClient, raw_http, raw_stdio
from wicketgate.catalog.card_lines import read_card_lines

_BOUND_S = 60.0
_POLL_S = 0.05
SDK_MODES = {"http": "auto", "handshake": "legacy"}

Call = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Runs the upstream's tool once with these arguments. Raises RuntimeError when the answer is not a good one."""

MetaTool = Callable[[str, Mapping[str, Any]], Awaitable[str]]
"""Calls a tool of the gateway face; the text of its result."""


@dataclass(frozen=True, slots=True)
class Spec:
    """*way* and *upstream* as in ``bench.execute_rows``. *target*: the URL or the command line of the gateway, or, for
    a way without one, of the upstream. *key* is for our own gateway."""

    way: str
    upstream: str
    target: str | Sequence[str]
    key: str = ""


def main() -> None:
    uvloop.run(_serve(Spec(**json.loads(sys.argv[1]))))


async def _serve(spec: Spec) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with connected(spec) as call:
            _say({})
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                try:
                    _say(await run_calls(call, **json.loads(line)))
                except RuntimeError as error:
                    _say({"failed": str(error)[:300]})
    except* (RuntimeError, TimeoutError, OSError) as errors:
        _say({"failed": repr(errors.exceptions[0])[:300]})


def _say(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


async def run_calls(call: Call, chars: int, callers: int, calls: int, first: int) -> dict[str, float]:
    """Makes *calls* calls numbered from *first*, *callers* at a time. Returns microseconds a call: CPU of this process,
    time from the first to the last, and the median of one call's own time. Raises RuntimeError if a call fails."""
    took: list[float] = []
    numbers = iter(range(first, first + calls))

    async def caller() -> None:
        for number in numbers:
            start = time.perf_counter()
            await call({"number": number, "chars": chars})
            took.append(time.perf_counter() - start)

    cpu, start = time.process_time(), time.perf_counter()
    tasks = [asyncio.create_task(caller()) for _ in range(callers)]
    try:
        # A task group would cancel this task when one fails, which the official client's cancel scopes do not outlive.
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    wall, used = time.perf_counter() - start, time.process_time() - cpu
    return {"cpu_us": used / calls * 1e6, "wall_us": wall / calls * 1e6, "latency_us": median(took) * 1e6}


@asynccontextmanager
async def connected(spec: Spec) -> AsyncIterator[Call]:
    if spec.way in (DIRECT, IN_PROCESS):
        opened = _official(spec) if spec.way == DIRECT else _in_process(spec)
        async with opened as call:
            yield call
        return
    async with _lean_client(spec) as client:
        if spec.way in PEERS:
            yield await _named(client, TOOL)
        elif spec.way in NAMESPACED:
            yield await _named(client, f"{spec.upstream}__{TOOL}")
        else:

            async def meta_tool(name: str, arguments: Mapping[str, Any]) -> str:
                return str((await client.call_tool(name, arguments))["content"][0]["text"])

            yield await _executed(meta_tool, spec.upstream)


def _lean_client(spec: Spec) -> AbstractAsyncContextManager[RawClient]:
    if not isinstance(spec.target, str):
        return raw_stdio(spec.target, ROOT)
    if spec.way in PEERS:
        return raw_http(f"{spec.target}/mcp", "handshake")
    face, era = spec.way.split()
    return raw_http(f"{spec.target}/mcp/{face}", cast(Era, era), {"Authorization": f"Bearer {spec.key}"})


@asynccontextmanager
async def _official(spec: Spec) -> AsyncIterator[Call]:
    # Imported here, so that each process holds only what its way needs.
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp import types as t
    from mcp.client.streamable_http import streamable_http_client

    async def call(arguments: Mapping[str, Any]) -> None:
        result = await client.call_tool(TOOL, dict(arguments))
        match result.content:
            case [t.TextContent(text=text)] if not result.is_error and len(text) == arguments["chars"]:
                return
        raise RuntimeError(f"the upstream's answer is not good: {result.content!r:.300}")

    if not isinstance(spec.target, str):
        command, *args = spec.target
        async with Client(StdioServerParameters(command=command, args=args, cwd=ROOT)) as client:
            yield call
        return
    async with httpx2.AsyncClient(timeout=_BOUND_S, trust_env=False) as http:
        transport = streamable_http_client(spec.target, http_client=http, max_sse_event_size=None)
        async with Client(transport, mode=SDK_MODES[spec.upstream]) as client:
            yield call


@asynccontextmanager
async def _in_process(spec: Spec) -> AsyncIterator[Call]:
    from app.metrics import Metrics
    from wicketgate.access.identity import Identity
    from wicketgate.config.settings import Settings
    from wicketgate.gate import Gate
    from wicketgate.ports import CallContext

    context = CallContext(Identity("bench", ("tools:*",)), "bench", "bench")
    settings = Settings.model_validate({"upstreams": [configured(spec.upstream, spec.target)]})
    async with Gate(settings, meter=Metrics()) as gate:

        async def meta_tool(name: str, arguments: Mapping[str, Any]) -> str:
            return (await gate.surface.call(name, arguments, context)).shown

        await gate.wait_ready()
        yield await _executed(meta_tool, spec.upstream)


def configured(name: str, target: str | Sequence[str]) -> dict[str, Any]:
    """The upstream as an entry of our configuration."""
    if isinstance(target, str):
        return {"name": name, "url": target}
    return {"name": name, "command": list(target), "cwd": str(ROOT)}


async def _executed(meta_tool: MetaTool, upstream: str) -> Call:
    """``tool_execute`` of the upstream's tool, whose id is browsed as soon as it is listed."""
    async with asyncio.timeout(_BOUND_S):
        browse = {"path": f"/{upstream}"}
        while not (found := _ids(await meta_tool("tool_browse", browse))):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
    (tool_id,) = found

    async def call(arguments: Mapping[str, Any]) -> None:
        page = await meta_tool("tool_execute", {"tool_id": tool_id, "args": dict(arguments)})
        whole = len(page) == arguments["chars"] or "; go on: tool_view text:" in page
        if not whole and not (page.startswith("{") and json.loads(page).get("status") == "ok"):
            raise RuntimeError(f"the gateway's answer is not good: {page!r:.300}")

    return call


def _ids(page: str) -> list[str]:
    """The ids of an answer to ``tool_browse``. Checkouts from before 2026-11-25 answer in JSON."""
    if page.startswith("{"):
        return [card["id"] for card in json.loads(page)["cards"]]
    return [card.id for card in read_card_lines(page)]


async def _named(client: RawClient, tool: str) -> Call:
    """The tool under this name, as soon as it is listed."""
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


if __name__ == "__main__":
    main()
