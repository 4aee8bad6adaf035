"""Writers that are killed: ``python -m tests.storage.killed_writer FOLDER ROUNDS``.

Each round is a process that opens a store and puts artifacts until SIGKILL, some milliseconds later. One JSON line a
round tells the file and the handles of which the store had reported that it keeps them; every few rounds a new file is
begun.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from tests.support.artifacts import sealed
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.sqlite import SqliteStore

MAX_BYTES = 12_000_000
OWNER = "ann"
_ROUNDS_A_FILE = 5
_SIZES = (0, 1_000, 300_000, 2_500_000)


def main() -> None:
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(4)
    for number in range(rounds):
        path = folder / f"{number // _ROUNDS_A_FILE}.db"
        reported, reports = os.pipe()
        child = os.fork()
        if child == 0:
            asyncio.run(_put_until_killed(path, reports, random.Random(number)))
        os.close(reports)
        # Half of them have put something for sure; the others may be caught while they make the file.
        first = os.read(reported, 1) if number % 2 else b""
        time.sleep(chance.uniform(0.001, 0.06))  # the kill comes at any moment
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError("a writer ended by itself")
        with os.fdopen(reported, "rb") as rest:
            kept = [line.decode().strip() for line in (first + rest.read()).splitlines(keepends=True) if b"\n" in line]
        print(json.dumps({"path": str(path), "kept": kept}))


async def _put_until_killed(path: Path, reports: int, chance: random.Random) -> None:
    store = StoredArtifacts(SqliteStore(path), MAX_BYTES)
    while True:
        artifact = sealed(chance.randbytes(chance.choice(_SIZES)))
        if await store.put(OWNER, artifact) == "kept":
            os.write(reports, f"{artifact.handle}\n".encode())


if __name__ == "__main__":
    main()
