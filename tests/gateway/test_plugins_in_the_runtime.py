"""Effects of plugins on calls, kept results and the catalog, in the runtime that every face uses (ROUTE-19 to
ROUTE-23)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.identity import Identity
from wicketgate.errors import Forbidden, HydrateFailed, UpstreamRefused
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.surface import Refusal
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.call_policy import CallPolicy
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugin_api import (
    UPSTREAM_NAME_KEY,
    Allow,
    Block,
    Complete,
    Continue,
    MiddlewarePlugin,
    PluginConfig,
    Request,
    Result,
    SecurityPlugin,
)
from wicketgate.plugins.filters import PiiConfig, PiiFilter
from wicketgate.plugins.rewriting import CallTrace, ToolManager, ToolManagerConfig
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "s")
TOOLS: list[Mapping[str, Any]] = [
    {"name": "echo", "description": "Give the text back.", "annotations": {"readOnlyHint": True}},
    {"name": "_private", "description": "Not for you."},
]


async def echo(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": f"{name}: {arguments.get('text')}"}]}


class Shout(MiddlewarePlugin):
    async def on_request(self, request: Request) -> Continue:
        return Continue(replace(request, arguments={"text": str(request.arguments["text"]).upper()}))

    async def on_result(self, request: Request, result: Result) -> Continue:
        return Continue({**result, "content": [*result["content"], {"type": "text", "text": "shouted"}]})


class Answer(MiddlewarePlugin):
    async def on_request(self, request: Request) -> Complete:
        return Complete({"content": [{"type": "text", "text": "from the plugin"}]})


class Elsewhere(MiddlewarePlugin):
    async def on_request(self, request: Request) -> Continue:
        return Continue(replace(request, server="b", name="other"))


class EachToTheirOwn(MiddlewarePlugin):
    async def on_request(self, request: Request) -> Continue:
        return Continue(replace(request, name=f"echo_of_{request.identity.actor}"))


class Closed(SecurityPlugin):
    async def on_request(self, request: Request) -> Block:
        return Block("closed today")


class OnlyForOwners(SecurityPlugin):
    async def on_result(self, request: Request, result: Result) -> Allow | Block:
        return Allow() if request.identity.actor == "owner_1" else Block("not an owner")


async def runtime_with(*plugins: Any, upstreams: Any = None, **policies: Any) -> Any:
    chain = PluginChain({GLOBAL: [Installed(type(p).__name__, p) for p in plugins]}, now=lambda: 0.0)
    upstream = upstreams or StubUpstream(TOOLS, echo, name="alpha")
    runtime = await refreshed(ProxyRuntime(upstream, RuntimeOptions(RuntimePolicies(**policies), plugins=chain)))
    return runtime, upstream


def text_of(result: Mapping[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


async def test_a_plugin_changes_what_is_sent_and_what_is_shown() -> None:
    runtime, upstream = await runtime_with(Shout(None))
    tool_id = next(id for id in runtime.catalog().items if "echo" in id)
    assert text_of(await runtime.call(tool_id, {"text": "hi"}, CONTEXT)) == ["echo: HI", "shouted"]
    assert upstream.calls[0][1] == {"text": "HI"}
    assert "echo: HI" in (await runtime.execute(tool_id, {"text": "hi"}, CONTEXT)).envelope.summary


@requirement("ROUTE-21")
async def test_a_plugin_that_answers_keeps_the_call_from_the_server() -> None:
    runtime, upstream = await runtime_with(Answer(None))
    tool_id = next(id for id in runtime.catalog().items if "echo" in id)
    assert text_of(await runtime.call(tool_id, {}, CONTEXT)) == ["from the plugin"]
    assert upstream.calls == []


@requirement("ROUTE-21", "ACCESS-10")
async def test_a_blocked_call_reaches_no_server_and_names_the_tool_that_was_asked_for() -> None:
    runtime, upstream = await runtime_with(Closed(None))
    tool_id = next(id for id in runtime.catalog().items if "echo" in id)
    with pytest.raises(Forbidden) as refused:
        await runtime.execute(tool_id, {}, CONTEXT)
    assert (refused.value.path, refused.value.message) == (tool_id, "Request blocked: closed today")
    assert upstream.calls == []


@requirement("ROUTE-20")
async def test_a_call_may_be_redirected_and_the_server_is_looked_up_after_the_plugins() -> None:
    target = StubUpstream([], echo, name="b")
    chain = PluginChain({"alpha": [Installed("elsewhere", Elsewhere(None))]}, now=lambda: 0.0)
    fleet = MultiplexUpstream([StubUpstream(TOOLS, echo, name="alpha"), target])
    runtime = await refreshed(ProxyRuntime(fleet, RuntimeOptions(plugins=chain)))
    tool_id = next(id for id in runtime.catalog().items if "echo" in id)
    assert text_of(await runtime.call(tool_id, {"text": "hi"}, CONTEXT)) == ["other: hi"]
    assert [name for name, _, _ in target.calls] == ["other"]


@requirement("FACE-160")
async def test_a_call_that_is_redirected_to_no_server_is_refused_at_once_as_a_request() -> None:
    chain = PluginChain({"alpha": [Installed("elsewhere", Elsewhere(None))]}, now=lambda: 0.0)
    fleet = MultiplexUpstream([StubUpstream(TOOLS, echo, name="alpha")])
    runtime = await refreshed(ProxyRuntime(fleet, RuntimeOptions(plugins=chain)))
    with pytest.raises(Refusal) as refused:
        await NamespacedFace(runtime, fleet.statuses).call("alpha__echo", {"text": "hi"}, CONTEXT)
    assert (refused.value.code, refused.value.message) == (-32602, "Unknown server 'b' in request")


@requirement("ROUTE-19")
async def test_a_kept_result_passes_the_plugins_of_whoever_asks() -> None:
    runtime, upstream = await runtime_with(
        OnlyForOwners(None),
        default_call=CallPolicy(cached_tools=["*"], cache_shared=True),
    )
    tool_id = next(id for id in runtime.catalog().items if "echo" in id)
    await runtime.call(tool_id, {"text": "hi"}, CONTEXT)
    with pytest.raises(Forbidden):
        await runtime.call(tool_id, {"text": "hi"}, replace(CONTEXT, identity=Identity("guest", ("*",))))
    assert len(upstream.calls) == 1


@requirement("ROUTE-23")
async def test_a_managed_tool_exists_under_its_new_name_only_and_hidden_ones_do_not() -> None:
    config = ToolManagerConfig.model_validate({"tools": [{"tool": "echo", "display_name": "say"}]})
    runtime, upstream = await runtime_with(ToolManager(config))
    (item,) = runtime.catalog().items.values()
    assert (item.name, item.upstream_name) == ("say", "echo")
    await runtime.call(item.id, {"text": "hi"}, CONTEXT)
    assert upstream.calls[0][0] == "echo"
    with pytest.raises(HydrateFailed):
        await runtime.call(item.id.replace("say", "echo"), {}, CONTEXT)


async def refuse(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    data = {"owner": "bob@example.com"}
    raise UpstreamRefused("alpha refused the call.", code=-32000, refusal="echo: no bob@example.com", data=data)


@requirement("ROUTE-14", "ROUTE-19", "ROUTE-26")
async def test_what_a_server_says_in_an_error_passes_the_plugins_like_a_result() -> None:
    for plugins in ([PiiFilter(PiiConfig())], [CallTrace(PluginConfig()), PiiFilter(PiiConfig())]):
        runtime, _ = await runtime_with(*plugins, upstreams=StubUpstream(TOOLS, refuse, name="alpha"))
        (tool_id,) = (each for each in runtime.catalog().items if "echo" in each)
        with pytest.raises(UpstreamRefused) as refused:
            await runtime.call(tool_id, {}, CONTEXT)
        assert refused.value.refusal == "echo: no [EMAIL REDACTED by Wicketgate]"
        assert refused.value.details == {"upstream_code": -32000, "upstream_message": refused.value.refusal}
        assert refused.value.data == {"owner": "[EMAIL REDACTED by Wicketgate]"}
        assert (refused.value.name, refused.value.path) == ("echo", tool_id)


async def test_an_error_whose_words_a_plugin_withholds_is_not_told() -> None:
    blocking = PiiFilter(PiiConfig(action="block"))
    runtime, _ = await runtime_with(blocking, upstreams=StubUpstream(TOOLS, refuse, name="alpha"))
    (tool_id,) = (each for each in runtime.catalog().items if "echo" in each)
    with pytest.raises(Forbidden) as withheld:
        await runtime.call(tool_id, {}, CONTEXT)
    assert "bob" not in str(withheld.value.as_dict())


async def test_a_kept_result_is_only_given_to_calls_that_go_to_the_same_place() -> None:
    policies = {"default_call": CallPolicy(cached_tools=["*"], cache_shared=True)}
    runtime, _ = await runtime_with(EachToTheirOwn(None), **policies)
    (tool_id,) = (each for each in runtime.catalog().items if "echo" in each)
    other = replace(CONTEXT, identity=Identity("reader_1", ("*",)))
    for context in (CONTEXT, other, CONTEXT):
        (text,) = text_of(await runtime.call(tool_id, {"text": "hi"}, context))
        assert text == f"echo_of_{context.identity.actor}: hi"


async def test_only_a_plugin_can_give_a_tool_another_name_than_its_server_knows() -> None:
    posing = [{"name": "echo", "_meta": {UPSTREAM_NAME_KEY: "delete_all", "mine": 1}}]
    runtime, _ = await runtime_with(upstreams=StubUpstream(posing, echo, name="alpha"))
    (item,) = runtime.catalog().items.values()
    assert item.upstream_name == "echo"
