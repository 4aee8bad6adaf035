"""Runs in a Redis that dies, stands still, forgets, or is full of them."""

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.storage.journal_contract import BOUND_S, event, read_all
from tests.storage.run_store_contract import DONE, entries
from tests.storage.test_redis_link import linked, until
from tests.storage.test_redis_stores import keys_without_an_end
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from wicketgate.access.shares import ShareRefused
from wicketgate.engine.journal import EventsGone, JournalAway
from wicketgate.errors import NotAdmitted
from wicketgate.storage.kept_journal import KeptJournal
from wicketgate.storage.memory_journal import JournalBounds, MemoryJournal
from wicketgate.storage.redis.client import WAIT_S, RedisLink
from wicketgate.storage.redis.runs import RedisRunStore
from wicketgate.storage.run_store import NewEvents, Part, RunStore, StoreAway

BOUNDS = JournalBounds(total_bytes=2_000_000, run_bytes=200_000, unread_bytes=50_000, joins=False)


def journal_of(store: RunStore, bounds: JournalBounds = BOUNDS) -> KeptJournal:
    return KeptJournal(MemoryJournal(bounds, asyncio.get_running_loop().time), store, lease_s=0.4)


async def kept(store: RunStore, name: str, *events: bytes, owner: str = "bob") -> None:
    """A run that has ended."""
    assert await store.claim(name, "run", "digest", owner) is None
    assert await store.append({name: NewEvents(entries(1, *events, DONE), [])}) == []
    await store.end(name)


@requirement("CHAT-117", "CHAT-118", "CHAT-119")
async def test_while_redis_is_away_nothing_begins_and_what_runs_waits(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always"))
        link, elsewhere = [await stack.enter_async_context(linked(server.url)) for _ in range(2)]
        ahead = 0.0
        store = RedisRunStore(link, BOUNDS, "here", ahead_s=lambda: ahead)
        there = RedisRunStore(elsewhere, BOUNDS, "there", ahead_s=lambda: ahead)
        journal = journal_of(store)
        for name in ("a", "b", "ends"):
            assert (await journal.claim(name, "run", "digest", "bob")).mine
        assert await journal.claim_call("a", "c1")
        await journal.append("ends", [DONE])
        server.kill()
        adding = asyncio.create_task(journal.append("a", [event(1), event(2), DONE], ["c1"]))
        with pytest.raises(NotAdmitted):
            await journal.claim_call("b", "c2")
        with pytest.raises(JournalAway):
            await journal.claim("new", "run", "digest", "bob")
        await journal.end("ends")
        assert await read_all(journal, "ends") == [(1, DONE)]
        assert not adding.done()
        with pytest.raises(StoreAway):
            await there.find("a")
        # It is away for longer than a lease, and back: nobody gives up what its process goes on with.
        ahead += 60
        server.start()
        await until(lambda: not link.trouble and not elsewhere.trouble)
        found = await there.find("b")
        assert found is not None
        assert not found.lapsed
        assert (await there.lapsed(9), await there.take("b")) == ({}, None)
        await adding
        await journal.end("a")
        whole = [(1, event(1)), (2, event(2)), (3, DONE)]
        assert await read_all(journal, "a") == await read_all(journal_of(there), "a") == whole
        while (run := await there.find("ends")) is not None and not run.ended:
            await asyncio.sleep(0.02)
        assert [await journal.claim_call("b", "c1") for _ in range(2)] == [True, False]
        assert (await journal.claim("new", "run", "digest", "bob")).mine
        await journal.aclose()


@requirement("CHAT-118")
async def test_runs_wait_for_a_redis_that_stands_still_and_requests_do_not(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link:
            journal = journal_of(RedisRunStore(link, BOUNDS, "here"))
            assert (await journal.claim("a", "run", "digest", "bob")).mine
            assert server.process is not None
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                adding = asyncio.create_task(journal.append("a", [event(1), DONE]))
                for _ in range(200):
                    with pytest.raises(JournalAway):
                        await journal.claim("b", "run", "digest", "bob")
                assert link.measures.waits.total_s < 20 * WAIT_S
                assert not adding.done()
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            async with asyncio.timeout(BOUND_S):
                await adding
            await journal.end("a")
            await journal.aclose()
            there = journal_of(RedisRunStore(link, BOUNDS, "there"))
            assert await read_all(there, "a") == [(1, event(1)), (2, DONE)]


@requirement("CHAT-118")
async def test_a_redis_that_takes_no_writes_and_answers_reads_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link, linked(server.url) as elsewhere:
            store = RedisRunStore(link, BOUNDS, "here")
            assert await store.claim("a", "run", "digest", "bob") is None
            await elsewhere.run(lambda client: client.config_set("min-replicas-to-write", 1))
            for _ in range(5):
                with pytest.raises(StoreAway):
                    await store.append({"a": NewEvents(entries(1, event(1)), [])})
                assert await store.find("a") is not None
            assert caplog.text.count("runs cannot be kept") == 1
            await elsewhere.run(lambda client: client.config_set("min-replicas-to-write", 0))
            assert await store.append({"a": NewEvents(entries(1, event(1)), [])}) == []
            await store.aclose()


@requirement("CHAT-118")
async def test_a_key_whose_claim_was_not_acknowledged_can_be_taken_again(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link, linked(server.url) as elsewhere:
            store, there = RedisRunStore(link, BOUNDS, "here"), RedisRunStore(elsewhere, BOUNDS, "there")
            await store.find("a")
            assert server.process is not None
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                with pytest.raises(StoreAway):
                    await store.claim("a", "first", "digest", "bob")
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            # Redis may have taken it all the same. No run goes on under it, so it is not known here.
            await until(lambda: not link.trouble and not elsewhere.trouble)
            assert await store.find("a") is None
            assert await store.claim("a", "second", "digest", "bob") is None
            found = await there.find("a")
            assert found is not None
            assert found.run_id == "second"
            await store.aclose()


@requirement("CHAT-117")
async def test_runs_that_redis_has_lost_are_kept_anew_and_their_claims_stay(link: RedisLink) -> None:
    store, there = RedisRunStore(link, BOUNDS, "here"), RedisRunStore(link, BOUNDS, "there")
    assert await store.claim("a", "run", "digest", "bob", b"zero") is None
    assert await store.claim_call("a", "c1")
    await store.append({"a": NewEvents(entries(1, event(1)), [], [Part(1, 1, b"one")])})

    async def lose(client: Any) -> None:
        async for name in client.scan_iter(f"{link.names.space}:*"):
            await client.delete(name)

    await link.run(lose)
    assert await there.find("a") is None
    assert not await store.claim_call("a", "c1")
    await link.run(lose)
    assert await store.append({"a": NewEvents(entries(2, event(2)), [], [Part(2, 2, b"two")])}) == []
    await link.run(lose)
    assert await store.renew() == []
    await store.append({"a": NewEvents(entries(3, event(3), DONE), ["c1"])})
    await store.end("a")
    read = await there.read("a", 2)
    assert read is not None
    assert (read[0].first, read[0].last, read[0].ended, read[0].lost) == (3, 4, True, False)
    assert read[1] == entries(3, event(3), DONE)


@requirement("CHAT-120")
async def test_a_run_keeps_its_latest_events_however_many_come_at_once(link: RedisLink) -> None:
    store = RedisRunStore(link, BOUNDS, "here")
    assert await store.claim("a", "run", "digest", "bob") is None
    large = [event(number) + b" " * 1_000 for number in range(1, 3_001)]
    assert await store.append({"a": NewEvents(entries(1, *large, DONE), [])}) == []
    found = await store.find("a")
    assert found is not None
    assert (found.last, 180 < found.last - found.first < 200) == (3_001, True)
    assert await events_of(link, "a") == 1 + found.last - found.first
    read: list[bytes] = []
    while part := await store.read("a", found.first - 1 + len(read)):
        assert sum(len(entry.event) for entry in part[1]) < 40_000
        read += [entry.event for entry in part[1]]
        if not part[1]:
            break
    assert read == [*large, DONE][found.first - 1 :]
    # A gap, as a journal leaves that dropped what Redis could not take.
    await store.append({"a": NewEvents(entries(5_000, event(1)), [])})
    found = await store.find("a")
    assert found is not None
    assert (found.first, found.last) == (5_000, 5_000)


@requirement("CHAT-120", "CHAT-91")
async def test_all_runs_are_bounded_and_who_holds_most_loses_first(link: RedisLink) -> None:
    bounds = replace(BOUNDS, run_bytes=50_000, total_bytes=200_000, max_runs=20)
    here, there = RedisRunStore(link, bounds, "here"), RedisRunStore(link, bounds, "there")
    large = event(1) + b" " * 10_000
    await kept(here, "alice's", large, large, owner="alice")
    for number in range(8):
        await kept((here, there)[number % 2], f"b{number}", *([large] * 4))
    assert await here.claim("new", "run", "", "carol") is None
    journal = journal_of(here, bounds)
    assert len(await read_all(journal, "alice's")) == 3
    assert await read_all(journal, "b0", 4) == [(5, DONE)], "the end stays"
    with pytest.raises(EventsGone):
        await read_all(journal, "b0")
    assert len(await read_all(journal, "b7")) == 5
    with pytest.raises(ShareRefused):
        for number in range(20):
            await there.claim(f"c{number}", "run", "", "bob")
    await here.claim("carol's", "run", "", "carol")
    await journal.aclose()


@requirement("CHAT-120", "OPS-163")
async def test_a_run_is_forgotten_a_while_after_its_end_and_gives_its_place(link: RedisLink) -> None:
    ahead = 0.0
    store = RedisRunStore(link, replace(BOUNDS, max_runs=5), "here", ahead_s=lambda: ahead)
    for number in range(4):
        await kept(store, f"b{number}", event(1))
    with pytest.raises(ShareRefused):
        await store.claim("b4", "run", "", "bob")
    assert await store.find("b4") is None
    ahead = BOUNDS.keep_s + 1
    assert await store.find("b0") is None
    assert await store.claim("b4", "run", "", "bob") is None
    assert await store.claim("b0", "second run", "", "bob") is None
    assert await keys_without_an_end(link) == []


@requirement("EXEC-56")
async def test_steps_of_many_runs_at_once_and_in_turn_are_kept_in_order(link: RedisLink) -> None:
    store = RedisRunStore(link, BOUNDS, "here")
    names = [f"r{number}" for number in range(250)]
    assert await asyncio.gather(*(store.claim(name, name, "", "bob") for name in names)) == [None] * 250
    assert all(await asyncio.gather(*(store.claim_call(name, "c1") for name in names)))
    for position in (1, 2):
        assert await store.append({name: NewEvents(entries(position, event(position)), []) for name in names}) == []
    assert await store.renew() == []
    for name in names[::50]:
        read = await store.read(name, 0)
        assert read is not None
        assert read[1] == entries(1, event(1), event(2))


async def events_of(link: RedisLink, name: str) -> int:
    return int(await link.run(lambda client: client.xlen(link.names.key("run", name, "events"))))
