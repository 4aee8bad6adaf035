"""The cost of refreshing and browsing, beside contextweaver where the catalog is not too large for it.

Each contestant is a process of its own, on one core; they are alive together and take turns at every step.

The tools are the real tools of all sets but ``toolbench``: 8,700 distinct tools of 3,300 servers. Larger catalogs
repeat some under another name. Names are ``<server>.<tool>``, behind one upstream whose namespaces are inferred.
*refresh cold*: from decoded definitions to the first catalog in force. *unchanged, 1 description changed*: the same
with a catalog in force, with new objects. *query*: the whole call of ``tool_browse`` in process (``GatewayFace.call``),
in cache-stable order, 20 calls per session. *path*: the same for up to 150 inner paths, level by level. *path /*: the
root alone, one card per namespace. *memory*: growth of resident memory during the first refresh, below a few MB mostly
noise.

A query is the best of three rounds for each of 400 queries; then the median, the 99th percentile and the longest CPU
time, which is how long the event loop is blocked. Refreshes are the median of six (cold) or five. The peer is
contextweaver, up to 10,000 tools: its ``ProxyRuntime(cache_stable=True)`` with its defaults and our token table. It has
no incremental refresh, and browsing a path fails at larger sizes (*refused*).
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Any

from bench.catalogs import ROOT, Corpus
from bench.checkouts import HERE, Checkout, Measures, add_value
from bench.cpu import MEASURED, pin
from bench.peers import Peer
from bench.table import Table, figure, percentile

SIZES = (100, 1_000, 10_000, 50_000)
QUERIES = 400
PEER_TOOLS = 10_000
"""Of a larger catalog the peer would need a quarter of an hour for one refresh."""

_ROUNDS = 5
_PROCESSES = 3
_CHANGES = ("cold", "unchanged", "described", "renamed")
_SLOW_MS = 3_000
"""A contestant that needs longer for a refresh is not asked to do it again."""
_FOR_P99 = 100
"""Fewer calls have no 99th percentile."""
_BUDGET_S = 20
"""Of each contestant for one round of queries or paths."""


def measure(tools: Corpus, peer: Peer | None, checkouts: Sequence[Checkout] = (HERE,)) -> dict[str, Any]:
    """All operations at one size."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        definitions = Path(folder) / "tools.json"
        definitions.write_text(json.dumps(tools.definitions), encoding="utf-8")
        contestants = [stack.enter_context(_ours(checkout, definitions)) for checkout in checkouts]
        if peer is not None:
            line = (str(peer.python), "bench.contextweaver_peer")
            contestants.append(stack.enter_context(_started("contextweaver", *line, definitions, ROOT, peer.env)))
        measured = _measured(tools, contestants)
        # What a process holds is known once; a range takes several.
        for _ in range(_PROCESSES - 1 if len(checkouts) > 1 else 0):
            for checkout, one in zip(checkouts, measured, strict=False):
                with _ours(checkout, definitions) as again:
                    one["rounds"]["memory"].append(again.do("first")["mb"])
        return {"tools": len(tools.definitions), "source": tools.source, "contestants": measured}


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
    browses: list[dict[str, dict[str, Any]]] = [{} for _ in contestants]
    queries: list[list[float]] = [[] for _ in contestants]
    for kind, order in (("queries", {"queries": tools.queries}), ("paths", {}), ("root", {})):
        rounds: list[list[list[list[float] | None]]] = [[] for _ in contestants]
        for _ in range(3):
            for one, taken in zip(contestants, rounds, strict=True):
                if not taken or sum(took[1] for took in taken[-1] if took) < _SLOW_MS:
                    taken.append(one.do(kind, budget_s=_BUDGET_S, **order)["ms"])
        for browse, taken in zip(browses, rounds, strict=True):
            browse[kind] = _browses(taken)
        if kind == "queries":
            queries = [[median(call[1] for call in of if call) for of in taken if any(of)] for taken in rounds]
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
            "browse": browse,
            "rounds": {
                "query": query,
                "memory": [first["mb"]],
                **{change: [run["cpu_ms"] for run in runs] for change, runs in done.items()},
            },
        }
        for one, first, done, browse, query in zip(contestants, firsts, refreshes, browses, queries, strict=True)
    ]


def measures_of(sizes: Sequence[Mapping[str, Any]], checkouts: Sequence[Checkout]) -> Measures:
    """Returns the costs of the catalog, by checkout."""
    measures: Measures = {}
    told = {"query": "query, CPU ms", **{change: f"refresh {its}, CPU ms" for change, its in _TOLD.items()}}
    for size in sizes:
        by_name = {one["name"]: one["rounds"] for one in size["contestants"]}
        for what, its in (told | {"memory": "memory, MB"}).items():
            for checkout in checkouts:
                add_value(measures, f"{size['tools']:,} tools: {its}", checkout, *by_name[checkout.at(_OURS)][what])
    return measures


def _browses(rounds: Sequence[Sequence[Sequence[float] | None]]) -> dict[str, Any]:
    """Of pairs of wall and CPU milliseconds, None for a refused call."""
    # Best of the rounds for each call: the machine is shared.
    calls = [[took for took in call if took is not None] for call in zip(*rounds, strict=False) if None not in call]
    wall, cpu = ([min(took[clock] for took in call) for call in calls] for clock in (0, 1))
    return {
        "p50_ms": percentile(wall, 50),
        "p99_ms": percentile(wall, 99) if len(wall) >= _FOR_P99 else None,
        "max_cpu_ms": max(cpu, default=None),
        "asked": len(rounds[0]),
        "refused": sum(took is None for took in rounds[0]),
    }


def costs_table(sizes: Sequence[Mapping[str, Any]]) -> Table:
    """One column a size and contestant."""
    ones = [(one, size) for size in sizes for one in size["contestants"]]
    rows = [["tools that can be found", *(f"{one['tools']:,}" for one, _ in ones)]]
    for change, told in _TOLD.items():
        for clock in ("wall", "CPU"):
            key = f"{clock.lower()}_ms"
            rows.append([f"refresh {told}, {clock} ms", *(figure(one["refresh"][change][key]) for one, _ in ones)])
    rows.append(["1 description changed, % of cold (CPU)", *(_of_cold(one["refresh"]) for one, _ in ones)])
    for kind, told in (("queries", "query"), ("paths", "path"), ("root", "path /")):
        rows.append([f"{told}, median ms", *(_median(one["browse"][kind], _most(size, kind)) for one, size in ones)])
        if kind != "root":
            rows.append([f"{told}, p99 ms", *(figure(one["browse"][kind]["p99_ms"]) for one, _ in ones)])
        rows.append([f"{told}, longest CPU ms", *(figure(one["browse"][kind]["max_cpu_ms"]) for one, _ in ones)])
    rows.append(["memory, MB", *(figure(one["memory_mb"]) for one, _ in ones)])
    # One note of each kind: the sizes share them, but for the source of the tools.
    notes = [f"{size['tools']:,} tools: {size['source']}" for size in sizes]
    notes += [f"{one['name']}: {remark}" for one in sizes[0]["contestants"] for remark in one["remarks"]]
    head = ["", *(f"{size['tools']:,}: {one['name']}" for one, size in ones)]
    return Table("Refreshing and browsing", head, rows, notes)


_TOLD = {"cold": "cold", "unchanged": "unchanged", "described": "1 description changed", "renamed": "1 tool renamed"}


def _of_cold(refresh: Mapping[str, Any]) -> str:
    return f"{100 * refresh['described']['cpu_ms'] / refresh['cold']['cpu_ms']:.1f}"


def _most(size: Mapping[str, Any], kind: str) -> int:
    return max(int(one["browse"][kind]["asked"]) for one in size["contestants"])


def _median(run: Mapping[str, Any], most: int) -> str:
    """With how many calls it stands for, when they were refused or not as many as the other's."""
    shown = figure(run["p50_ms"])
    if run["refused"]:
        return f"{run['refused']} of {run['asked']} refused, {shown}"
    return f"{shown} ({run['asked']} calls)" if run["asked"] < most else shown


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


_OURS = "wicketgate"


def _ours(checkout: Checkout, definitions: Path) -> AbstractContextManager[_Running]:
    name, module = checkout.at(_OURS), "bench.wicketgate"
    return _started(name, checkout.python, module, definitions, checkout.folder, os.environ)


@contextmanager
def _started(
    name: str, python: str, module: str, definitions: Path, folder: Path, env: Mapping[str, str]
) -> Iterator[_Running]:
    """*module* is that of *folder*; what measures it is ours, so that all checkouts are measured in the same way."""
    process = subprocess.Popen(
        [python, "-P", ROOT / "bench" / "contestant.py", module, definitions],
        cwd=folder,
        env={**env, "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("no pipes")
    pin(process.pid, MEASURED)
    with process:
        yield _Running(name, process.stdin, process.stdout)
        process.stdin.close()
