"""The journal in memory: the contract, and its bounds in bytes, number and time."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.journal_contract import BOUND_S, JournalContract, event, read_all, text
from tests.support.requirement import requirement
from wicketgate.access.shares import ShareRefused
from wicketgate.engine.events import encode, join_texts
from wicketgate.engine.journal import Entry, EventsGone, Follower, Journal
from wicketgate.models.provider import TextDelta
from wicketgate.storage.memory_journal import JournalBounds, MemoryJournal

BOUNDS = JournalBounds(total_bytes=2_000_000, run_bytes=200_000, unread_bytes=50_000)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestMemoryJournal(JournalContract):
    def journal(self) -> Journal:
        return MemoryJournal(BOUNDS, asyncio.get_running_loop().time)


def large(number: int) -> bytes:
    return event(number) + b" " * 10_000


async def test_a_run_is_forgotten_a_while_after_its_end_and_its_name_is_new_again() -> None:
    clock = Clock()
    journal = MemoryJournal(replace(BOUNDS, keep_s=120), clock)
    await journal.claim("a", "first", "", "bob")
    await journal.append("a", [event(1)])
    clock.now += 10_000
    assert await journal.find("a") is not None, "a run that goes on is kept"
    await journal.end("a")
    clock.now += 119
    assert len(await read_all(journal, "a")) == 1
    clock.now += 1
    assert await journal.find("a") is None
    with pytest.raises(EventsGone):
        await read_all(journal, "a")
    assert (await journal.claim("a", "second", "", "bob")).mine
    assert journal.held_bytes == 0
    await journal.aclose()


async def test_without_readers_a_run_keeps_its_latest_events_and_its_beginning_is_gone() -> None:
    journal = MemoryJournal(BOUNDS, Clock())
    await journal.claim("a", "run", "", "bob")
    for number in range(1, 101):
        await journal.append("a", [large(number)])
        assert journal.held_bytes <= BOUNDS.run_bytes
    await journal.end("a")
    with pytest.raises(EventsGone):
        await read_all(journal, "a")
    assert [position for position, _ in await read_all(journal, "a", 90)] == list(range(91, 101))
    await journal.aclose()


@requirement("CHAT-76")
async def test_a_run_waits_for_a_reader_that_has_too_much_left_to_read() -> None:
    journal = MemoryJournal(BOUNDS, Clock())
    await journal.claim("a", "run", "", "bob")
    appended = 0

    async def run() -> None:
        nonlocal appended
        for number in range(1, 101):
            await journal.append("a", [large(number)])
            appended = number
        await journal.end("a")

    async with asyncio.timeout(BOUND_S), journal.follow("a", 0) as follower:
        running = asyncio.create_task(run())
        for _ in range(100):
            await asyncio.sleep(0)
        assert 4 <= appended <= 7
        read = [entry async for entry in _entries(follower)]
        await running
    assert [entry.event for entry in read] == [large(number) for number in range(1, 101)]
    await journal.aclose()


async def _entries(follower: Follower) -> AsyncGenerator[Entry, None]:
    while entries := await follower.next():
        for entry in entries:
            yield entry


async def test_a_reader_that_leaves_lets_the_run_go_on() -> None:
    journal = MemoryJournal(BOUNDS, Clock())
    await journal.claim("a", "run", "", "bob")
    async with asyncio.timeout(BOUND_S):
        async with journal.follow("a", 0):
            appending = asyncio.create_task(journal.append("a", [large(number) for number in range(50)]))
            done, _ = await asyncio.wait([appending], timeout=0.02)
            assert not done
        await appending
    await journal.aclose()


@requirement("CHAT-76")
async def test_all_runs_together_stay_within_the_total_and_the_oldest_that_ended_gives_first() -> None:
    journal = MemoryJournal(replace(BOUNDS, total_bytes=300_000), Clock())
    for name in ("old", "new", "live"):
        await journal.claim(name, name, "", "bob")
        for number in range(15):
            await journal.append(name, [large(number)])
            assert journal.held_bytes <= 300_000
        if name != "live":
            await journal.end(name)
    with pytest.raises(EventsGone):
        await read_all(journal, "old")
    assert len(await read_all(journal, "old", 14)) == 1, "the end stays"
    assert await journal.find("old") is not None, "and so does the name: its run must not run again"
    await journal.end("live")
    assert len(await read_all(journal, "live")) == 15
    await journal.aclose()


async def test_more_runs_than_can_be_kept_are_refused() -> None:
    journal = MemoryJournal(replace(BOUNDS, total_bytes=200_000), Clock())
    for number in range(4):
        await journal.claim(str(number), "", "", "bob")
    with pytest.raises(ShareRefused):
        await journal.claim("one too many", "", "", "bob")
    await journal.end("0")
    assert (await journal.claim("now", "", "", "bob")).mine
    crowded = MemoryJournal(replace(BOUNDS, max_runs=2), Clock())
    for name in ("a", "b"):
        await crowded.claim(name, "", "", "bob")
        await crowded.end(name)
    with pytest.raises(ShareRefused):
        await crowded.claim("c", "", "", "bob")
    await journal.aclose()
    await crowded.aclose()


@requirement("CHAT-91")
async def test_one_owner_cannot_push_the_events_of_another_out() -> None:
    journal = MemoryJournal(replace(BOUNDS, total_bytes=300_000), Clock())
    await journal.claim("alice's", "run", "", "alice")
    for number in range(10):
        await journal.append("alice's", [large(number)])
    await journal.end("alice's")
    for run in range(30):
        await journal.claim(f"bob's {run}", "run", "", "bob")
        for number in range(10):
            await journal.append(f"bob's {run}", [large(number)])
            assert journal.held_bytes <= 300_000
        await journal.append(f"bob's {run}", [event(10)])
        if run % 2:
            await journal.end(f"bob's {run}")
            await journal.end(f"bob's {run - 1}")
    assert len(await read_all(journal, "alice's")) == 10
    await journal.aclose()


@requirement("CHAT-91")
async def test_one_owner_cannot_take_all_runs_that_can_be_kept() -> None:
    journal = MemoryJournal(replace(BOUNDS, max_runs=10, total_bytes=20_000_000), Clock())
    for number in range(8):
        await journal.claim(f"bob's {number}", "", "", "bob")
        await journal.end(f"bob's {number}")
    with pytest.raises(ShareRefused) as refused:
        await journal.claim("bob's ninth", "", "", "bob")
    assert refused.value.scope == "actor"
    assert (await journal.claim("alice's", "", "", "alice")).mine
    few = MemoryJournal(replace(BOUNDS, total_bytes=10 * BOUNDS.unread_bytes), Clock())
    for number in range(8):
        await few.claim(f"bob's {number}", "", "", "bob")
    with pytest.raises(ShareRefused):
        await few.claim("bob's ninth", "", "", "bob")
    assert (await few.claim("alice's", "", "", "alice")).mine
    small = MemoryJournal(replace(BOUNDS, total_bytes=8_192, unread_bytes=8), Clock())
    for number in range(7):
        await small.claim(f"bob's {number}", "", "", "bob")
        await small.end(f"bob's {number}")
    with pytest.raises(ShareRefused):  # the end of each run is kept, so runs are bounded by the bytes too
        await small.claim("bob's eighth", "", "", "bob")
    for each in (journal, few, small):
        await each.aclose()


@requirement("CHAT-91")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)), max_size=120))
async def test_the_counts_of_owners_are_those_of_their_runs(steps: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    journal = MemoryJournal(replace(BOUNDS, total_bytes=300_000, keep_s=30), clock)
    live: set[str] = set()
    for owner, number, what in steps:
        name = f"{owner}{number}"
        clock.now += 1
        if name not in live:
            try:
                if (await journal.claim(name, "run", "", owner)).mine:
                    live.add(name)
            except ShareRefused:
                pass
        elif what:
            await journal.append(name, [large(number)] * what)
        else:
            await journal.end(name)
            live.discard(name)
        runs = list(journal._runs.values())
        assert journal.held_bytes == sum(run.held_bytes for run in runs) <= 300_000
        assert {owner: (owned.runs, owned.held_bytes) for owner, owned in journal._owners.items()} == {
            owner: (len(own), sum(run.held_bytes for run in own))
            for owner in {run.owner for run in runs}
            if (own := [run for run in runs if run.owner == owner])
        }
    await journal.aclose()


async def test_texts_are_joined_only_when_much_is_unread() -> None:
    journal = MemoryJournal(BOUNDS, Clock())
    await journal.claim("a", "run", "", "bob")
    await journal.append("a", [text("x")] * 20)
    assert len(await read_first(journal)) == 20
    await journal.append("a", [text("y")] * 5_000)
    await journal.end("a")
    entries = await read_all(journal, "a")
    assert len(entries) < 200
    said = b"".join(encoded for _, encoded in entries)
    assert (said.count(b"x") - said.count(b"text-delta"), said.count(b"y")) == (20, 5_000)
    await journal.aclose()


async def read_first(journal: Journal) -> list[bytes]:
    async with journal.follow("a", 0) as follower:
        return [entry.event for entry in await follower.next()]


@given(st.text(), st.text())
def test_two_texts_joined_say_what_both_said(first: str, second: str) -> None:
    joined = join_texts(encode(TextDelta(first)), encode(TextDelta(second)))
    assert joined is not None
    head, _, data = joined.partition(b"data: ")
    assert head == b"event: text-delta\n"
    assert json.loads(data) == {"content": first + second}
