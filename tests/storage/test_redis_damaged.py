"""Rows of runs in Redis that nobody here has written, and a damaged index of all runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.storage.journal_contract import BOUND_S
from tests.storage.run_store_contract import entries
from tests.support.requirement import requirement
from wicketgate.storage.kept_journal import KeptJournal
from wicketgate.storage.memory_journal import JournalBounds, MemoryJournal
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.runs import RedisRunStore
from wicketgate.storage.run_store import NewEvents, Part, StoreAway

BOUNDS = JournalBounds(total_bytes=2_000_000, run_bytes=200_000, unread_bytes=50_000, joins=False)
Spoil = Callable[[Any, Callable[[str], str]], Awaitable[object]]


async def string(client: Any, key: str) -> None:
    await client.set(key, "garbage")


DAMAGE: dict[str, Spoil] = {
    "row of another type": lambda client, key: string(client, key("row")),
    "events of another type": lambda client, key: string(client, key("events")),
    "calls of another type": lambda client, key: string(client, key("calls")),
    "parts of another type": lambda client, key: string(client, key("parts")),
    "lease": lambda client, key: client.hset(key("row"), "lease", "soon"),
    "no lease": lambda client, key: client.hdel(key("row"), "lease"),
    "last": lambda client, key: client.hset(key("row"), "last", "x"),
    "no last": lambda client, key: client.hdel(key("row"), "last"),
    "run": lambda client, key: client.hset(key("row"), "run", b"\xff"),
    "owner": lambda client, key: client.hset(key("row"), "owner", b"\xff"),
    "part": lambda client, key: client.hset(key("parts"), "0", b"\xff\xff"),
    "number of a part": lambda client, key: client.hset(key("parts"), "x", "0 part"),
    "call": lambda client, key: client.hset(key("calls"), b"\xff", "2 mark"),
}


async def spoil(link: RedisLink, kind: str) -> None:
    await link.run(lambda client: DAMAGE[kind](client, lambda part: link.names.key("run", "bad", part)))


async def begin(store: RedisRunStore, *names: str) -> None:
    for name in names:
        assert await store.claim(name, f"run {name}", "digest", "bob", b"begun") is None
        assert await store.claim_call(name, "c1")
        assert await store.append({name: NewEvents(entries(1, b"one"), ["c1"], [Part(1, 1, b"part")])}) == []


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]


@requirement("CHAT-138")
@pytest.mark.parametrize("kind", DAMAGE)
async def test_of_a_damaged_run_that_nobody_has_all_others_are_taken_over(
    kind: str, link: RedisLink, caplog: pytest.LogCaptureFixture
) -> None:
    await begin(RedisRunStore(link, BOUNDS, "dead", lease_s=0.05), "one", "bad", "other")
    await spoil(link, kind)
    store = RedisRunStore(link, BOUNDS, "here", lease_s=0.4)
    journal = KeptJournal(MemoryJournal(BOUNDS, asyncio.get_running_loop().time), store, lease_s=0.4)
    async with asyncio.timeout(BOUND_S):
        taken = [await journal.next_abandoned() for _ in range(2)]
        assert {each.run_id for each in taken} == {"run one", "run other"}
        # It is not tried again and again.
        while await store.lapsed(9):
            assert await store.take("bad") is None
    await journal.aclose()
    assert await store.take("bad") is None
    (line,) = said(caplog)
    assert link.names.key("run", "bad", "") in line
    assert "UNLINK" in line
    assert link.measures.fail.degraded(away=False) == {}


@requirement("CHAT-138")
@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if "another type" in kind and "parts" not in kind])
async def test_a_damaged_run_of_this_process_is_given_up_and_the_others_go_on(
    kind: str, link: RedisLink, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisRunStore(link, BOUNDS, "here")
    await begin(store, "one", "bad", "other")
    await spoil(link, kind)
    new = {name: NewEvents(entries(2, b"two"), ["c1"]) for name in ("one", "bad", "other")}
    assert await store.append(new) == ["bad"]
    if "row" in kind:
        assert await store.renew() == ["bad"]
    for name in ("one", "other"):
        found = await store.read(name, 0)
        assert found is not None
        assert found[0].last == 2
    if "events" not in kind:
        assert not await store.claim_call("bad", "c2")
    if "calls" not in kind:
        with pytest.raises(StoreAway):
            await store.read("bad", 0)
    assert await store.claim_call("one", "c2")
    assert len(said(caplog)) == 1
    assert link.measures.fail.degraded(away=False) == {}


@requirement("CHAT-139")
@pytest.mark.parametrize("part", ["runs", "live", "sizes", "held", "count", "total", "ended:{owner}"])
async def test_an_index_of_another_type_is_begun_anew(
    part: str, link: RedisLink, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisRunStore(link, BOUNDS, "here")
    await begin(store, "one", "ended")
    await store.append({"ended": NewEvents(entries(2, b"event: done\ndata: {}\n\n"), ["c1"])})
    await store.end("ended")

    async def damage(client: Any) -> None:
        sizes = await client.hkeys(link.names.key("runs", "index", "sizes"))
        owner = sizes[0].decode().partition(":")[0]
        key = link.names.key("runs", "index", part.format(owner=owner))
        assert await client.exists(key), key
        await client.unlink(key)
        await (client.set(key, "garbage") if part == "total" else client.lpush(key, "garbage"))

    await link.run(damage)
    await begin(store, "two")
    assert await store.renew() == []
    assert await store.lapsed(9) == {}
    await store.append({"two": NewEvents(entries(2, b"event: done\ndata: {}\n\n"), ["c1"])})
    await store.end("two")
    (line,) = said(caplog)
    assert "index" in line


@requirement("CHAT-139")
async def test_garbage_in_the_index_is_no_run(link: RedisLink) -> None:
    store = RedisRunStore(link, BOUNDS, "here", lease_s=0.05)
    await begin(store, "one")
    garbage = [b"garbage", b"\xff\xff", b":", b"abc:", b"abc:\xff", b""]

    async def damage(client: Any) -> None:
        for part in ("runs", "live", "held"):
            await client.zadd(link.names.key("runs", "index", part), dict.fromkeys(garbage, 1))
        for part in ("sizes", "count"):
            await client.hset(link.names.key("runs", "index", part), mapping=dict.fromkeys(garbage, "x"))

    await link.run(damage)
    there = RedisRunStore(link, BOUNDS, "there", lease_s=60, ahead_s=lambda: 10.0)
    assert list(await there.lapsed(9)) == ["one"]
    await begin(there, "two")
    orphan = await there.take("one")
    assert orphan is not None
    assert await there.lapsed(9) == {}
