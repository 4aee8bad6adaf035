"""A key whose time ends while a request for it is opened (CHAT-75)."""

import asyncio
from itertools import count

from tests.engine.test_one_end import ALICE, REQUEST, House
from tests.support.requirement import requirement
from wicketgate.access.shares import CountedShares
from wicketgate.engine.keyed_runs import KeyedRuns, ResumeLimits, Resumption
from wicketgate.engine.limits import DetachedRuns, StreamLimit
from wicketgate.storage.journal import StoredJournal
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.memory_runs import MemoryRuns
from wicketgate.storage.process import Process
from wicketgate.storage.runs import JournalBounds, KeptRun

BOUND_S = 30.0


class SlowLookUp(MemoryRuns):
    """Time passes behind each look-up that finds an ended run."""

    passed_s = 0.0

    async def find(self, name: str) -> KeptRun | None:
        found = await super().find(name)
        if found is not None and found.ended:
            SlowLookUp.passed_s += 1_000
        return found


@requirement("CHAT-75")
async def test_a_key_that_ends_between_its_look_up_and_its_reader_begins_a_new_run() -> None:
    store, ids = MemoryStore(), count(1)
    runs = SlowLookUp(store, "here", JournalBounds(keep_s=500), lambda: SlowLookUp.passed_s)
    streams, detached = StreamLimit(CountedShares("chat", 1)), DetachedRuns(CountedShares("detached", 1))
    journal = StoredJournal(runs, Process(store))
    keyed = KeyedRuns(House(1_000).engine, journal, streams, detached, ResumeLimits(), lambda: f"r{next(ids)}")
    texts = []
    async with asyncio.timeout(BOUND_S):
        for _ in range(2):
            reader = await keyed.open(REQUEST, ALICE, Resumption("k"))
            texts.append(b"".join([piece async for piece in reader.pieces()]))
            await reader.aclose()
            await streams.wait_empty()
    assert texts[0] and texts[1] and texts[0] != texts[1], "each run has event ids of its own"
    await keyed.aclose()
