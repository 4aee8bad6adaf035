"""The calls a second that one core gives, face by face, and how long ``/healthz`` takes meanwhile.

The gate has one core, pinned; its upstream (lean, over stdio), the callers and the probe share another. What one core
gives is counted by the gate's own CPU time, so that other work on the machine does not count; the calls a second of the
clock stand beside it.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

from bench.catalogs import ROOT
from bench.cpu import cpu_s, pin
from bench.execute_rows import GATEWAY, NAMESPACED, verdict
from bench.execute_ways import Call, door_call, door_client, serving
from bench.helper_process import helper_process, next_line
from bench.progress import step
from bench.table import Table, figure, percentile
from tests.support.process import children

CALLERS = 32
WINDOW_S = 5.0
CALLS_GOAL = 2_000
HEALTH_GOAL_MS = 20.0
_EVERY_S = 0.01
_WARM_UP_S = 1.0
_BOUND_S = 30.0
_CHARS = 100
_NAME = "lean"


@dataclass(frozen=True, slots=True)
class Line:
    """*calls_core_s*: calls for each second of the gate's CPU time; *core*: the share of its core that it had.
    Milliseconds of ``/healthz``; *late_ms*: by how much the probe itself woke too late at worst."""

    way: str
    calls_core_s: float
    calls_s: float
    core: float
    health_p50_ms: float
    health_p99_ms: float
    health_longest_ms: float
    late_ms: float


async def throughput(wanted: Collection[str], window_s: float = WINDOW_S) -> list[Line]:
    """One line for each face and era among *wanted*; none on a machine of one core."""
    ways = [way for way in (*GATEWAY, *NAMESPACED) if way in wanted]
    cores = sorted(os.sched_getaffinity(0))
    if not ways or len(cores) < 2:
        return []
    lean = {"name": _NAME, "command": [sys.executable, "-m", "bench.lean_upstream"], "cwd": str(ROOT)}
    async with serving([lean]) as (url, key, gate):
        own, others = {cores[0]}, {cores[1]}
        pin(gate, own)
        for child in children(gate):
            pin(child, others)
        pin(os.getpid(), others)
        try:
            return [await _measured(way, url, key, gate, window_s) for way in ways]
        finally:
            pin(os.getpid(), cores)


async def _measured(way: str, url: str, key: str, gate: int, window_s: float) -> Line:
    with step(f"throughput, {way}"):
        async with door_client(way, url, key) as client:
            call = await door_call(way, client, _NAME)
            async with _load(call) as done:
                await asyncio.sleep(_WARM_UP_S)
                async with helper_process("bench.loop_probe", *_place(url), str(_EVERY_S)) as probe:
                    # The probe takes a while to start, and its samples of that time are the gate's under load too.
                    before, began, cpu = done[0], time.monotonic(), cpu_s(gate)
                    await asyncio.sleep(window_s)
                    calls, took, used = done[0] - before, time.monotonic() - began, cpu_s(gate) - cpu
                    assert probe.stdin is not None
                    probe.stdin.close()
                    samples = json.loads(await next_line(probe, _BOUND_S))
    health = [took_ms for _, took_ms, _ in samples]
    p50, p99, longest = (percentile(health, percent) or 0.0 for percent in (50, 99, 100))
    late = max((overslept for _, _, overslept in samples), default=0.0)
    return Line(way, calls / used, calls / took, used / took, p50, p99, longest, late)


@asynccontextmanager
async def _load(call: Call) -> AsyncIterator[list[int]]:
    """Callers that call one after the other while the context is open; the number of calls so far."""
    done, numbers = [0], count()

    async def caller() -> None:
        while True:
            await call({"number": next(numbers), "chars": _CHARS})
            done[0] += 1

    callers = [asyncio.create_task(caller()) for _ in range(CALLERS)]
    try:
        yield done
        if ended := [one for one in callers if one.done()]:
            ended[0].result()  # the failure of a caller
    finally:
        for one in callers:
            one.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


def _place(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return str(parts.hostname), str(parts.port)


def throughput_table(lines: Sequence[Line]) -> Table:
    head = [
        "one core, stdio, 100 B",
        "calls a second of its CPU",
        f"≥ {CALLS_GOAL:,}",
        "by the clock",
        "share of the core",
    ]
    head += ["/healthz ms: median", "p99", "longest", f"longest < {HEALTH_GOAL_MS:g}", "probe late"]
    rows = [
        [
            line.way,
            figure(line.calls_core_s),
            verdict(line.calls_core_s >= CALLS_GOAL),
            figure(line.calls_s),
            f"{line.core:.0%}",
            *(figure(ms) for ms in (line.health_p50_ms, line.health_p99_ms, line.health_longest_ms)),
            verdict(line.health_longest_ms < HEALTH_GOAL_MS),
            figure(line.late_ms),
        ]
        for line in lines
    ]
    notes = [f"{CALLERS} callers, {WINDOW_S:g} s each; /healthz asked every {_EVERY_S * 1e3:g} ms"]
    return Table("Throughput", head, rows, notes if rows else ["left out: it takes two cores, and a face at /mcp"])
