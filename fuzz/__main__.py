"""``python -m fuzz``: every target for its share of the time, one line each; fails with the input of a crash."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from fuzz.targets import TARGETS

SEEDS = Path(__file__).parent / "corpus"
FOUND = Path("build/fuzz")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together (600)")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        parser.error(f"no such target: {', '.join(unknown)}")
    share_s = max(1, round(options.seconds / len(names)))
    sys.exit(1 if [name for name in names if not passes(name, share_s)] else 0)


def passes(name: str, seconds: int) -> bool:
    """Runs one target. Returns False after a crash, and prints its trace and how to repeat it."""
    found, seeds = FOUND / name, SEEDS / name
    found.mkdir(parents=True, exist_ok=True)
    before = set(found.iterdir())
    command = [sys.executable, "-m", "fuzz.one", name, str(found), str(seeds), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    runs, paths = (
        re.findall(rf"stat::{stat}:\s+(\d+)", done.stderr) for stat in ("number_of_executed_units", "new_units_added")
    )
    print(f"{name:<14} {runs[-1] if runs else '?':>10} runs {paths[-1] if paths else '?':>6} new paths", flush=True)
    if done.returncode == 0 and runs:
        return True
    print(done.stderr[-6_000:])
    for file in sorted(set(found.glob("*-*")) - before):
        print(f"repeat it with: {sys.executable} -m fuzz.repeat {name} {file}")
    return False


if __name__ == "__main__":
    main()
