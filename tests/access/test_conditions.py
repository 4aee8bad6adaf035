"""Conditions of rules, alone and together (ACCESS-11, ACCESS-12, ACCESS-202)."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.access.conditions import Asked, CannotEvaluate, Condition, join
from wicketgate.access.identity import Identity
from wicketgate.access.policy import (
    AccessDefault,
    AccessPolicy,
    AccessRule,
    Allowed,
    Decision,
    Denied,
    Hidden,
    NeedsApproval,
)
from wicketgate.catalog.tool_id import tool_names

SOURCES = (
    "args.n == 1",
    "args.n > 1 // that is all",
    "args.n == 1 || actor == 'ann'",
    "actor == 'ann' && args.n == 2",
    "args.n > 5 ? args.flag : args.text == 'x'",
    "has(args.text) && args.text.startsWith('x')",
    "args.flag",
    "args.rows.exists(row, row.n == 3)",
    "args.text != ')' || args.n == 3",
    "actor == 'bob'",
    "'p:a' in permissions",
    "claims.team == 'x'",
    "args.all(name, name != '') && args.l.all(x, args.l.all(y, args.l.all(z, x + y + z >= 0)))",
)
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [0, 1, 2, 3, 7, 10**30, "x", ")", None, True, 1.5, [{"n": 3}], [], {}, list(range(60))]
)
ARGS = st.dictionaries(st.sampled_from(["n", "flag", "text", "rows", "l"]), VALUES, max_size=4)
CALLERS = st.builds(
    Identity,
    st.sampled_from(["ann", "bob"]),
    st.sampled_from([("tools:*",), ("tools:*", "p:a")]),
    claims=st.sampled_from(["", '{"team":"x"}']),
)


def _rule(match: str, source: str | None, outcome: str) -> AccessRule:
    when = None if source is None else Condition(source)
    match outcome:
        case "deny":
            return AccessRule(match, when=when, effect="deny")
        case "ask":
            return AccessRule(match, when=when, approval="always")
        case "require":
            return AccessRule(match, when=when, require=("p:a",))
    return AccessRule(match, when=when)


RULES = st.lists(
    st.builds(
        _rule,
        st.sampled_from(["shop:*", "*:refund", "shop:refund", "shop:other", "*:*"]),
        st.sampled_from([*SOURCES, None]),
        st.sampled_from(["allow", "deny", "ask", "require"]),
    ),
    max_size=12,
)


def _asked_one_by_one(
    rules: Sequence[AccessRule], default: AccessDefault, caller: Identity, args: Mapping[str, Any]
) -> str:
    """The decision on a call of shop:refund, as the guide says it."""
    for rule in rules:
        if not fnmatchcase("shop:refund", rule.match):
            continue
        try:
            if rule.when and not rule.when.holds(Asked(caller, args, claims=True)):
                continue
        except CannotEvaluate:
            return "Denied"
        if rule.effect == "deny" or rule.missing(caller):
            return "Denied"
        return "Allowed" if rule.approval == "never" else "NeedsApproval"
    return "Allowed" if default == "allow" else "Denied"


@requirement("ACCESS-202")
@given(RULES, st.sampled_from(["allow", "deny"]), CALLERS, st.lists(ARGS, min_size=1, max_size=4))
@settings(max_examples=examples(400), deadline=None)
def test_rules_that_are_asked_together_decide_as_one_after_the_other(
    rules: list[AccessRule], default: AccessDefault, caller: Identity, calls: list[dict[str, Any]]
) -> None:
    policy = AccessPolicy(rules, default)
    names = tool_names("shop", "refund")
    for args in calls:
        decision: Decision = policy.decide(caller, names, args)
        if isinstance(decision, Hidden):
            # No call at all would be allowed.
            assert _asked_one_by_one(rules, default, caller, args) == "Denied"
        else:
            assert type(decision).__name__ == _asked_one_by_one(rules, default, caller, args)


@requirement("ACCESS-202")
@given(st.lists(st.sampled_from(SOURCES), max_size=80), CALLERS, ARGS)
@settings(max_examples=examples(200), deadline=None)
def test_conditions_are_passed_over_together_only_where_each_of_them_is_false(
    sources: list[str], caller: Identity, args: dict[str, Any]
) -> None:
    conditions = dict(enumerate(map(Condition, sources)))
    asked = Asked(caller, args, claims=True)

    def value(condition: Condition) -> bool | None:
        try:
            return condition.holds(asked)
        except CannotEvaluate:
            return None

    for index, together in join(conditions).items():
        if together.none_holds(asked):
            assert value(conditions[index]) is False


@requirement("ACCESS-202")
def test_sixty_four_conditions_are_one_evaluation_and_a_single_one_stays_alone() -> None:
    conditions = {index: Condition(f"args.n == {index}") for index in range(129)}
    together = join(conditions)
    assert len(set(together.values())) == 2
    assert 128 not in together
    asked = Asked(Identity("ann"), {"n": 70}, claims=False)
    assert [each.none_holds(asked) for each in dict.fromkeys(together.values())] == [True, False]


@requirement("ACCESS-202")
def test_conditions_too_long_for_one_expression_are_asked_one_by_one() -> None:
    long = "args.text != '" + "x" * 1_950 + "'"
    rules = [AccessRule("a:b", when=Condition(f"{long} && args.n == {n}"), approval="always") for n in range(64)]
    policy = AccessPolicy(rules)
    caller, names = Identity("ann", ("tools:*",)), tool_names("a", "b")
    assert policy.decide(caller, names, {"text": "", "n": 63}) == NeedsApproval()
    assert policy.decide(caller, names, {"text": "", "n": 64}) == Allowed()


@requirement("ACCESS-12", "ACCESS-202")
@pytest.mark.parametrize("args", [{"n": 10**30}, {"n": "\ud800"}, {"n": 1, 2: 3}])
def test_arguments_that_cel_does_not_have_deny_among_many_rules(args: Mapping[Any, Any]) -> None:
    rules = [AccessRule("a:b", when=Condition(f"args.n == {n}"), approval="always") for n in range(5)]
    decision = AccessPolicy(rules).decide(Identity("ann", ("tools:*",)), tool_names("a", "b"), args)
    assert isinstance(decision, Denied)
    assert "access[0] (a:b)" in decision.reason


@requirement("ACCESS-203")
def test_callers_with_equal_rights_share_them_also_where_rules_are_about_callers() -> None:
    rules = [AccessRule("a:*", when=Condition("actor == 'ann'"), effect="deny"), AccessRule("b:*", require=("p:a",))]
    policy = AccessPolicy(rules)
    bob, cid, ann = (policy.rights(Identity(actor, ("tools:*",))) for actor in ("bob", "cid", "ann"))
    assert bob is cid
    assert bob != ann
