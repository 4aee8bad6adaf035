"""``make bench-pause``: does the gateway stay responsive while a catalog of 10,000 tools is refreshed?

The real process in front of a real MCP server over HTTP, browsed over ``/mcp`` with the official client in both eras.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from bench.catalogs import ROOT, corpus, routing_data
from bench.helper_process import helper_process, next_line
from bench.table import figure, percentile, table
from tests.support.process import Program, program
from wicketgate.storage.keys import new_key

GOAL_MS = 50.0
ERAS = {"2026": "2026-07-28", "handshake": "legacy"}
_IDLE_S = 3.0
_BETWEEN_CALLS_S = 0.005
_REFRESHED = '"message": "catalog '
_POLL_S = 0.005
_BOUND_S = 60.0

Sample = tuple[float, float, float]
"""When (s), how long it took (ms), by how much the probe itself overslept (ms)."""


@dataclass
class Phase:
    """Work under way from *start* to *end*; *browses* holds milliseconds by era."""

    name: str
    start: float
    end: float = 0.0
    browses: dict[str, list[float]] = field(default_factory=lambda: {era: [] for era in ERAS})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10_000)
    parser.add_argument("--page", type=int, default=500, help="tools in a page of tools/list")
    parser.add_argument("--refreshes", type=int, default=5)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "pause.json")
    options = parser.parse_args()
    rows = asyncio.run(measure(options.tools, options.page, options.refreshes))
    print(f"{options.tools:,} tools in pages of {options.page}; goal: no pause above {GOAL_MS:g} ms")
    print(shown(rows))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"tools": options.tools, "page": options.page, "phases": rows}, indent=1) + "\n")
    print(options.json)


async def measure(tools: int, page: int, refreshes: int, idle_s: float = _IDLE_S) -> list[dict[str, Any]]:
    """One row a phase. Raises TimeoutError, which says what did not come, and what a browse raised."""
    queries = corpus(1, 400, routing_data()).queries
    key, digest = new_key("bench")
    async with AsyncExitStack() as stack:
        big = await stack.enter_async_context(
            helper_process("bench.big_upstream", "--tools", str(tools), "--page", str(page))
        )
        upstream = (await next_line(big, _BOUND_S)).rpartition(" ")[2]
        config = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "wicketgate.yaml"
        entry = {"id": "bench", "sha256": digest, "actor": "bench", "permissions": ["tools:*"]}
        config.write_text(
            yaml.safe_dump(
                {
                    # A refresh that changes nothing is told of below "info" alone.
                    "server": {"log_level": "debug"},
                    "auth": {"keys": [entry]},
                    "upstreams": [{"name": "big", "url": f"{upstream}/mcp", "connect_timeout_s": _BOUND_S}],
                }
            )
        )
        gateway = await stack.enter_async_context(
            program("app", "serve", "--config", str(config), "--port", "0", cold=True)
        )
        url = (await gateway.wait_for(r"ready on (http://\S+)")).group(1)
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=_BOUND_S, trust_env=False))
        await _quiet(gateway)

        async def order(**what: Any) -> None:
            before = _refreshes(gateway)
            (await http.post(f"{upstream}/control", json=what)).raise_for_status()
            await refreshed(gateway, before + 1, f"order {json.dumps(what)}")

        clients = {era: await stack.enter_async_context(_client(f"{url}/mcp", key, mode)) for era, mode in ERAS.items()}
        address = urlsplit(url)
        probe = await stack.enter_async_context(
            helper_process("bench.loop_probe", str(address.hostname), str(address.port))
        )
        phases = [Phase("idle", time.monotonic())]
        await asyncio.sleep(idle_s)
        phases[-1].end = time.monotonic()

        async def phase(name: str, work: Callable[[], Awaitable[object]]) -> None:
            current = Phase(name, time.monotonic())
            browsing = asyncio.create_task(_browse(clients, queries, current))
            try:
                await work()
            finally:
                current.end = time.monotonic()
                browsing.cancel()
                with suppress(asyncio.CancelledError):
                    await browsing
            phases.append(current)
            await asyncio.sleep(0.5)

        await phase(f"all {tools:,} tools appear", lambda: order(shown=tools))
        await phase("browsed, no refresh", lambda: asyncio.sleep(idle_s))
        for _ in range(refreshes):
            await phase("one tool renamed", lambda: order(rename=True))
        for _ in range(refreshes):
            await phase("refresh, nothing changed", order)
        if probe.stdin is None:
            raise RuntimeError("no pipe")
        probe.stdin.close()
        samples: list[Sample] = json.loads(await next_line(probe, _BOUND_S))
    return [
        _row(name, [one for one in phases if one.name == name], samples)
        for name in dict.fromkeys(one.name for one in phases)
    ]


def _row(name: str, phases: Sequence[Phase], samples: Sequence[Sample]) -> dict[str, Any]:
    within = [
        sample
        for sample in samples
        if any(p.start <= sample[0] + sample[1] / 1e3 and sample[0] <= p.end for p in phases)
    ]
    took = sorted((sample[1] for sample in within), reverse=True)
    row: dict[str, Any] = {
        "phase": name,
        "times": len(phases),
        "longest_ms": [
            max((s[1] for s in within if p.start <= s[0] + s[1] / 1e3 and s[0] <= p.end), default=None) for p in phases
        ],
        "over_goal": sum(ms > GOAL_MS for ms in took),
        "healthz_p99_ms": percentile(took, 99),
        "overslept_ms": max((sample[2] for sample in within), default=None),
        "seconds": percentile([p.end - p.start for p in phases], 50),
    }
    for era in ERAS:
        browses = [ms for p in phases for ms in p.browses[era]]
        row[era] = {"calls": len(browses), **{f"p{at}_ms": percentile(browses, at) for at in (50, 99)}}
    return row


def shown(rows: Sequence[dict[str, Any]]) -> str:
    head = [
        "",
        "times",
        "took s",
        "longest pause ms",
        "median longest",
        f"> {GOAL_MS:g} ms",
        "healthz p99",
        "probe late",
    ]
    head += [f"browse {era} {at}" for era in ERAS for at in ("p50", "p99")]
    return table(
        head,
        [
            [
                row["phase"],
                str(row["times"]),
                figure(row["seconds"]),
                figure(max(row["longest_ms"])),
                figure(percentile(row["longest_ms"], 50)),
                str(row["over_goal"]),
                figure(row["healthz_p99_ms"]),
                figure(row["overslept_ms"]),
                *(figure(row[era][f"{at}_ms"]) for era in ERAS for at in ("p50", "p99")),
            ]
            for row in rows
        ],
    )


async def _browse(clients: dict[str, Client], queries: Sequence[str], phase: Phase) -> None:
    """One call after the other, eras taking turns, until cancelled."""
    for number in range(sys.maxsize):
        for era, client in clients.items():
            start = time.monotonic()
            result = await client.call_tool("tool_browse", {"query": queries[number % len(queries)]})
            if result.is_error:
                raise RuntimeError(f"tool_browse failed: {result.structured_content}")
            phase.browses[era].append((time.monotonic() - start) * 1e3)
            await asyncio.sleep(_BETWEEN_CALLS_S)


@asynccontextmanager
async def _client(url: str, key: str, mode: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=_BOUND_S, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def _refreshes(gateway: Program) -> int:
    return gateway.stdout.count(_REFRESHED)


async def refreshed(gateway: Program, count: int, after: str, bound_s: float = _BOUND_S) -> None:
    """Returns when the log tells of *count* refreshes in all. Raises TimeoutError after *bound_s*."""
    until = time.monotonic() + bound_s
    while _refreshes(gateway) < count:
        if time.monotonic() > until:
            raise TimeoutError(
                f"no line with {_REFRESHED!r} in the gateway's log within {bound_s:g} s after {after}; it ends:\n"
                + gateway.stdout[-2_000:]
            )
        await asyncio.sleep(_POLL_S)


async def _quiet(gateway: Program) -> None:
    """A connection brings more than one refresh; until no other comes."""
    await refreshed(gateway, 1, "the start")
    count = 0
    while count != _refreshes(gateway):
        count = _refreshes(gateway)
        await asyncio.sleep(1)


if __name__ == "__main__":
    main()
