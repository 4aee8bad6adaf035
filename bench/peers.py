"""The peer's environment: contextweaver, pinned, in a virtual environment of its own below ``bench/out``."""

import gzip
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.catalogs import ROOT
from bench.environments import environment
from wicketgate.tokens import SHIPPED_TABLE

REQUIREMENT = "contextweaver==0.18.2"

# tiktoken looks for a table under the sha1 of its address.
_TABLE_NAME = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"


@dataclass(frozen=True, slots=True)
class Peer:
    """Run *python* with *env*: tiktoken finds the table that this program ships, so nothing is fetched."""

    python: Path
    env: Mapping[str, str]


def install(folder: Path = ROOT / "bench" / "out" / ".venv-peers") -> Peer | str:
    """The peer, installed when it is not there yet; or why there is none."""
    python = environment(folder, [REQUIREMENT])
    if isinstance(python, str):
        return python
    tables = folder / "tiktoken"
    tables.mkdir(exist_ok=True)
    (tables / _TABLE_NAME).write_bytes(gzip.decompress(SHIPPED_TABLE.read_bytes()))
    return Peer(python, {**os.environ, "TIKTOKEN_CACHE_DIR": str(tables)})
