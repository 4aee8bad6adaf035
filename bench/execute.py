"""``make bench-execute``: the CPU time of a call through the gate, and through other gateways, in direct calls.

Over stdio and HTTP upstreams: directly, in process and over ``/mcp`` in both eras, the ways taking turns; then how many
calls a second one core gives (``bench.execute_throughput``). With ``--parts``, what a call costs over a stub, part by
part (``bench.execute_parts``). What the columns mean: docs/benchmarks.md.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import Any

import uvloop

from bench.catalogs import ROOT
from bench.cpu import cpu_s
from bench.execute_parts import measure_parts, shown_parts
from bench.execute_peers import version_of
from bench.execute_rows import (
    PEERS,
    UPSTREAMS,
    WAYS,
    Block,
    Key,
    Row,
    calls_of_block,
    goals_table,
    processes,
    ratio_tables,
    rows_of,
)
from bench.execute_throughput import throughput, throughput_table
from bench.execute_ways import Way, open_ways
from bench.machine import machine, shown
from bench.progress import step
from bench.table import markdown, percentile

SIZES = {"100 B": 100, "10 KB": 10 * 2**10, "1 MB": 2**20}
CALLERS = (1, 32)
ROUNDS = 5
BLOCK_S = 0.8
_WARM_UP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstreams", nargs="*", choices=UPSTREAMS, default=UPSTREAMS, help="none: throughput alone")
    parser.add_argument("--ways", nargs="+", default=[""], help="beginnings of their names; direct is always there")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=tuple(SIZES))
    parser.add_argument("--callers", nargs="+", type=int, default=CALLERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-throughput", action="store_true")
    parser.add_argument("--parts", action="store_true", help="what a call costs over a stub, part by part, too")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "execute.json")
    options = parser.parse_args()
    wanted = [way for way in WAYS if way.startswith(tuple(options.ways)) and not (options.no_peers and way in PEERS)]
    sizes = {size: SIZES[size] for size in options.sizes}
    before = machine()
    found: dict[str, Any] = {}
    if options.parts:
        found["parts"] = parts = uvloop.run(measure_parts(sizes, options.callers))
        print(f"over a stub, in process; CPU microseconds a call\n{shown_parts(parts)}\n", flush=True)
    if options.upstreams:
        # The loop that the gateway runs on, so that no way has a better one.
        rows, notes = uvloop.run(_measured(options.upstreams, sizes, options.callers, options.rounds, wanted))
        found["rows"] = [asdict(row) for row in rows]
        print(f"CPU microseconds a call of each process\n{processes(rows)}\n")
        for made in (*ratio_tables(rows), goals_table(rows, notes)):
            print(f"{markdown(made)}\n", flush=True)
    if not options.no_throughput:
        lines = uvloop.run(throughput(wanted))
        found["throughput"] = [asdict(line) for line in lines]
        print(f"{markdown(throughput_table(lines))}\n")
    after = machine()
    print(shown(before, after))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"before": before, "after": after, **found}, indent=1) + "\n")
    print(options.json)


async def _measured(
    upstreams: Sequence[str],
    sizes: Mapping[str, int],
    callers: Sequence[int],
    rounds: int,
    wanted: Sequence[str],
) -> tuple[list[Row], list[str]]:
    async with open_ways(upstreams, wanted) as opened:
        there = {way.name for its in opened.ways.values() for way in its}
        notes = [version_of(way) for way in PEERS if way in there]
        blocks, failed = await measure(opened.ways, sizes, callers, rounds)
        return rows_of(blocks), [*notes, *opened.notes, *failed]


async def measure(
    ways: Mapping[str, Sequence[Way]],
    sizes: Mapping[str, int],
    callers: Sequence[int],
    rounds: int,
    block_s: float = BLOCK_S,
) -> tuple[dict[Key, list[Block]], list[str]]:
    """The ways take turns at every block of some *block_s* seconds, *rounds* times, after one that only warms up.

    A peer that cannot do what it is asked for has a line that says so instead.
    """
    numbers = count()
    plan: dict[Key, tuple[Way, int]] = {
        (upstream, size, at_once, way.name): (way, chars)
        for size, chars in sizes.items()
        for at_once in callers
        for upstream, its in ways.items()
        for way in its
    }
    calls: dict[Key, int] = {}
    notes: list[str] = []
    with step("warming up"):
        for key, (way, chars) in list(plan.items()):
            try:
                warm = await one_block(way, chars, key[2], max(_WARM_UP, key[2]), numbers)
            except RuntimeError as failure:
                if way.name not in PEERS:
                    raise
                del plan[key]
                notes.append(f"{way.name} fails, {key[0]}, {key[1]}, callers: {key[2]}: {failure!s:.200}")
            else:
                calls[key] = calls_of_block(block_s, warm.wall_us / 1e6, key[2])
    blocks: dict[Key, list[Block]] = {key: [] for key in plan}
    for each in range(rounds):
        with step(f"round {each + 1} of {rounds}"):
            for key, (way, chars) in plan.items():
                blocks[key].append(await one_block(way, chars, key[2], calls[key], numbers))
    return blocks, notes


async def one_block(way: Way, chars: int, callers: int, calls: int, numbers: Iterator[int]) -> Block:
    """Raises RuntimeError when a call fails."""
    took: list[float] = []
    mine = iter(list(islice(numbers, calls)))

    async def caller() -> None:
        for number in mine:
            start = time.perf_counter()
            await way.call({"number": number, "chars": chars})
            took.append(time.perf_counter() - start)

    before, start = _cpu(way), time.perf_counter()
    await _all([asyncio.create_task(caller()) for _ in range(callers)])
    wall = time.perf_counter() - start
    own, gateway, upstream = ((late - early) / calls * 1e6 for early, late in zip(before, _cpu(way), strict=True))
    return Block(own, gateway, upstream, wall / calls * 1e6, (percentile(took, 50) or 0) * 1e6)


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    """A task group would cancel this task when one fails, which the official client's cancel scopes do not outlive."""
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _cpu(way: Way) -> tuple[float, float, float]:
    return cpu_s(os.getpid()), _of(way.gateway), _of(way.upstream)


def _of(pid: int | None) -> float:
    return cpu_s(pid) if pid else 0.0


if __name__ == "__main__":
    main()
