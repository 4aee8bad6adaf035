"""Streams whose places are counted elsewhere: taking one may wait, and others come meanwhile (CHAT-73, ACCESS-37)."""

import asyncio
from collections.abc import Callable

import pytest

from tests.engine.test_one_end import ALICE, REQUEST, House
from tests.support.requirement import requirement
from wicketgate.access.shares import CountedShares, Lease
from wicketgate.engine.keyed_runs import KeyedRuns, ResumeLimits, Resumption
from wicketgate.engine.limits import DetachedRuns, StreamLimit
from wicketgate.storage.journal import StoredJournal
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.memory_runs import MemoryRuns
from wicketgate.storage.process import Process
from wicketgate.storage.runs import JournalBounds

BOUND_S = 30.0


class RemoteShares(CountedShares):
    """Counts only when it may, as a counter over the network does when its answer comes."""

    def __init__(self, most: int) -> None:
        super().__init__("chat", most)
        self.answers = asyncio.Event()
        self.asked = 0

    async def take(self, actor: str, make_room: Callable[[int], bool] | None = None) -> Lease:
        self.asked += 1
        await self.answers.wait()
        return await super().take(actor, make_room)


def made(shares: RemoteShares) -> tuple[StreamLimit, KeyedRuns]:
    streams, detached = StreamLimit(shares), DetachedRuns(CountedShares("detached", 1))
    store = MemoryStore()
    journal = StoredJournal(MemoryRuns(store, "here", JournalBounds()), Process(store))
    return streams, KeyedRuns(House(1_000).engine, journal, streams, detached, ResumeLimits(), lambda: "r1")


async def until_asked(shares: RemoteShares, times: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while shares.asked < times:
            await asyncio.sleep(0)


@requirement("CHAT-73", "ACCESS-37")
async def test_two_requests_of_one_key_that_wait_together_hold_one_place() -> None:
    shares = RemoteShares(5)
    streams, keyed = made(shares)
    opening = [asyncio.create_task(keyed.open(REQUEST, ALICE, Resumption("k"))) for _ in range(2)]
    await until_asked(shares, 2)
    shares.answers.set()
    readers = await asyncio.gather(*opening)
    assert (streams.active, shares.held) == (1, 1)
    texts = [b"".join([piece async for piece in reader.pieces()]) for reader in readers]
    assert texts[0] == texts[1] != b""
    for reader in readers:
        await reader.aclose()
    await streams.wait_empty()
    assert shares.held == 0
    await keyed.aclose()


@requirement("ACCESS-37")
async def test_a_request_that_is_cancelled_while_it_waits_holds_nothing() -> None:
    shares = RemoteShares(5)
    streams, keyed = made(shares)
    opening = asyncio.create_task(keyed.open(REQUEST, ALICE, Resumption("k")))
    await until_asked(shares, 1)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    shares.answers.set()
    assert (streams.active, shares.held) == (0, 0)
    await keyed.aclose()
