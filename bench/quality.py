"""Routing quality on the dev sets beside the peers: each contestant on each set in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.catalogs import ROOT
from bench.metrics import mean, score
from bench.peers import PINNED, Peer
from bench.progress import step
from bench.routing_sets import DEV_SETS, Task, routing_set, sample
from bench.table import Table, figure, percentile, share
from wicketgate.tokens import shipped_token_counter

SAMPLE = 100
"""Tasks a set: contextweaver needs over a second for one."""

_OURS = "wicketgate"
_ALL = 1_000_000


def quality(data: Path, peers: Mapping[str, Peer | str], count: int = SAMPLE) -> Iterator[dict[str, Any]]:
    """One row a set and contestant, all on the same sample, and one of ours on all tasks. A contestant that fails on a
    set has a row that says so."""
    for name in DEV_SETS:
        tasks = routing_set(data, name).tasks
        drawn = sample(tasks, count)
        with step(f"quality: {name}, {_OURS}, {len(tasks)} tasks"):
            ours = _answers(_OURS, None, data, name, _ALL)
        for asked in (tasks, drawn):
            yield {"set": name, "contestant": _OURS, **figures(ours, asked)}
        for peer_name, peer in peers.items():
            if isinstance(peer, str):
                yield {"set": name, "contestant": peer_name, "n": 0, "remarks": [peer]}
                continue
            with step(f"quality: {name}, {peer_name}, {len(drawn)} tasks"):
                answers = _answers(peer_name, peer, data, name, count)
            yield {"set": name, "contestant": peer_name, **figures(answers, drawn)}


def quality_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    told = {name: pins[0].replace("==", " ") for name, pins in PINNED.items()} | {_OURS: _OURS}
    shown = [
        [row["set"], told[row["contestant"]], f"{row['n']:,}"]
        + ([share(row[key]) for key in ("recall_1", "recall_5", "any_5")] if row["n"] else ["", "", ""])
        + [figure(row.get(key)) for key in ("shown", "tokens", "cpu_ms")]
        for row in rows
    ]
    remarks = {f"{told[row['contestant']]}: {remark}" for row in rows for remark in row["remarks"]}
    return Table(
        "Routing quality on the dev sets, %",
        ["set", "", "tasks", "recall@1", "recall@5", "any@5", "tools shown", "tokens a browse", "CPU ms a query"],
        shown,
        sorted(remarks),
    )


def _answers(name: str, peer: Peer | None, data: Path, set_name: str, count: int) -> list[dict[str, Any]]:
    """The lines of a contestant's process; as many as there were before it failed, if it did."""
    command = [peer.python if peer else sys.executable, "-m", "bench.ranked", f"bench.rank_{name}"]
    done = subprocess.run(
        [*command, data, set_name, str(count)],
        cwd=ROOT,
        env=peer.env if peer else None,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode and peer is None:
        raise RuntimeError(f"{name} failed on {set_name}; see above")
    return [json.loads(line) for line in done.stdout.splitlines()]


def figures(answers: Sequence[Mapping[str, Any]], tasks: Sequence[Task]) -> dict[str, Any]:
    """*answers* to more than *tasks* are passed over."""
    by_id = {row["id"]: row for row in answers if "id" in row}
    remarks = answers[-1]["remarks"] if answers and "remarks" in answers[-1] else None
    if remarks is None or not tasks:
        return {"n": 0, "remarks": ["failed on a set; its process said why"]}
    rows = [by_id[task.id] for task in tasks]
    scores = mean([score(row["ranked"], task) for row, task in zip(rows, tasks, strict=True)])
    count = shipped_token_counter().count
    texts = [row["text"] for row in rows if row["text"] is not None]
    return {
        "n": len(tasks),
        "recall_1": scores.recall_1,
        "recall_5": scores.recall_5,
        "any_5": scores.any_5,
        "shown": sum(row["shown"] for row in rows) / len(rows) if texts else None,
        "tokens": sum(map(count, texts)) / len(texts) if texts else None,
        "cpu_ms": percentile([row["cpu_ms"] for row in rows], 50),
        "remarks": remarks,
    }
