"""The compiled reach of a set of permissions is the rule itself (DESIGN §3 "Auth")."""

from hypothesis import given
from hypothesis import strategies as st

from app.auth.identity import Identity
from app.auth.reach import reach_of
from tests.support.requirement import requirement

level = st.sampled_from(["tools", "memory", "*", "a", "b", "one", "two"])
permissions = st.lists(st.lists(level, min_size=1, max_size=4).map(":".join), max_size=4).map(tuple)


@requirement("DESIGN §3 Auth")
@given(permissions, st.sampled_from(["a", "b", "tools"]), st.sampled_from(["one", "two", "a"]))
def test_it_covers_exactly_what_the_permissions_allow(granted: tuple[str, ...], namespace: str, name: str) -> None:
    identity = Identity("actor", granted)
    assert reach_of(granted).covers(namespace, name) is identity.allows(f"tools:{namespace}:{name}")


def test_whoever_may_use_every_tool_is_known_without_asking_for_each() -> None:
    assert all(reach_of((granted,)).everything for granted in ("*", "tools:*", "tools:*:*", "*:*"))
    assert not any(reach_of((granted,)).everything for granted in ("tools", "tools:a:*", "memory:*", "tools:*:one"))
