"""What is special about the store in Redis: large values, damaged keys, a Redis that dies, signals, rights."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.storage.test_store import with_a_clock as with_a_clock
from tests.support.process import ROOT
from tests.support.redis import PASSWORD, redis_cluster, redis_server
from tests.support.requirement import requirement
from tests.support.rows import row_of
from tests.support.until import until
from wicketgate.storage.redis.client import PREFIX, WAIT_S, RedisLink
from wicketgate.storage.redis.lanes import LANES
from wicketgate.storage.redis.store import LARGE_BYTES, RedisStore
from wicketgate.storage.redis.store_signals import RedisSignals
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.store import (
    Append,
    Conflict,
    Drop,
    Fence,
    Full,
    Grant,
    Kind,
    Op,
    Put,
    Row,
    Signal,
    Store,
    StoreUnavailable,
    Take,
    Window,
    Wish,
)

FREE = Kind("free")
BOUNDED = Kind("bounded", most_bytes=500_000, most_rows=3, gives="row")
LARGE = b"x" * (LARGE_BYTES + 1)


BOUND_S = 40.0
GUIDE = ROOT / "docs" / "operations" / "storage.md"


@asynccontextmanager
async def linked(url: str, ca_file: str = "") -> AsyncIterator[RedisLink]:
    link = RedisLink(read_url(url), ca_file=ca_file)
    async with asyncio.timeout(BOUND_S), link.running():
        yield link


async def found_keys(link: RedisLink, pattern: str = "*") -> set[str]:
    found = await link.run(lambda client: client.keys(PREFIX + pattern))
    return {key.decode().removeprefix(PREFIX) for key in found}


async def life_ms(link: RedisLink, pattern: str) -> int:
    (name,) = await found_keys(link, pattern)
    life: int = await link.run(lambda client: client.pttl(PREFIX + name))
    return life


async def use_everything(store: Store) -> None:
    put = Put(BOUNDED, "one", LARGE, owner="ann", life_s=60, holder="p1")
    assert list(await store.step([put, Append(BOUNDED, "one", 0, -1, [b"a", b"b"])], durable=True)) == [1, 2]
    row = await row_of(store, BOUNDED, "one")
    assert (row.owner, row.data, row.version, row.holder, row.term, row.ends) == ("ann", LARGE, 1, "p1", 1, (2, 0))
    assert await store.read_log(BOUNDED, "one", 0, 1) == [(2, b"b")]
    assert [each.key for each in await store.of_owner(BOUNDED, None)] == ["one"]
    assert (await store.beat("me")).lapsed == {"bounded": ["one"]}
    assert list(await store.step([Take(BOUNDED, "one", "me")])) == [2]
    assert [await store.count([Window("w", 1, 60)]) is None for _ in range(2)] == [True, False]
    assert [each.granted for each in await store.places("calls", "me", 2, [Wish("ann", 1, 5)])] == [1]
    async with store.listen("topic") as changed:
        await store.step([Drop(BOUNDED, "one"), Signal("topic")], fence=Fence(BOUNDED, "one", "me", 2))
        async with asyncio.timeout(BOUND_S):
            await changed.wait(BOUND_S)


async def test_a_large_value_lives_and_ends_with_its_row(link: RedisLink) -> None:
    store = RedisStore(link)
    await store.step([Put(FREE, "k", LARGE)])
    assert await life_ms(link, "v:*") == -1
    first = await found_keys(link, "v:*")
    await store.step([Put(FREE, "k", LARGE + b"2", life_s=1_000)])
    assert not first & await found_keys(link, "v:*"), "the step removes the value that it replaces"
    assert 900_000 < await life_ms(link, "v:*") <= 1_000_000
    await store.step([Put(FREE, "k", None, life_s=5_000)])
    assert 4_900_000 < await life_ms(link, "v:*") <= 5_000_000
    row = await row_of(store, FREE, "k")
    assert row.data == LARGE + b"2"
    await store.step([Put(FREE, "k", b"small")])
    assert await found_keys(link, "v:*") == set()
    row = await row_of(store, FREE, "k")
    assert row.data == b"small"
    await store.step([Put(FREE, "k", LARGE)])
    await store.step([Drop(FREE, "k")])
    assert await found_keys(link) == set()


async def test_a_large_value_of_a_refused_step_expires_by_itself(link: RedisLink) -> None:
    store = RedisStore(link)
    with pytest.raises(Conflict):
        await store.step([Put(FREE, "k", LARGE, expect=3)])
    assert 0 < await life_ms(link, "v:*") <= 60_000
    with pytest.raises(Full):
        await store.step([Put(Kind("strict", most_bytes=10), "k", LARGE)])
    assert len(await found_keys(link, "v:*")) == 2
    assert len(await found_keys(link, "r:*")) == 0


async def test_an_evicted_row_takes_its_large_value_with_it(link: RedisLink) -> None:
    store = RedisStore(link)
    for number in range(5):
        await store.step([Put(BOUNDED, f"k{number}", LARGE, owner="ann", life_s=60)])
    assert len(await found_keys(link, "v:*")) == 3
    assert [row.key for row in await store.of_owner(BOUNDED, "ann")] == ["k2", "k3", "k4"]


async def test_a_get_follows_a_link_that_is_replaced_at_the_same_time(link: RedisLink) -> None:
    store = RedisStore(link)
    await store.step([Put(FREE, "k", LARGE)])

    async def write() -> None:
        for number in range(60):
            await store.step([Put(FREE, "k", LARGE + b"%d" % number)])

    writing = asyncio.create_task(write())
    while not writing.done():
        row = await row_of(store, FREE, "k")
        assert row.data.startswith(LARGE)
    await writing


async def test_a_step_that_a_client_repeats_is_done_once(link: RedisLink) -> None:
    store = RedisStore(link)
    store._ids = itertools.repeat("one")  # as if redis-py had sent it twice
    claim: list[Op] = [Put(FREE, "k", b"claimed", expect=0, holder="p1", life_s=60), Append(FREE, "k", 0, 0, [b"a"])]
    assert [list(await store.step(claim)) for _ in range(2)] == [[1, 1]] * 2
    store._ids = itertools.repeat("two")
    assert [list(await store.step([Take(FREE, "k", "me")])) for _ in range(2)] == [[2]] * 2
    store._ids = itertools.repeat("three")
    large = Put(FREE, "k", LARGE, expect=2, life_s=1_000)
    assert [list(await store.step([large], fence=Fence(FREE, "k", "me", 2))) for _ in range(2)] == [[3]] * 2
    row = await row_of(store, FREE, "k")
    assert (row.data, row.term, row.ends) == (LARGE, 2, (1, 0))
    store._ids = itertools.repeat("four")
    with pytest.raises(Conflict):
        await store.step(claim)


async def test_rows_that_expire_leave_nothing_but_their_index_which_the_next_step_tidies(link: RedisLink) -> None:
    store = RedisStore(link)
    await store.step(
        [Put(BOUNDED, "k", LARGE, owner="ann", life_s=0.1, holder="p1"), Append(BOUNDED, "k", 1, 0, [b"a"])]
    )
    await until(lambda: found_keys(link), lambda names: {name[0] for name in names} <= {"i", "h", "m"})
    await store.step([Put(BOUNDED, "k2", b"", owner="bob", life_s=60)])
    assert await found_keys(link, "i:bounded:u:*") == {"i:bounded:u:bob"}
    await store.beat("p1")
    assert await found_keys(link, "h:*") == set()


async def set_garbage(client: Any, key: str) -> None:
    await client.set(key, "garbage")


Spoil = Callable[[Any, Callable[[str], str]], Awaitable[object]]
DAMAGE: dict[str, Spoil] = {
    "row of another type": lambda client, key: client.set(key("r:bounded:bad"), "garbage"),
    "version": lambda client, key: client.hset(key("r:bounded:bad"), "v", "x"),
    "no version": lambda client, key: client.hdel(key("r:bounded:bad"), "v"),
    "no owner": lambda client, key: client.hdel(key("r:bounded:bad"), "o"),
    "term": lambda client, key: client.hset(key("r:bounded:bad"), "t", "soon"),
    "end": lambda client, key: client.hset(key("r:bounded:bad"), "n0", b"\xff"),
    "link": lambda client, key: client.hset(key("r:bounded:bad"), "l", "gone"),
}


@pytest.mark.parametrize("kind", DAMAGE)
async def test_a_damaged_row_fails_alone_and_is_not_mended(
    kind: str, link: RedisLink, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(link)
    for name in ("bad", "good"):
        await store.step([Put(BOUNDED, name, b"data", owner="ann", life_s=60)])
    await link.run(lambda client: DAMAGE[kind](client, PREFIX.__add__))
    before = await link.run(lambda client: client.dump(f"{PREFIX}r:bounded:bad"))

    async def outcome(work: Awaitable[object]) -> object:
        try:
            return await work
        except StoreUnavailable as error:
            assert "bounded 'bad'" in str(error)
            return "unavailable"

    changes = [store.step([Put(BOUNDED, name, None, owner="ann", expect=1)]) for name in ("bad", "good")]
    outcomes = await asyncio.gather(*map(outcome, [*changes, store.get(BOUNDED, "bad"), store.get(BOUNDED, "good")]))
    # A link is followed, and checked, by those who read the data.
    assert outcomes[0] == "unavailable" or kind == "link"
    assert outcomes[1] == [2]
    if kind != "no version":
        assert outcomes[2] == "unavailable"
    assert isinstance(outcomes[3], Row)
    if kind != "link":
        after = await link.run(lambda client: client.dump(f"{PREFIX}r:bounded:bad"))
        assert after == before
    assert "bounded 'bad'" in caplog.text
    assert link.trouble == ""
    assert link.measures.errors["damaged"]


async def test_damaged_logs_and_indexes_are_named(link: RedisLink, caplog: pytest.LogCaptureFixture) -> None:
    store = RedisStore(link)
    await store.step([Put(FREE, "k", b"", life_s=60)])
    for name in ("l0:free:k", "i:bounded:z"):
        damaged = PREFIX + name
        await link.run(partial(set_garbage, key=damaged))
    with pytest.raises(StoreUnavailable):
        await store.read_log(FREE, "k", 0, 0)
    with pytest.raises(StoreUnavailable):
        await store.step([Put(BOUNDED, "other", b"", owner="ann")])
    assert await store.get(BOUNDED, "other") is None
    assert "free 'k'" in caplog.text
    assert "bounded 'other'" in caplog.text


@requirement("EXEC-56")
async def test_many_callers_share_connections_and_exchanges(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link:
            store = RedisStore(link)
            names = [f"k{number}" for number in range(300)]
            await asyncio.gather(*(store.step([Put(FREE, name, b"data")]) for name in names))
            rows = await asyncio.gather(*(store.get(FREE, name) for name in names))
            assert all(row is not None and row.data == b"data" for row in rows)
            assert len(await link.run(lambda client: client.client_list())) <= LANES + 2


async def test_a_redis_that_forgets_its_scripts_learns_them_again(link: RedisLink) -> None:
    store = RedisStore(link)
    await store.step([Put(FREE, "k", b"1")])
    await link.run(lambda client: client.script_flush())
    assert await asyncio.gather(*(store.step([Put(FREE, "k", LARGE)]) for _ in range(3))) == [[2], [3], [4]]


async def test_an_acknowledged_approval_is_used_once_through_kills_of_redis(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        async with linked(server.url) as link:
            stores = [RedisStore(link) for _ in range(4)]
            used: dict[str, int] = {}
            stopped = asyncio.Event()

            async def use(store: RedisStore, worker: int) -> None:
                for number in itertools.count():
                    if stopped.is_set():
                        return
                    name = f"a{worker % 2}.{number}"
                    with contextlib.suppress(Conflict, StoreUnavailable):
                        await store.step([Put(FREE, name, b"", expect=0, life_s=600)], durable=True)
                        used[name] = used.get(name, 0) + 1
                    await asyncio.sleep(0)

            working = [asyncio.create_task(use(store, number)) for number, store in enumerate(stores)]
            for count in range(3):
                await until(lambda: len(used) > 20 * (count + 1))
                server.kill()
                await until(lambda: link.trouble)
                server.start()
                await until(lambda: not link.trouble)
            await until(lambda: len(used) > 80)
            stopped.set()
            await asyncio.gather(*working)
            assert set(used.values()) == {1}
            for name in used:
                with pytest.raises(Conflict):
                    await stores[0].step([Put(FREE, name, b"", expect=0)])


async def test_a_lost_connection_wakes_all_listeners_and_signals_go_on(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link, linked(server.url) as other_link:
            store, other = RedisStore(link), RedisStore(other_link)
            async with asyncio.timeout(BOUND_S), store.listen("a") as a, store.listen("b") as b:
                await other.step([Signal("a")])
                await a.wait(BOUND_S)
                server.kill()
                await a.wait(BOUND_S)
                await b.wait(BOUND_S)
                with pytest.raises(StoreUnavailable):
                    async with store.listen("c"):
                        pass
                server.start()
                await until(lambda: not link.trouble and not other_link.trouble)
                await a.wait(BOUND_S)  # subscribed again
                await b.wait(BOUND_S)
                await other.step([Signal("b")])
                loop = asyncio.get_running_loop()
                began = loop.time()
                await b.wait(BOUND_S)
                assert loop.time() - began < 5
            await store.aclose()


async def test_a_signal_behind_the_confirmation_is_never_missed(link: RedisLink) -> None:
    store, other = RedisStore(link), RedisStore(link)
    for number in range(50):
        async with asyncio.timeout(BOUND_S), store.listen(f"t{number % 3}") as changed:
            await other.step([Signal(f"t{number % 3}")])
            await changed.wait(BOUND_S)
    await store.aclose()


async def test_a_connection_that_is_lost_while_a_topic_is_left_fails_nothing(link: RedisLink) -> None:
    signals = RedisSignals(link)
    async with AsyncExitStack() as listening:
        await listening.enter_async_context(signals.listen("a"))
        connection = signals._connection
        # redis-py writes in a task of its own: the connection is closed between its check and the write.
        await asyncio.gather(listening.aclose(), connection.disconnect(nowait=True))
    await signals.aclose()


@requirement("OPS-160", "OPS-163", "OPS-330", "OPS-331")
async def test_a_cluster_is_used_through_one_slot_that_may_move_and_lose_its_node(tmp_path: Path) -> None:
    with redis_cluster(tmp_path, password=PASSWORD) as cluster:
        async with linked(cluster.url) as link:
            store = RedisStore(link)
            await use_everything(store)
            await store.aclose()
            store = RedisStore(link)
            slot = cluster.ask(cluster.nodes[0], "CLUSTER", "KEYSLOT", PREFIX)

            async def step(at: int) -> None:
                async def done() -> bool:
                    with contextlib.suppress(StoreUnavailable):
                        assert list(await store.step([Append(FREE, "k", 0, at, [b"e"])])) == [at + 1]
                        return True
                    return False

                await until(done, bound_s=BOUND_S, pause_s=0.05)

            await store.step([Put(FREE, "k", LARGE)])
            await step(0)
            source, target = cluster.begin_move(slot)
            waiting = asyncio.create_task(step(1))
            await asyncio.sleep(0.1)  # it is refused for as long as the slot moves
            cluster.move_keys(slot, source, target)
            # The other node has no row "new", though its keys may be on their way.
            with pytest.raises(StoreUnavailable, match="moves the keys"):
                await store.step([Put(FREE, "new", b"", expect=0)])
            cluster.end_move(slot, source, target)
            await waiting
            await step(2)
            assert link.trouble == ""
            await until(lambda: all(cluster.owner(slot, node) is target for node in cluster.nodes))
            # Other nodes answer, but not for this slot.
            target.kill()
            with pytest.raises(StoreUnavailable):
                await store.step([Append(FREE, "k", 0, 3, [b"e"])])
            await until(lambda: bool(link.trouble))
            target.start()
            await until(lambda: not link.trouble)
            await step(3)
            assert [at for at, _ in await store.read_log(FREE, "k", 0, 0)] == [1, 2, 3, 4]
            await store.aclose()


@requirement("EXEC-56")
async def test_a_process_that_stood_still_does_not_take_redis_for_late(link: RedisLink) -> None:
    store = RedisStore(link)
    await store.get(FREE, "k")

    async def stand() -> None:
        await asyncio.sleep(0)
        time.sleep(1.1 * WAIT_S)  # holds the process, which is what is tried

    asked = [asyncio.create_task(store.step([Drop(FREE, "k")])) for _ in range(20)]
    await stand()
    assert await asyncio.gather(*asked) == [[0]] * 20
    assert link.trouble == ""


@requirement("EXEC-56")
async def test_a_caller_who_goes_disturbs_no_other(link: RedisLink) -> None:
    store = RedisStore(link)

    async def ask() -> Any:
        return await store.step([Drop(FREE, "k")])

    for moment in range(12):
        asked = [asyncio.create_task(ask()) for _ in range(9)]
        for _ in range(moment):
            await asyncio.sleep(0)
        for task in asked[::2]:
            task.cancel()
        assert await asyncio.gather(*asked[1::2]) == [[0]] * 4


@requirement("EXEC-119")
@pytest.mark.parametrize("spoil", ["type", "count"])
async def test_damaged_places_of_one_actor_concern_no_other(
    spoil: str, link: RedisLink, caplog: pytest.LogCaptureFixture
) -> None:
    store, key = RedisStore(link), f"{PREFIX}p:streams:bad"
    await store.beat("there")
    assert await store.places("streams", "there", 2, [Wish("good", 1)]) == [Grant(0, 0)]
    if spoil == "type":
        await link.run(lambda client: client.set(key, "garbage"))
    else:
        await link.run(lambda client: client.hset(key, "there", "many"))
    found = await store.places("streams", "here", 2, [Wish("bad", 0, 1), Wish("good", 0, 2), Wish("bad", 0)])
    assert found == [Grant(0, 0), Grant(1, 1), Grant(0, 0)]
    assert "places 'streams:bad'" in caplog.text


@requirement("EXEC-119")
async def test_damaged_rows_of_one_ended_process_keep_nobody_from_taking_those_of_another(
    link: RedisLink, caplog: pytest.LogCaptureFixture
) -> None:
    store, kind = RedisStore(link), Kind("thing")
    for process in ("bad", "gone"):
        await store.step([Put(kind, process, b"", holder=process)])
    await link.run(lambda client: client.set(f"{PREFIX}h:bad", "garbage"))
    assert (await store.beat("here")).lapsed == {"thing": ["gone"]}
    assert "rows of process 'bad'" in caplog.text
