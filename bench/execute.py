"""``make bench-execute``: what ``tool_execute`` adds to a direct call of the same tool on the same upstream.

In process first, over a stub (``bench.execute_parts``); then over stdio and HTTP upstreams, directly, in process and
over ``/mcp`` in both eras, the ways taking turns. What the columns mean: docs/benchmarks.md.
"""

import argparse
import asyncio
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import uvloop

from bench.catalogs import ROOT
from bench.cpu import cpu_s
from bench.execute_parts import measure_parts, shown_parts
from bench.execute_ways import UPSTREAMS, Way, open_ways
from bench.table import NONE, figure, percentile, table

SIZES = {"100 B": 100, "1 MB": 2**20}
CALLERS = (1, 32)
_CALLS = {("100 B", 1): 150, ("100 B", 32): 640, ("1 MB", 1): 12, ("1 MB", 32): 64}
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Block:
    """Calls in one go. CPU milliseconds a call of the caller's process, of the gateway's if it is another, and of the
    upstream's; *wall_ms* from the first to the last, a call; *latency_ms* the median of one."""

    caller_ms: float
    gateway_ms: float
    upstream_ms: float
    wall_ms: float
    latency_ms: float

    @property
    def whole_ms(self) -> float:
        return self.caller_ms + self.gateway_ms + self.upstream_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upstreams", nargs="+", choices=UPSTREAMS, default=UPSTREAMS)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=tuple(SIZES))
    parser.add_argument("--callers", nargs="+", type=int, choices=CALLERS, default=CALLERS)
    parser.add_argument("--ways", nargs="+", help="direct is always among them")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-parts", action="store_true", help="leave the in-process part out")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "execute.json")
    options = parser.parse_args()
    parts: list[dict[str, Any]] = []
    if not options.no_parts:
        parts = uvloop.run(measure_parts({size: SIZES[size] for size in options.sizes}, options.callers))
        print(f"over a stub, in process; CPU microseconds a call\n{shown_parts(parts)}\n", flush=True)
    calls = {(size, callers): _CALLS[size, callers] for size in options.sizes for callers in options.callers}
    # The loop that the gateway runs on, so that no way has a better one.
    rows = uvloop.run(_measured(options.upstreams, calls, options.rounds, options.ways))
    print(f"over real upstreams; CPU milliseconds a call, × of direct\n{shown(rows)}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine(), "load": os.getloadavg()}
    options.json.write_text(json.dumps({"machine": machine, "parts": parts, "rows": rows}, indent=1) + "\n")
    print(f"\n{options.json}")


async def _measured(
    upstreams: Sequence[str], calls: Mapping[tuple[str, int], int], rounds: int, only: Sequence[str] | None
) -> list[dict[str, Any]]:
    async with open_ways() as ways:
        chosen = {
            upstream: [way for way in ways[upstream] if only is None or way.name in {"direct", *only}]
            for upstream in upstreams
        }
        return await measure(chosen, calls, rounds)


async def measure(
    ways: Mapping[str, Sequence[Way]], calls: Mapping[tuple[str, int], int], rounds: int
) -> list[dict[str, Any]]:
    """One row a way, under its upstream, size and callers: the median of each figure over *rounds*, and ratios.

    *calls*: how many make a block, by size and callers. The ways take turns at every block.
    """
    numbers = count()
    blocks: dict[tuple[str, str, int, str], list[Block]] = {}
    for each in range(rounds + 1):
        for (size, callers), block_calls in calls.items():
            for upstream, its_ways in ways.items():
                for way in its_ways:
                    # The first round only warms up.
                    times = block_calls if each else min(block_calls, callers)
                    block = await _block(way, SIZES[size], callers, times, numbers)
                    if each:
                        blocks.setdefault((upstream, size, callers, way.name), []).append(block)
    return [
        {
            **dict(zip(("upstream", "size", "callers", "way"), key, strict=True)),
            **(found := _median(of)),
            "ratio": _ratios(found, _median(blocks[(*key[:3], "direct")])),
        }
        for key, of in sorted(blocks.items(), key=lambda block: list(ways).index(block[0][0]))
    ]


async def _block(way: Way, chars: int, callers: int, calls: int, numbers: Iterator[int]) -> Block:
    took: list[float] = []
    mine = iter(list(islice(numbers, calls)))

    async def caller() -> None:
        for number in mine:
            start = time.perf_counter()
            await way.call({"number": number, "chars": chars})
            took.append(time.perf_counter() - start)

    before, start = _cpu(way), time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
    wall = time.perf_counter() - start
    own, gateway, upstream = ((after - earlier) / calls * 1e3 for earlier, after in zip(before, _cpu(way), strict=True))
    return Block(own, gateway, upstream, wall / calls * 1e3, (percentile(took, 50) or 0) * 1e3)


def _cpu(way: Way) -> tuple[float, float, float]:
    return cpu_s(os.getpid()), cpu_s(way.gateway) if way.gateway else 0.0, cpu_s(way.upstream)


def _median(blocks: Sequence[Block]) -> dict[str, float]:
    each = [{**asdict(block), "whole_ms": block.whole_ms} for block in blocks]
    return {key: percentile([one[key] for one in each], 50) or 0.0 for key in each[0]}


def _ratios(found: Mapping[str, float], direct: Mapping[str, float]) -> dict[str, float]:
    """*ours*: what stands between, beside the client of a direct call: the gateway's process, or the caller's where it
    holds the gateway itself."""
    ours = found["gateway_ms"] or found["caller_ms"]
    ratios = {key: found[key] / direct[key] for key in ("whole_ms", "wall_ms", "latency_ms")}
    return {"ours": ours / direct["caller_ms"], **ratios}


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ["upstream", "callers", "", "caller", "gateway", "upstream", "whole", "× ours", "× whole", "latency ms", "×"]
    head += ["calls/s", "×"]
    return table(
        head,
        [
            [
                f"{row['upstream']} {row['size']}",
                str(row["callers"]),
                row["way"],
                figure(row["caller_ms"]),
                figure(row["gateway_ms"] or None),
                figure(row["upstream_ms"]),
                figure(row["whole_ms"]),
                *(figure(row["ratio"][key]) if row["way"] != "direct" else NONE for key in ("ours", "whole_ms")),
                figure(row["latency_ms"]),
                figure(row["ratio"]["latency_ms"]) if row["way"] != "direct" else NONE,
                figure(1e3 / row["wall_ms"]),
                figure(1 / row["ratio"]["wall_ms"]) if row["way"] != "direct" else NONE,
            ]
            for row in rows
        ],
    )


if __name__ == "__main__":
    main()
