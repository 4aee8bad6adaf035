"""Several real processes on one store; some of them are killed or stopped."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.storage.store_process import THING, open_store
from tests.support.requirement import requirement
from tests.support.rows import row_of
from wicketgate.storage import sqlite_writer
from wicketgate.storage.store import Append, Conflict, Fence, Signal, Store, StoreUnavailable

BOUND_S = 60.0
MARK_S = 0.8
BEAT_S = 0.1


class Peer:
    """A process, its id, and the lines that it has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.id = ""
        self.said: list[str] = []

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    async def hear(self, first: str) -> list[str]:
        """Waits for the line that begins with the word *first*, and returns its other words."""
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode().strip():
            self.said.append(line)
            if line.split()[0] == first:
                return line.split()[1:]
        raise AssertionError(f"it has ended without {first}: {self.said}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def peer(url: str, space: str) -> AsyncIterator[Peer]:
    where = (url, space, str(MARK_S), str(BEAT_S))
    pipe = asyncio.subprocess.PIPE
    made = Peer(
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.storage.store_process", *where, stdin=pipe, stdout=pipe
        )
    )
    try:
        (made.id,) = await made.hear("ready")
        yield made
    finally:
        await made.kill()


@pytest.fixture
def where(tmp_path: Path) -> tuple[str, str]:
    """The URL of a store, and the space of names in it."""
    return str(tmp_path / "store.db"), ""


@pytest.fixture
async def store(where: tuple[str, str]) -> AsyncIterator[Store]:
    made = open_store(*where)
    yield made
    await made.aclose()


@pytest.fixture
async def peers(where: tuple[str, str]) -> AsyncIterator[list[Peer]]:
    """Four processes."""
    async with asyncio.timeout(BOUND_S), AsyncExitStack() as stack:
        yield await asyncio.gather(*(stack.enter_async_context(peer(*where)) for _ in range(4)))


async def taken(key: str, peers: list[Peer]) -> tuple[Peer, float]:
    """Returns the one of *peers* that takes *key*, and when."""
    waits = {asyncio.create_task(each.hear("taken")): each for each in peers}
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    at = time.monotonic()
    for wait in pending:
        wait.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    (winner,) = [(waits[wait], wait.result()) for wait in done]
    assert winner[1] == [key, "2"]
    return winner[0], at


async def stop_between_writes(peer: Peer, store: Store) -> None:
    """A process that is stopped within a write to a file locks it for all."""
    while True:
        peer.send(signal.SIGSTOP)
        try:
            await store.step([Signal("still writable")])
        except StoreUnavailable:
            peer.send(signal.SIGCONT)
        else:
            return


@requirement("EXEC-114")
async def test_a_row_of_a_killed_process_is_taken_by_one_other_after_its_mark_has_lapsed(
    store: Store, peers: list[Peer]
) -> None:
    killed, *others = peers
    killed.tell("hold run")
    await killed.hear("holds")
    await asyncio.sleep(2 * MARK_S)  # the patience of the others ends
    killed.send(signal.SIGKILL)
    killed_at = time.monotonic()
    winner, at = await taken("run", others)
    assert at >= killed_at + MARK_S - 2 * BEAT_S
    row = await row_of(store, THING, "run")
    assert (row.holder, row.term) == (winner.id, 2)
    with pytest.raises(Conflict) as refused:
        fence = Fence(THING, "run", killed.id, 1)
        await store.step([Append(THING, "run", 0, row.ends[0], [b"late"])], fence=fence)
    assert refused.value.at == -1
    positions = [position for position, _ in await store.read_log(THING, "run", 0, 0, most=10_000)]
    assert positions == list(range(1, row.ends[0] + 1)), "every entry that was acknowledged, each once"


@requirement("EXEC-114")
async def test_a_process_that_was_stopped_for_longer_than_its_mark_writes_nothing_afterwards(
    store: Store, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "PAUSE_S", 0.0)
    stopped, *others = peers
    stopped.tell("hold run")
    await stopped.hear("holds")
    await asyncio.sleep(2 * MARK_S)  # the patience of the others ends
    await stop_between_writes(stopped, store)
    winner, _ = await taken("run", others)
    before = await row_of(store, THING, "run")
    stopped.send(signal.SIGCONT)
    assert await stopped.hear("refused") == ["-1"]
    assert await store.get(THING, "run") == before
    assert before.holder == winner.id


@requirement("EXEC-111", "EXEC-117")
async def test_each_of_300_keys_that_four_processes_claim_is_won_once(store: Store, peers: list[Peer]) -> None:
    for each in peers:
        each.tell("claim 300")
    won = [int((await each.hear("won"))[0]) for each in peers]
    assert sum(won) == 300, won
    for each in peers:
        each.tell("claim 300")
    assert [await each.hear("won") for each in peers] == 4 * [["0"]]


@requirement("EXEC-116", "ACCESS-98")
async def test_a_quota_and_places_are_given_exactly(store: Store, peers: list[Peer]) -> None:
    for each in peers:
        each.tell("count 50 40")
        each.tell("places 10 5 0")
    counted = [int((await each.hear("counted"))[0]) for each in peers]
    granted = [int((await each.hear("granted"))[0]) for each in peers]
    assert sum(granted) == 10, granted
    assert sum(counted) == 50, counted
    # Places of a killed process are free when its mark has lapsed.
    (killed, freed), *_, (heir, own) = sorted(zip(peers, granted, strict=True), key=lambda each: -each[1])
    killed.send(signal.SIGKILL)
    after = own + freed
    while own < after:
        heir.tell(f"places 10 5 {own}")
        own += int((await heir.hear("granted"))[0])
