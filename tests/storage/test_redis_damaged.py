"""Rows of runs in Redis that another program has changed."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.storage.test_journal import BOUND_S, event, read_all
from tests.support.requirement import requirement
from wicketgate.engine.journal import EventsGone, JournalAway
from wicketgate.storage.journal import StoredJournal
from wicketgate.storage.process import Process
from wicketgate.storage.redis.client import PREFIX, RedisLink
from wicketgate.storage.redis.store import RedisStore
from wicketgate.storage.runs import JournalBounds, SharedRuns

BOUNDS = JournalBounds(total_bytes=2_000_000, run_bytes=200_000, unread_bytes=50_000)
Spoil = Callable[[Any, Callable[[str], str]], Awaitable[object]]

DAMAGE: dict[str, Spoil] = {
    "row of another type": lambda client, key: client.set(key("r:run:bad"), "garbage"),
    "events of another type": lambda client, key: client.set(key("l0:run:bad"), "garbage"),
    "notes of another type": lambda client, key: client.set(key("l1:run:bad"), "garbage"),
    "term": lambda client, key: client.hset(key("r:run:bad"), "t", "soon"),
    "no version": lambda client, key: client.hdel(key("r:run:bad"), "v"),
    "note of another program": lambda client, key: client.xadd(key("l1:run:bad"), {"e": b"c\xff"}, id="3-1"),
    "data": lambda client, key: client.hset(key("r:run:bad"), "d", b"\xff"),
}


def opened(link: RedisLink) -> tuple[Process, StoredJournal]:
    store = RedisStore(link)
    process = Process(store, mark_s=0.2, beat_s=0.05)
    return process, StoredJournal(SharedRuns(store, process.id, BOUNDS, link.measures), process)


async def begin(journal: StoredJournal, *names: str) -> None:
    for name in names:
        assert (await journal.claim(name, f"run {name}", "digest", "bob", b"zero")).mine
        await journal.append(name, [event(1)], (), b"one")


async def spoil(link: RedisLink, kind: str) -> None:
    await link.run(lambda client: DAMAGE[kind](client, PREFIX.__add__))


@requirement("CHAT-138", "EXEC-119")
@pytest.mark.parametrize("kind", DAMAGE)
async def test_of_a_damaged_run_whose_process_ended_all_others_are_taken_over(
    kind: str, link: RedisLink, caplog: pytest.LogCaptureFixture
) -> None:
    _, dead = opened(link)
    await begin(dead, "one", "bad", "other")
    await spoil(link, kind)
    process, here = opened(link)
    async with asyncio.timeout(BOUND_S), process.running():
        taken = [await here.next_abandoned() for _ in range(2)]
        assert {each.run_id for each in taken} == {"run one", "run other"}
        # It is not tried again and again.
        await asyncio.sleep(0.2)  # only time shows that nothing is tried
        lines = len(caplog.records)
        waiting = asyncio.create_task(here.next_abandoned())
        await asyncio.sleep(0.2)  # only time shows that nothing is tried
        waiting.cancel()
        assert len(caplog.records) == lines
        # Its readers do not wait for it.
        try:
            assert await read_all(here, "bad") in ([], [(1, event(1))])
        except (JournalAway, EventsGone):
            assert "notes" not in kind
    assert "run 'bad'" in caplog.text or kind == "no version"  # it counts as no row
    assert link.measures.fail.degraded(away=False) == {}
    await here.aclose()


@requirement("CHAT-138")
@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if kind != "data"])
async def test_a_damaged_run_of_this_process_is_given_up_and_the_others_go_on(kind: str, link: RedisLink) -> None:
    _, journal = opened(link)
    await begin(journal, "one", "bad")
    await spoil(link, kind)
    reading = asyncio.create_task(read_all(journal, "bad"))
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(JournalAway):
            await journal.append("bad", [event(2)], ["c1"], b"two")
        assert not await journal.claim_call("bad", "c2")
        await journal.end("bad")
        with suppress(JournalAway):
            assert (await reading)[:1] in ([], [(1, event(1))])
        assert await journal.claim_call("one", "c2")
        await journal.append("one", [event(2)], ["c2"])
        await journal.end("one")
    assert link.measures.fail.degraded(away=False) == {}
    await journal.aclose()
