"""The journal over a store of runs: the contract of journals, and what is left of a run whose process is gone.

Two journals on one store stand for two processes; one that is not closed has been killed, or stands still.
"""

import asyncio
import sqlite3
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.storage.journal_contract import BOUND_S, JournalContract, event, read_all, text
from tests.support.locked_file import locked
from tests.support.requirement import requirement
from wicketgate.access.shares import ShareRefused
from wicketgate.engine.events import Done, encode
from wicketgate.engine.journal import Abandoned, EventsGone, Journal, JournalAway, lost_events
from wicketgate.errors import NotAdmitted
from wicketgate.models.provider import Usage
from wicketgate.storage.kept_journal import KeptJournal
from wicketgate.storage.memory_journal import JournalBounds, MemoryJournal
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.runs import RedisRunStore
from wicketgate.storage.run_store import LOST_KEEP_S, NewEvents, RunStore, StoreAway
from wicketgate.storage.sqlite_runs import SQLiteRunStore

BOUNDS = JournalBounds(total_bytes=2_000_000, run_bytes=200_000, unread_bytes=50_000, joins=False)
LEASE_S = 0.4
DONE = encode(Done("stop", Usage()))


class Host:
    """A store, a clock, and the processes that share them."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self._processes = 0

    def process(self, bounds: JournalBounds = BOUNDS) -> KeptJournal:
        self._processes += 1
        store = self.store(bounds, f"process {self._processes}")
        return KeptJournal(MemoryJournal(bounds, lambda: self.now), store, lease_s=LEASE_S)

    @abstractmethod
    def store(self, bounds: JournalBounds, replica: str) -> RunStore: ...

    def lapse(self, gone: KeptJournal | None = None) -> None:
        """Let every lease lapse; *gone* has been killed, or stands still, and renews none."""
        if gone is not None and gone._tending is not None:
            gone._tending.cancel()
        self.now += 7


class FileHost(Host):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "a.db"

    def store(self, bounds: JournalBounds, replica: str) -> RunStore:
        return SQLiteRunStore(self.path, bounds, lambda: self.now, replica, lease_s=6)


class RedisHost(Host):
    def __init__(self, link: RedisLink) -> None:
        super().__init__()
        self._link = link
        self._began = self.now

    def store(self, bounds: JournalBounds, replica: str) -> RunStore:
        return RedisRunStore(self._link, bounds, replica, 6, lambda: self.now - self._began)


@pytest.fixture
def file(tmp_path: Path) -> FileHost:
    return FileHost(tmp_path)


@pytest.fixture(params=["file", "redis"])
def host(request: pytest.FixtureRequest, tmp_path: Path, link: RedisLink) -> Host:
    return FileHost(tmp_path) if request.param == "file" else RedisHost(link)


class TestKeptJournal(JournalContract):
    @pytest.fixture(autouse=True)
    def _on(self, tmp_path: Path) -> None:
        self._path = tmp_path / "a.db"

    def journal(self) -> Journal:
        now = asyncio.get_running_loop().time
        return KeptJournal(MemoryJournal(BOUNDS, now), SQLiteRunStore(self._path, BOUNDS, now, "here"))


class TestKeptJournalInRedis(JournalContract):
    @pytest.fixture(autouse=True)
    def _on(self, link: RedisLink) -> None:
        self._link = link

    def journal(self) -> Journal:
        now = asyncio.get_running_loop().time
        return KeptJournal(MemoryJournal(BOUNDS, now), RedisRunStore(self._link, BOUNDS, "here"))


async def begun(journal: Journal, name: str = "a", part: bytes = b"") -> None:
    assert (await journal.claim(name, "run", "digest", "bob", part)).mine


@asynccontextmanager
async def looking(journal: KeptJournal) -> AsyncIterator[asyncio.Queue[Abandoned]]:
    """Takes runs over while it is open, and gives those that can be gone on with."""
    found: asyncio.Queue[Abandoned] = asyncio.Queue()

    async def look() -> None:
        while True:
            found.put_nowait(await journal.next_abandoned())

    task = asyncio.create_task(look())
    try:
        async with asyncio.timeout(BOUND_S):
            yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@requirement("CHAT-110")
async def test_what_ended_is_the_same_at_another_process_and_after_a_restart(host: Host) -> None:
    here, there = host.process(), host.process()
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
    anew = host.process()
    assert await read_all(anew, "a") == whole
    assert await read_all(anew, "a", 2) == await read_all(anew, "a", 3) == whole[2:]
    with pytest.raises(EventsGone):
        await read_all(anew, "a", 4)
    host.now += BOUNDS.keep_s + 1
    assert await anew.find("a") is None
    await begun(anew)
    await anew.aclose()


@requirement("CHAT-112")
async def test_a_run_whose_process_is_gone_ends_with_what_was_kept_and_one_error(host: Host) -> None:
    gone, here = host.process(), host.process()
    await begun(gone)
    assert await gone.claim_call("a", "c1")
    assert await gone.claim_call("a", "c2")
    await gone.append("a", [event(1)], ["c1"])
    following = asyncio.create_task(read_all(here, "a"))
    assert not (await here.claim("a", "other", "digest", "bob")).mine
    host.lapse(gone)
    whole = [(1, event(1)), *enumerate(lost_events(["c2"]), 2)]
    async with looking(here):
        assert await following == whole
    assert b'"c2"' in whole[1][1]
    assert whole[-1][1].startswith(b"event: error")
    assert await read_all(here, "a", 3) == whole[2:]
    # A day later its client is still not given a second run.
    host.now += LOST_KEEP_S - 10
    assert await read_all(host.process(), "a") == whole
    assert not (await here.claim("a", "other", "digest", "bob")).mine
    await here.aclose()


@requirement("CHAT-112")
async def test_a_run_that_was_over_when_its_process_ended_is_not_lost(host: Host) -> None:
    gone, here = host.process(), host.process()
    await begun(gone)
    await gone.append("a", [event(1), DONE])
    host.lapse(gone)
    async with looking(here):
        assert await read_all(here, "a") == [(1, event(1)), (2, DONE)]
    await here.aclose()


@requirement("CHAT-111")
@pytest.mark.parametrize("kept", [True, False])
async def test_a_call_is_claimed_once(host: Host, kept: bool) -> None:
    journal: Journal = host.process() if kept else MemoryJournal(BOUNDS, lambda: 0.0)
    await begun(journal)
    assert [await journal.claim_call("a", call) for call in ("c1", "c1", "c2\ud800")] == [True, False, True]
    await journal.append("a", [event(1)], ["c1"])
    assert not await journal.claim_call("a", "c1"), "a result gives no claim back"
    await journal.end("a")
    await journal.aclose()


@requirement("CHAT-111")
async def test_a_claim_is_on_the_disk_before_the_call_leaves(file: FileHost) -> None:
    journal = file.process()
    await begun(journal)
    assert await journal.claim_call("a", "c1")
    with closing(sqlite3.connect(file.path)) as disk:
        assert disk.execute("SELECT call, completed FROM run_call").fetchall() == [(b"c1", 0)]
    claims = journal._store._claims._disk  # type: ignore[attr-defined]
    assert claims.execute("PRAGMA synchronous").fetchone() == (2,)
    await journal.aclose()


@requirement("CHAT-113")
async def test_a_process_that_stood_still_adds_nothing_to_a_run_that_was_given_up(host: Host) -> None:
    still, here = host.process(), host.process()
    await begun(still)
    await still.append("a", [event(1)])
    host.lapse(still)
    async with looking(here):
        whole = await read_all(here, "a")
    assert not await still.claim_call("a", "c1")
    with pytest.raises(JournalAway):
        await still.append("a", [event(2)])
    assert not await still.claim_call("a", "c1")
    await still.end("a")
    await still.aclose()
    assert await read_all(here, "a") == whole == [(1, event(1)), *enumerate(lost_events([]), 2)]
    await here.aclose()


@requirement("CHAT-113", "CHAT-124")
async def test_a_process_keeps_its_own_runs_and_those_of_a_process_that_is_back_in_time(host: Host) -> None:
    here, there = host.process(), host.process()
    await begun(here)
    async with looking(there):
        # Every lease lapses, as when the store was away; their holders renew them before the second look.
        host.lapse()
        await asyncio.sleep(0.2)
        await here.append("a", [event(1), DONE])
        await here.end("a")
        assert await read_all(there, "a") == [(1, event(1)), (2, DONE)]
    await here.aclose()
    await there.aclose()


@requirement("CHAT-123", "CHAT-125")
async def test_a_run_between_two_turns_is_gone_on_with_and_all_its_readers_read_one_journal(host: Host) -> None:
    still, here, third = host.process(), host.process(), host.process()
    await begun(still, part=b"zero")
    await still.append("a", [event(1)], (), b"one")
    there = asyncio.create_task(read_all(third, "a"))
    at_the_former = asyncio.create_task(read_all(still, "a"))
    before = asyncio.create_task(read_all(here, "a"))
    await asyncio.sleep(0.01)
    host.lapse(still)
    async with looking(here) as found:
        abandoned = await found.get()
        assert (abandoned.name, abandoned.run_id, abandoned.parts) == ("a", "run", [b"zero", b"one"])
        assert abandoned.alone_s == 0.0
    behind = asyncio.create_task(read_all(here, "a", 1))
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
    assert await behind == whole[1:]
    await here.aclose()
    await still.aclose()
    # Its key is kept for a day, because its client may have been away with its server.
    host.now += LOST_KEEP_S - 10
    assert await read_all(third, "a", 1) == whole[1:]
    await third.aclose()


@requirement("CHAT-124")
@pytest.mark.parametrize("case", ["words were shown", "no parts", "a call has no result", "a reader has seen more"])
async def test_a_run_that_cannot_be_gone_on_with_ends(host: Host, case: str) -> None:
    gone, here = host.process(), host.process()
    await begun(gone, part=b"" if case == "no parts" else b"zero")
    await gone.append("a", [event(1)], (), b"" if case == "no parts" else b"one")
    if case == "words were shown":
        await gone.append("a", [text("x")])
    if case == "a call has no result":
        assert await gone.claim_call("a", "c1")
    host.lapse(gone)
    after = 7 if case == "a reader has seen more" else 0
    async with looking(here) as found:
        whole = await read_all(here, "a", after)
        assert found.empty()
    assert whole[-1][1] == lost_events(["c1"] if case == "a call has no result" else [])[-1]
    unknown = lost_events(["c1"])[0] in [encoded for _, encoded in whole]
    assert unknown == (case == "a call has no result")
    await here.aclose()


@requirement("CHAT-126")
async def test_what_the_store_has_not_taken_is_shown_to_nobody_also_once_the_lease_is_over(file: FileHost) -> None:
    here = file.process()
    await begun(here)
    async with asyncio.timeout(BOUND_S), here.follow("a", 0) as follower:
        with locked(file.path):
            adding = asyncio.create_task(here.append("a", [event(1)]))
            reading = asyncio.ensure_future(follower.next())
            done, _ = await asyncio.wait([reading, adding], timeout=3 * LEASE_S)
            assert not done
        assert [entry.event for entry in await reading] == [event(1)]
        await adding
    await here.end("a")
    await here.aclose()


class _CutOff(SQLiteRunStore):
    """A store that a process cannot reach while *away*."""

    away = False

    async def append(self, events: Mapping[str, NewEvents]) -> Sequence[str]:
        if self.away:
            raise StoreAway
        return await super().append(events)


@requirement("CHAT-126")
async def test_another_process_goes_on_behind_the_last_event_that_was_shown(file: FileHost) -> None:
    store = _CutOff(file.path, BOUNDS, lambda: file.now, "gone", lease_s=6)
    gone, here = KeptJournal(MemoryJournal(BOUNDS, lambda: file.now), store, lease_s=LEASE_S), file.process()
    await begun(gone, part=b"zero")
    await gone.append("a", [event(1)], (), b"one")
    async with gone.follow("a", 0) as follower:
        shown = [(entry.position, entry.event) for entry in await follower.next()]
        store.away = True
        adding = asyncio.create_task(gone.append("a", [text("never shown")]))
        more = asyncio.ensure_future(follower.next())
        done, _ = await asyncio.wait([more, adding], timeout=3 * LEASE_S)
        assert not done
        file.lapse(gone)
        async with looking(here) as found:
            assert (await found.get()).parts == [b"zero", b"one"]
        adding.cancel()
        more.cancel()
    await here.append("a", [text("other"), DONE])
    await here.end("a")
    assert shown == [(1, event(1))]
    assert await read_all(here, "a") == [(1, event(1)), (2, text("other")), (3, DONE)]
    await here.aclose()


@requirement("CHAT-114")
async def test_while_the_file_is_locked_nothing_begins_and_what_runs_waits(file: FileHost) -> None:
    journal = file.process()
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
    assert await read_all(journal, "a") == await read_all(file.process(), "a") == whole
    await begun(journal, "b")
    await journal.aclose()


@requirement("CHAT-114")
async def test_an_end_that_the_file_did_not_take_is_written_later(file: FileHost) -> None:
    journal, there = file.process(), file.process()
    await begun(journal)
    await journal.append("a", [DONE])
    with locked(file.path):
        await journal.end("a")
        assert await read_all(journal, "a") == [(1, DONE)]
    async with asyncio.timeout(BOUND_S):
        assert await read_all(there, "a") == [(1, DONE)]
    await journal.aclose()


@requirement("CHAT-115")
async def test_a_reader_at_another_process_keeps_a_run_alive(host: Host) -> None:
    here, there = host.process(), host.process()
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
    await here.aclose()
    await there.aclose()


@requirement("CHAT-128")
async def test_the_time_without_a_reader_counts_from_the_last_one_wherever_it_was(tmp_path: Path) -> None:
    now = asyncio.get_running_loop().time
    here, there = (
        KeptJournal(MemoryJournal(BOUNDS, now), SQLiteRunStore(tmp_path / "a.db", BOUNDS, now, name), 0.3)
        for name in ("here", "there")
    )
    await begun(here)
    left = asyncio.create_task(here.wait_unattended("a", 0.1))
    async with there.follow("a", 0):
        done, _ = await asyncio.wait([left], timeout=0.6)
        assert not done
    until = now() + 0.1
    async with asyncio.timeout(BOUND_S):
        await left
    assert now() >= until
    await here.end("a")
    await here.aclose()
    await there.aclose()


async def test_a_file_that_was_removed_is_begun_anew_with_the_runs_of_this_process(file: FileHost) -> None:
    journal = file.process()
    await begun(journal)
    assert await journal.claim_call("a", "c1")
    await journal.append("a", [event(1)])
    for each in file.path.parent.iterdir():
        each.unlink()
    assert not await journal.claim_call("a", "c1")
    await journal.append("a", [event(2), DONE], ["c1"])
    await journal.end("a")
    assert await read_all(journal, "a") == [(1, event(1)), (2, event(2)), (3, DONE)]
    anew = file.process()
    assert await read_all(anew, "a", 1) == [(2, event(2)), (3, DONE)]
    with pytest.raises(EventsGone):
        await read_all(anew, "a")
    await journal.aclose()


@requirement("CHAT-76", "CHAT-91")
async def test_the_file_is_bounded_and_who_holds_most_loses_first(file: FileHost) -> None:
    bounds = replace(BOUNDS, run_bytes=50_000, total_bytes=200_000, max_runs=20)
    journal = file.process(bounds)
    large = event(1) + b" " * 10_000
    assert (await journal.claim("alice's", "run", "", "alice")).mine
    await journal.append("alice's", [large, large, DONE])
    await journal.end("alice's")
    for number in range(8):
        await begun(journal, f"b{number}")
        await journal.append(f"b{number}", [large] * 9 + [DONE])
        await journal.end(f"b{number}")
    with closing(sqlite3.connect(file.path)) as disk:
        (held,) = disk.execute("SELECT sum(length(event)) FROM run_event").fetchone()
        (said,) = disk.execute("SELECT sum(held_bytes) FROM run").fetchone()
    assert held == said <= bounds.total_bytes + bounds.run_bytes
    await journal.aclose()
    anew = file.process(bounds)
    assert len(await read_all(anew, "alice's")) == 3
    assert await read_all(anew, "b0", 9) == [(10, DONE)], "the end stays"
    with pytest.raises(ShareRefused):
        for number in range(20):
            await anew.claim(f"c{number}", "run", "", "bob")
    await anew.aclose()


class _HeldUp(SQLiteRunStore):
    """Cannot end the run ``a`` at first, and takes its time afterwards."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, BOUNDS, lambda: 1_000_000.0, "here")
        self.tried = self.begun = False
        self.entered, self.go = asyncio.Event(), asyncio.Event()

    async def end(self, name: str) -> None:
        if name == "a" and not self.tried:
            self.tried = True
            raise StoreAway
        if name == "a":
            self.entered.set()
            await self.go.wait()
        await super().end(name)


@requirement("CHAT-114")
async def test_a_run_that_ends_while_another_is_ended_late_takes_no_lease_along(tmp_path: Path) -> None:
    store = _HeldUp(tmp_path / "a.db")
    journal = KeptJournal(MemoryJournal(BOUNDS, lambda: 1_000_000.0), store, lease_s=LEASE_S)
    async with asyncio.timeout(BOUND_S):
        for name in ("a", "b", "c"):
            await begun(journal, name)
            await journal.append(name, [DONE])
        await journal.end("a")
        await store.entered.wait()
        await journal.end("b")
        store.go.set()
        while "a" in journal._live:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert journal._tending is not None
        assert not journal._tending.done()
        await journal.aclose()


@requirement("CHAT-129")
async def test_a_run_is_released_only_where_another_process_could_go_on_with_it(host: Host) -> None:
    ends, here = host.process(), host.process()
    for name in ("waits", "between", "said", "calls", "no parts"):
        await begun(ends, name, b"" if name == "no parts" else b"zero")
    await ends.append("between", [event(1)], (), b"one")
    await ends.append("said", [text("x")])
    assert await ends.claim_call("calls", "c1")
    released = [await ends.release(name) for name in ("waits", "between", "said", "calls", "no parts")]
    assert released == [True, True, False, False, False]
    # No lease has to lapse.
    async with looking(here) as found:
        assert {(await found.get()).name for _ in range(2)} == {"waits", "between"}
    await ends.append("calls", [event(1)], ["c1"], b"one")
    assert await ends.release("calls")
    reading = asyncio.create_task(read_all(ends, "between"))
    await here.append("between", [DONE])
    await here.end("between")
    assert await reading == [(1, event(1)), (2, DONE)]
    for journal in (ends, here):
        await journal.aclose()
