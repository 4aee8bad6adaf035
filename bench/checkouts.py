"""Other checkouts of this program, measured in turns with this one: the option, the service of each, and the tables."""

import argparse
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from bench.catalogs import ROOT
from bench.cpu import MEASURED, pin
from bench.quiet_process import quiet_process
from bench.table import NONE, Table, figure
from wicketgate.storage.keys import new_key

Measures = dict[str, dict[str, list[float]]]
"""By measure, whose name ends in its unit, and by checkout: a value a round. Less is better."""


@dataclass(frozen=True, slots=True)
class Checkout:
    name: str
    folder: Path

    @property
    def python(self) -> str:
        """The interpreter of the checkout's own ``.venv``; ours if it has none."""
        own = self.folder / ".venv" / "bin" / "python"
        return str(own) if own.exists() and self.folder != ROOT else sys.executable

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder)}

    def at(self, what: str) -> str:
        """The name of *what* in this checkout. The name of our own has no suffix."""
        return what if self == HERE else f"{what} at {self.name}"


HERE = Checkout("here", ROOT)


def add_beside(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beside",
        type=lambda given: Checkout(Path(given).resolve().name, Path(given).resolve()),
        action="append",
        default=[],
        metavar="CHECKOUT",
        help="the folder of another checkout, measured in turns with this one; may be repeated",
    )


def add_value(measures: Measures, measure: str, checkout: Checkout, *values: float) -> None:
    measures.setdefault(measure, {}).setdefault(checkout.name, []).extend(values)


def beside_tables(measures: Measures) -> list[Table]:
    """One table; none if only ours was measured."""
    several = any(len(by_checkout) > 1 for by_checkout in measures.values())
    return [range_table("Checkouts in turns", measures)] if several else []


def range_table(title: str, measures: Measures) -> Table:
    """The middle and the range of each checkout, and ours as a multiple of the others."""
    names = list(dict.fromkeys(name for by_checkout in measures.values() for name in by_checkout))
    others = [name for name in names if name != HERE.name]
    rows = [
        [measure, *(_range(its.get(name)) for name in names), *(figure(ratio(its, other)) for other in others)]
        for measure, its in measures.items()
    ]
    head = ["middle (least to most)", *names, *(f"{HERE.name} × {other}" for other in others)]
    return Table(title, head, rows)


def ratio(by_checkout: Mapping[str, Sequence[float]], other: str) -> float | None:
    """Our middle over the middle of *other*; None if one of them has no value above 0."""
    ours, theirs = (by_checkout.get(name) or [0.0] for name in (HERE.name, other))
    return median(ours) / median(theirs) if median(ours) > 0 and median(theirs) > 0 else None


def worse(measures: Measures, other: str, percent: float) -> Measures:
    """The measures in which our middle is more than *percent* above that of *other*."""
    return {
        measure: its
        for measure, its in measures.items()
        if (found := ratio(its, other)) is not None and found > 1 + percent / 100
    }


def _range(values: Sequence[float] | None) -> str:
    return f"{figure(median(values))} ({figure(min(values))} to {figure(max(values))})" if values else NONE


@dataclass(frozen=True, slots=True)
class Service:
    url: str
    key: str
    pid: int


@asynccontextmanager
async def serving(settings: Mapping[str, Any], checkout: Checkout = HERE) -> AsyncIterator[Service]:
    """Runs the service with *settings* and one key, as a user starts it, on the core of what is measured."""
    key, digest = new_key("bench")
    keys = [{"id": "bench", "sha256": digest, "actor": "bench", "permissions": ["tools:*"]}]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "wicketgate.yaml"
        config.write_text(yaml.safe_dump({"auth": {"keys": keys}, **settings}))
        line = (checkout.python, "-m", "app", "serve", "--config", str(config), "--port", "0")
        async with quiet_process(*line, folder=checkout.folder, env=checkout.env) as process:
            url = (await process.wait_for(r"ready on (http://\S+)")).group(1)
            pin(process.pid, MEASURED)
            yield Service(url, key, process.pid)
