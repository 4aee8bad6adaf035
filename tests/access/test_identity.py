"""The actions and the tools that permissions cover (ACCESS-7)."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity, parse_permissions, reach_of

WORDS = ("tools", "memory", "*", "a", "one")
EVERY = [":".join(levels) for count in range(1, 5) for levels in product(WORDS, repeat=count)]
TOOLS = list(product(("a", "b", "tools"), ("one", "two", "a")))


@requirement("ACCESS-7")
@pytest.mark.parametrize(
    ("granted", "wanted", "covered"),
    [
        ("tools:github:create_issue", "tools:github:create_issue", True),
        ("tools:github:*", "tools:github:create_issue", True),
        ("tools:*", "tools:github:create_issue", True),
        ("*", "tools:github:create_issue", True),
        ("tools:*:create_issue", "tools:gitlab:create_issue", True),
        ("tools:*:create_issue", "tools:gitlab:close_issue", False),
        ("tools:github:*", "tools:gitlab:create_issue", False),
        ("tools:github", "tools:github:create_issue", False),
        ("tools:github:create_issue:x", "tools:github:create_issue", False),
        ("tools:git*", "tools:github:create_issue", False),
        ("memory:*", "tools:github:create_issue", False),
        ("tools:github:*", "tools:github", False),
    ],
)
def test_a_star_covers_the_rest_of_its_level_or_everything_below(granted: str, wanted: str, covered: bool) -> None:
    assert Identity("a", (granted,)).allows(wanted) is covered


def test_no_permission_covers_nothing_and_any_one_of_several_suffices() -> None:
    assert not Identity("a").allows("tools:github:x")
    assert Identity("a", ("memory:*", "tools:github:x")).allows("tools:github:x")


def test_a_list_of_permissions_is_split_and_checked() -> None:
    assert parse_permissions(" memory:*, tools:github:* ,") == ("memory:*", "tools:github:*")
    for bad in ("tools::x", "tools:a b", "tools:git*", ":", "a,b:"):
        with pytest.raises(ValueError, match="not a permission"):
            parse_permissions(bad)


def as_the_rule_says(granted: tuple[str, ...]) -> bool:
    reach, identity = reach_of(granted), Identity("actor", granted)
    return all(reach.covers(space, name) is identity.allows(f"tools:{space}:{name}") for space, name in TOOLS)


@requirement("ACCESS-7")
def test_one_permission_covers_exactly_what_it_allows() -> None:
    # Every permission of up to four levels of these words: drawn by chance, some forms would never be met.
    assert [granted for granted in EVERY if not as_the_rule_says((granted,))] == []


@requirement("ACCESS-7")
@given(st.lists(st.sampled_from(EVERY), max_size=4).map(tuple))
def test_several_permissions_cover_exactly_what_they_allow(granted: tuple[str, ...]) -> None:
    assert as_the_rule_says(granted)


def test_a_reach_knows_that_it_covers_every_tool() -> None:
    assert all(reach_of((granted,)).everything for granted in ("*", "tools:*", "tools:*:*", "*:*"))
    assert not any(reach_of((granted,)).everything for granted in ("tools", "tools:a:*", "memory:*", "tools:*:one"))
