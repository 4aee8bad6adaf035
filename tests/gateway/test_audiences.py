"""What callers see of a large catalog is found by their rights, and kept within bounds (BROWSE-75, BROWSE-76)."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule, Hidden
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.tool_id import tool_names
from wicketgate.faces.gateway import GatewayFace
from wicketgate.gateway.audiences import Audience, Audiences
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.gateway.snapshot import Snapshot
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

TOOLS = {
    f"{namespace}:{name}": tool_names(namespace, name, home=home)
    for namespace, home in (("git", "git"), ("shop", "all"), ("mail", "all"))
    for name in ("get_one", "get_two", "delete_one")
}
PERMISSIONS = st.lists(
    st.sampled_from(
        [
            *("tools:*", "tools:git:*", "tools:shop:*", "tools:all:*", "tools:*:get_one", "tools:shop:get_two"),
            *("tools:all:get_two", "tools:mail:delete_one", "p:a"),
        ]
    ),
    max_size=5,
)
RULES = st.lists(
    st.builds(
        AccessRule,
        st.sampled_from(["git:*", "*:get_*", "shop:delete_one", "all:*", "*:*"]),
        when=st.sampled_from([None, Condition("actor == 'ann'"), Condition("args.n == 1")]),
        effect=st.sampled_from(["allow", "deny"]),
    )
    | st.builds(AccessRule, st.sampled_from(["git:*", "*:get_two"]), require=st.just(("p:a",))),
    max_size=5,
)


@requirement("BROWSE-75")
@given(RULES, st.sampled_from(["allow", "deny"]), PERMISSIONS, st.sampled_from(["ann", "bob"]))
@settings(max_examples=examples(400))
def test_what_a_caller_sees_of_groups_of_tools_is_what_is_decided_about_each(
    rules: list[AccessRule], default: Any, permissions: list[str], actor: str
) -> None:
    policy, caller = AccessPolicy(rules, default), Identity(actor, tuple(permissions))
    expected = {each for each, names in TOOLS.items() if not isinstance(policy.decide(caller, names), Hidden)}
    assert policy.visible(policy.rights(caller), policy.grouped(TOOLS.items())) == expected


def audience(*ids: str) -> Audience:
    return Audience(Catalog(), frozenset(ids))


@requirement("BROWSE-76")
def test_callers_that_see_the_same_tools_share_what_is_kept_whatever_their_rights() -> None:
    kept = Audiences()
    first = kept.keep("ann", audience("a:b", "a:c"))
    assert kept.keep("bob", audience("a:c", "a:b")) is first
    assert kept.get("bob") is first
    assert kept.get("cid") is None


@requirement("BROWSE-76")
def test_audiences_are_kept_by_the_tools_in_them_and_those_used_last_stay() -> None:
    kept = Audiences(most_ids=100)
    large = [audience(*(f"{number}:{each}" for each in range(30))) for number in range(4)]
    for number in range(3):
        kept.keep(number, large[number])
    kept.get(0)
    kept.keep(3, large[3])
    assert [kept.get(number) is not None for number in range(4)] == [True, False, True, True]
    # Small ones, and those of other rights that see the same, take little room or none.
    for number in range(10):
        kept.keep(f"small {number}", audience(f"x:{number}"))
        kept.keep(f"same {number}", audience(*(f"3:{each}" for each in range(30))))
    assert kept.get(3) is large[3]
    assert len(kept) == 23
    # A single one is kept, however large.
    kept.keep("huge", audience(*map(str, range(1_000))))
    assert len(kept) == 1
    for number in range(5):
        kept.keep(number, audience(f"x:{number}"))
    assert len(kept) == 5


@requirement("BROWSE-75", "BROWSE-76")
async def test_hundreds_of_callers_with_rights_of_their_own_are_worked_out_once_each() -> None:
    namespaces, callers = 520, 400
    upstream = StubUpstream(
        [{"name": f"service{number}.get", "description": "Get one."} for number in range(namespaces)]
    )
    runtime = ProxyRuntime(upstream)
    await runtime.refresh_catalog()
    face = GatewayFace(runtime)
    contexts = [
        CallContext(Identity(f"actor{number}", (f"tools:service{number}:*", f"tools:{upstream.name}:*")), "r", "s")
        for number in range(callers)
    ]
    for each in contexts:
        found = await face.call("tool_browse", {"path": "/"}, each)
        assert len((found.structured or {})["cards"]) == 1
    # The test of what is visible belongs to the set that was worked out: it equals that of no other set.
    made = [runtime.visible(each) for each in contexts]
    for each in contexts:
        await face.call("tool_browse", {"path": "/"}, each)
    assert [runtime.visible(each) for each in contexts] == made
    assert len(set(made)) == callers


@requirement("BROWSE-76")
def test_what_callers_see_is_kept_while_the_tools_stay_and_upstreams_come_and_go() -> None:
    snapshot, policy, caller = Snapshot(Catalog(), {}, {}), AccessPolicy(), Identity("ann", ("tools:a:*",))
    made = snapshot.audience(policy, caller)
    other = snapshot.with_troubles({"another": "away"})
    assert other is not snapshot
    assert other.audience(policy, caller) is made
