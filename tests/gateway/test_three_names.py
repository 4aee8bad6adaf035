"""Rules, quotas and permissions hold under each name of a tool, whoever chose it (ACCESS-47 to ACCESS-50)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import ApprovalRequired, Forbidden, GatewayError, HydrateFailed, RateLimited
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
    runtime = await refreshed(ProxyRuntime(upstream, options))
    return runtime, upstream


def only(runtime: ProxyRuntime) -> str:
    (tool_id,) = runtime.catalog().items
    return tool_id


RENAMED = {"shown_as": {"pay": "transfer"}}
INFERRED = {"inferred": {"pyt"}}


@requirement("ACCESS-47", "ACCESS-48", "ACCESS-49")
@pytest.mark.parametrize(
    ("name", "rules", "options", "permissions", "error"),
    [
        ("pay", [AccessRule("pyt:pay", approval="always")], RENAMED, (), ApprovalRequired),
        ("pay", [AccessRule("pyt:transfer", effect="deny")], RENAMED, (), HydrateFailed),
        (LONG, [AccessRule(f"pyt:{LONG}", effect="deny")], {}, (), HydrateFailed),
        ("delete everything", [AccessRule("pyt:delete ev*", effect="deny")], {}, (), HydrateFailed),
        ("github.drop", [AccessRule("pyt:*", effect="deny")], INFERRED, (), HydrateFailed),
        # A permission must cover the tool in its namespace and at its server, by the name in the id.
        ("github.drop", [], INFERRED, ("tools:github:*",), HydrateFailed),
        ("github.drop", [], INFERRED, ("tools:pyt:*",), HydrateFailed),
        ("pay", [], RENAMED, ("tools:pyt:pay",), HydrateFailed),
        # The first pattern that fits the tool under any name decides about its quota.
        ("tick", [], {"per_tool": {"pyt:tick": 0}}, (), RateLimited),
        *(
            ("pay", [], {**RENAMED, "per_tool": {pattern: 0, "*": 100}}, (), RateLimited)
            for pattern in ("pyt:pay", "pyt:transfer", "pyt:trans*", "pyt:transfer#*")
        ),
    ],
)
async def test_a_tool_is_judged_under_each_of_its_names(
    name: str, rules: list[AccessRule], options: dict[str, Any], permissions: Sequence[str], error: type[GatewayError]
) -> None:
    runtime, upstream = await gate([name], *rules, **options)
    caller = context(*permissions)
    with pytest.raises(error):
        await runtime.execute(only(runtime), {}, caller)
    assert upstream.calls == []
    assert bool((await runtime.browse_query("a thing to do", 5, caller)).cards) is (error is not HydrateFailed)


@requirement("ACCESS-48", "ACCESS-50")
@pytest.mark.parametrize(
    ("name", "rules", "options", "permissions"),
    [
        ("github.drop", [], INFERRED, ("tools:github:*", "tools:pyt:drop")),
        ("pay", [], RENAMED, ("tools:pyt:transfer",)),
        # An upstream without a name has the namespaces of its tools only.
        ("github.read", [], {"server": ""}, ("tools:github:read",)),
        # One name that a rule allows is enough.
        ("pay", [AccessRule("pyt:pay")], {**RENAMED, "access": {"default": "deny"}}, ()),
    ],
)
async def test_a_tool_is_called_if_what_is_asked_of_its_names_is_there(
    name: str, rules: list[AccessRule], options: dict[str, Any], permissions: Sequence[str]
) -> None:
    runtime, upstream = await gate([name], *rules, **options)
    await runtime.execute(only(runtime), {}, context(*permissions))
    assert len(upstream.calls) == 1


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
    runtime = await refreshed(
        ProxyRuntime(MultiplexUpstream(upstreams), RuntimeOptions(RuntimePolicies(access=access)))
    )
    assert [card.namespace for card in (await runtime.browse_query("a thing to do", 9, context())).cards] == ["db"]
