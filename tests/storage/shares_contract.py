"""The contracts of places: those that every counter keeps, and those that several processes keep together.

A store is tested by a class that inherits both, beside a fixture ``open_store`` that makes it as one more process has
it. Whatever the fixture makes is closed by it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pytest

from tests.support.requirement import requirement
from wicketgate.access.shares import Lease, ShareRefused, Shares
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.group_shares import Grant, GroupShares, PlaceStore, Wish

BOUND_S = 30.0


class OpenShares(Protocol):
    def __call__(self, most: int, per_actor: int) -> Shares: ...


class OpenStore(Protocol):
    def __call__(self, *, lapse_s: float = 60.0) -> PlaceStore: ...


LifeEnd = Callable[[str, str], Awaitable[float]]
"""Returns the end of the life of a process, by kind and member."""


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
            one, other = group.member(), group.member()
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
            one, other = group.member(most=2), group.member(most=2)
            assert len(await taken(one, "bob")) == len(await taken(other, "bob")) == 2
            assert (await refusal(one, "alice")).scope == "all"

    @requirement("ACCESS-97")
    async def test_kinds_are_counted_apart(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = group.member(kind="chat"), group.member(kind="calls")
            assert len(await taken(one, "bob")) == len(await taken(other, "bob")) == 5

    @requirement("ACCESS-97")
    async def test_processes_that_take_and_give_back_at_once_never_have_more_than_the_limit(
        self, open_store: OpenStore
    ) -> None:
        chance = random.Random(7)
        async with Group(open_store) as group:
            members = [group.member(linger_s=0.01 if number else 0.0, per_actor=16) for number in range(3)]
            holding = 0

            async def come_and_go(shares: GroupShares) -> None:
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
    async def test_what_a_dead_process_held_is_free_when_its_life_has_lapsed(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            dead = open_store(lapse_s=0.5)
            await dead.settle("chat", 5, [Wish("bob", 0, 5)])
            living = group.member()
            assert (await refusal(living, "bob")).held == 5
            assert len(await until_taken(living, "bob", 5)) == 5

    @requirement("ACCESS-98")
    async def test_a_process_that_lives_renews_what_it_holds(self, open_store: OpenStore, life_end: LifeEnd) -> None:
        async with Group(open_store) as group:
            shares = group.member(renew_s=0.02)
            await shares.take("bob")
            first = await life_end("chat", group.names[0])
            async with asyncio.timeout(BOUND_S):
                while await life_end("chat", group.names[0]) <= first:
                    await asyncio.sleep(0)

    @requirement("ACCESS-98")
    async def test_a_process_that_ends_in_order_leaves_nothing(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = group.member(), group.member()
            await taken(one, "bob")
            await one.aclose()
            assert len(await taken(other, "bob")) == 5

    @requirement("ACCESS-99")
    async def test_a_place_that_was_just_given_back_is_taken_again_without_a_step(self, open_store: OpenStore) -> None:
        async with Group(open_store) as group:
            one, other = group.member(per_actor=8, linger_s=60.0), group.member(per_actor=8)
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
            one, other = group.member(per_actor=8, linger_s=0.02), group.member(per_actor=8)
            one.give_back(await one.take("bob"))
            assert len(await until_taken(other, "bob", 8)) == 8


class Group:
    """Processes that count together, each as one instance with a store of its own."""

    def __init__(self, open_store: OpenStore, fail: FailModes | None = None) -> None:
        self._open_store = open_store
        self._fail = fail or FailModes()
        self._members: list[GroupShares] = []
        self._stores: list[CountedSteps] = []

    @property
    def names(self) -> list[str]:
        return [store.member for store in self._stores]

    def member(
        self,
        *,
        kind: str = "chat",
        most: int = 500,
        per_actor: int = 5,
        linger_s: float = 0.0,
        renew_s: float = 2.0,
    ) -> GroupShares:
        store = CountedSteps(self._open_store())
        shares = GroupShares(kind, most, per_actor, store, self._fail, linger_s=linger_s, renew_s=renew_s)
        self._stores.append(store)
        self._members.append(shares)
        return shares

    @contextmanager
    def no_steps(self, number: int) -> Iterator[None]:
        before = self._stores[number].wanted
        yield
        assert self._stores[number].wanted == before

    async def __aenter__(self) -> "Group":
        return self

    async def __aexit__(self, *_: object) -> None:
        for shares in self._members:
            await shares.aclose()


class CountedSteps:
    """A store whose steps are counted: *wanted* places were asked for."""

    def __init__(self, store: PlaceStore) -> None:
        self._store = store
        self.member = store.member
        self.wanted = 0

    async def settle(self, kind: str, limit: int, wishes: Sequence[Wish]) -> Sequence[Grant]:
        self.wanted += sum(wish.wanted for wish in wishes)
        return await self._store.settle(kind, limit, wishes)

    async def leave(self, kind: str) -> None:
        await self._store.leave(kind)

    async def aclose(self) -> None:
        await self._store.aclose()
