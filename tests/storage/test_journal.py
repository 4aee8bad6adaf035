"""The journal of keyed runs: what every process does, and what is left of a run whose process is gone.

Two journals on one store stand for two processes; one that is not closed has been killed, or stands still.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.redis_time import RedisTime, scripts_with_a_clock
from tests.support.failing_store import FailingStore
from tests.support.locked_file import locked
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from tests.support.until import settle, until
from wicketgate.access.shares import ShareRefused
from wicketgate.engine.events import Done, encode, join_texts
from wicketgate.engine.journal import Abandoned, EventsGone, Journal, JournalAway, lost_events
from wicketgate.errors import NotAdmitted
from wicketgate.models.provider import TextDelta, Usage
from wicketgate.storage.journal import StoredJournal
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.memory_runs import MemoryRuns
from wicketgate.storage.process import Process
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.store import RedisStore
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.runs import LOST_KEEP_S, Batch, HeldRun, JournalBounds, KeptRun, SharedRuns
from wicketgate.storage.sqlite import SqliteStore
from wicketgate.storage.store import Append, Drop, Put, Store, StoreUnavailable

BOUNDS = JournalBounds(total_bytes=2_000_000, run_bytes=200_000, unread_bytes=50_000)
MARK_S = 0.1
BOUND_S = 30.0
DONE = encode(Done("stop", Usage()))
LARGE = b" " * 10_000


def event(number: int) -> bytes:
    return b'event: tool-result\ndata: {"id":"c%d","output":""}\n\n' % number


def text(content: str) -> bytes:
    return encode(TextDelta(content))


async def read_all(journal: Journal, name: str, after: int = 0) -> list[tuple[int, bytes]]:
    """Follow to the end."""
    read: list[tuple[int, bytes]] = []
    async with asyncio.timeout(BOUND_S), journal.follow(name, after) as follower:
        while entries := await follower.next():
            read += [(entry.position, entry.event) for entry in entries]
    return read


class Host:
    """Processes with one store. The mark of each lives until it is ``lapse``d; only ``looking`` renews it."""

    def __init__(self, path: Path | None = None, redis: RedisServer | None = None) -> None:
        self._now = 1_000_000.0
        self._path = path
        self._memory = MemoryStore(lambda: self.now)
        self._redis = redis
        self._redis_time = RedisTime(redis, lambda: self.now) if redis else None
        self._opened: list[Store | RedisLink] = []
        self._processes: dict[StoredJournal, Process] = {}

    @property
    def now(self) -> float:
        return self._now

    @now.setter
    def now(self, now: float) -> None:
        passed_s, self._now = now - self._now, now
        if self._redis_time is not None:
            self._redis_time.passed(passed_s)

    @property
    def path(self) -> Path:
        assert self._path is not None
        return self._path

    def store(self) -> Store:
        store: Store = self._memory
        if self._path is not None:
            store = SqliteStore(self._path, lambda: self.now)
        elif self._redis is not None:
            link = RedisLink(read_url(self._redis.url))
            store = RedisStore(link)
            self._opened.insert(0, link)
        self._opened.insert(0, store)
        return store

    async def aclose(self) -> None:
        for opened in (*self._processes, *self._opened):
            await opened.aclose()
        if self._redis_time is not None:
            self._redis_time.close()

    async def process(self, bounds: JournalBounds = BOUNDS, store: Store | None = None) -> StoredJournal:
        store = store or self.store()
        process = Process(store, mark_s=MARK_S, beat_s=MARK_S / 4)
        await store.beat(process.id, mark_s=1e9)
        journal = StoredJournal(SharedRuns(store, process.id, bounds), process, lambda: self.now)
        self._processes[journal] = process
        return journal

    async def lapse(self, gone: StoredJournal) -> None:
        """*gone* was killed, or stands still: its mark has lapsed."""
        await self.store().beat(self._processes[gone].id, mark_s=0)

    @asynccontextmanager
    async def looking(self, journal: StoredJournal) -> AsyncIterator[asyncio.Queue[Abandoned]]:
        """Takes runs over while it is open, and gives those that can be gone on with."""
        found: asyncio.Queue[Abandoned] = asyncio.Queue()

        async def look() -> None:
            while True:
                found.put_nowait(await journal.next_abandoned())

        process = self._processes[journal]
        task = asyncio.create_task(look())
        try:
            async with asyncio.timeout(BOUND_S), process.running():
                yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.store().beat(process.id, mark_s=1e9)


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path / "a.db")
    yield host
    await host.aclose()


@pytest.fixture(params=["memory", "redis"])
async def host(request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    with scripts_with_a_clock():
        host = Host(redis=request.getfixturevalue("redis") if request.param == "redis" else None)
        yield host
        await host.aclose()


def alone(bounds: JournalBounds = BOUNDS, now: Callable[[], float] = monotonic) -> StoredJournal:
    """The journal of a process whose runs end with it."""
    store = MemoryStore()
    return StoredJournal(MemoryRuns(store, "here", bounds, now), Process(store), now)


async def begun(journal: Journal, name: str = "a", part: bytes = b"") -> None:
    assert (await journal.claim(name, "run", "digest", "bob", part)).mine


@pytest.fixture(params=["alone", "memory", "redis"])
async def journal(request: pytest.FixtureRequest) -> AsyncIterator[StoredJournal]:
    """An empty one: of a process whose runs end with it, and of one of several."""
    link = RedisLink(read_url(request.getfixturevalue("redis").url)) if request.param == "redis" else None
    store = MemoryStore() if link is None else RedisStore(link)
    process = Process(store)
    kind = MemoryRuns if request.param == "alone" else SharedRuns
    made = StoredJournal(kind(store, process.id, BOUNDS), process)
    yield made
    for each in (made, store, link):
        if each is not None:
            await each.aclose()


@requirement("CHAT-73")
async def test_a_name_is_claimed_once(journal: Journal) -> None:
    claims = await asyncio.gather(*(journal.claim("a", f"run{n}", f"digest{n}", "bob") for n in range(5)))
    assert [claim.mine for claim in claims].count(True) == 1
    assert {(claim.run_id, claim.digest) for claim in claims} == {("run0", "digest0")}
    assert (await journal.claim("b", "run9", "", "bob")).mine
    found = await journal.find("a")
    assert found is not None
    assert (found.run_id, found.mine) == ("run0", False)
    assert await journal.find("c") is None


async def test_what_was_appended_is_read_in_order_from_any_place_and_to_the_end(journal: Journal) -> None:
    await begun(journal)
    await journal.append("a", [event(1), event(2)])
    await journal.append("a", [event(3)])
    following = [asyncio.create_task(read_all(journal, "a", after)) for after in (0, 1, 3)]
    await asyncio.sleep(0)
    await journal.append("a", [DONE])
    await journal.end("a")
    whole = [*((n, event(n)) for n in (1, 2, 3)), (4, DONE)]
    assert await asyncio.gather(*following) == [whole, whole[1:], whole[3:]]
    assert await read_all(journal, "a") == whole
    assert await read_all(journal, "a", 2) == whole[2:]
    assert await read_all(journal, "a", 4) == whole[3:], "the end is given again"


async def test_what_never_was_cannot_be_followed(journal: Journal) -> None:
    await begun(journal)
    await journal.append("a", [event(1)])
    for name, after in (("a", 2), ("b", 0)):
        with pytest.raises(EventsGone):
            await read_all(journal, name, after)


async def test_the_wait_ends_when_the_last_reader_is_gone_for_long_enough(journal: Journal) -> None:
    await begun(journal)
    async with asyncio.timeout(BOUND_S):
        async with journal.follow("a", 0):
            left = asyncio.create_task(journal.wait_unattended("a", 0.02))
            async with journal.follow("a", 0):
                done, _ = await asyncio.wait([left], timeout=0.1)
                assert not done
        await left


@requirement("CHAT-76")
async def test_many_readers_at_different_paces_read_the_same_bytes_and_no_text_is_lost(journal: Journal) -> None:
    await begun(journal)
    slow_may_go_on = asyncio.Event()

    async def read_slowly() -> list[tuple[int, bytes]]:
        async with journal.follow("a", 0) as follower:
            read = [(entry.position, entry.event) for entry in await follower.next()]
            await slow_may_go_on.wait()
            while entries := await follower.next():
                read += [(entry.position, entry.event) for entry in entries]
            return read

    async with asyncio.timeout(BOUND_S):
        slow = asyncio.create_task(read_slowly())
        fast = asyncio.create_task(read_all(journal, "a"))
        for number in range(600):
            if number == 200:
                slow_may_go_on.set()
            await journal.append("a", [event(number) if number % 100 == 0 else text(f"<{number}>")])
            if number % 50 == 0:
                await asyncio.sleep(0)
        await journal.append("a", [DONE])
        await journal.end("a")
        one, other = await asyncio.gather(slow, fast)
    assert one == other == await read_all(journal, "a")
    assert [position for position, _ in one] == list(range(1, 602))
    assert [encoded for _, encoded in one[:600:100]] == [event(number) for number in range(0, 600, 100)]
    everything = b"".join(encoded for _, encoded in one)
    assert all(b"<%d>" % number in everything for number in range(600) if number % 100)


async def test_without_readers_a_run_keeps_its_latest_events_and_its_beginning_is_gone(journal: Journal) -> None:
    await begun(journal)
    for number in range(1, 101):
        await journal.append("a", [event(number) + LARGE])
    await journal.append("a", [DONE])
    await journal.end("a")
    for after in (0, 70):
        with pytest.raises(EventsGone):
            await read_all(journal, "a", after)
    assert [position for position, _ in await read_all(journal, "a", 90)] == list(range(91, 102))


@requirement("CHAT-76")
async def test_a_run_waits_for_a_reader_that_has_too_much_left_to_read(journal: StoredJournal) -> None:
    await begun(journal)
    appended = 0

    async def run() -> None:
        nonlocal appended
        for number in range(1, 101):
            await journal.append("a", [event(number) + LARGE])
            appended = number
        await journal.append("a", [DONE])
        await journal.end("a")

    async with asyncio.timeout(BOUND_S):
        async with journal.follow("a", 0), journal.follow("a", 0) as follower:
            running = asyncio.create_task(run())
            await until(lambda: journal._live["a"].tail_bytes > BOUNDS.unread_bytes)
            assert 4 <= appended <= 7
            read = [entry.event for entry in await follower.next()]
            assert read[0] == event(1) + LARGE
            for _ in range(100):
                await asyncio.sleep(0)
            assert appended <= 7, "one reader has read nothing yet"
        await running  # a reader that leaves lets it go on
    assert appended == 100


@requirement("CHAT-76")
async def test_a_late_reader_of_a_long_run_misses_nothing_while_the_run_goes_on(journal: Journal) -> None:
    await begun(journal)
    for number in range(1, 20):
        await journal.append("a", [event(number) + LARGE])
    async with asyncio.timeout(BOUND_S), journal.follow("a", 0) as follower:
        for number in range(20, 25):
            await journal.append("a", [event(number) + LARGE])
        read: list[int] = []
        while len(read) < 24:
            read += [entry.position for entry in await follower.next()]
    assert read == list(range(1, 25))


async def test_runs_of_one_process_are_forgotten_a_while_after_their_end() -> None:
    now = 1000.0
    journal = alone(replace(BOUNDS, keep_s=120), lambda: now)
    await begun(journal)
    await journal.append("a", [event(1)])
    now += 10_000
    assert await journal.find("a") is not None, "a run that goes on is kept"
    await journal.append("a", [DONE])
    await journal.end("a")
    now += 119
    assert len(await read_all(journal, "a")) == 2
    now += 1
    assert await journal.find("a") is None
    with pytest.raises(EventsGone):
        await read_all(journal, "a")
    await begun(journal)


@requirement("CHAT-91")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)), max_size=120))
async def test_the_counts_of_owners_are_those_of_their_runs(steps: list[tuple[str, int, int]]) -> None:
    now = 0.0
    runs = MemoryRuns(MemoryStore(), "here", replace(BOUNDS, total_bytes=100_000, keep_s=30, max_runs=6), lambda: now)
    live: dict[str, HeldRun] = {}
    for owner, number, what in steps:
        name = f"{owner}{number}"
        now += 1
        if name in live:
            await runs.write(live[name], Batch([LARGE] * what, ends=not what))
            if not what:
                del live[name]
        else:
            with suppress(ShareRefused):
                run = await runs.claim(name, "run", "", owner)
                live |= {name: run} if isinstance(run, HeldRun) else {}
        kept = [own.run for own in runs._all.values()]
        assert sum(run.held_bytes for run in kept if run.ended) == sum(runs._bytes_of.values()) <= 100_000
        for owner in "abc":
            assert len([run for run in kept if run.owner == owner]) == runs._runs_of[owner] <= 3


@given(st.text(), st.text())
def test_two_texts_joined_say_what_both_said(first: str, second: str) -> None:
    joined = join_texts(text(first), text(second))
    assert joined is not None
    head, _, data = joined.partition(b"data: ")
    assert head == b"event: text-delta\n"
    assert json.loads(data) == {"content": first + second}


@requirement("CHAT-110")
async def test_what_ended_is_the_same_at_another_process_and_after_a_restart(host: Host) -> None:
    here, there = await host.process(), await host.process()
    await begun(here)
    await here.append("a", [text("x"), text("y"), event(1)])
    following = asyncio.create_task(read_all(there, "a"))
    claim = await there.claim("a", "other", "other digest", "bob")
    assert (claim.mine, claim.run_id, claim.digest) == (False, "run", "digest")
    await here.append("a", [DONE])
    await here.end("a")
    whole = await read_all(here, "a")
    assert whole == [(1, text("xy")), (2, event(1)), (3, DONE)]
    assert await following == whole
    await here.aclose()
    await there.aclose()
    anew = await host.process()
    assert await read_all(anew, "a") == whole
    assert await read_all(anew, "a", 2) == await read_all(anew, "a", 3) == whole[2:]
    with pytest.raises(EventsGone):
        await read_all(anew, "a", 4)
    host.now += BOUNDS.keep_s + 1
    assert await anew.find("a") is None
    await begun(anew)


@requirement("CHAT-112")
async def test_a_run_whose_process_is_gone_ends_with_what_was_kept_and_one_error(host: Host) -> None:
    gone, here = await host.process(), await host.process()
    await begun(gone)
    assert await gone.claim_call("a", "c1")
    assert await gone.claim_call("a", "c2")
    await gone.append("a", [event(1)], ["c1"])
    following = asyncio.create_task(read_all(here, "a"))
    assert not (await here.claim("a", "other", "digest", "bob")).mine
    await host.lapse(gone)
    whole = [(1, event(1)), *enumerate(lost_events(["c2"]), 2)]
    async with host.looking(here):
        assert await following == whole
    assert b'"c2"' in whole[1][1]
    assert whole[-1][1].startswith(b"event: error")
    assert await read_all(here, "a", 3) == whole[2:]
    # A day later its client is still not given a second run.
    host.now += LOST_KEEP_S - 10
    assert await read_all(await host.process(), "a") == whole
    assert not (await here.claim("a", "other", "digest", "bob")).mine


@requirement("CHAT-112")
async def test_a_run_that_was_over_when_its_process_ended_is_not_lost(host: Host) -> None:
    gone, here = await host.process(), await host.process()
    await begun(gone)
    await gone.append("a", [event(1), DONE])
    await host.lapse(gone)
    async with host.looking(here):
        assert await read_all(here, "a") == [(1, event(1)), (2, DONE)]


@requirement("CHAT-111")
@pytest.mark.parametrize("kept", [True, False])
async def test_a_call_is_claimed_once(host: Host, kept: bool) -> None:
    journal: Journal = await host.process() if kept else alone()
    await begun(journal)
    assert [await journal.claim_call("a", call) for call in ("c1", "c1", "c2\ud800")] == [True, False, True]
    await journal.append("a", [event(1)], ["c1"])
    assert not await journal.claim_call("a", "c1"), "a result gives no claim back"
    await journal.end("a")


@requirement("CHAT-113")
async def test_a_process_that_stood_still_adds_nothing_to_a_run_that_was_given_up(host: Host) -> None:
    still, here = await host.process(), await host.process()
    await begun(still)
    await still.append("a", [event(1)])
    await host.lapse(still)
    async with host.looking(here):
        whole = await read_all(here, "a")
    assert not await still.claim_call("a", "c1")
    with pytest.raises(JournalAway):
        await still.append("a", [event(2)])
    assert not await still.claim_call("a", "c1")
    await still.end("a")
    await still.aclose()
    assert await read_all(here, "a") == whole == [(1, event(1)), *enumerate(lost_events([]), 2)]


@requirement("CHAT-126")
async def test_a_run_of_which_the_store_has_lost_the_last_events_ends(host: Host) -> None:
    # As after a failover of Redis: the row is this process's as before, but ends earlier.
    here, there = await host.process(), await host.process()
    await begun(here, part=b"zero")
    await here.append("a", [event(1)], (), b"one")
    store, kind = host.store(), here._runs.kind
    row = await store.get(kind, "a")
    assert row is not None
    logs = [await store.read_log(kind, "a", log, 0) for log in (0, 1)]
    assert await here.claim_call("a", "c1")
    await here.append("a", [event(2)], ["c1"])
    await store.step([Drop(kind, "a")])
    appends = [Append(kind, "a", log, 0, [entry for _, entry in entries]) for log, entries in enumerate(logs)]
    await store.step([Put(kind, "a", row.data, row.owner, holder=row.holder), *appends])
    with pytest.raises(JournalAway):
        await here.append("a", [event(3)])
    assert not await here.claim_call("a", "c2")
    await here.end("a")
    whole = [(1, event(1)), *enumerate(lost_events([]), 2)]
    async with asyncio.timeout(BOUND_S):
        assert await read_all(there, "a") == await read_all(here, "a") == whole


@requirement("CHAT-123", "CHAT-125")
async def test_a_run_between_two_turns_is_gone_on_with_and_all_its_readers_read_one_journal(host: Host) -> None:
    still, here, third = await host.process(), await host.process(), await host.process()
    await begun(still, part=b"zero")
    assert await still.claim_call("a", "c1")
    await still.append("a", [event(1)], ["c1"], b"one")
    there = asyncio.create_task(read_all(third, "a"))
    at_the_former = asyncio.create_task(read_all(still, "a"))
    before = asyncio.create_task(read_all(here, "a"))
    await settle()
    await host.lapse(still)
    async with host.looking(here) as found:
        abandoned = await found.get()
        assert (abandoned.name, abandoned.run_id, abandoned.parts) == ("a", "run", [b"zero", b"one"])
        assert abandoned.alone_s < 2.0
    behind = asyncio.create_task(read_all(here, "a", 1))
    # Its client has seen an event that a store has lost since.
    beyond = asyncio.create_task(read_all(third, "a", 7))
    await settle()
    assert not await here.claim_call("a", "c1"), "its former process has made this call"
    assert await here.claim_call("a", "c2")
    await here.append("a", [event(2)], ["c2"], b"two")
    # The former process has its place again, and nothing that it does counts.
    with pytest.raises(JournalAway):
        await still.append("a", [event(9)])
    assert not await still.claim_call("a", "c9")
    await still.end("a")
    await here.append("a", [DONE])
    await here.end("a")
    whole = [(1, event(1)), (2, event(2)), (3, DONE)]
    for read in (there, before, at_the_former, asyncio.create_task(read_all(still, "a"))):
        assert await read == whole
    assert await behind == await beyond == whole[1:]
    await here.aclose()
    await still.aclose()
    # Its key is kept for a day, because its client may have been away with its server.
    host.now += LOST_KEEP_S - 10
    assert await read_all(third, "a", 1) == whole[1:]


@requirement("CHAT-124", "CHAT-160")
@pytest.mark.parametrize("case", ["words were shown", "no parts", "a call has no result"])
async def test_a_run_that_cannot_be_gone_on_with_ends(host: Host, case: str) -> None:
    gone, here = await host.process(), await host.process()
    await begun(gone, part=b"" if case == "no parts" else b"zero")
    await gone.append("a", [event(1)], (), b"" if case == "no parts" else b"one")
    if case == "words were shown":
        await gone.append("a", [text("x")])
    if case == "a call has no result":
        assert await gone.claim_call("a", "c1")
    await host.lapse(gone)
    async with host.looking(here) as found:
        whole = await read_all(here, "a")
        assert found.empty()
    assert whole[-1][1] == lost_events(["c1"] if case == "a call has no result" else [])[-1]
    unknown = lost_events(["c1"])[0] in [encoded for _, encoded in whole]
    assert unknown == (case == "a call has no result")


@requirement("CHAT-126")
async def test_what_the_store_has_not_taken_is_shown_to_nobody_also_once_the_lease_is_over(file: Host) -> None:
    here = await file.process()
    await begun(here)
    async with asyncio.timeout(BOUND_S), here.follow("a", 0) as follower:
        with locked(file.path):
            adding = asyncio.create_task(here.append("a", [event(1)]))
            reading = asyncio.ensure_future(follower.next())
            done, _ = await asyncio.wait([reading, adding], timeout=3 * MARK_S)
            assert not done
        assert [entry.event for entry in await reading] == [event(1)]
        await adding
    await here.end("a")


@requirement("CHAT-126")
async def test_another_process_goes_on_behind_the_last_event_that_was_shown(file: Host) -> None:
    store = FailingStore(file.store(), ["step"])
    gone, here = await file.process(store=store), await file.process()
    await begun(gone, part=b"zero")
    await gone.append("a", [event(1)], (), b"one")
    async with gone.follow("a", 0) as follower:
        shown = [(entry.position, entry.event) for entry in await follower.next()]
        store.unavailable = True
        adding = asyncio.create_task(gone.append("a", [text("never shown")]))
        more = asyncio.ensure_future(follower.next())
        done, _ = await asyncio.wait([more, adding], timeout=3 * MARK_S)
        assert not done
        await file.lapse(gone)
        async with file.looking(here) as found:
            assert (await found.get()).parts == [b"zero", b"one"]
        adding.cancel()
        more.cancel()
    await here.append("a", [text("other"), DONE])
    await here.end("a")
    assert shown == [(1, event(1))]
    assert await read_all(here, "a") == [(1, event(1)), (2, text("other")), (3, DONE)]


@requirement("CHAT-138", "CHAT-111")
async def test_a_run_whose_notes_are_not_complete_is_not_gone_on_with(file: Host) -> None:
    gone, here = await file.process(), await file.process()
    await begun(gone, part=b"zero")
    assert await gone.claim_call("a", "c1")
    with closing(sqlite3.connect(file.path, isolation_level=None)) as other:
        assert other.execute("DELETE FROM log WHERE data = ?", (b"cc1",)).rowcount == 1
    await file.lapse(gone)
    async with file.looking(here) as found:
        assert await read_all(here, "a") == []
        assert found.empty()


@requirement("CHAT-114")
async def test_while_the_file_is_locked_nothing_begins_and_what_runs_waits(file: Host) -> None:
    journal = await file.process()
    await begun(journal)
    await begun(journal, "said")
    with locked(file.path):
        adding = asyncio.create_task(journal.append("a", [event(1), event(2), DONE]))
        with pytest.raises(NotAdmitted):
            await journal.claim_call("said", "c1")
        with pytest.raises(JournalAway):
            await journal.claim("b", "run", "digest", "bob")
        assert not adding.done()
    async with asyncio.timeout(BOUND_S):
        await adding
        await journal.end("a")
    whole = [(1, event(1)), (2, event(2)), (3, DONE)]
    assert await read_all(journal, "a") == await read_all(await file.process(), "a") == whole
    await begun(journal, "b")


@requirement("CHAT-114")
async def test_an_end_that_the_file_did_not_take_is_written_later(file: Host) -> None:
    journal, there = await file.process(), await file.process()
    await begun(journal)
    await journal.append("a", [DONE])
    with locked(file.path):
        await journal.end("a")
        assert await read_all(journal, "a") == [(1, DONE)]
    async with asyncio.timeout(BOUND_S):
        assert await read_all(there, "a") == [(1, DONE)]


@requirement("CHAT-115")
async def test_a_reader_at_another_process_keeps_a_run_alive(host: Host) -> None:
    here, there = await host.process(), await host.process()
    await begun(here)
    async with asyncio.timeout(BOUND_S):
        async with there.follow("a", 0):
            assert await here.wait_attended("a", 30)
            left = asyncio.create_task(here.wait_unattended("a", 0))
            done, _ = await asyncio.wait([left], timeout=0.1)
            assert not done
        left.cancel()
        host.now += 4
        await here.wait_unattended("a", 0)


@requirement("CHAT-129")
async def test_a_run_is_released_only_where_another_process_could_go_on_with_it(host: Host) -> None:
    ends, here = await host.process(), await host.process()
    for name in ("waits", "between", "said", "calls", "no parts"):
        await begun(ends, name, b"" if name == "no parts" else b"zero")
    await ends.append("between", [event(1)], (), b"one")
    await ends.append("said", [text("x")])
    assert await ends.claim_call("calls", "c1")
    released = [await ends.release(name) for name in ("waits", "between", "said", "calls", "no parts")]
    assert released == [True, True, False, False, False]
    # No lease has to lapse.
    async with host.looking(here) as found:
        assert {(await found.get()).name for _ in range(2)} == {"waits", "between"}
    await ends.append("calls", [event(1)], ["c1"], b"one")
    assert await ends.release("calls")
    reading = asyncio.create_task(read_all(ends, "between"))
    await here.append("between", [DONE])
    await here.end("between")
    assert await reading == [(1, event(1)), (2, DONE)]


@requirement("CHAT-128")
async def test_the_time_without_a_reader_counts_from_the_last_one_wherever_it_was(host: Host) -> None:
    here, there = await host.process(), await host.process()
    await begun(here)
    async with asyncio.timeout(BOUND_S), there.follow("a", 0):
        while not await here.wait_attended("a", 0.05):
            pass
    left = asyncio.create_task(here.wait_unattended("a", 20.0))
    host.now += 19
    done, _ = await asyncio.wait([left], timeout=0.1)
    assert not done
    left.cancel()
    host.now += 3
    async with asyncio.timeout(BOUND_S):
        await here.wait_unattended("a", 20.0)


@requirement("CHAT-76", "CHAT-91", "CHAT-120")
@pytest.mark.parametrize("kind", ["alone", "shared"])
async def test_events_of_ended_runs_are_bounded_and_who_holds_most_loses_first(host: Host, kind: str) -> None:
    bounds = replace(BOUNDS, run_bytes=50_000, total_bytes=200_000, max_runs=40)
    journal = await host.process(bounds) if kind == "shared" else alone(bounds)
    assert (await journal.claim("alice's", "run", "", "alice")).mine
    await journal.append("alice's", [event(1) + LARGE, event(1) + LARGE, DONE])
    await journal.end("alice's")
    for number in range(8):
        await begun(journal, f"b{number}")
        for each in [event(1) + LARGE] * 9 + [DONE]:
            await journal.append(f"b{number}", [each])
        await journal.end(f"b{number}")
    later = await host.process(bounds) if kind == "shared" else journal
    assert len(await read_all(later, "alice's")) == 3
    assert len(await read_all(later, "b7", 6)) == 4, "the newest events of a run stay"
    with pytest.raises(EventsGone):
        await read_all(later, "b7")
    with pytest.raises(EventsGone):
        await read_all(later, "b0")
    assert not (await later.claim("b0", "other", "", "bob")).mine, "its key stays"
    with pytest.raises(ShareRefused):
        for number in range(40):
            await later.claim(f"c{number}", "run", "", "bob")
    assert (await later.claim("alice's other", "run", "", "alice")).mine, "one owner cannot take all runs"


class Faulty:
    """A store where the operation *fail_at* fails, once: it was done all the same if *does*. With *held* operations
    wait for the event."""

    def __init__(self, store: Store, fail_at: int = -1, *, does: bool = False) -> None:
        self._store = store
        self.fail_at = fail_at
        self.does = does
        self.done = 0
        self.held: asyncio.Event | None = None
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("step", "get", "read_log"):
            return found

        async def faulty(*args: Any, **kwargs: Any) -> Any:
            at, self.done = self.done, self.done + 1
            if at == self.fail_at and not self.does:
                raise StoreUnavailable("tested")
            if self.held is not None:
                self.reached.set()
                await self.held.wait()
            result = await found(*args, **kwargs)
            if at == self.fail_at:
                raise StoreUnavailable("tested")
            return result

        return faulty


def faulty(host: Host, fail_at: int = -1, *, does: bool = False) -> Any:
    return Faulty(host.store(), fail_at, does=does)


@requirement("CHAT-161")
async def test_one_of_two_claims_of_a_call_at_once_wins(host: Host) -> None:
    journal = await host.process()
    await begun(journal)
    assert await asyncio.gather(*(journal.claim_call("a", "c1") for _ in range(3))) == [True, False, False]
    await journal.end("a")


@requirement("CHAT-161")
@pytest.mark.parametrize("does", [False, True])
async def test_a_claim_that_failed_with_another_one_lets_no_call_leave(host: Host, does: bool) -> None:
    store = faulty(host, does=does)
    journal = await host.process(store=store)
    await begun(journal)
    store.held = asyncio.Event()
    adding = asyncio.create_task(journal.append("a", [event(0)]))
    await store.reached.wait()
    # Both wait for the batch before them, and are written as one.
    store.fail_at = store.done
    claims = [asyncio.create_task(journal.claim_call("a", call)) for call in ("c1", "c2")]
    await settle()
    store.held.set()
    await adding
    for claim in claims:
        with pytest.raises(NotAdmitted):
            await claim
    assert await journal.claim_call("a", "c3")
    await journal.end("a")


@requirement("CHAT-162")
async def test_a_reader_that_joined_later_reads_nothing_twice_at_the_next_process(host: Host) -> None:
    ends, here = await host.process(), await host.process()
    await begun(ends, part=b"zero")
    await ends.append("a", [event(1), event(2)], (), b"one")
    reading = asyncio.create_task(read_all(ends, "a", 2))
    await settle()
    assert await ends.release("a")
    async with host.looking(here) as found:
        await found.get()
    await here.append("a", [DONE])
    await here.end("a")
    assert await reading == [(3, DONE)]


@requirement("CHAT-163")
@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("does", [False, True])
async def test_a_take_over_that_fails_halfway_is_finished(host: Host, goes_on: bool, does: bool) -> None:
    for fail_at in range(9):
        gone, there = await host.process(), await host.process()
        store = faulty(host, fail_at, does=does)
        here = await host.process(store=store)
        name = f"a{fail_at}"
        await begun(gone, name, part=b"zero")
        await gone.append(name, [event(1)], (), b"one")
        if not goes_on:
            assert await gone.claim_call(name, "c1")
        await host.lapse(gone)
        store.done = 0
        async with host.looking(here) as found:
            if goes_on:
                assert (await found.get()).parts == [b"zero", b"one"]
                await here.append(name, [DONE])
                await here.end(name)
            else:
                read = await until(
                    lambda: read_all(there, name), lambda found: found[-1][1].startswith(b"event: error")
                )
                assert read == [(1, event(1)), *enumerate(lost_events(["c1"]), 2)]
        for journal in (here, there):
            await journal.aclose()


@requirement("CHAT-163")
@pytest.mark.parametrize("does", [False, True])
async def test_a_run_loses_and_repeats_nothing_whichever_operation_fails(host: Host, does: bool) -> None:
    for fail_at in range(8):
        store, other = faulty(host, does=does), faulty(host, does=does)
        here, there = await host.process(store=store), await host.process(store=other)
        name = f"a{fail_at}"
        await begun(here, name, part=b"zero")
        async with asyncio.timeout(BOUND_S), there.follow(name, 0) as follower:
            store.done, store.fail_at, other.done, other.fail_at = 0, fail_at, 0, fail_at
            await here.append(name, [event(1)], (), b"one")
            with suppress(NotAdmitted):
                assert await here.claim_call(name, "c1")
            assert not await here.claim_call(name, "c1")
            await here.append(name, [event(2)], ["c1"], b"two")
            await here.append(name, [DONE])
            await here.end(name)
            read: list[bytes] = []
            while entries := await follower.next():
                read += [entry.event for entry in entries]
        assert read == [event(1), event(2), DONE]
        await until(lambda: SharedRuns(host.store(), "", BOUNDS).find(name), lambda found: (found or missing()).ended)
        for journal in (here, there):
            await journal.aclose()


def missing() -> KeptRun:
    raise AssertionError("the run is not there")


@requirement("CHAT-140")
@pytest.mark.parametrize("does", [False, True])
async def test_a_key_whose_claim_failed_is_free(host: Host, does: bool) -> None:
    journal, there = await host.process(store=faulty(host, 0, does=does)), await host.process()
    with pytest.raises(JournalAway):
        await journal.claim("a", "run", "digest", "bob")
    assert (await journal.claim("a", "run2", "digest", "bob")).mine
    await asyncio.sleep(0)
    claim = await there.claim("a", "run3", "digest", "bob")
    assert (claim.mine, claim.run_id) == (False, "run2")
    await journal.append("a", [DONE])
    await journal.end("a")


@requirement("CHAT-140")
async def test_claims_that_fail_while_the_store_is_unavailable_are_freed_by_one_task() -> None:
    store = FailingStore(refused=["step"])
    process = Process(store)
    journal = StoredJournal(SharedRuns(store, process.id, BOUNDS), process)
    tasks = len(asyncio.all_tasks())
    store.lost = True  # the first claim is in the store, and its caller does not know it
    with pytest.raises(JournalAway):
        await journal.claim("a0", "run", "digest", "bob")
    store.lost, store.unavailable = False, True
    for number in range(1, 100):
        with pytest.raises(JournalAway):
            await journal.claim(f"a{number}", "run", "digest", "bob")
    assert len(asyncio.all_tasks()) == tasks + 1
    store.unavailable = False
    await until(lambda: journal.find("a0"), lambda claim: claim is None)
    assert (await journal.claim("a99", "run2", "digest", "bob")).mine
    await journal.aclose()


@requirement("CHAT-140")
async def test_a_key_whose_claimant_has_left_is_free(host: Host) -> None:
    journal = await host.process()
    for moment in range(12):
        claiming = asyncio.create_task(journal.claim(f"a{moment}", "run", "digest", "bob"))
        for _ in range(moment):
            await asyncio.sleep(0)
        claiming.cancel()
        await asyncio.wait([claiming])
        if claiming.cancelled():
            assert (await journal.claim(f"a{moment}", "run2", "digest", "bob")).mine, moment


@requirement("CHAT-164")
async def test_a_process_that_ends_takes_no_run_back_and_leaves_what_it_has_not_begun(host: Host) -> None:
    ends, here = await host.process(), await host.process()
    for name in ("own", "others"):
        await begun(ends if name == "own" else here, name, part=b"zero")
    async with host.looking(ends) as found:
        assert await here.release("others")
        assert (await found.get()).name == "others"
    # It is not looking any more.
    assert await ends.release("own")
    async with asyncio.timeout(BOUND_S), host._processes[ends].running():
        await asyncio.sleep(2 * MARK_S)  # it would have been taken back by now
    await ends.aclose()
    async with host.looking(here) as found:
        assert {(await found.get()).name for _ in range(2)} == {"own", "others"}


@requirement("CHAT-164")
async def test_a_release_that_was_cancelled_ends_the_run_for_its_readers(host: Host) -> None:
    store = faulty(host)
    journal = await host.process(store=store)
    await begun(journal, part=b"zero")
    reading = asyncio.create_task(read_all(journal, "a"))
    await settle()
    store.held = asyncio.Event()
    releasing = asyncio.create_task(journal.release("a"))
    await store.reached.wait()
    releasing.cancel()
    await asyncio.wait([releasing])
    store.held.set()
    await journal.end("a")
    assert await reading == []


@requirement("CHAT-125")
async def test_readers_at_a_process_that_stood_still_go_on_though_its_run_adds_nothing(host: Host) -> None:
    still, here = await host.process(), await host.process()
    await begun(still, part=b"zero")
    reading = asyncio.create_task(read_all(still, "a"))
    await settle()
    await host.lapse(still)
    async with host.looking(here) as found:
        await found.get()
    await host._processes[still]._renew()
    await here.append("a", [DONE])
    await here.end("a")
    assert await reading == [(1, DONE)]
    await still.end("a")


@requirement("CHAT-118")
async def test_while_redis_is_unavailable_nothing_begins_and_what_runs_waits(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "yes") as server:
        link = RedisLink(read_url(server.url))
        store = RedisStore(link)
        process = Process(store)
        now = asyncio.get_running_loop().time
        journal = StoredJournal(SharedRuns(store, process.id, BOUNDS), process)
        async with asyncio.timeout(BOUND_S), link.running():
            await begun(journal)
            server.kill()
            began = now()
            with pytest.raises(JournalAway):
                await journal.claim("b", "run", "digest", "bob")
            with pytest.raises(NotAdmitted):
                await journal.claim_call("a", "c1")
            assert now() - began < 2.5
            adding = asyncio.create_task(journal.append("a", [event(1), DONE]))
            await asyncio.sleep(0.3)  # only time shows that nothing is added
            assert not adding.done()
            server.start()
            await adding
            await journal.end("a")
            assert await read_all(journal, "a") == [(1, event(1)), (2, DONE)]
            assert (await journal.claim("b", "run2", "digest", "bob")).mine
            await journal.aclose()
            await store.aclose()
