"""A process of its own that shares a store: ``python -m tests.storage.store_process URL SPACE MARK_S BEAT_S``.

It runs one command a line, and answers with a line. What it takes over, and a fence that refuses it, it reports by
itself.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from wicketgate.storage.process import Process
from wicketgate.storage.sqlite import SqliteStore
from wicketgate.storage.store import Append, Conflict, Fence, Kind, Put, Store, Take, Window, Wish

THING = Kind("thing")


def open_store(url: str, space: str) -> Store:
    return SqliteStore(Path(url))


async def main(url: str, space: str, mark_s: str, beat_s: str) -> None:
    store = open_store(url, space)
    process = Process(store, mark_s=float(mark_s), beat_s=float(beat_s))

    async def take(keys: Sequence[str]) -> None:
        for key in keys:
            try:
                (term,) = await store.step([Take(THING, key, process.id)])
            except Conflict:
                continue
            say(f"taken {key} {term}")

    process.take_over(THING.name, take)
    lines = await _stdin()
    async with process.running(), asyncio.TaskGroup() as tasks:
        say(f"ready {process.id}")
        while line := await lines.readline():
            match line.decode().split():
                case ["hold", key]:
                    tasks.create_task(_hold(store, process.id, key))
                case ["claim", number]:
                    say(f"won {sum(await asyncio.gather(*(_claim(store, f'key{n}') for n in range(int(number)))))}")
                case ["count", limit, tries]:
                    windows = [Window("calls", int(limit), 3_600.0)]
                    say(f"counted {sum([await store.count(windows) is None for _ in range(int(tries))])}")
                case ["places", limit, wanted, held]:
                    wish = Wish("ann", int(held), int(wanted))
                    (grant,) = await store.places("calls", process.id, int(limit), [wish])
                    say(f"granted {grant.granted}")


async def _hold(store: Store, process: str, key: str) -> None:
    """Writes behind its fence until that refuses it."""
    await store.step([Put(THING, key, b"", holder=process), Append(THING, key, 0, 0, [b"0"])])
    say(f"holds {key}")
    fence, end = Fence(THING, key, process, 1), 1
    while True:
        try:
            (end,) = await store.step([Append(THING, key, 0, end, [b"%d" % end])], fence=fence)
        except Conflict as refused:
            say(f"refused {refused.at}")
            return
        await asyncio.sleep(0.005)  # the pace of its writes


async def _claim(store: Store, key: str) -> bool:
    try:
        await store.step([Put(THING, key, b"", expect=0)], durable=True)
    except Conflict:
        return False
    return True


async def _stdin() -> asyncio.StreamReader:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    return lines


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
