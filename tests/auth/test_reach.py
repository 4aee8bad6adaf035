"""The compiled reach of a set of permissions is the rule itself (DESIGN §3 "Auth")."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from app.auth.identity import Identity
from app.auth.reach import reach_of
from tests.support.requirement import requirement

WORDS = ("tools", "memory", "*", "a", "one")
EVERY = [":".join(levels) for count in range(1, 5) for levels in product(WORDS, repeat=count)]
TOOLS = list(product(("a", "b", "tools"), ("one", "two", "a")))


def as_the_rule_says(granted: tuple[str, ...]) -> bool:
    reach, identity = reach_of(granted), Identity("actor", granted)
    return all(reach.covers(space, name) is identity.allows(f"tools:{space}:{name}") for space, name in TOOLS)


@requirement("DESIGN §3 Auth")
def test_one_permission_covers_exactly_what_it_allows() -> None:
    # Every permission of up to four levels of these words: drawn by chance, some forms would never be met.
    assert [granted for granted in EVERY if not as_the_rule_says((granted,))] == []


@requirement("DESIGN §3 Auth")
@given(st.lists(st.sampled_from(EVERY), max_size=4).map(tuple))
def test_several_permissions_cover_exactly_what_they_allow(granted: tuple[str, ...]) -> None:
    assert as_the_rule_says(granted)


def test_whoever_may_use_every_tool_is_known_without_asking_for_each() -> None:
    assert all(reach_of((granted,)).everything for granted in ("*", "tools:*", "tools:*:*", "*:*"))
    assert not any(reach_of((granted,)).everything for granted in ("tools", "tools:a:*", "memory:*", "tools:*:one"))
