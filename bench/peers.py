"""The peer's environment: contextweaver, pinned, in a virtual environment of its own below ``bench/out``."""

import gzip
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.edges.token_table import SHIPPED_TABLE
from bench.catalogs import ROOT

REQUIREMENT = "contextweaver==0.18.2"

# tiktoken looks for a table under the sha1 of its address.
_TABLE_NAME = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
_INSTALL_BOUND_S = 600


@dataclass(frozen=True, slots=True)
class Peer:
    """Run *python* with *env*: tiktoken finds the table that this program ships, so nothing is fetched."""

    python: Path
    env: Mapping[str, str]


def install(folder: Path = ROOT / "bench" / "out" / ".venv-peers") -> Peer | str:
    """The peer, installed when it is not there yet; or why there is none."""
    python = folder / "bin" / "python"
    done = folder / f".{REQUIREMENT}"
    if not done.exists():
        print(f"Installing {REQUIREMENT} into {folder} ...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        try:
            subprocess.run(
                [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", REQUIREMENT],
                check=True,
                timeout=_INSTALL_BOUND_S,
            )
        except (subprocess.SubprocessError, OSError):
            return f"{REQUIREMENT} could not be installed"
        done.touch()
    tables = folder / "tiktoken"
    tables.mkdir(exist_ok=True)
    (tables / _TABLE_NAME).write_bytes(gzip.decompress(SHIPPED_TABLE.read_bytes()))
    return Peer(python, {**os.environ, "TIKTOKEN_CACHE_DIR": str(tables)})
