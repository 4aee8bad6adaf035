"""Rules, quotas and permissions hold under each name of a tool, whoever chose it (ACCESS-47 to ACCESS-50)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import ApprovalRequired, Forbidden, HydrateFailed, RateLimited
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.explain import explain
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugins.rewriting import ToolManager, ToolManagerConfig
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

# Its card does not fit, so the name in its id is cut.
LONG = "delete_" + "qx7zk9_" * 16 + "w"


def context(*permissions: str, actor: str = "ann") -> CallContext:
    return CallContext(Identity(actor, permissions or ("tools:*",)), "trace-1", "s")


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": f"ran {name}"}]}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "A thing to do.", "inputSchema": {"type": "object"}}


async def gate(
    names: Sequence[str],
    *rules: AccessRule,
    shown_as: Mapping[str, str] | None = None,
    server: str = "pyt",
    **policies: Any,
) -> tuple[ProxyRuntime, StubUpstream]:
    """A runtime over one server, whose tools a plugin shows under other names."""
    upstream = StubUpstream([tool(name) for name in names], answer, name=server)
    plugins = None
    if shown_as:
        entries = [{"tool": own, "display_name": shown} for own, shown in shown_as.items()]
        manager = ToolManager(ToolManagerConfig.model_validate({"tools": entries}))
        plugins = PluginChain({server: [Installed("tool_manager", manager)]}, lambda: 0.0)
    access = AccessPolicy(rules, **policies.pop("access", {}))
    options = RuntimeOptions(RuntimePolicies(access=access, **policies), plugins=plugins)
    runtime = ProxyRuntime(upstream, options)
    await runtime.refresh_catalog()
    return runtime, upstream


def only(runtime: ProxyRuntime) -> str:
    (tool_id,) = runtime.catalog().items
    return tool_id


@requirement("ACCESS-47")
async def test_a_rule_on_the_servers_own_name_holds_for_a_renamed_tool() -> None:
    runtime, upstream = await gate(["pay"], AccessRule("pyt:pay", approval="always"), shown_as={"pay": "transfer"})
    with pytest.raises(ApprovalRequired):
        await runtime.execute(only(runtime), {}, context())
    assert upstream.calls == []


@requirement("ACCESS-47")
async def test_a_rule_on_the_shown_name_holds_as_well() -> None:
    rule = AccessRule("pyt:transfer", effect="deny")
    runtime, _ = await gate(["pay"], rule, shown_as={"pay": "transfer"})
    with pytest.raises(HydrateFailed):
        await runtime.execute(only(runtime), {}, context())
    assert (await runtime.browse_query("a thing to do", 5, context())).cards == ()


@requirement("ACCESS-47")
@pytest.mark.parametrize("first", ["pyt:pay", "pyt:transfer"])
async def test_the_strictest_of_the_verdicts_counts_in_any_order(first: str) -> None:
    second = "pyt:transfer" if first == "pyt:pay" else "pyt:pay"
    rules = (AccessRule(first), AccessRule(second, approval="always"))
    runtime, _ = await gate(["pay"], *rules, shown_as={"pay": "transfer"})
    with pytest.raises(ApprovalRequired):
        await runtime.execute(only(runtime), {}, context())
    denying = Condition("args.amount > 5")
    runtime.access = AccessPolicy([*rules, AccessRule("*:*")])
    with pytest.raises(ApprovalRequired):
        await runtime.execute(only(runtime), {"amount": 9}, context())
    runtime.access = AccessPolicy([AccessRule(first), AccessRule(second, when=denying, effect="deny")])
    await runtime.execute(only(runtime), {"amount": 1}, context())
    with pytest.raises(Forbidden):
        await runtime.execute(only(runtime), {"amount": 9}, context())


@requirement("ACCESS-47")
async def test_a_rule_with_the_exact_name_holds_for_a_tool_whose_id_was_cut() -> None:
    runtime, upstream = await gate([LONG], AccessRule(f"pyt:{LONG}", effect="deny"))
    tool_id = only(runtime)
    assert LONG not in tool_id
    with pytest.raises(HydrateFailed):
        await runtime.execute(tool_id, {}, context())
    assert upstream.calls == []


@requirement("ACCESS-47")
async def test_a_name_outside_the_grammar_is_matched_as_the_server_spells_it() -> None:
    runtime, _ = await gate(["delete everything"], AccessRule("pyt:delete ev*", effect="deny"))
    with pytest.raises(HydrateFailed):
        await runtime.execute(only(runtime), {}, context())


@requirement("ACCESS-47")
async def test_a_rule_by_the_server_holds_for_tools_that_infer_another_namespace() -> None:
    runtime, _ = await gate(["github.drop"], AccessRule("pyt:*", effect="deny"), inferred={"pyt"})
    assert only(runtime).startswith("github:drop")
    with pytest.raises(HydrateFailed):
        await runtime.execute(only(runtime), {}, context())


@requirement("ACCESS-48")
async def test_a_permission_must_cover_the_tool_at_its_own_server() -> None:
    runtime, upstream = await gate(["github.drop"], inferred={"pyt"})
    for permissions in (("tools:github:*",), ("tools:pyt:*",)):
        with pytest.raises(HydrateFailed):
            await runtime.execute(only(runtime), {}, context(*permissions))
        assert (await runtime.browse_query("a thing to do", 5, context(*permissions))).cards == ()
    await runtime.execute(only(runtime), {}, context("tools:github:*", "tools:pyt:drop"))
    assert len(upstream.calls) == 1


@requirement("ACCESS-48")
async def test_a_permission_is_judged_by_the_name_in_the_id() -> None:
    runtime, _ = await gate(["pay"], shown_as={"pay": "transfer"})
    with pytest.raises(HydrateFailed):
        await runtime.execute(only(runtime), {}, context("tools:pyt:pay"))
    await runtime.execute(only(runtime), {}, context("tools:pyt:transfer"))


async def test_an_upstream_without_a_name_has_the_namespaces_of_its_tools_only() -> None:
    runtime, _ = await gate(["github.read"], server="")
    await runtime.execute(only(runtime), {}, context("tools:github:read"))


@requirement("ACCESS-8", "ACCESS-47")
async def test_a_kept_result_follows_the_rules_on_every_name() -> None:
    async def long(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": "word " * 20_000}]}

    runtime, upstream = await gate(["pay"], shown_as={"pay": "transfer"})
    upstream._handler = long
    done = await runtime.execute(only(runtime), {}, context())
    handle = done.envelope.artifacts[0].handle
    await runtime.view(handle, {"type": "head", "chars": 4}, context())
    runtime.access = AccessPolicy([AccessRule("pyt:pay", effect="deny")])
    with pytest.raises(Exception, match="No such artifact"):
        await runtime.view(handle, {"type": "head", "chars": 4}, context())


@requirement("ACCESS-15", "ACCESS-47")
async def test_explain_shows_which_name_decides() -> None:
    rules = (AccessRule("pyt:transfer"), AccessRule("pyt:pay", effect="deny"))
    runtime, _ = await gate(["pay"], *rules, shown_as={"pay": "transfer"})
    usable, lines = explain(runtime.catalog(), runtime.access, "pay", context().identity)
    assert not usable
    assert "  as pyt:transfer: access[0] (pyt:transfer): visible" in lines
    assert "  as pyt:pay: access[1] (pyt:pay): refused (denied)" in lines
    assert "hidden: access[1] (pyt:pay): denied" in lines[0]


@requirement("ACCESS-49")
async def test_a_quota_by_exact_name_counts() -> None:
    runtime, upstream = await gate(["tick"], per_tool={"pyt:tick": 2})
    for _ in range(2):
        await runtime.execute(only(runtime), {}, context())
    with pytest.raises(RateLimited):
        await runtime.execute(only(runtime), {}, context())
    assert len(upstream.calls) == 2


@requirement("ACCESS-49")
@pytest.mark.parametrize("pattern", ["pyt:pay", "pyt:transfer", "pyt:trans*", "pyt:transfer#*"])
async def test_a_quota_counts_under_each_name_and_the_first_pattern_decides(pattern: str) -> None:
    runtime, _ = await gate(["pay"], shown_as={"pay": "transfer"}, per_tool={pattern: 0, "*": 100})
    with pytest.raises(RateLimited):
        await runtime.execute(only(runtime), {}, context())


@requirement("ACCESS-50")
async def test_with_access_default_deny_a_tool_that_no_rule_decides_on_does_not_exist() -> None:
    rules = (AccessRule("pyt:read*"), AccessRule("pyt:pay", when=Condition("actor == 'bob'")))
    runtime, upstream = await gate(["read_it", "pay", "drop"], *rules, access={"default": "deny"})
    by_name = {item.name: tool_id for tool_id, item in runtime.catalog().items.items()}
    assert [card.name for card in (await runtime.browse_query("a thing to do", 9, context())).cards] == ["read_it"]
    await runtime.execute(by_name["read_it"], {}, context())
    for name in ("pay", "drop"):
        with pytest.raises(HydrateFailed):
            await runtime.execute(by_name[name], {}, context())
    await runtime.execute(by_name["pay"], {}, context(actor="bob"))
    assert [name for name, _, _ in upstream.calls] == ["read_it", "pay"]
    lines = explain(runtime.catalog(), runtime.access, "drop", context().identity)[1]
    assert any("access_default: deny" in line for line in lines)


@requirement("ACCESS-50")
async def test_with_access_default_deny_one_name_that_a_rule_allows_is_enough() -> None:
    rule = AccessRule("pyt:pay")
    runtime, _ = await gate(["pay"], rule, shown_as={"pay": "transfer"}, access={"default": "deny"})
    await runtime.execute(only(runtime), {}, context())


@requirement("ACCESS-50")
async def test_with_access_default_deny_a_call_that_meets_no_condition_is_refused() -> None:
    rule = AccessRule("pyt:pay", when=Condition("args.amount < 5"))
    runtime, upstream = await gate(["pay"], rule, access={"default": "deny"})
    await runtime.execute(only(runtime), {"amount": 1}, context())
    with pytest.raises(Forbidden):
        await runtime.execute(only(runtime), {"amount": 9}, context())
    asking = AccessRule("pyt:pay", when=Condition("args.amount < 5"), approval="always")
    runtime.access = AccessPolicy([asking], default="deny")
    with pytest.raises(ApprovalRequired):
        await runtime.execute(only(runtime), {"amount": 1}, context())
    assert len(upstream.calls) == 1


@requirement("ACCESS-50", "ACCESS-14")
async def test_access_default_deny_holds_for_what_a_server_offers_besides_tools() -> None:
    identity = context().identity
    closed = AccessPolicy([AccessRule("pyt:read"), AccessRule("docs:*")], default="deny")
    assert type(closed.rules_on_all_of(identity, "pyt")).__name__ == "Hidden"
    assert type(closed.rules_on_all_of(identity, "docs")).__name__ == "Allowed"


@requirement("ACCESS-50")
async def test_two_servers_of_one_fleet_keep_apart() -> None:
    upstreams = [StubUpstream([tool("get")], answer, name=server) for server in ("db", "shop")]
    access = AccessPolicy([AccessRule("db:get")], default="deny")
    runtime = ProxyRuntime(MultiplexUpstream(upstreams), RuntimeOptions(RuntimePolicies(access=access)))
    await runtime.refresh_catalog()
    assert [card.namespace for card in (await runtime.browse_query("a thing to do", 9, context())).cards] == ["db"]
