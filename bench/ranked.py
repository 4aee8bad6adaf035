"""One contestant of the quality table on one set, in a process of its own: ``python -m bench.ranked MODULE DATA SET
SAMPLE``. Writes a line of JSON for each task of the sample, then one with the remarks.

Runs in the environments of the peers too, so it needs the standard library only.
"""

import asyncio
import importlib
import json
import sys
import time
from pathlib import Path

from bench.ranking import Ranking
from bench.routing_sets import routing_set, sample

_ROUNDS = 3
_SLOW_S = 0.05
_WARMING = 3


async def main(module: str, data: str, name: str, count: str) -> None:
    # Contestants may print; the answers have the real stdout to themselves.
    answers, sys.stdout = sys.stdout, sys.stderr
    tried = routing_set(Path(data), name)
    tasks = sample(tried.tasks, int(count))
    contestant: Ranking = importlib.import_module(module).ranking()
    await contestant.build(tried.tools)
    for task in tasks[:_WARMING]:
        await contestant.browse(task.query)
    for task in tasks:
        best = None
        for _ in range(_ROUNDS):
            began = time.process_time()
            answer = await contestant.browse(task.query)
            took = time.process_time() - began
            best = took if best is None else min(best, took)
            if took > _SLOW_S:
                break
        row = {
            "id": task.id,
            "cpu_ms": (best or 0) * 1e3,
            "shown": len(answer.keys),
            "text": answer.text,
            "ranked": list(await contestant.ranked(task.query, answer)),
        }
        print(json.dumps(row), file=answers, flush=True)
    print(json.dumps({"remarks": list(contestant.remarks)}), file=answers, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
