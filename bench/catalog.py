"""``make bench-catalog``: what refreshing and browsing cost at 100, 1,000 and 10,000 tools, and how well queries are
answered, with contextweaver beside us in the same run (issue "The catalog"). What the rows mean: docs/benchmarks.md.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from bench.catalogs import MISSING, ROOT, Corpus, corpus, routing_data
from bench.peers import REQUIREMENT, Peer, install
from bench.quality import NO_HARNESS, PEER_QUERIES, quality, routing_harness
from bench.table import figure, percentile, table

SIZES = (100, 1_000, 10_000)
QUERIES = 400
_ROUNDS = 5
_CHANGES = ("cold", "unchanged", "described", "renamed")
_SLOW_MS = 3_000
"""A contestant that needs longer for a refresh is not asked to do it again."""
_FOR_P99 = 100
"""Fewer calls have no 99th percentile."""
_BUDGET_S = 20
"""Of each contestant for one round of queries or paths."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "catalog.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--no-peer", action="store_true", help="only this program")
    parser.add_argument("--no-quality", action="store_true", help="leave the routing sets out")
    options = parser.parse_args()

    peer = "left out by --no-peer" if options.no_peer else install()
    remarks = [f"contextweaver: {peer}"] if isinstance(peer, str) else [f"peer: {REQUIREMENT}"]
    found = peer if isinstance(peer, Peer) else None
    data = routing_data()
    sizes = []
    for size in options.sizes:
        tools = corpus(size, QUERIES, data)
        sizes.append(measure(tools, found))
        print(f"\n{size:,} tools: {tools.source}\n{costs(sizes[-1])}", flush=True)
    rows: list[dict[str, Any]] = []
    if options.no_quality:
        remarks.append("routing quality: left out by --no-quality")
    elif data is None:
        remarks.append(f"routing quality: left out. {MISSING}")
    elif (harness := routing_harness()) is None:
        remarks.append(f"routing quality: left out. {NO_HARNESS}")
    else:
        rows = list(quality(harness, data, found))
        print(f"\nrouting quality, %\n{qualities(rows)}")
    for contestant in sizes[0]["contestants"]:
        remarks += [f"{contestant['name']}: {remark}" for remark in contestant["remarks"]]
    print("\n" + "\n".join(remarks))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    result = {"machine": machine, "sizes": sizes, "quality": rows, "remarks": remarks}
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"\n{options.json}")


def measure(tools: Corpus, peer: Peer | None) -> dict[str, Any]:
    """All operations at one size. The contestants are alive together and take turns at every step."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        definitions = Path(folder) / "tools.json"
        definitions.write_text(json.dumps(tools.definitions), encoding="utf-8")
        contestants = [stack.enter_context(_started("wicketgate", "bench.wicketgate", definitions, None))]
        if peer is not None:
            peer_name, module = "contextweaver", "bench.contextweaver_peer"
            contestants.append(stack.enter_context(_started(peer_name, module, definitions, peer)))
        return {"tools": len(tools.definitions), "source": tools.source, "contestants": _measured(tools, contestants)}


def _measured(tools: Corpus, contestants: "Sequence[_Running]") -> list[dict[str, Any]]:
    firsts = [one.do("first") for one in contestants]
    refreshes: list[dict[str, list[dict[str, Any]]]] = [
        {change: [first] if change == "cold" else [] for change in _CHANGES} for first in firsts
    ]
    for _ in range(_ROUNDS):
        for change in _CHANGES:
            for one, done in zip(contestants, refreshes, strict=True):
                if not done[change] or done[change][-1]["wall_ms"] < _SLOW_MS:
                    done[change].append(one.do("refresh", change=change))
    browses: list[dict[str, list[float]]] = [{} for _ in contestants]
    cut: list[dict[str, dict[str, int]]] = [{} for _ in contestants]
    for kind, order in (("queries", {"queries": tools.queries}), ("paths", {}), ("root", {})):
        rounds: list[list[list[float | None]]] = [[] for _ in contestants]
        for _ in range(3):
            for one, taken in zip(contestants, rounds, strict=True):
                if not taken or sum(ms or 0 for ms in taken[-1]) < _SLOW_MS:
                    taken.append(one.do(kind, budget_s=_BUDGET_S, **order)["ms"])
        for number, taken in enumerate(rounds):
            # Best of the rounds for each call: the machine is shared.
            best = [
                min(ms for ms in calls if ms is not None) for calls in zip(*taken, strict=False) if None not in calls
            ]
            browses[number][kind] = best
            cut[number][kind] = {"asked": len(taken[0]), "refused": sum(ms is None for ms in taken[0])}
    return [
        {
            "name": one.name,
            "remarks": first["remarks"],
            "tools": first["tools"],
            "memory_mb": first["mb"],
            "refresh": {
                change: {clock: percentile([run[clock] for run in runs], 50) for clock in ("wall_ms", "cpu_ms")}
                | {"runs": len(runs)}
                for change, runs in done.items()
            },
            "browse": {
                kind: {
                    "p50_ms": percentile(ms, 50),
                    "p99_ms": percentile(ms, 99) if len(ms) >= _FOR_P99 else None,
                    **cuts[kind],
                }
                for kind, ms in browse.items()
            },
        }
        for one, first, done, browse, cuts in zip(contestants, firsts, refreshes, browses, cut, strict=True)
    ]


def costs(size: Mapping[str, Any]) -> str:
    """One column a contestant."""
    ones = size["contestants"]
    rows = [["tools that can be found", *(f"{one['tools']:,}" for one in ones)]]
    for change in _CHANGES:
        of = [one["refresh"][change] for one in ones]
        rows.append([f"refresh {_TOLD[change]}, wall ms", *(figure(run["wall_ms"]) for run in of)])
        rows.append([f"refresh {_TOLD[change]}, CPU ms", *(figure(run["cpu_ms"]) for run in of)])
    for kind, told in (("queries", "query"), ("paths", "path"), ("root", "path /")):
        of = [one["browse"][kind] for one in ones]
        rows.append([f"{told}, median ms", *(_median(run, max(run["asked"] for run in of)) for run in of)])
        if kind != "root":
            rows.append([f"{told}, p99 ms", *(figure(run["p99_ms"]) for run in of)])
    rows.append(["memory, MB", *(figure(one["memory_mb"]) for one in ones)])
    return table(["", *(one["name"] for one in ones)], rows)


_TOLD = {"cold": "cold", "unchanged": "unchanged", "described": "1 description changed", "renamed": "1 tool renamed"}


def _median(run: Mapping[str, Any], most: int) -> str:
    """With how many calls it stands for, when they were refused or not as many as the other's."""
    shown = figure(run["p50_ms"])
    if run["refused"]:
        return f"{run['refused']} of {run['asked']} refused, {shown}"
    return f"{shown} ({run['asked']} calls)" if run["asked"] < most else shown


def qualities(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [
        [
            f"{row['set'].partition(':')[0]} ({row['tools']:,} tools)",
            row["contestant"],
            str(row["n"]),
            *(f"{100 * row[key]:.1f}" for key in ("R@1", "R@5", "MRR")),
        ]
        for row in rows
    ]
    note = (
        f"\n(the peer: a sample of at most {PEER_QUERIES} queries)"
        if len({row["contestant"] for row in rows}) > 1
        else ""
    )
    return table(["set", "", "queries", "R@1", "R@5", "MRR"], shown) + note


class _Running:
    """A contestant's process; ``do`` waits for its answer."""

    def __init__(self, name: str, orders: IO[str], answers: IO[str]) -> None:
        self.name = name
        self._orders = orders
        self._answers = answers

    def do(self, what: str, **order: Any) -> dict[str, Any]:
        self._orders.write(json.dumps({"do": what, **order}) + "\n")
        self._orders.flush()
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended at {what!r}; see above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def _started(name: str, module: str, definitions: Path, peer: Peer | None) -> Iterator[_Running]:
    python = peer.python if peer else sys.executable
    process = subprocess.Popen(
        [python, "-m", "bench.contestant", module, definitions],
        cwd=ROOT,
        env=peer.env if peer else None,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("no pipes")
    with process:
        yield _Running(name, process.stdin, process.stdout)
        process.stdin.close()


if __name__ == "__main__":
    main()
