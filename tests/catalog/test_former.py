"""Definitions that are as they were give way to the objects of the former listing (CARD-39)."""

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.fixtures import definition
from tests.support.requirement import requirement
from wicketgate.catalog.former import with_former


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"name": "deep"}
    for _ in range(depth):
        found = {"name": "deep", "inputSchema": found}
    return found


values = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([0.0, 1.0, "a", [], [1], [True]])
tools = st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"x": values, "y": values}) | values


@requirement("CARD-39")
@given(st.lists(tools, max_size=8), st.lists(tools, max_size=8))
def test_the_listing_stays_what_it_is_and_shares_what_is_the_same(former: list[Any], listing: list[Any]) -> None:
    taken = with_former(listing, former)
    if taken is former:
        assert listing == former
    else:
        assert json.dumps(taken) == json.dumps(listing)
        for place, (now, then) in enumerate(zip(taken, former, strict=False)):
            if isinstance(now, dict) and json.dumps(listing[place]) == json.dumps(then):
                assert now is then


@requirement("CARD-17", "CARD-39")
def test_an_equal_listing_is_the_former_one() -> None:
    former = [definition("read"), definition("write")]
    assert with_former(copy.deepcopy(former), former) is former


@requirement("CARD-39")
def test_a_definition_that_moved_is_found_by_its_name() -> None:
    former = [definition("a"), definition("b"), definition("c")]
    first, *rest = with_former([definition("new"), *copy.deepcopy(former)], former)
    assert first == definition("new")
    assert all(now is then for now, then in zip(rest, former, strict=True))


@requirement("CARD-39")
def test_one_and_true_are_not_the_same() -> None:
    former = [definition("a", annotations={"readOnlyHint": 1}), definition("b")]
    taken = with_former([definition("a", annotations={"readOnlyHint": True}), definition("b", "Other.")], former)
    assert taken[0]["annotations"]["readOnlyHint"] is True


@requirement("CARD-39")
def test_what_cannot_be_compared_is_left_as_it_came() -> None:
    odd = {"name": "odd", "inputSchema": {"x": 1j}}
    half = {"name": "half", "description": "\ud800"}
    former = [nested(100_000), odd, half, definition("a")]
    listing = [nested(100_000), dict(odd), dict(half), definition("a", "Other.")]
    assert [now is given for now, given in zip(with_former(listing, former), listing, strict=True)] == [True] * 4
