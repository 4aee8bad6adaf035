"""Plugins in their order, their verdicts, and what happens when one breaks its contract (ROUTE-5, ROUTE-18, ROUTE-21,
ROUTE-22)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.errors import Forbidden
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain, PluginFailed, Stage
from wicketgate.plugin_api import (
    Allow,
    Block,
    Complete,
    Continue,
    MiddlewarePlugin,
    Plugin,
    Request,
    Result,
    SecurityPlugin,
)

REQUEST = Request("req_1", "tools/call", "raw", "echo", {"text": "hi"}, Identity("owner_1", ("*",)))
RESULT: Result = {"content": [{"type": "text", "text": "hi"}]}


class Guard(SecurityPlugin):
    """Gives the verdicts that it is told to give."""

    def __init__(self, on_request: Any = None, on_result: Any = None) -> None:
        super().__init__(None)
        self.request_verdict = Allow() if on_request is None else on_request
        self.result_verdict = Allow() if on_result is None else on_result
        self.seen: list[Request] = []

    async def on_request(self, request: Request) -> Allow | Block:
        self.seen.append(request)
        verdict: Allow | Block = _given(self.request_verdict)
        return verdict

    async def on_result(self, request: Request, result: Result) -> Allow | Block:
        verdict: Allow | Block = _given(self.result_verdict)
        return verdict


class Middle(MiddlewarePlugin):
    def __init__(self, on_request: Any = None, on_result: Any = None) -> None:
        super().__init__(None)
        self.request_verdict = Continue() if on_request is None else on_request
        self.result_verdict = Continue() if on_result is None else on_result

    async def on_request(self, request: Request) -> Continue | Complete:
        verdict: Continue | Complete = _given(self.request_verdict)
        return verdict

    async def on_result(self, request: Request, result: Result) -> Continue:
        verdict: Continue = _given(self.result_verdict)
        return verdict


class Hiding(MiddlewarePlugin):
    def on_tools(self, server: str, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        return [tool for tool in tools if not tool["name"].startswith("_")]


class OddTools(MiddlewarePlugin):
    def __init__(self, made: Any) -> None:
        super().__init__(None)
        self.made = made

    def on_tools(self, server: str, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        made: Sequence[Mapping[str, Any]] = self.made
        return made


def _given(verdict: Any) -> Any:
    if isinstance(verdict, Exception):
        raise verdict
    return verdict


def chain(*plugins: Plugin, critical: bool = True) -> PluginChain:
    installed = [Installed(f"plugin {index}", plugin, critical=critical) for index, plugin in enumerate(plugins)]
    return PluginChain({GLOBAL: installed}, now=lambda: 0.0)


@requirement("ROUTE-18")
def test_plugins_run_by_priority_and_a_server_replaces_the_global_one_of_its_name() -> None:
    general, b, own = Guard(), Guard(), Guard()
    plugins = PluginChain(
        {GLOBAL: [Installed("a", general, 60), Installed("b", b, 10)], "raw": [Installed("a", own, 5)]},
        now=lambda: 0.0,
    )
    assert [i.plugin for i in plugins.for_server("raw")] == [own, b]
    assert [i.plugin for i in plugins.for_server("another")] == [b, general]


@requirement("ROUTE-18")
async def test_plugins_of_equal_priority_run_as_configured_whatever_their_kind() -> None:
    first, second = Middle(Continue(replace(REQUEST, arguments={"text": "changed"}))), Guard()
    await chain(first, second).on_request(REQUEST, [])
    assert second.seen[0].arguments == {"text": "changed"}


@requirement("ROUTE-21")
async def test_a_block_ends_the_call_with_its_reason_and_later_plugins_never_see_it() -> None:
    later = Guard()
    trail: list[Stage] = []
    with pytest.raises(Forbidden) as refused:
        await chain(Guard(Block("an e-mail address")), later).on_request(REQUEST, trail)
    assert refused.value.message == "Request blocked: an e-mail address"
    assert later.seen == []
    assert [(stage.outcome, stage.note) for stage in trail] == [("blocked", "an e-mail address")]


@requirement("ROUTE-21")
async def test_a_blocked_result_is_withheld() -> None:
    with pytest.raises(Forbidden):
        await chain(Guard(on_result=Block("a secret"))).on_result("raw", REQUEST, RESULT, [])


async def test_a_result_is_changed_by_one_plugin_after_the_other() -> None:
    trail: list[Stage] = []
    changed: Result = {"content": []}
    plugins = chain(Guard(on_result=Allow(changed, "1 secret")), Middle())
    assert await plugins.on_result("raw", REQUEST, RESULT, trail) == changed
    assert [stage.outcome for stage in trail] == ["modified", "continued"]


@requirement("ROUTE-18", "ROUTE-20")
async def test_the_result_of_a_redirected_call_passes_the_plugins_of_the_server_that_was_asked_for() -> None:
    redirecting = Middle(Continue(replace(REQUEST, server="elsewhere")), on_result=Continue({"content": []}))
    others = Guard(on_result=Block("a secret"))
    by_server = {"raw": [Installed("asked", redirecting)], "elsewhere": [Installed("other", others)]}
    plugins = PluginChain(by_server, now=lambda: 0.0)
    trail: list[Stage] = []

    async def send(request: Request) -> Result:
        assert request.server == "elsewhere"
        return RESULT

    assert await plugins.around(REQUEST, trail, send) == {"content": []}
    assert [(stage.handler, stage.phase) for stage in trail] == [("asked", "request"), ("asked", "result")]


@requirement("ROUTE-21")
async def test_middleware_may_answer_by_itself() -> None:
    answer = Complete(RESULT)
    later = Guard()
    assert await chain(Middle(answer), later).on_request(REQUEST, []) is answer
    assert later.seen == []


@requirement("ROUTE-5")
@pytest.mark.parametrize(
    "changed",
    [
        replace(REQUEST, id="other"),
        replace(REQUEST, method="ping"),
        replace(REQUEST, identity=Identity("root", ("*",))),
    ],
    ids=["id", "method", "identity"],
)
async def test_what_names_a_request_cannot_be_changed(changed: Request) -> None:
    with pytest.raises(PluginFailed) as failed:
        await chain(Middle(Continue(changed))).on_request(REQUEST, [])
    assert "other" not in failed.value.message


@requirement("ROUTE-5")
async def test_the_tool_its_arguments_and_its_server_can_be_changed() -> None:
    changed = replace(REQUEST, name="aliased", arguments={}, server="elsewhere")
    assert await chain(Middle(Continue(changed))).on_request(REQUEST, []) == changed


@requirement("ROUTE-22")
@pytest.mark.parametrize(
    "plugin",
    [
        Middle(Allow()),
        Middle(Block("not mine to say")),
        Middle("yes"),
        Guard(Continue()),
        Guard(Complete(RESULT)),
        Guard(Allow(instead={"content": []})),
        Guard("no"),
        Guard(Block(cast(str, 5))),
        Guard(Allow(note=cast(str, ["a"]))),
        Guard(Allow(replace(REQUEST, arguments=cast(dict[str, Any], ["a"])))),
        Guard(Allow(replace(REQUEST, name=cast(str, None)))),
        Guard(Allow(replace(REQUEST, name=""))),
        Middle(Complete(cast(Result, "done"))),
    ],
    ids=["middleware-allows", "middleware-blocks", "middleware-text", "security-continues", "security-completes",
         "result-for-request", "security-text", "reason-no-text", "note-no-text", "arguments-list", "name-none",
         "name-empty", "completed-with-text"],
)  # fmt: skip
async def test_a_verdict_that_is_not_the_plugins_to_give_fails_the_call(plugin: Plugin) -> None:
    with pytest.raises(PluginFailed):
        await chain(plugin).on_request(REQUEST, [])


async def test_a_result_cannot_be_completed_and_must_stay_an_object() -> None:
    odd: list[Any] = [None, "hi", {"type": "text", "text": "hi"}, [None], [{"text": "hi"}]]
    for verdict in (Complete(RESULT), Continue(REQUEST), Continue({}), *(Continue({"content": each}) for each in odd)):
        with pytest.raises(PluginFailed):
            await chain(Middle(on_result=verdict)).on_result("raw", REQUEST, RESULT, [])


@requirement("ROUTE-22")
async def test_a_critical_plugin_that_raises_fails_closed_without_its_text() -> None:
    broken = Guard(ValueError("secret of the plugin"), ValueError("secret of the plugin"))
    for ended in (
        chain(broken).on_request(REQUEST, []),
        chain(broken).on_result("raw", REQUEST, RESULT, []),
    ):
        with pytest.raises(PluginFailed) as failed:
            await ended
        assert "secret" not in failed.value.message


@requirement("ROUTE-22")
async def test_a_plugin_that_is_not_critical_is_passed_over_when_it_raises() -> None:
    trail: list[Stage] = []
    broken = chain(Guard(ValueError(), ValueError()), critical=False)
    assert await broken.on_request(REQUEST, trail) is REQUEST
    assert await broken.on_result("raw", REQUEST, RESULT, trail) is RESULT
    assert [stage.outcome for stage in trail] == ["failed", "failed"]


@requirement("ROUTE-23")
def test_tools_are_filtered_for_the_server_whose_plugin_says_so() -> None:
    plugins = PluginChain({"raw": [Installed("hide", Hiding(None))]}, now=lambda: 0.0)
    tools = [{"name": "echo"}, {"name": "_private"}]
    assert plugins.on_tools("raw", tools) == [{"name": "echo"}]
    assert plugins.on_tools("other", tools) == tools


def test_what_a_plugin_makes_of_the_tools_must_be_a_list() -> None:
    for made in (None, "echo", iter([{"name": "echo"}])):
        plugins = PluginChain({"raw": [Installed("odd", OddTools(made))]}, now=lambda: 0.0)
        with pytest.raises(PluginFailed):
            plugins.on_tools("raw", [{"name": "echo"}])


async def test_a_note_takes_no_more_than_its_place_in_the_record() -> None:
    trail: list[Stage] = []
    await chain(Guard(Allow(note="x" * 100_000))).on_request(REQUEST, trail)
    assert len(trail[0].note) == 500


async def test_what_a_server_left_out_of_its_result_a_plugin_need_not_add() -> None:
    changed: Result = {"structuredContent": {"n": 2}}
    passed = await chain(Middle(on_result=Continue(changed))).on_result(
        "raw", REQUEST, {"structuredContent": {"n": 1}}, []
    )
    assert passed is changed
