"""``make bench-execute``: the CPU time of a call through the gate, beside a direct one and other gateways.

Over stdio and HTTP upstreams: directly, in process and over ``/mcp`` in both eras, the ways taking turns; then how many
calls a second one core gives (``bench.execute_throughput``). With ``--beside``, the faces of another checkout too. With
``--parts``, what a call costs over a stub, part by part (``bench.execute_parts``).

Ways. *direct*: the official client on the upstream itself. *in process*: ``tool_execute`` of the gateway face in the
caller's process, as the engine calls it, with the upstream connection. *gateway 2026, gateway handshake*:
``tool_execute`` at ``/mcp/gateway`` of the real service (``python -m app serve``, default settings, one key).
*namespaced 2026, namespaced handshake*: the tool at ``/mcp/namespaced`` of the same process. *mcp-proxy*: its defaults,
handshake era; for a server over HTTP it serves only stdio. *FastMCP*: its ``create_proxy`` over HTTP, defaults,
handshake era.

The measured process is pinned to one core; clients, upstreams and the benchmark run on the other, and their time is not
included. Each way has its own client process. Gateways are called by a lean client (``bench/raw_mcp.py``), because the
official client costs more than a gateway. All ways are open at the same time and take turns in blocks of 0.8 s, after
one block to warm up. Figures are medians of the rounds; a ratio is the median of the ratios of each round. 32 callers
are 32 concurrent calls of one client. Clients run on uvloop, as the service does, and logs go to files. At 1 MB the
gateway face returns a page and stores the whole text; storing it costs more than passing it on.

Throughput divides the calls by the gate's own CPU time and by wall time, while a probe requests ``/healthz`` every 10
ms. Its times are meaningful only on an otherwise idle machine."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from bench.catalogs import ROOT
from bench.checkouts import HERE, Checkout, add_beside, beside_tables
from bench.execute_parts import measure_parts, shown_parts
from bench.execute_peers import version_of
from bench.execute_rows import (
    PEERS,
    UPSTREAMS,
    WAYS,
    Block,
    Key,
    calls_of_block,
    goals_table,
    measures_of,
    processes,
    ratio_tables,
    rows_of,
)
from bench.execute_throughput import throughput, throughput_table
from bench.execute_ways import Opened, Way, open_ways
from bench.machine import machine, write
from bench.progress import step
from bench.table import markdown

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
    add_beside(parser)
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
        checkouts = [*options.beside, HERE]
        opened, blocks, notes = uvloop.run(
            _measured(options.upstreams, sizes, options.callers, options.rounds, wanted, checkouts)
        )
        rows, measures = rows_of(blocks), measures_of(blocks, checkouts)
        found |= {"rows": [asdict(row) for row in rows], "measures": measures}
        print(f"CPU microseconds a call of each process\n{processes(rows)}\n")
        for made in (*ratio_tables(rows, opened.missing), goals_table(rows, notes), *beside_tables(measures)):
            print(f"{markdown(made)}\n", flush=True)
    if not options.no_throughput:
        lines = uvloop.run(throughput(wanted))
        found["throughput"] = [asdict(line) for line in lines]
        print(f"{markdown(throughput_table(lines))}\n")
    write(options.json, before, found)


async def _measured(
    upstreams: Sequence[str],
    sizes: Mapping[str, int],
    callers: Sequence[int],
    rounds: int,
    wanted: Sequence[str],
    checkouts: Sequence[Checkout],
) -> tuple[Opened, dict[Key, list[Block]], list[str]]:
    async with open_ways(upstreams, wanted, checkouts) as opened:
        there = {way.name for its in opened.ways.values() for way in its}
        blocks, failed = await measure(opened.ways, sizes, callers, rounds)
        return opened, blocks, [*(version_of(way) for way in PEERS if way in there), *failed]


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
    firsts = count(0, 10**6)
    plan: dict[Key, tuple[Way, int]] = {
        (upstream, size, at_once, way.name): (way, chars)
        for size, chars in sizes.items()
        for at_once in callers
        for upstream, its in ways.items()
        for way in its
    }
    calls: dict[Key, int] = {}
    failed: dict[str, list[str]] = {}
    with step("warming up"):
        for key, (way, chars) in list(plan.items()):
            try:
                warm = await way.block(chars, key[2], max(_WARM_UP, key[2]), next(firsts))
            except RuntimeError as failure:
                if way.name not in PEERS:
                    raise
                del plan[key]
                failed.setdefault(f"{way.name} fails: {failure!s:.200}", []).append(f"{key[0]}, {key[1]}, {key[2]}")
            else:
                calls[key] = calls_of_block(block_s, warm.wall_us / 1e6, key[2])
    blocks: dict[Key, list[Block]] = {key: [] for key in plan}
    for each in range(rounds):
        with step(f"round {each + 1} of {rounds}"):
            for key, (way, chars) in plan.items():
                blocks[key].append(await way.block(chars, key[2], calls[key], next(firsts)))
    return blocks, [f"{what} ({'; '.join(where)})" for what, where in failed.items()]


if __name__ == "__main__":
    main()
