"""What callers see of a large catalog is found by their rights, and kept within bounds (BROWSE-75, BROWSE-76)."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule, Hidden
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import mcp_tool_to_selectable
from wicketgate.catalog.tool_id import tool_names
from wicketgate.faces.gateway import GatewayFace
from wicketgate.gateway.audiences import Audience, Audiences, GroupedCatalog
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


MIXED = Catalog(
    mcp_tool_to_selectable({"name": name if home == namespace else f"{namespace}.{name}"}, home, infer=home == "all")
    for namespace, home in (("git", "git"), ("shop", "all"), ("mail", "all"))
    for name in ("get_one", "get_two", "delete_one")
)


@requirement("BROWSE-75")
@given(RULES, st.sampled_from(["allow", "deny"]), PERMISSIONS, st.sampled_from(["ann", "bob"]))
@settings(max_examples=examples(400))
def test_what_a_caller_sees_of_groups_of_tools_is_what_is_decided_about_each(
    rules: list[AccessRule], default: Any, permissions: list[str], actor: str
) -> None:
    policy, caller = AccessPolicy(rules, default), Identity(actor, tuple(permissions))
    expected = {each for each, names in TOOLS.items() if not isinstance(policy.decide(caller, names), Hidden)}
    seen = policy.seen(policy.rights(caller), policy.grouped(TOOLS.items()))
    assert seen.ids() == expected
    assert {each for each in [*TOOLS, "git:none", ""] if seen.test()(each)} == expected


SERVICES = [
    mcp_tool_to_selectable({"name": f"{name}{number}"}, f"service{number}")
    for number in range(40)
    for name in ("get", "put")
]
GROUPED = GroupedCatalog(Catalog(SERVICES), AccessPolicy())


def audience(*permissions: str) -> Audience:
    return GROUPED.audience(AccessPolicy().rights(Identity("any", permissions)))


def services(numbers: Iterable[int]) -> list[str]:
    return [f"tools:service{number}:*" for number in numbers]


@requirement("BROWSE-76")
def test_callers_that_see_the_same_tools_share_what_is_kept_whatever_their_rights() -> None:
    kept = Audiences()
    first = kept.keep("ann", audience(*services([1, 2])))
    assert kept.keep("bob", audience(*services([2, 1, 77]))) is first
    assert kept.get("bob") is first
    assert kept.get("cid") is None
    # Nor does it matter whether tools are named one by one.
    assert kept.keep("dan", audience(*services([2]), "tools:service1:get1", "tools:*:put1")) is first


@requirement("BROWSE-76")
def test_audiences_are_kept_by_the_room_that_they_take_and_those_used_last_stay() -> None:
    each = audience(*services([1])).size_bytes
    kept = Audiences(most_bytes=3 * each)
    large = [audience(*services([number])) for number in range(4)]
    for number in range(3):
        kept.keep(number, large[number])
    kept.get(0)
    kept.keep(3, large[3])
    assert [kept.get(number) is not None for number in range(4)] == [True, False, True, True]
    # Those of other rights that see the same take no room, nor does what sees everything.
    for number in range(10):
        kept.keep(f"same {number}", audience(*services([3, 50 + number])))
    kept.keep("all", audience("tools:*"))
    assert kept.get(3) is large[3]
    assert len(kept) == 14
    # A single one is kept, however large.
    kept = Audiences(most_bytes=1)
    kept.keep("first", large[1])
    kept.keep("second", large[2])
    assert [kept.get("first"), kept.get("second")] == [None, large[2]]


@requirement("BROWSE-18", "BROWSE-75")
@given(RULES, PERMISSIONS | st.just(["tools:*"]), st.sampled_from(["ann", "bob"]))
@settings(max_examples=examples(300))
def test_what_stands_at_the_root_is_what_the_graph_of_the_visible_tools_has(
    rules: list[AccessRule], permissions: list[str], actor: str
) -> None:
    policy = AccessPolicy(rules)
    catalog = MIXED
    rights = policy.rights(Identity(actor, tuple(permissions)))
    made = GroupedCatalog(catalog, policy).audience(rights)
    visible = made.visible or bool
    assert made.cards_at(()) == catalog.cards_at((), visible)
    shown = [item.id for item in catalog.all() if visible(item.id)]
    assert made.definition_chars == sum(catalog.chars_of(each) for each in shown)
    whole = set(catalog.cards_at(()))
    assert made.has_own_cards == bool(set(made.cards_at(())) - whole)


@requirement("BROWSE-75", "BROWSE-76")
async def test_hundreds_of_callers_with_rights_of_their_own_are_worked_out_once_each() -> None:
    namespaces, callers = 520, 400
    upstream = StubUpstream(
        [{"name": f"service{number}.get", "description": "Get one."} for number in range(namespaces)]
    )
    runtime = await refreshed(ProxyRuntime(upstream))
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
