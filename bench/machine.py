"""The place of a measurement: command, commit, load, interpreter; and the file of its figures."""

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.catalogs import ROOT


def machine() -> dict[str, Any]:
    """*load* is the load average over one, five and fifteen minutes, now."""
    return {
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "-uno") else ""),
        "load": [round(load, 1) for load in os.getloadavg()],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def write(path: Path, before: dict[str, Any], found: dict[str, Any]) -> None:
    """Writes *found* as JSON and prints one line about the run, to be copied with its tables. A commit with a plus had
    changes that were not committed."""
    after = machine()
    load = [f"{place['load'][0]:.1f}" for place in (before, after)]
    command = shlex.join(["python", "-m", f"bench.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
    print(
        f"\n`{command}`, {time.strftime('%Y-%m-%d', time.gmtime())}, commit {before['commit']}, CPython "
        f"{before['python']} on {before['machine']}, {before['cores']} cores, load {load[0]} before and {load[1]} after"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"before": before, "after": after, **found}, indent=1) + "\n")
    print(path)


def _git(*args: str) -> str:
    """Empty without git or a repository."""
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
