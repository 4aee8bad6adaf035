"""``python -m bench.stores``: what a put and a get of an artifact cost in memory and in SQLite, and how long each holds
the event loop.

Times are over different artifacts of one size, one after the other. *loop held* is the worst lateness of a timer that
should fire every millisecond; the row *idle* shows what the machine alone does.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bench.table import figure, percentile, table
from wicketgate.ports import Artifact
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.sqlite import SqliteStore

MAX_BYTES = 2**30
SIZES = {"1 KB": (2**10, 500), "100 KB": (100 * 2**10, 200), "10 MB": (10 * 2**20, 40)}
_EVERY_S = 0.001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the SQLite file is made, for a disk to be measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(asyncio.run(measure(Path(folder))))


async def measure(folder: Path) -> str:
    rows = []
    async with _watched() as late:
        await asyncio.sleep(0.5)
        rows.append(["idle", "", "", "", figure(max(late)), "", "", ""])
        for name, (size, count) in SIZES.items():
            artifacts = [
                Artifact(f"text:a:b@1:{number}", "text/plain", "full text", os.urandom(size)) for number in range(count)
            ]
            for kind, shared in (("memory", MemoryStore()), ("sqlite", SqliteStore(folder / f"{size}.db"))):
                store = StoredArtifacts(shared, MAX_BYTES)
                puts = await _timed([partial(store.put, "ann", artifact) for artifact in artifacts], late)
                gets = await _timed([partial(store.get, "ann", artifact.handle) for artifact in artifacts], late)
                rows.append([f"{name} {kind}", str(count), *puts, *gets])
                await shared.aclose()
    return table(["", "times", "put ms", "p95", "loop held ms", "get ms", "p95", "loop held ms"], rows)


async def _timed(calls: Sequence[Callable[[], Awaitable[object]]], late: list[float]) -> list[str]:
    """One after the other: median, 95th percentile, and the worst lateness meanwhile."""
    await asyncio.sleep(0.1)
    late.clear()
    took = []
    for call in calls:
        start = time.perf_counter()
        outcome = await call()
        took.append((time.perf_counter() - start) * 1e3)
        if outcome in (None, "too_large", "failed"):
            raise RuntimeError(f"a store did not keep what it should: {outcome}")
    await asyncio.sleep(2 * _EVERY_S)
    return [figure(percentile(took, 50)), figure(percentile(took, 95)), figure(max(late))]


@asynccontextmanager
async def _watched() -> AsyncIterator[list[float]]:
    """By how many milliseconds each timer was late, as it goes on."""
    late: list[float] = []

    async def watch() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(_EVERY_S)
            late.append((time.perf_counter() - start - _EVERY_S) * 1e3)

    watching = asyncio.create_task(watch())
    try:
        yield late
    finally:
        watching.cancel()


if __name__ == "__main__":
    main()
