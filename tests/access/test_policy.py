"""Decisions of the access rules, rule by rule (ACCESS-9, ACCESS-10, ACCESS-13)."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import (
    AccessDefault,
    AccessPolicy,
    AccessRule,
    Allowed,
    Decision,
    Denied,
    Hidden,
    VirtualGate,
)
from wicketgate.catalog.tool_id import tool_names


def owner(*permissions: str, actor: str = "owner_1") -> Identity:
    """*permissions* may hold roles, as ``role:lead``."""
    roles = tuple(each.removeprefix("role:") for each in permissions if each.startswith("role:"))
    return Identity(actor, ("tools:*", *(each for each in permissions if not each.startswith("role:"))), roles=roles)


def kind(decision: Decision) -> str:
    return type(decision).__name__


def decide(
    rules: list[AccessRule], tool: str, *permissions: str, actor: str = "owner_1", args: Mapping[str, Any] | None = None
) -> str:
    namespace, _, name = tool.partition(":")
    return kind(AccessPolicy(rules).decide(owner(*permissions, actor=actor), tool_names(namespace, name), args))


@requirement("ACCESS-9")
def test_without_rules_the_permission_of_the_tool_decides_alone() -> None:
    policy = AccessPolicy()
    reader = Identity("reader", ("tools:files:read",))
    assert policy.decide(reader, tool_names("files", "read"), {}) == Allowed()
    assert isinstance(policy.decide(reader, tool_names("files", "write")), Hidden)
    assert isinstance(policy.decide(reader, tool_names("files", "write"), {}), Hidden)


@requirement("ACCESS-9")
def test_every_required_permission_must_be_held() -> None:
    rules = [AccessRule("admin:*", require=("role:admin", "role:oncall"))]
    assert decide(rules, "admin:run") == "Hidden"
    assert decide(rules, "admin:run", "role:admin") == "Hidden"
    assert decide(rules, "admin:run", "role:admin", "role:oncall", args={}) == "Allowed"


@requirement("ACCESS-9")
def test_of_the_alternatives_one_permission_is_enough() -> None:
    rules = [AccessRule("team:notes", require_any=("a", "b"))]
    assert [decide(rules, "team:notes", held) for held in ("a", "b", "c")] == ["Allowed", "Allowed", "Hidden"]


@requirement("ACCESS-9")
def test_a_permission_outside_tools_is_held_or_covered_by_its_kind() -> None:
    rules = [AccessRule("db:row", ("db:read",))]
    assert decide(rules, "db:row") == "Hidden"
    assert decide(rules, "db:row", "db:write") == "Hidden"
    assert decide(rules, "db:row", "db:read") == "Allowed"
    assert decide(rules, "db:row", "db:*") == "Allowed"


@requirement("FACE-26", "ACCESS-9")
def test_an_internal_tool_exists_for_nobody_whatever_they_hold() -> None:
    assert decide([AccessRule("secret:*", visibility="internal")], "secret:op", "*") == "Hidden"


@requirement("ACCESS-10")
def test_the_first_rule_that_matches_decides_and_patterns_know_capitals() -> None:
    rules = [
        AccessRule("github:get_*"),
        AccessRule("github:*_Secret?", visibility="internal"),
        AccessRule("github:*", require=("role:dev",)),
        AccessRule("*:delete_*", approval="always"),
    ]
    assert decide(rules, "github:get_issue") == "Allowed"
    assert decide(rules, "github:delete_repo") == "Hidden"
    assert decide(rules, "github:delete_repo", "role:dev") == "Allowed"
    assert decide(rules, "github:a_Secrets", "role:dev") == "Hidden"
    assert decide(rules, "github:a_secrets", "role:dev") == "Allowed"
    assert decide(rules, "files:delete_all") == "NeedsApproval"
    assert decide(rules, "files:Delete_all") == "Allowed"


@requirement("ACCESS-11")
def test_a_rule_about_the_caller_is_settled_before_any_call() -> None:
    rules = [AccessRule("db:*", when=Condition("actor == 'batch' || 'bot' in roles"), effect="deny")]
    assert decide(rules, "db:row", actor="batch") == "Hidden"
    assert decide(rules, "db:row", "role:bot") == "Hidden"
    assert decide(rules, "db:row") == "Allowed"


@requirement("ACCESS-11")
def test_a_rule_about_arguments_is_settled_by_the_call_and_the_tool_stays_visible() -> None:
    rules = [
        AccessRule("shop:refund", when=Condition("args.amount > 100"), require=("role:boss",)),
        AccessRule("shop:refund", when=Condition("args.amount > 10"), approval="always"),
    ]
    assert decide(rules, "shop:refund") == "Allowed"
    assert decide(rules, "shop:refund", args={"amount": 5}) == "Allowed"
    assert decide(rules, "shop:refund", args={"amount": 50}) == "NeedsApproval"
    assert decide(rules, "shop:refund", args={"amount": 500}) == "Denied"
    assert decide(rules, "shop:refund", "role:boss", args={"amount": 500}) == "Allowed"


@requirement("ACCESS-11")
def test_a_tool_that_no_call_could_reach_does_not_exist() -> None:
    rules = [
        AccessRule("shop:*", when=Condition("args.dry"), require=("role:a",)),
        AccessRule("shop:*", require=("role:b",)),
    ]
    assert decide(rules, "shop:refund") == "Hidden"
    assert decide(rules, "shop:refund", args={"dry": True}) == "Hidden"
    assert decide(rules, "shop:refund", "role:a") == "Allowed"
    assert decide(rules, "shop:refund", "role:a", args={"dry": False}) == "Denied"


@requirement("ACCESS-12")
@pytest.mark.parametrize("args", [{}, {"amount": "a lot"}, {"amount": 10**30}, {"amount": None}])
def test_a_condition_that_cannot_be_evaluated_denies(args: Mapping[str, Any]) -> None:
    rules = [AccessRule("shop:*", when=Condition("args.amount > 100"), approval="always")]
    decision = AccessPolicy(rules).decide(owner(), tool_names("shop", "refund"), args)
    assert isinstance(decision, Denied)
    assert "access[0] (shop:*)" in decision.reason


@requirement("ACCESS-12")
def test_a_condition_with_too_much_to_do_ends_and_denies() -> None:
    every_pair = Condition("args.l.all(x, args.l.all(y, args.l.all(z, x + y + z >= 0)))")
    assert decide([AccessRule("a:b", when=every_pair)], "a:b", args={"l": list(range(100))}) == "Denied"


@requirement("ACCESS-12")
@pytest.mark.parametrize(
    "source", ["", "args.amount >", "argz.amount > 1", "actor", "1 + 1", "system('ls')", "(" * 500 + "true" + ")" * 500]
)
def test_a_condition_that_means_nothing_is_refused_when_it_is_read(source: str) -> None:
    with pytest.raises(ValueError, match=r"must be|not a condition"):
        Condition(source)


def test_equal_rights_are_equal_whoever_holds_them() -> None:
    policy = AccessPolicy([AccessRule("a:*", require=("role:x",)), AccessRule("b:*", when=Condition("actor == 'eve'"))])
    assert policy.rights(Identity("ann", ("tools:*",))) == policy.rights(Identity("bob", ("tools:*",)))
    assert policy.rights(Identity("ann", ("tools:*",))) != policy.rights(Identity("ann", ("tools:*",), roles=("x",)))
    assert policy.rights(Identity("ann", ("tools:*",))) != policy.rights(Identity("eve", ("tools:*",)))


@requirement("ACCESS-74", "ACCESS-14", "ACCESS-12")
@pytest.mark.parametrize("default", ["allow", "deny"])
def test_a_condition_about_arguments_opens_no_resources_and_prompts(default: AccessDefault) -> None:
    public = Condition("args.path.startsWith('/public')")

    def offers(*rules: AccessRule) -> str:
        return kind(AccessPolicy(rules, default).rules_on_all_of(owner(), "files"))

    assert offers(AccessRule("files:*", when=public)) == "Hidden"
    assert offers(AccessRule("files:*", when=public), AccessRule("files:*", effect="deny")) == "Hidden"
    assert offers(AccessRule("files:*", when=public), AccessRule("files:*", approval="always")) == "Hidden"
    assert offers(AccessRule("files:*", when=Condition("args.path == '/etc'"), effect="deny")) == "Hidden"
    aside = AccessRule("files:*", when=Condition("has(args.path) && args.path == '/etc'"), effect="deny")
    assert offers(aside, AccessRule("files:*")) == "Allowed"
    assert offers(AccessRule("files:*", when=Condition("actor == 'owner_1'"))) == "Allowed"


@requirement("ACCESS-12", "ACCESS-14")
def test_under_deny_a_tool_exists_if_some_call_of_it_may_be_approved() -> None:
    policy = AccessPolicy([AccessRule("files:*", when=Condition("has(args.path)"), approval="always")], "deny")
    decisions = [policy.decide(owner(), tool_names("files", "read"), args) for args in (None, {"path": "a"}, {})]
    assert list(map(kind, decisions)) == ["NeedsApproval", "NeedsApproval", "Denied"]


@requirement("ACCESS-121")
def test_conditions_read_roles_and_claims_and_two_callers_of_one_name_are_told_apart() -> None:
    policy = AccessPolicy(
        [
            AccessRule(
                "a:*", when=Condition("args.n > 1.0 && has(claims.org) && claims.org.unit == 'it'"), effect="deny"
            ),
            AccessRule("a:*", when=Condition("'admin' in roles || has(claims.org) && claims.org.unit == 'it'")),
            AccessRule("a:*", effect="deny"),
        ]
    )
    names = (("a", ("x",)),)

    def decided(args: dict[str, Any] | None = None, **token: Any) -> str:
        return type(policy.decide(Identity("corp:ann", ("tools:*",), **token), names, args)).__name__

    assert decided() == "Hidden"
    assert decided(roles=("admin",)) == "Allowed"
    assert decided(claims='{"org":{"unit":"it"}}') == "Allowed"
    assert decided({"n": 2}, claims='{"org":{"unit":"it"}}') == "Denied"
    assert decided(claims='{"org":{"unit":"hr"}}') == "Hidden"
    # Odd values and another shape deny, and harm no rule that reads no claims.
    for odd in (f'{{"org":{10**30}}}', '{"org":"it"}', '{"org":null}', '{"org":NaN}', '{"org":{}}'):
        assert decided(claims=odd) == "Hidden", odd
    plain = AccessPolicy([AccessRule("a:*", when=Condition("actor == 'corp:ann'")), AccessRule("a:*", effect="deny")])
    odd_claims = Identity("corp:ann", ("tools:*",), claims=f'{{"n":{10**30}}}')
    assert isinstance(plain.decide(odd_claims, names), Allowed)


@requirement("ACCESS-360")
@pytest.mark.parametrize("pattern", ["desk:[!_]*", "desk:?", "desk:?*", "de*:[*]"])
def test_a_pattern_that_does_not_name_all_of_a_server_opens_no_resources_of_it(pattern: str) -> None:
    gates = {"part": VirtualGate((pattern,)), "all": VirtualGate(("de*:*",))}
    policy = AccessPolicy([], gates=gates)
    assert isinstance(policy.rules_on_all_of(Identity("ann", ("*",), gate="part"), "desk"), Hidden)
    assert isinstance(policy.rules_on_all_of(Identity("ann", ("*",), gate="all"), "desk"), Allowed)
