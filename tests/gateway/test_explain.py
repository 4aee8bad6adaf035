"""Reasons that an operator is given about a tool and a caller (ACCESS-15)."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from tests.support.requirement import requirement
from wicketgate.access.approvers import Need
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.catalog.catalog import Catalog, build_catalog
from wicketgate.catalog.learned_words import ActorWords, ToolWords, words_to_learn
from wicketgate.catalog.pins import Held, Screened
from wicketgate.gateway.explain import explain
from wicketgate.tokens import shipped_token_counter

Declared = Mapping[str, Sequence[Mapping[str, Any]]]

ANN = Identity("ann", ("tools:shop:*",))
POLICY = AccessPolicy(
    [
        AccessRule("shop:refund", when=Condition("args.amount > 100"), effect="deny"),
        AccessRule("shop:refund", approval="always"),
        AccessRule("shop:audit", require=("role:boss",)),
        AccessRule("shop:mail", when=Condition("has(args.to)"), approval="always"),
    ]
)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    names = ("refund", "audit", "mail", "list_orders")
    shop = [{"name": name, "description": f"The {name} tool.", "inputSchema": {"type": "object"}} for name in names]
    events = {"name": "watch", "inputSchema": {"type": "object"}, "_meta": {}}
    return build_catalog({"shop": shop, "bank": [events]}, shipped_token_counter())


def told(catalog: Catalog, tool: str, query: str = "") -> tuple[bool, str]:
    usable, lines = explain(catalog, POLICY, tool, ANN, query)
    return usable, "\n".join(line.partition("#")[0] + line[line.find(":") :] if "#" in line else line for line in lines)


def test_a_plain_tool_is_visible_and_says_by_what(catalog: Catalog) -> None:
    usable, text = told(catalog, "shop:list_orders", query="orders")
    assert usable
    assert "ann holds the permission tools:shop:list_orders" in text
    assert "no access rule matches it" in text
    assert "query 'orders': place 1" in text


def test_a_tool_that_no_word_finds_is_told_as_unranked(catalog: Catalog) -> None:
    assert "not ranked" in told(catalog, "shop:list_orders", query="weather")[1]


@requirement("OPS-53")
def test_learned_words_are_named_and_counted_in(catalog: Catalog) -> None:
    (orders,) = (tool_id for tool_id in catalog.items if "list_orders" in tool_id)
    learned = ActorWords()
    learned.put(orders, ToolWords().taught(words_to_learn("weather"), 0.0))
    text = "\n".join(explain(catalog, POLICY, "shop:list_orders", ANN, "weather", learned=learned)[1])
    assert "query 'weather': place 1" in text
    assert f"learned from executions: {', '.join(words_to_learn('weather'))}" in text
    assert "learned" not in "\n".join(explain(catalog, POLICY, "shop:mail", ANN, "weather", learned=learned)[1])


@requirement("ACCESS-15")
def test_a_hidden_tool_names_the_rule_and_what_is_missing(catalog: Catalog) -> None:
    usable, text = told(catalog, "shop:audit")
    assert not usable
    assert "access[2] (shop:audit): refused (needs the role boss)" in text


@requirement("ACCESS-15")
def test_what_depends_on_arguments_is_told_in_order(catalog: Catalog) -> None:
    usable, lines = explain(catalog, POLICY, "refund", ANN)
    assert usable
    assert lines[2:] == [
        "  access[0] (shop:refund) when args.amount > 100: refused (denied)",
        "  access[1] (shop:refund): visible; each call needs approval",
    ]
    assert "  otherwise: visible" in explain(catalog, POLICY, "shop:mail", ANN)[1]


@requirement("ACCESS-177")
def test_who_has_to_approve_is_told(catalog: Catalog) -> None:
    policy = AccessPolicy([AccessRule("shop:refund", approval=Need("role:lead", 2))])
    usable, lines = explain(catalog, policy, "shop:refund", ANN)
    assert usable
    assert "access[0] (shop:refund): visible; each call needs approval of 2 of role:lead" in "\n".join(lines)


@requirement("ACCESS-15")
def test_a_missing_permission_is_the_base_of_all(catalog: Catalog) -> None:
    usable, text = told(catalog, "bank:watch")
    assert not usable
    assert "needs the permission tools:bank:watch, which ann does not hold" in text


def test_a_tool_that_is_not_there_says_what_may_be_meant(catalog: Catalog) -> None:
    usable, text = told(catalog, "shop:refnud")
    assert not usable
    assert "did you mean shop:refund" in text


@requirement("ACCESS-15")
def test_what_is_left_out_for_everybody_says_why() -> None:
    server = "q0x9z1" * 9
    fine = {"type": "object"}
    held_up = {"name": "".join(f"Q{i}z_x" for i in range(25))[:128], "inputSchema": fine}
    stream = {"name": "watch", "inputSchema": fine, "_meta": {"wicketgate/operation": "subscription"}}
    found = build_catalog({server: [held_up, stream]}, shipped_token_counter())
    (subscription,) = found.subscriptions
    assert "a subscription" in explain(found, POLICY, subscription, ANN)[1][0]
    page = {"name": "refresh", "inputSchema": fine, "_meta": {"ui": {"visibility": ["app"]}}}
    for_apps = build_catalog({"shop": [page]}, shipped_token_counter())
    assert "its server keeps it for pages of MCP Apps" in explain(for_apps, POLICY, "shop:refresh", ANN)[1][0]
    ((uncarded, reason),) = found.quarantine.items()
    usable, lines = explain(found, POLICY, uncarded, Identity("ann", ("*",)), "q0x")
    assert usable
    assert lines[0] == f"{uncarded}: visible"
    assert lines[-2:] == [
        f"  not browsed, only called, by anybody: {reason}",
        "  query 'q0x': not ranked, because it has no card",
    ]


def test_a_tool_that_is_not_as_it_was_accepted_says_so(catalog: Catalog) -> None:
    screened = {"shop": Screened(held={"pay": Held("new")})}
    for wanted in ("pay", "shop:pay", "shop:pay#0123abcd"):
        assert explain(catalog, POLICY, wanted, ANN, screened=screened) == (
            False,
            ["shop:pay: quarantined for all callers: no person has accepted it yet"],
        )


def test_a_tool_that_its_upstream_lists_but_no_catalog_has_is_told_as_hidden(catalog: Catalog) -> None:
    declared = {"shop": [{"name": "_private"}, "odd", {"name": 5}]}
    for wanted in ("_private", "shop:_private"):
        usable, (line,) = explain(catalog, POLICY, wanted, ANN, declared=cast(Declared, declared))
        assert not usable
        assert line.startswith("shop:_private: hidden from all callers: shop lists it, but a plugin removes it")
