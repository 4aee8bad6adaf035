"""The calls a second that one core gives, face by face, and how long ``/healthz`` takes at the same time.

The gate has one core; its upstream over stdio, the callers and the probe share another. What one core gives is counted
by the gate's own CPU time, so that other work on the machine does not count; the calls a second of the clock are next
to it.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

from bench.execute_rows import GATEWAY, JUDGED, NAMESPACED, calls_of_block, verdict
from bench.execute_ways import open_ways
from bench.helper_process import helper_process, next_line
from bench.progress import step
from bench.table import Table, figure, percentile

WINDOW_S = 5.0
CALLS_GOAL = 2_000
HEALTH_GOAL_MS = 20.0
_EVERY_S = 0.01
_WARM_UP = 500
_BOUND_S = 30.0
_CHARS, _CALLERS = 100, JUDGED[1]


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
    """One line for each face and era among *wanted*."""
    doors = [way for way in (*GATEWAY, *NAMESPACED) if way in wanted]
    lines = []
    numbers = count()
    async with open_ways(["stdio"], doors) as opened:
        place = urlsplit(opened.url)
        for way in (way for way in opened.ways["stdio"] if way.name in doors):
            with step(f"throughput, {way.name}"):
                warm = await way.block(_CHARS, _CALLERS, _WARM_UP, next(numbers) * 10**7)
                calls = calls_of_block(window_s, warm.wall_us / 1e6, _CALLERS)
                line = ("bench.loop_probe", str(place.hostname), str(place.port), str(_EVERY_S))
                async with helper_process(*line) as probe:
                    block = await way.block(_CHARS, _CALLERS, calls, next(numbers) * 10**7)
                    assert probe.stdin is not None
                    probe.stdin.close()
                    samples = json.loads(await next_line(probe, _BOUND_S))
            health = [took_ms for _, took_ms, _ in samples]
            p50, p99, longest = (percentile(health, percent) or 0.0 for percent in (50, 99, 100))
            late = max((overslept for _, _, overslept in samples), default=0.0)
            core = block.gateway_us / block.wall_us
            lines.append(Line(way.name, 1e6 / block.gateway_us, 1e6 / block.wall_us, core, p50, p99, longest, late))
    return lines


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
    return Table(
        "Throughput",
        head,
        rows,
        [f"{_CALLERS} callers, some {WINDOW_S:g} s each; /healthz asked every {_EVERY_S * 1e3:g} ms"],
    )
