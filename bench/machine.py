"""The place of a measurement: commit, load, interpreter."""

import os
import platform
import subprocess
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


def shown(before: dict[str, Any], after: dict[str, Any]) -> str:
    """One line. A commit with a plus had changes that were not committed."""
    load = [f"{place['load'][0]:.1f}" for place in (before, after)]
    return (
        f"commit {before['commit']}, CPython {before['python']} on {before['machine']}, {before['cores']} cores, "
        f"load average {load[0]} before and {load[1]} after"
    )


def _git(*args: str) -> str:
    """Empty without git or a repository."""
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
