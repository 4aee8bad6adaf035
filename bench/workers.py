"""Throughput of ``serve --workers`` 1, 2 and 4 at both doors (``make bench-workers``).

Each count of workers is measured in turn and several times, so that what else runs on the machine falls on all. The
caller's and the servers' CPU time stands apart from the gate's: on few cores they compete for the same ones. So each
worker gets a share of a core and no more, small enough that callers and servers always have what they need: with
``--share`` 0.15, four workers stand for a machine with four times the cores of that of one.
"""

import argparse
import asyncio
import itertools
import os
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from bench.chaos_callers import Load
from bench.chaos_judge import Door, Ledger
from bench.chaos_mcp_callers import KINDS
from bench.chaos_places import configuration, servers, tool_ids
from bench.chaos_story import pause_s
from bench.core_share import core_share
from bench.cpu import cpu_s
from bench.table import Table, figure, markdown
from tests.support.process import children, program

_KEY = "wg_workers_0123456789012345678901234567890123456789"
CALLERS: Mapping[Door, int] = {"/mcp 2026": 48, "chat": 150}
"""So many that the cores are full: each chat waits for its model most of the time."""


@dataclass(frozen=True)
class Measured:
    """Of one door: answers a second, and seconds of CPU for each second, of the gate, its callers and its servers."""

    rate: float
    gate: float
    callers: float
    servers: float
    faults: int


async def measure(folder: Path, workers: int, seconds: float, share: float) -> dict[Door, Measured]:
    found: dict[Door, Measured] = {}
    async with servers(folder, cold=True) as started:
        store = {"url": f"sqlite:///{folder}/store.db"}
        config = configuration(folder, started, [_KEY], storage=store)
        line = ("app", "serve", "--config", str(config), "--port", "0", "--workers", str(workers))
        async with program(*line, cold=True) as running:
            url = (await running.wait_for(r"ready on (http://\S+)")).group(1)
            gate = running.process.pid
            with core_share(_workers_of(gate, workers), share) if share else nullcontext():
                for door, count in CALLERS.items():
                    found[door] = await _one(door, count, url, gate, started.pids, seconds)
            await running.stop()
    return found


async def _one(door: Door, count: int, url: str, gate: int, pids: Sequence[int], seconds: float) -> Measured:
    quick = (number for number in itertools.count(1) if not pause_s(number))
    load = Load(Ledger(), url, tool_ids(), numbers=quick)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(KINDS[door](load, _KEY, random.Random(number), 0.0).live(stop))
        # Connections are open then, every path has been taken, and the queue is as long as it gets.
        await load.answers(count)
        before, began = (_cpu([gate, *children(gate)]), _cpu([os.getpid()]), _cpu(pids)), time.monotonic()
        done = len(load.ledger.told)
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        after = (_cpu([gate, *children(gate)]), _cpu([os.getpid()]), _cpu(pids))
        told = load.ledger.told[done:]
        stop.set()
    gates, callers, served = [(late - early) / took for early, late in zip(before, after, strict=True)]
    good = sum(one.outcome == "ok" for one in told)
    return Measured(good / took, gates, callers, served, len(told) - good + len(load.ledger.breaches))


def _workers_of(gate: int, workers: int) -> list[int]:
    """The processes that answer, and that of stdio servers, which has nothing to do here."""
    return [gate] if workers == 1 else children(gate)


def _cpu(pids: Sequence[int]) -> float:
    total = 0.0
    for pid in pids:
        try:
            total += cpu_s(pid)
        except OSError:
            continue  # it has ended since
    return total


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--share", type=float, default=0.15, help="of a core, for each worker; 0: all that is free")
    given = parser.parse_args()
    measured: dict[tuple[Door, int], list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="wicketgate-workers-") as folder:
        for turn in range(given.rounds):
            for workers in given.workers:
                own = Path(tempfile.mkdtemp(dir=folder))
                for door, one in (await measure(own, workers, given.seconds, given.share)).items():
                    measured.setdefault((door, workers), []).append(one)
                    print(f"  round {turn + 1}, {workers} workers, {door}: {one.rate:.1f} a second", flush=True)
    rows = []
    for (door, workers), found in sorted(measured.items()):
        best = max(found, key=lambda one: one.rate)
        per = [1_000 * cores / best.rate if best.rate else None for cores in (best.gate, best.callers, best.servers)]
        rows.append(
            [
                door,
                str(workers),
                figure(best.rate),
                f"{min(one.rate for one in found):.1f}",
                *(figure(share) for share in (best.gate, best.callers, best.servers)),
                *(figure(each) for each in per),
                str(sum(one.faults for one in found)),
            ]
        )
    head = ["door", "workers", "answers a second, best", "worst", "cores: gate", "callers", "servers"]
    head += ["CPU ms an answer: gate", "callers", "servers", "not answered"]
    notes = [f"{os.cpu_count()} cores for gate, callers, tool server and model together", f"{given.rounds} rounds"]
    if given.share:
        notes.append(f"each worker has {given.share:g} of a core")
    print("\n" + markdown(Table("Workers", head, rows, notes)))


if __name__ == "__main__":
    asyncio.run(main())
