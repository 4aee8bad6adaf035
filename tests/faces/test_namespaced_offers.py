"""Resources and prompts of the namespaced face pass the same plugins as tool calls (ROUTE-19)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.fleet.test_features import Scripted
from tests.support.requirement import requirement
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.namespaced_offers import NamespacedOffers
from wicketgate.faces.surface import Refusal
from wicketgate.fleet.features import FeatureFleet
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugin_api import ALLOW, Allow, Block, PluginConfig, Request, Result, SecurityPlugin
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner", ("tools:*",)), "trace", "session")


class Reader(Scripted):
    """Gives the URI that it was asked for, and keeps it."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        self.asked.append((method, params))
        if method == "prompts/get":
            return {"messages": [], "description": "secret"}
        return {"contents": [{"uri": params["uri"], "text": "secret"}, {"uri": "demo://other", "text": "more"}]}


class Guard(SecurityPlugin):
    """Blocks what is named so, sends ``demo://old`` elsewhere, and lets no secret out."""

    async def on_request(self, request: Request) -> Allow | Block:
        if "blocked" in request.name:
            return Block("it is named so")
        return Allow(replace(request, name="demo://new")) if request.name == "demo://old" else ALLOW

    async def on_result(self, request: Request, result: Result) -> Allow | Block:
        return Allow({**result, "description": f"seen by {request.method}"})


async def offers_of(reader: Scripted, rules: Sequence[AccessRule] = (), tools: Sequence[str] = ()) -> NamespacedOffers:
    definitions = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
    fleet = MultiplexUpstream([StubUpstream(definitions, name="alpha")])
    plugins = PluginChain({"_global": [Installed("guard", Guard(PluginConfig()))]}, lambda: 0.0)
    runtime = ProxyRuntime(fleet, RuntimeOptions(RuntimePolicies(access=AccessPolicy(rules)), plugins=plugins))
    await runtime.refresh_catalog()
    features = FeatureFleet(lambda: {"alpha": reader}, lambda: 0.0, timeout_s=1)
    return NamespacedOffers(NamespacedFace(runtime, fleet.statuses), features, runtime, "ours")


CSP = {"csp": {"connectDomains": ["*", "https://a.example"]}}
SAFE_CSP = {"csp": {"connectDomains": ["https://a.example"]}}


class Page(Scripted):
    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        return {"contents": [{"uri": params["uri"], "text": "\x1b", "_meta": {"ui": CSP}}]}


@requirement("FACE-164", "FACE-165", "FACE-166")
async def test_resources_show_plain_words_safe_icons_and_pages_of_named_hosts() -> None:
    icons = [{"src": "javascript:alert(1)"}]
    offers = await offers_of(Page([{"uri": "ui://a", "name": "p\x1bage", "icons": icons, "_meta": {"ui": CSP}}]))
    listed = (await offers.list_all("resources", OWNER)).items
    assert listed == [{"uri": "ui://alpha/a", "name": "page", "_meta": {"ui": SAFE_CSP}}]
    read = await offers.read_resource({"uri": "ui://alpha/a"}, OWNER)
    assert read["contents"] == [{"uri": "ui://alpha/a", "text": "\x1b", "_meta": {"ui": SAFE_CSP}}]


@requirement("ROUTE-4", "ROUTE-19", "ROUTE-20", "ROUTE-21")
async def test_resources_and_prompts_pass_the_plugins() -> None:
    reader = Reader()
    offers = await offers_of(reader)
    read = await offers.read_resource({"uri": "alpha__demo://note"}, OWNER)
    assert read["description"] == "seen by resources/read"
    assert [part["uri"] for part in read["contents"]] == ["alpha__demo://note", "alpha+demo://other"]
    prompt = await offers.get_prompt({"name": "alpha__hello", "arguments": {"a": "b"}}, OWNER)
    assert prompt["description"] == "seen by prompts/get"
    await offers.read_resource({"uri": "alpha__demo://old"}, OWNER)
    assert reader.asked == [
        ("resources/read", {"uri": "demo://note"}),
        ("prompts/get", {"name": "hello", "arguments": {"a": "b"}}),
        ("resources/read", {"uri": "demo://new"}),
    ]
    with pytest.raises(Refusal) as refused:
        await offers.read_resource({"uri": "alpha__demo://blocked"}, OWNER)
    assert (refused.value.code, refused.value.message) == (-32000, "Request blocked: it is named so")
    assert len(reader.asked) == 3


class Linking(Reader):
    """A prompt with every kind of content that has a URI."""

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        if method != "prompts/get":
            return await super().request(method, params, context, timeout_s)
        link = {"type": "resource_link", "uri": "demo://note", "name": "note"}
        embedded = {"type": "resource", "resource": {"uri": "demo://other", "text": "demo://other"}}
        return {"messages": [{"role": "user", "content": link}, {"role": "user", "content": [embedded]}, "odd"]}


@requirement("ROUTE-46")
async def test_a_link_in_a_prompt_can_be_read() -> None:
    offers = await offers_of(Linking())
    first, second, odd = (await offers.get_prompt({"name": "alpha__hello"}, OWNER))["messages"]
    assert first["content"] == {"type": "resource_link", "uri": "alpha+demo://note", "name": "note"}
    assert second["content"][0]["resource"] == {"uri": "alpha+demo://other", "text": "demo://other"}
    assert odd == "odd"
    read = await offers.read_resource({"uri": first["content"]["uri"]}, OWNER)
    assert read["contents"][0]["uri"] == "alpha+demo://note"


PUBLIC = Condition("args.path.startsWith('/public')")


@requirement("ACCESS-13", "ACCESS-14", "ACCESS-74")
@pytest.mark.parametrize(
    ("rules", "permissions"),
    [
        ([AccessRule("alpha:*", require=("books:read",))], ("tools:*",)),
        ([AccessRule("alpha:*", visibility="internal")], ("tools:*",)),
        ([AccessRule("*", effect="deny")], ("tools:*", "resources:alpha", "prompts:alpha")),
        ([AccessRule("alpha:*", approval="always")], ("tools:*", "resources:alpha")),
        ([AccessRule("alpha:x", effect="deny")], ("tools:*",)),
        ([AccessRule("alpha:*", when=PUBLIC), AccessRule("alpha:*", effect="deny")], ("tools:*", "resources:alpha")),
    ],
    ids=["required", "internal", "denied", "approval", "none seen", "arguments"],
)
async def test_rules_that_hide_a_server_hide_its_resources_and_prompts(
    rules: Sequence[AccessRule], permissions: tuple[str, ...]
) -> None:
    reader = Reader()
    offers = await offers_of(reader, rules, ["x"])
    context = CallContext(Identity("visitor", permissions), "trace", "session")
    with pytest.raises(Refusal, match=r"Unknown server|not found"):
        await offers.read_resource({"uri": "alpha__demo://note"}, context)
    assert (await offers.list_all("prompts", context)).items == []
    assert reader.asked == [] and reader.listings == 0


@requirement("ACCESS-14")
async def test_a_rule_about_one_tool_does_not_hide_the_resources() -> None:
    offers = await offers_of(Reader(), [AccessRule("alpha:delete_*", effect="deny")], ["x", "delete_it"])
    context = CallContext(Identity("visitor", ("tools:alpha:*",)), "trace", "session")
    assert (await offers.read_resource({"uri": "alpha__demo://note"}, context))["contents"]
