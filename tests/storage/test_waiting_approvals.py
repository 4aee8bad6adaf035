"""The list of calls that wait is one for all processes, sealed and bounded (OPS-253, OPS-257, OPS-291)."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from wicketgate.access.approvers import Need, Vote
from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.engine.waiting_calls import MOST, MOST_OF_ACTOR, Decision, WaitingCall
from wicketgate.errors import NotAdmitted
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Fence, Op, Put, Store
from wicketgate.storage.waiting_approvals import DECIDED, WAITING, StoredWaitingCalls

Stores = tuple[str, Callable[[], Store]]

NOW = 1_000_000.0


_numbers = itertools.count()


def seal_of(*keys: str, clock: Callable[[], float]) -> Seal:
    return Seal(keys or ["k" * 32], b"own" * 16, clock, lambda: str(next(_numbers)))


def list_in(store: Store, *keys: str, clock: Callable[[], float] | None = None) -> StoredWaitingCalls:
    clock = clock or Clock(NOW)
    seal = seal_of(*keys, clock=clock)
    return StoredWaitingCalls(store, seal, clock, lambda: f"n{next(_numbers)}", StorageMeasures())


def a_call(actor: str = "ann", arguments: str = "", *, chat: bool = False, **more: Any) -> WaitingCall:
    number = next(_numbers)
    given = {"args": {"path": f"secret {number}"}, "arg_names": ("path",), "asked_at": float(number), **more}
    expires_at = NOW + 60
    digest = arguments or f"a{number}"
    return WaitingCall(
        f"apr_{number}", actor, "shop:refund#1", "d", digest, expires_at=expires_at, from_chat=chat, **given
    )


async def decided(at: StoredWaitingCalls, call: WaitingCall, decision: Decision = "approve", **more: Any) -> bool:
    return await at.decide(replace(call, decision=decision, decided_at=call.asked_at, stands=True, **more))


async def found(at: StoredWaitingCalls, id: str) -> WaitingCall:
    call = await at.find(id)
    assert call is not None
    return call


@requirement("OPS-291", "OPS-292")
async def test_a_call_of_one_process_is_found_voted_on_decided_and_used_at_another(stores: Stores) -> None:
    _, make = stores
    here, there = list_in(make()), list_in(make())
    lead = Identity("lena", ("nothing",), "lead", ("lead",))
    asked = a_call(needs=(Need("role:lead", 2),), args={"text": "\ud800 é", "n": [1, None]}, door="mcp", source="::1")
    id = await here.add(asked)
    call = await found(there, id)
    assert replace(call, id="") == asked
    voted = replace(call, votes=(Vote("lena", "approve", ("role:lead",), 5.0, lead),))
    assert await there.update(voted)
    assert not await here.update(replace(call, votes=()))
    assert not await decided(here, call), "a vote came since it was read"
    assert (await here.waiting()) == [voted]
    assert await decided(here, await found(here, id))
    assert not await decided(there, replace(voted, version=2))
    assert await there.waiting() == [] and await there.find(id) is None
    (stands,) = await there.standing("ann", asked.tool_id, asked.arguments)
    assert (stands.id, stands.votes, stands.stands) == (id, voted.votes, True)
    assert await there.standing("bob", asked.tool_id, asked.arguments) == []
    assert await there.standing("ann", asked.tool_id, "other") == []
    assert await there.update(replace(stands, stands=False, used=True))
    assert not await here.update(replace(stands, stands=False))
    assert await here.standing("ann", asked.tool_id, asked.arguments) == []
    assert [(each.id, each.used) for each in await here.decided()] == [(id, True)]


@requirement("OPS-292")
async def test_of_many_decisions_at_the_same_moment_one_counts(stores: Stores) -> None:
    _, make = stores
    lists = [list_in(make()) for _ in range(2)]
    call = await found(lists[0], await lists[0].add(a_call()))
    words: Sequence[Decision] = ("approve", "deny")
    done = await asyncio.gather(*(decided(at, call, word) for at in lists for word in words for _ in range(5)))
    assert sum(done) == 1 and len(await lists[1].decided()) == 1


@requirement("OPS-253")
async def test_the_very_same_call_waits_once_also_if_it_is_asked_at_the_same_moment(stores: Stores) -> None:
    _, make = stores
    lists = [list_in(make()), list_in(make())]
    ids = await asyncio.gather(*(at.add(a_call(arguments="same")) for at in lists for _ in range(5)))
    assert len(set(ids)) == 1
    for different in (a_call("bob", "same"), a_call(arguments="same", needs=(Need("role:lead"),))):
        await lists[0].add(different)
    # Each call of a chat waits by itself: its client may decide on that one alone.
    chat = [await lists[1].add(a_call(arguments="same", chat=True)) for _ in range(2)]
    assert len(await lists[0].waiting()) == 5 and len({*chat, *ids}) == 3


@requirement("OPS-254", "OPS-480")
async def test_a_handle_is_of_one_question_and_not_of_the_same_call_that_asks_again(stores: Stores) -> None:
    at = list_in(stores[1]())
    first = await at.add(a_call(arguments="same"))
    await decided(at, await found(at, first))
    again = await at.add(a_call(arguments="same"))
    assert again != first and await at.find(first) is None
    for odd in ("", "x", first.partition(".")[0], again + "0", "é.1", "%00", "a b.c", again.upper()):
        assert await at.find(odd) is None


@requirement("CHAT-135", "CHAT-136")
async def test_calls_of_chats_are_found_by_their_sealed_ids(stores: Stores) -> None:
    at = list_in(stores[1]())
    first, second = a_call(chat=True), a_call(chat=True)
    ids = [await at.add(first), await at.add(second)]
    assert await at.of_approval("ann", first.approval) == await at.find(ids[0])
    assert await at.of_approval("bob", first.approval) is None
    assert await at.standing_of_chat("ann", [first.approval, second.approval]) == {}
    await decided(at, await found(at, ids[0]))
    stands = await at.standing_of_chat("ann", [first.approval, second.approval])
    assert [(approval, call.id) for approval, call in stands.items()] == [(first.approval, ids[0])]
    assert await at.standing_of_chat("bob", [first.approval]) == {}
    used = await at.of_approval("ann", first.approval)
    assert used is not None and await at.update(replace(used, stands=False))
    assert await at.standing_of_chat("ann", [first.approval]) == {}


@requirement("OPS-253")
async def test_the_list_is_bounded_for_each_actor_and_in_all_and_decisions_do_not_give_way_to_questions() -> None:
    at = list_in(MemoryStore())
    first = await at.add(a_call())
    await decided(at, await found(at, first))
    mine = [await at.add(a_call()) for _ in range(MOST_OF_ACTOR + 1)]
    assert [each.id for each in await at.waiting()] == mine[1:]
    for number in range(MOST):
        await at.add(a_call(f"actor {number}"))
    waiting = await at.waiting()
    assert len(waiting) == MOST
    # The actor with most made room.
    assert sum(each.actor == "ann" for each in waiting) <= 1
    assert [each.id for each in await at.decided()] == [first]


@requirement("OPS-257")
async def test_what_has_expired_leaves_the_list_and_stands_no_more() -> None:
    clock = Clock(NOW)
    at = list_in(MemoryStore(clock), clock=clock)
    await at.add(a_call())
    call = await found(at, await at.add(a_call()))
    await decided(at, call)
    clock.now += 60
    assert await at.waiting() == await at.decided() == await at.standing("ann", call.tool_id, call.arguments) == []


@requirement("OPS-257", "OPS-478")
async def test_the_store_sees_no_arguments_actor_or_tool_and_keys_that_cannot_be_guessed() -> None:
    puts = list[Put]()

    class Seen(MemoryStore):
        async def step(self, ops: Sequence[Op], *, fence: Fence | None = None, durable: bool = False) -> Sequence[int]:
            puts.extend([op for op in ops if isinstance(op, Put)])
            return await super().step(ops, fence=fence, durable=durable)

    at, other = list_in(Seen()), list_in(Seen(), "o" * 32)
    call = a_call("ann of accounts", "the digest")
    await decided(at, await found(at, await at.add(call)))
    await decided(other, await found(other, await other.add(call)))
    for put in puts:
        # Each is long enough that random text does not hold it by chance.
        for secret in (b"secret", b"ann of accounts", b"refund", b"the digest", call.approval.encode()):
            assert put.data is not None and secret not in put.data and secret.decode() not in put.key + put.owner
    # The keys of the same call under another ring differ.
    assert len({put.key.partition(".")[0] for put in puts}) == len(puts) == 4


@requirement("OPS-479")
async def test_a_new_key_of_the_ring_changes_nothing_and_rows_that_no_key_opens_are_skipped(stores: Stores) -> None:
    _, make = stores
    old, new = "k" * 32, "n" * 32
    before, after, others = list_in(make(), old), list_in(make(), new, old), list_in(make(), "x" * 32)
    waits, stands = a_call(arguments="w"), a_call(arguments="s")
    id = await before.add(waits)
    await decided(before, await found(before, await before.add(stands)))
    assert await after.add(a_call(arguments="w")) == id
    assert [each.id for each in await after.waiting()] == [id]
    assert len(await after.standing("ann", stands.tool_id, "s")) == 1
    assert await others.waiting() == await others.decided() == await others.standing("ann", stands.tool_id, "s") == []
    assert await others.find(id) is None and await others.of_approval("ann", waits.approval) is None
    assert await others.add(a_call(arguments="w")) != id
    assert len(await others.waiting()) == 1


@requirement("OPS-481")
async def test_a_row_that_was_moved_or_damaged_is_not_used(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    store = stores[1]()
    at = list_in(store)
    one, other = [await found(at, await at.add(a_call())) for _ in range(2)]
    row = await store.get(WAITING, other.key)
    assert row is not None
    await store.step([Put(WAITING, one.key, row.data)])
    await store.step([Put(DECIDED, f"{one.key}.{other.key}", row.data, row.owner)])
    await store.step([Put(WAITING, "0" * 32, b"\xff not sealed", row.owner)])
    assert [each.id for each in await at.waiting()] == [other.id] and await at.decided() == []
    # Sealed by us, and still no call.
    data = seal_of(clock=Clock(NOW)).seal(f"{WAITING.name} {one.key}", row.owner, '{"votes": 5}', 60).encode()
    with caplog.at_level(logging.ERROR):
        await store.step([Put(WAITING, one.key, data)])
        assert [each.id for each in await at.waiting()] == [other.id]
    assert f"{WAITING.name} '{one.key}'" in caplog.text


@requirement("OPS-292")
async def test_a_repeated_step_is_the_same_decision() -> None:
    store = FailingStore()
    at = list_in(store)
    store.repeats = 9
    call = await found(at, await at.add(a_call()))
    assert await at.update(call) and await decided(at, await found(at, call.id))


@requirement("OPS-482")
async def test_nothing_is_asked_or_decided_while_the_store_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    store = FailingStore()
    at = list_in(store)
    call = await found(at, await at.add(a_call()))
    store.unavailable = True
    for tried in (
        lambda: at.add(a_call()),
        at.waiting,
        at.decided,
        lambda: at.find(call.id),
        lambda: at.update(call),
        lambda: decided(at, call),
        lambda: at.standing("ann", "", ""),
    ):
        with pytest.raises(NotAdmitted):
            await tried()
    assert "unavailable, so nothing that needs an approval can run" in caplog.text
    store.unavailable = False
    assert await at.waiting() == [call]


@requirement("OPS-258", "OPS-293")
async def test_changes_by_any_process_are_seen(stores: Stores) -> None:
    _, make = stores
    here, there = list_in(make()), list_in(make())
    old = await found(there, await there.add(a_call()))
    async with asyncio.timeout(30), aclosing(here.changes()) as changes:
        first = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0.5)  # until the changes are followed
        call = await found(there, await there.add(a_call()))
        assert await first == (call, "new")
        voted = replace(call, votes=(Vote("lena", "approve", (), 5.0, Identity("lena")),))
        await there.update(voted)
        assert (await anext(changes))[1] == "voted"
        await decided(there, await found(there, call.id))
        assert [(each.id, change) for each, change in [await anext(changes)]] == [(call.id, "decided")]
        await there.drop(old)
        assert (await anext(changes))[1] == "expired"


@requirement("OPS-533")
async def test_the_calls_that_wait_are_counted_over_all_processes(stores: Stores) -> None:
    _, make = stores
    here, there = list_in(make()), list_in(make())
    assert await here.number() == 0
    id = await here.add(a_call())
    await there.add(a_call("bob"))
    assert (await here.number(), await there.number()) == (2, 2)
    await decided(here, await found(here, id))
    assert await there.number() == 1


@requirement("OPS-533")
async def test_a_count_that_cannot_be_read_is_none_and_refuses_nobody() -> None:
    store, measures = FailingStore(), StorageMeasures()
    waiting = StoredWaitingCalls(store, seal_of(clock=Clock(NOW)), Clock(NOW), lambda: "n", measures)
    store.unavailable = True
    assert await waiting.number() is None
    assert not measures.fail.counts
