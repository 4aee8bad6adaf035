"""Routing quality on the dev sets, by an outside harness: each contestant on each set in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.catalogs import ROOT, dev_sets
from bench.peers import Peer

PEER_QUERIES = 200
"""The peer is asked a sample only, drawn by the harness: it needs up to a second for a query."""


_HARNESS = "BENCH_ROUTING_HARNESS"
NO_HARNESS = (
    f"{_HARNESS} is not set: name the script that measures routing on those sets "
    '(docs/benchmarks.md, "Data from outside", says how it is called)'
)


def routing_harness() -> Path | None:
    """The script that measures; None if the variable is not set. Raises FileNotFoundError if it is not there."""
    named = os.environ.get(_HARNESS)
    if not named:
        return None
    if not Path(named).is_file():
        raise FileNotFoundError(f"{_HARNESS}: {named} is not there")
    return Path(named)


def quality(harness: Path, data: Path, peer: Peer | None) -> Iterator[dict[str, Any]]:
    """One row a contestant and set, as the harness gives it (R@k and MRR from 0 to 1)."""
    for spec in dev_sets(data):
        yield {"contestant": "wicketgate", **_run(harness, data, spec, None)}
        if peer is not None:
            yield {"contestant": "contextweaver", **_run(harness, data, spec, peer)}


def _run(harness: Path, data: Path, spec: str, peer: Peer | None) -> dict[str, Any]:
    adapter = ROOT / "bench" / ("contextweaver_adapter.py" if peer else "routing_adapter.py")
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as answer:
        command: list[str | Path] = [sys.executable, harness, "run", "--adapter", f"{adapter}:build", "--set", spec]
        command += ["--json", answer.name]
        if peer:
            command += ["--python", peer.python, "--limit", str(PEER_QUERIES)]
        env = {**(peer.env if peer else {}), "ROUTING_DATA": str(data), "PATH": ""}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        lines = answer.read().splitlines()
    if not lines:
        raise RuntimeError(f"the harness gave no result for {spec}:\n{done.stdout}{done.stderr}")
    row: dict[str, Any] = json.loads(lines[-1])
    return row
