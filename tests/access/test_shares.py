"""The rule by which places are shared among actors, and its counters (ACCESS-36 to ACCESS-38)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.test_shares import refusal, taken
from tests.support.requirement import requirement
from wicketgate.access.shares import CountedShares, Lease, ShareRefused


@requirement("ACCESS-36")
@pytest.mark.parametrize(("most", "one"), [(1, 1), (4, 4), (5, 4), (6, 5), (9, 8), (10, 8), (20, 16), (500, 400)])
async def test_a_single_actor_takes_four_fifths_and_of_fewer_than_five_all(most: int, one: int) -> None:
    shares = CountedShares("chat", most)
    assert len(await taken(shares, "bob")) == one
    refused = await refusal(shares, "bob")
    assert (refused.scope, refused.held) == ("all" if one == most else "actor", one)


@requirement("ACCESS-36")
async def test_each_newcomer_finds_room_beside_those_who_took_all_they_could() -> None:
    shares = CountedShares("chat", 500)
    held = [len(await taken(shares, actor)) for actor in ("a", "b", "c")]
    assert held == [400, 80, 16]
    assert await shares.take("newcomer")


@requirement("ACCESS-36")
async def test_who_holds_much_gets_nothing_more_until_others_have_their_part() -> None:
    shares = CountedShares("chat", 100)
    bobs = await taken(shares, "bob")
    alices = await taken(shares, "alice")
    assert (len(bobs), len(alices)) == (80, 16)
    # As bob's places become free, both take what they can: in the end they hold the same.
    for lease in bobs:
        shares.give_back(lease)
        await taken(shares, "bob", 1)
        alices += await taken(shares, "alice", 1)
    assert len(alices) >= 44
    assert 100 - shares.held + len(await taken(shares, "carl")) >= 11


@requirement("ACCESS-36")
async def test_a_limit_for_each_actor_takes_the_place_of_the_rule() -> None:
    shares = CountedShares("chat", 10, per_actor=3)
    assert len(await taken(shares, "bob")) == 3
    assert (await refusal(shares, "bob")).scope == "actor"
    assert len(await taken(shares, "alice")) == 3
    wide = CountedShares("chat", 10, per_actor=10)
    assert len(await taken(wide, "bob")) == 10
    assert (await refusal(wide, "alice")).scope == "all"


@requirement("ACCESS-37")
async def test_a_lease_is_given_back_once() -> None:
    shares = CountedShares("chat", 3)
    first, _ = await taken(shares, "bob", 2)
    shares.give_back(first)
    shares.give_back(first)
    assert shares.held == 1
    assert len({lease.id for lease in (first, *await taken(shares, "bob"))}) == 3
    assert shares.held == 3


@requirement("ACCESS-37")
async def test_refusals_are_counted_by_scope() -> None:
    shares = CountedShares("chat", 2, per_actor=1)
    for actor in ("a", "a", "b", "c", "c"):
        await taken(shares, actor, 1)
    assert shares.refused == {"actor": 1, "all": 2}


@requirement("ACCESS-37")
async def test_no_room_is_made_for_an_actor_that_is_at_its_own_limit() -> None:
    shares = CountedShares("chat", 3, per_actor=1)
    await taken(shares, "bob", 1)
    asked: list[int] = []

    def make_room(held: int) -> bool:
        asked.append(held)
        return False

    with pytest.raises(ShareRefused):
        await shares.take("bob", make_room)
    assert asked == []


@requirement("ACCESS-37")
async def test_room_that_is_made_is_taken_and_counts_as_no_refusal() -> None:
    shares = CountedShares("chat", 2)
    leases = await taken(shares, "bob", 2)
    asked: list[int] = []

    def make_room(held: int) -> bool:
        asked.append(held)
        if leases:
            shares.give_back(leases.pop())
            return True
        return False

    assert await shares.take("alice", make_room)
    assert await shares.take("alice", make_room)
    leases.clear()
    with pytest.raises(ShareRefused):
        await shares.take("alice", make_room)
    assert asked == [0, 1, 2]
    assert shares.refused == {"actor": 0, "all": 1}, "only the last"


@requirement("ACCESS-36")
@given(st.integers(1, 60), st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=200))
async def test_whatever_comes_and_goes_the_bound_holds_and_a_free_place_is_free_for_a_newcomer(
    most: int, steps: list[tuple[str, bool]]
) -> None:
    shares = CountedShares("chat", most)
    held: dict[str, list[Lease]] = {actor: [] for actor in "abcdef"}
    for actor, takes in steps:
        if takes:
            held[actor] += await taken(shares, actor, 1)
        elif held[actor]:
            shares.give_back(held[actor].pop())
        assert shares.held == sum(map(len, held.values())) <= most
        if shares.held < most:
            newcomer = await shares.take("newcomer")
            shares.give_back(newcomer)
