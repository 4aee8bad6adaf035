"""Completions pass plugins, audit and quota as reads and prompts do (ROUTE-37, ACCESS-56)."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.fleet.test_features import Scripted
from tests.gateway.test_server_words import ORDER, TOKEN
from tests.support.audit_memory import AuditMemory
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.namespaced_offers import NamespacedOffers
from wicketgate.faces.surface import Refusal
from wicketgate.fleet.features import FeatureFleet
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.audit import Attached, Auditor
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugins.filters import PromptInjectionFilter, SecretsFilter
from wicketgate.plugins.text_filter import FilterConfig
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner", ("tools:*",)), "trace", "session")


class Completing(Scripted):
    """Gives *values* for whatever is asked for."""

    def __init__(self, *values: str) -> None:
        super().__init__([])
        self.values = list(values)
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        self.asked.append((method, params))
        if method == "resources/read":
            return {"contents": []}
        return {"completion": {"values": self.values, "total": len(self.values)}}


class Setting:
    def __init__(self, server: Completing, action: Any = "block", per_actor: int | None = None) -> None:
        fleet = MultiplexUpstream([StubUpstream([], name="alpha")])
        self.audited = AuditMemory()
        filters = [
            Installed("secrets", SecretsFilter(FilterConfig(action=action))),
            Installed("orders", PromptInjectionFilter(FilterConfig(action=action))),
        ]
        runtime = ProxyRuntime(
            fleet,
            RuntimeOptions(
                RuntimePolicies(per_actor=per_actor, per_tool={"*": 0}),
                plugins=PluginChain({GLOBAL: filters}, lambda: 0.0),
                auditor=Auditor([Attached("records", self.audited)], wall_clock=lambda: 0.0),
            ),
        )
        features = FeatureFleet(lambda: {"alpha": server}, lambda: 0.0, timeout_s=1)
        self.offers = NamespacedOffers(NamespacedFace(runtime, fleet.statuses), features, runtime, "ours")

    async def complete(self, typed: str, **context: Any) -> Mapping[str, Any]:
        params = {"ref": {"type": "ref/prompt", "name": "alpha__hello"}, "argument": {"name": "who", "value": typed}}
        return await self.offers.complete({**params, **context}, OWNER)


@requirement("ROUTE-37", "ACCESS-56")
async def test_a_completion_passes_and_is_recorded() -> None:
    server = Completing("Ada", "Alan")
    setting = Setting(server)
    assert await setting.complete("A", context={"arguments": {"x": "y"}}) == {
        "completion": {"values": ["Ada", "Alan"], "total": 2}
    }
    own = {"ref": {"type": "ref/prompt", "name": "hello"}, "argument": {"name": "who", "value": "A"}}
    assert server.asked == [("completion/complete", {**own, "context": {"arguments": {"x": "y"}}})]
    (record,) = setting.audited.records
    assert (record.operation, record.tool_id, record.outcome) == ("complete", "alpha__hello", "allowed")
    assert (record.server, record.transport, record.protocol) == ("alpha", "ok", "ok")


@requirement("ROUTE-37")
async def test_what_was_typed_and_what_comes_back_is_blocked_or_redacted() -> None:
    server = Completing("Ada", ORDER)
    setting = Setting(server)
    assert await setting.complete(TOKEN) == {"completion": {"values": []}}
    assert await setting.complete("A", context={"arguments": {"x": TOKEN}}) == {"completion": {"values": []}}
    assert server.asked == []
    assert await setting.complete("A") == {"completion": {"values": []}}
    assert [record.outcome for record in setting.audited.records] == ["denied"] * 3
    redacting = Setting(server, "redact")
    given = await redacting.complete(TOKEN)
    assert server.asked[-1][1]["argument"]["value"] == "[SECRET REDACTED by Wicketgate]"
    assert given["completion"]["values"] == ["Ada", "[PROMPT INJECTION REDACTED by Wicketgate]."]


@requirement("ACCESS-56")
async def test_completions_and_reads_count_as_executions_of_the_actor() -> None:
    setting = Setting(Completing("Ada"), per_actor=2)
    await setting.complete("A")
    await setting.offers.read_resource({"uri": "alpha__demo://a"}, OWNER)
    with pytest.raises(Refusal) as refused:
        await setting.complete("A")
    assert "At most 2 executions a minute" in refused.value.message
    assert setting.audited.records[-1].outcome == "denied"


@requirement("ACCESS-83")
@pytest.mark.parametrize("uri", ["alpha+demo://a", "alpha++demo://a%2520b", "ui://alpha/a.html", "alpha__demo://a"])
async def test_a_resource_is_recorded_by_the_uri_that_the_client_used(uri: str) -> None:
    setting = Setting(Completing("Ada"))
    await setting.offers.read_resource({"uri": uri}, OWNER)
    template = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "who", "value": "A"}}
    await setting.offers.complete(template, OWNER)
    assert [(record.operation, record.tool_id) for record in setting.audited.records] == [
        ("read", uri),
        ("complete", uri),
    ]


@requirement("ACCESS-23", "ACCESS-56")
async def test_a_completion_for_no_server_is_recorded_as_one() -> None:
    setting = Setting(Completing())
    with pytest.raises(Refusal, match="Unknown server"):
        await setting.offers.complete(
            {"ref": {"type": "ref/resource", "uri": "nowhere__x"}, "argument": {"name": "a", "value": "b"}}, OWNER
        )
    assert [(record.operation, record.outcome) for record in setting.audited.records] == [("complete", "invalid")]
