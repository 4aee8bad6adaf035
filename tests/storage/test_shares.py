"""Places counted by one process, and by several in memory and in a real Redis; and a store that is unavailable."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Protocol

import pytest

from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.shares import CountedShares, Lease, ShareRefused, Shares
from wicketgate.storage.encoding import hashed
from wicketgate.storage.fail_modes import USUAL, FailModes
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.places import SharedLimits
from wicketgate.storage.process import Process
from wicketgate.storage.store import BEAT_S, MARK_S, Grant, Store, Wish

pytestmark = pytest.mark.usefixtures("patient_stores")

BOUND_S = 30.0


class OpenShares(Protocol):
    def __call__(self, most: int, per_actor: int) -> Shares: ...


OpenStore = Callable[[], Store]


async def taken(shares: Shares, actor: str, wanted: int = 1_000) -> list[Lease]:
    """Take until it is refused, at most *wanted*."""
    leases: list[Lease] = []
    try:
        while len(leases) < wanted:
            leases.append(await shares.take(actor))
    except ShareRefused:
        pass
    return leases


async def refusal(shares: Shares, actor: str) -> ShareRefused:
    with pytest.raises(ShareRefused) as refused:
        await shares.take(actor)
    return refused.value


async def until_taken(shares: Shares, actor: str, wanted: int = 1) -> list[Lease]:
    """Take as soon as there are places."""
    leases: list[Lease] = []
    async with asyncio.timeout(BOUND_S):
        while len(leases) < wanted:
            leases += await taken(shares, actor, wanted - len(leases))
    return leases


class SharesContract:
    @requirement("ACCESS-36", "ACCESS-37")
    async def test_an_actor_has_its_limit_and_all_have_theirs(self, open_shares: OpenShares) -> None:
        shares = open_shares(5, 3)
        leases = await taken(shares, "bob")
        refused = await refusal(shares, "bob")
        assert (len(leases), refused.scope, refused.held) == (3, "actor", 3)
        leases += await taken(shares, "alice")
        assert (await refusal(shares, "carl")).scope == "all"
        assert (shares.held, len({lease.id for lease in leases})) == (5, 5)
        assert [shares.refused[scope] for scope in ("actor", "all")] == [2, 2]

    @requirement("ACCESS-37")
    async def test_a_place_that_is_given_back_is_there_again_once(self, open_shares: OpenShares) -> None:
        shares = open_shares(9, 3)
        first, *_ = await taken(shares, "bob")
        shares.give_back(first)
        shares.give_back(first)
        assert shares.held == 2
        await until_taken(shares, "bob")
        assert (await refusal(shares, "bob")).scope == "actor"

    @requirement("ACCESS-36")
    async def test_many_who_come_at_once_get_no_more_than_there_are(self, open_shares: OpenShares) -> None:
        shares = open_shares(100, 10)
        found = await asyncio.gather(*(shares.take("bob") for _ in range(40)), return_exceptions=True)
        assert sum(isinstance(each, Lease) for each in found) == shares.held == 10

    @requirement("CHAT-90")
    async def test_room_is_made_where_all_are_taken(self, open_shares: OpenShares) -> None:
        shares = open_shares(2, 2)
        leases = await taken(shares, "bob")

        def make_room(held: int) -> bool:
            shares.give_back(leases.pop())
            return True

        assert (await shares.take("alice", make_room)).actor == "alice"
        assert shares.held == 2

    @requirement("ACCESS-37")
    async def test_who_goes_while_a_place_is_counted_holds_none(self, open_shares: OpenShares) -> None:
        shares = open_shares(9, 1)
        asking = asyncio.ensure_future(shares.take("bob"))
        await asyncio.sleep(0)
        asking.cancel()
        (lease,) = await asyncio.gather(asking, return_exceptions=True)
        if isinstance(lease, Lease):
            shares.give_back(lease)  # it had it before
        await until_taken(shares, "bob")
        assert shares.held == 1

    async def test_any_string_is_an_actor_of_its_own(self, open_shares: OpenShares) -> None:
        shares = open_shares(99, 1)
        odd = ["", "a", "A", "a ", "a\nb", "é", "e\u0301", "😀", "\ud800", "x" * 999, "{a}", "a:b"]
        for actor in odd:
            await shares.take(actor)
        assert [(await refusal(shares, actor)).scope for actor in odd] == ["actor"] * len(odd)


class GroupContract:
    @requirement("ACCESS-97")
    async def test_the_limit_of_an_actor_holds_over_all_processes(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = await group.member(), await group.member()
            leases = await taken(one, "bob", 3)
            assert len(await taken(other, "bob")) == 2
            refused = await refusal(other, "bob")
            assert (refused.scope, refused.held) == ("actor", 5)
            assert len(await taken(other, "alice")) == 5
            one.give_back(leases.pop())
            await until_taken(other, "bob")
            assert (await refusal(one, "bob")).scope == "actor"

    @requirement("ACCESS-97")
    async def test_what_all_hold_together_is_counted_by_each_process(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = await group.member(most=2), await group.member(most=2)
            assert len(await taken(one, "bob")) == len(await taken(other, "bob")) == 2
            assert (await refusal(one, "alice")).scope == "all"

    @requirement("ACCESS-97")
    async def test_kinds_are_counted_apart(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = await group.member(kind="chat"), await group.member(kind="calls")
            assert len(await taken(one, "bob")) == len(await taken(other, "bob")) == 5

    @requirement("ACCESS-97")
    async def test_processes_that_take_and_give_back_at_once_never_have_more_than_the_limit(
        self, open_store: OpenStore
    ) -> None:
        chance = random.Random(7)
        async with Group(open_store) as group:
            members = [await group.member(linger_s=0.01 if number else 0.0, per_actor=16) for number in range(3)]
            holding = 0

            async def come_and_go(shares: SharedLimits) -> None:
                nonlocal holding
                for _ in range(20):
                    try:
                        lease = await shares.take("bob")
                    except ShareRefused:
                        continue
                    holding += 1
                    assert holding <= 16
                    for _ in range(chance.randrange(5)):
                        await asyncio.sleep(0)
                    holding -= 1
                    shares.give_back(lease)

            await asyncio.gather(*(come_and_go(shares) for shares in members for _ in range(10)))
            assert [shares.held for shares in members] == [0, 0, 0]
            await until_taken(members[0], "bob", 16)

    @requirement("ACCESS-98")
    async def test_the_places_of_a_process_that_died_are_free_when_its_mark_has_lapsed(
        self, open_store: OpenStore
    ) -> None:
        async with Group(open_store) as group:
            await group.die_holding("bob", 5, mark_s=0.5)
            living = await group.member()
            assert (await refusal(living, "bob")).held == 5
            assert len(await until_taken(living, "bob", 5)) == 5

    @requirement("ACCESS-98")
    async def test_the_beats_of_a_process_keep_its_places(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = await group.member(mark_s=1.0, beat_s=0.05), await group.member()
            await taken(one, "bob")
            with group.no_steps(0):
                await asyncio.sleep(1.5)  # longer than a mark without a beat lasts
                assert (await refusal(other, "bob")).held == 5

    @requirement("ACCESS-98")
    async def test_a_process_that_stood_still_has_its_places_again(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            # Between two beats its mark lapses.
            one, other = await group.member(mark_s=0.2, beat_s=1.0), await group.member()
            third = await group.member()
            await taken(one, "bob", 2)
            assert len(await until_taken(other, "bob", 5)) == 5
            await until(lambda: refusal(third, "bob"), lambda refused: refused.held == 7)

    @requirement("ACCESS-98", "OPS-163")
    async def test_what_the_store_has_lost_is_set_there_again(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            await taken(await group.member(beat_s=0.05), "bob")
            store, look = open_store(), [Wish(hashed("bob"), 0)]
            await store.beat(group.ids[0], mark_s=0)  # removes its places too
            await until(lambda: store.places("chat", "other", 5, look), lambda found: found == [Grant(0, 5)])

    @requirement("ACCESS-98")
    async def test_a_process_that_ends_in_order_leaves_nothing(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = await group.member(), await group.member()
            await taken(one, "bob")
            await group.end(0)
            assert len(await taken(other, "bob")) == 5

    @requirement("ACCESS-99")
    async def test_a_place_that_was_just_given_back_is_taken_again_without_a_step(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = await group.member(per_actor=8, linger_s=60.0), await group.member(per_actor=8)
            one.give_back(await one.take("bob"))
            with group.no_steps(0):
                for _ in range(9):
                    one.give_back(await one.take("bob"))
            # An eighth at most stays, so the others are there for all.
            leases = await taken(one, "bob")
            for lease in leases:
                one.give_back(lease)
            assert (len(leases), len(await until_taken(other, "bob", 7))) == (8, 7)
            assert (await refusal(other, "bob")).held == 8

    @requirement("ACCESS-99")
    async def test_a_place_that_nobody_takes_again_goes_back(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = await group.member(per_actor=8, linger_s=0.02), await group.member(per_actor=8)
            one.give_back(await one.take("bob"))
            assert len(await until_taken(other, "bob", 8)) == 8


class Group:
    """Processes that count together, each with its own store."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._processes: list[AsyncExitStack] = []
        self._stores: list[FailingStore] = []
        self.ids: list[str] = []

    async def member(
        self,
        *,
        kind: str = "chat",
        most: int = 500,
        per_actor: int = 5,
        linger_s: float = 0.0,
        mark_s: float = MARK_S,
        beat_s: float = BEAT_S,
    ) -> SharedLimits:
        """Starts a process and returns its places."""
        store, stack = self._open_store(), AsyncExitStack()
        process, steps = Process(store, mark_s=mark_s, beat_s=beat_s), FailingStore(store)
        await stack.enter_async_context(process.running())
        shares = SharedLimits(kind, most, per_actor, steps, process, FailModes(), linger_s=linger_s)
        stack.push_async_callback(shares.aclose)
        self.ids.append(process.id)
        self._processes.append(stack)
        self._stores.append(steps)
        return shares

    async def end(self, number: int) -> None:
        await self._processes[number].aclose()

    async def die_holding(self, actor: str, held: int, *, mark_s: float) -> None:
        """Leaves the places of a process that does not beat again."""
        store = self._open_store()
        await store.beat("dead", mark_s=mark_s)
        await store.places("chat", "dead", held, [Wish(hashed(actor), 0, held)])

    @contextmanager
    def no_steps(self, number: int) -> Iterator[None]:
        before = self._stores[number].asked["places"]
        yield
        assert self._stores[number].asked["places"] == before

    async def __aenter__(self) -> "Group":
        return self

    async def __aexit__(self, *_: object) -> None:
        for stack in self._processes:
            await stack.aclose()


class TestAlone(SharesContract):
    @pytest.fixture
    def open_shares(self) -> OpenShares:
        return lambda most, per_actor: CountedShares("chat", most, per_actor)


class TestShared(SharesContract, GroupContract):
    @pytest.fixture
    def open_store(self, stores: tuple[str, OpenStore]) -> OpenStore:
        return stores[1]

    @pytest.fixture
    async def open_shares(self, open_store: OpenStore) -> AsyncIterator[OpenShares]:
        made: list[SharedLimits] = []

        def make(most: int, per_actor: int) -> Shares:
            store = open_store()
            made.append(SharedLimits("chat", most, per_actor, store, Process(store), FailModes()))
            return made[-1]

        yield make
        for shares in made:
            await shares.aclose()


@requirement("ACCESS-98")
async def test_a_clock_that_was_set_back_keeps_no_place_of_a_dead_process() -> None:
    now = 10_000.0
    store = MemoryStore(lambda: now)
    await store.beat("dead")
    await store.places("chat", "dead", 5, [Wish(hashed("bob"), 0, 5)])
    now = 1_000.0
    await store.beat("living")
    wish = [Wish(hashed("bob"), 0, 5)]
    assert await store.places("chat", "living", 5, wish) == [Grant(0, 5)]
    now += 6.0
    assert await store.places("chat", "living", 5, wish) == [Grant(5, 0)]


@pytest.fixture
async def members() -> AsyncIterator[Callable[[FailModes], tuple[SharedLimits, FailingStore]]]:
    """Places of processes that share a store, with the ways that they have to it."""
    store, made = MemoryStore(), list[SharedLimits]()
    for name in ("one", "other"):
        await store.beat(name)

    def make(fail: FailModes) -> tuple[SharedLimits, FailingStore]:
        process, outages = Process(store), FailingStore(store)
        process.id = ("one", "other")[len(made)]
        made.append(SharedLimits("chat", 9, 5, outages, process, fail, retry_s=0.02))
        return made[-1], outages

    yield make
    for shares in made:
        await shares.aclose()
    await store.aclose()


Members = Callable[[FailModes], tuple[SharedLimits, FailingStore]]


@requirement("ACCESS-100", "OPS-192")
async def test_open_places_are_counted_by_each_process_in_an_outage_and_together_after_it(members: Members) -> None:
    fails = FailModes(), FailModes()
    (one, way), (other, other_way) = map(members, fails)
    first = await taken(one, "bob", 2)
    way.unavailable = other_way.unavailable = True
    leases = await taken(one, "bob"), await taken(other, "bob")
    assert (len(leases[0]), len(leases[1])) == (3, 5)
    assert (await refusal(one, "bob")).scope == "actor"
    assert fails[0].counts["places", "open"] == 3
    assert fails[0].degraded(away=False) == {"places": "open"}
    one.give_back(first.pop())
    way.unavailable = other_way.unavailable = False
    # What was taken in the outage is counted, without a request.
    await until(lambda: not any(fail.degraded(away=False) for fail in fails))
    for lease in leases[1]:
        other.give_back(lease)
    await until_taken(other, "bob")
    refused = await refusal(other, "bob")
    assert (refused.scope, refused.held) == ("actor", 5)


@requirement("ACCESS-100", "OPS-191")
async def test_closed_places_are_refused_in_an_outage(members: Members) -> None:
    fail = FailModes({**USUAL, "places": "closed"})
    shares, way = members(fail)
    (held,) = await taken(shares, "bob", 1)
    way.unavailable = True
    assert (await refusal(shares, "bob")).scope == "away"
    assert (shares.held, shares.refused["away"], fail.counts["places", "closed"]) == (1, 1, 1)
    shares.give_back(held)
    way.unavailable = False
    assert len(await until_taken(shares, "bob", 5)) == 5


@requirement("ACCESS-100")
async def test_many_requests_of_an_outage_wait_for_one_step(members: Members) -> None:
    fail = FailModes()
    shares, way = members(fail)
    way.unavailable = True
    found = await asyncio.gather(*(shares.take(f"actor{number}") for number in range(9)))
    assert (len(found), fail.counts["places", "open"]) == (9, 9)
