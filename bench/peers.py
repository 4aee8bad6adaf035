"""The peers of the benchmarks, pinned, each in a virtual environment of its own below ``bench/out``."""

import gzip
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.catalogs import ROOT
from bench.environments import environment
from wicketgate.tokens import SHIPPED_TABLE

PINNED: Mapping[str, tuple[str, ...]] = {
    "bm25s": ("bm25s==0.3.16", "numpy==2.4.6"),
    "fastmcp": ("fastmcp==4.1.2",),
    "contextweaver": ("contextweaver==0.18.2",),
    "mcp-proxy": ("mcp-proxy==0.13.0",),
}
OF_CATALOG = ("bm25s", "fastmcp", "contextweaver")
"""Those that find tools."""

# tiktoken looks for a table under the sha1 of its address.
_TABLE_NAME = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"


@dataclass(frozen=True, slots=True)
class Peer:
    """Run *python* with *env*: tiktoken finds the table that this program ships, so nothing is fetched."""

    python: Path
    env: Mapping[str, str]


def install(name: str, folder: Path = ROOT / "bench" / "out") -> Peer | str:
    """One of the peers, installed when it is not there yet; or why there is none."""
    folder = folder / f".venv-{name}"
    python = environment(folder, PINNED[name])
    if isinstance(python, str):
        return python
    tables = folder / "tiktoken"
    tables.mkdir(exist_ok=True)
    (tables / _TABLE_NAME).write_bytes(gzip.decompress(SHIPPED_TABLE.read_bytes()))
    return Peer(python, {**os.environ, "TIKTOKEN_CACHE_DIR": str(tables)})
