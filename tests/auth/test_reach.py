"""The compiled reach of a set of permissions is the rule itself (DESIGN §3 "Auth")."""

from hypothesis import example, given
from hypothesis import strategies as st

from app.auth.identity import Identity
from app.auth.reach import reach_of
from tests.support.requirement import requirement

# Few words, so that every form of a permission with three levels comes up among a hundred examples; and one permission
# in most of them, since a second that covers everything hides what the first one does.
level = st.sampled_from(["tools", "*", "a", "one"])
permission = st.tuples(st.sampled_from(["tools", "*", "memory"]), level, level) | st.lists(
    level, min_size=1, max_size=4
)
permissions = st.lists(permission.map(":".join), min_size=1, max_size=2).map(tuple)


@requirement("DESIGN §3 Auth")
@example(("*:*:one",), "a", "one")
@example(("*:*:one",), "a", "a")
@example(("*:a:*",), "a", "one")
@example(("*:a:one",), "a", "one")
@example((), "a", "one")
@given(permissions, st.sampled_from(["a", "tools"]), st.sampled_from(["one", "a"]))
def test_it_covers_exactly_what_the_permissions_allow(granted: tuple[str, ...], namespace: str, name: str) -> None:
    identity = Identity("actor", granted)
    assert reach_of(granted).covers(namespace, name) is identity.allows(f"tools:{namespace}:{name}")


def test_whoever_may_use_every_tool_is_known_without_asking_for_each() -> None:
    assert all(reach_of((granted,)).everything for granted in ("*", "tools:*", "tools:*:*", "*:*"))
    assert not any(reach_of((granted,)).everything for granted in ("tools", "tools:a:*", "memory:*", "tools:*:one"))
