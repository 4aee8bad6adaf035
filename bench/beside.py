"""``make bench-beside REF=...``: what this checkout does at a higher cost than another commit.

Makes a worktree of REF in a temporary folder, with its own environment unless the locked dependencies are the same, and
measures both in turns for some ten minutes: calls at both faces (``bench.execute``), a chat request and the relay
(``bench.engine``), the catalog (``bench.catalog``), a start (``bench.start``). Compares CPU time and memory, because
times of the clock count other work of the machine. Prints what got worse. The exit code is 1 if anything did, and 2 if
it could not be measured.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.catalogs import ROOT
from bench.checkouts import Measures, range_table, worse
from bench.machine import machine, write
from bench.table import markdown

_EXECUTE = ("--upstreams", "stdio", "--sizes", "100 B", "--ways", "gateway", "namespaced", "--no-peers")
_CATALOG = ("--no-peers", "--no-quality", "--no-view", "--no-learning")
SELECTION: Mapping[str, Sequence[str]] = {
    "execute": (*_EXECUTE, "--no-throughput", "--rounds", "9"),
    "engine": ("--no-frameworks", "--rounds", "5"),
    "catalog": (*_CATALOG, "--sizes", "1000", "10000"),
    "start": ("--configurations", "one", "--rounds", "5"),
}
QUICK: Mapping[str, Sequence[str]] = {
    "execute": ("--rounds", "1", "--callers", "32"),
    "engine": ("--rounds", "1", "--share", "0.01"),
    "catalog": ("--sizes", "10"),
    "start": ("--rounds", "1"),
}
"""Options that are added to those of ``SELECTION`` for a run that only shows that all works."""

_LOCK = Path("requirements", "run.lock")
_COMPARED = re.compile(r"\b(CPU|MB)\b")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-beside", description=__doc__)
    parser.add_argument("ref", metavar="REF", help="a commit, branch or tag")
    parser.add_argument("--only", nargs="+", choices=SELECTION, default=tuple(SELECTION))
    parser.add_argument("--percent", type=float, default=10.0, help="by how much a cost must be higher (10)")
    parser.add_argument("--quick", action="store_true", help="one short round: shows that all works, and little else")
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "beside.json")
    options = parser.parse_args()
    before = machine()
    try:
        with worktree(options.ref) as other:
            measures = measured(other, options.only, quick=options.quick)
    except subprocess.CalledProcessError as error:
        print(f"{error}\n{error.stdout or ''}{error.stderr or ''}", file=sys.stderr)
        sys.exit(2)
    found = worse(measures, other.name, options.percent)
    told = f"{len(found)} of {len(measures)} measures are more than {options.percent:g} % above {other.name}"
    print(markdown(range_table("Worse", found)) + f"\n\n{told}" if found else told)
    write(options.json, before, {"measures": measures, "worse": list(found)})
    sys.exit(1 if found else 0)


def measured(other: Path, only: Sequence[str], *, quick: bool) -> Measures:
    """Of this checkout and the one in the folder *other*. Raises CalledProcessError if a benchmark fails."""
    measures: Measures = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in only:
            figures = Path(scratch, f"{name}.json")
            line = [sys.executable, "-m", f"bench.{name}", *SELECTION[name], *(QUICK[name] if quick else ())]
            print(f"bench.{name}", file=sys.stderr, flush=True)
            _done(*line, "--beside", str(other), "--json", str(figures))
            its: Measures = json.loads(figures.read_text())["measures"]
            measures |= {measure: by_checkout for measure, by_checkout in its.items() if _COMPARED.search(measure)}
    return measures


@contextmanager
def worktree(ref: str) -> Iterator[Path]:
    """A folder with the commit that *ref* names, called after it; removed at the end. Raises CalledProcessError."""
    commit = _done("git", "rev-parse", "--short", "--verify", f"{ref}^{{commit}}").strip()
    with tempfile.TemporaryDirectory(prefix="wicketgate-beside-") as scratch:
        folder = Path(scratch, commit)
        _done("git", "worktree", "add", "--detach", str(folder), commit)
        try:
            if (folder / _LOCK).read_bytes() != (ROOT / _LOCK).read_bytes():
                print(f"installing the dependencies of {commit}", file=sys.stderr, flush=True)
                _done("make", "-C", str(folder), ".venv/.run")
            yield folder
        finally:
            _done("git", "worktree", "remove", "--force", str(folder))


def _done(*line: str) -> str:
    """Runs the command in this checkout; what it wrote to stdout. Raises CalledProcessError."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(line, cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
