"""The engine's own bound on a call, and the guard against calls that repeat (CHAT-54)."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.identity import Identity
from wicketgate.engine.events import ToolFailure, ToolOutput, text_for_model
from wicketgate.engine.limits import Interruption
from wicketgate.engine.tool_rounds import EngineLimits, LoopGuard, ToolRounds
from wicketgate.faces.gateway import GatewayFace
from wicketgate.gateway.call_policy import CallPolicy, RetryPolicy
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.models.provider import Message, ToolCall
from wicketgate.plugin_api import (
    Allow,
    Block,
    Complete,
    Continue,
    MiddlewarePlugin,
    PluginConfig,
    Request,
    SecurityPlugin,
)
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "s")


class Hanging(SecurityPlugin):
    ended = False

    async def on_request(self, request: Request) -> Allow | Block:
        try:
            await asyncio.Event().wait()
        finally:
            Hanging.ended = True
        raise AssertionError


@requirement("EXEC-14")
async def test_a_plugin_that_hangs_ends_with_the_engines_deadline() -> None:
    plugins = PluginChain({GLOBAL: [Installed("hanging", Hanging(PluginConfig()))]}, lambda: 0.0)
    upstream = StubUpstream([{"name": "get", "inputSchema": {"type": "object"}}])
    runtime = await refreshed(ProxyRuntime(upstream, RuntimeOptions(plugins=plugins)))
    (tool_id,) = runtime.catalog().items
    limits = EngineLimits(tool_timeout_s=0.05)
    rounds = ToolRounds(GatewayFace(runtime), CONTEXT, limits, Interruption(), LoopGuard(None))
    arguments: dict[str, Any] = {"tool_id": tool_id}
    async with asyncio.timeout(30):
        results = [
            each
            async for batch in rounds.run_turn([ToolCall("c1", "tool_execute", arguments, "")], None)
            for each in batch
        ]
    assert results == [ToolFailure("c1", "tool_execute timed out after 0.05s")]
    assert (Hanging.ended, upstream.calls) == (True, [])


@requirement("UP-114")
async def test_a_call_that_becomes_a_task_puts_the_engines_deadline_off() -> None:
    async def work_on(name: str, arguments: Mapping[str, Any], of: CallContext) -> Mapping[str, Any]:
        assert of.marks.prolong is not None
        of.marks.prolong()
        await asyncio.sleep(0.1)  # longer than the deadline of a tool
        return {"content": [{"type": "text", "text": "at last"}]}

    upstream = StubUpstream([{"name": "get", "inputSchema": {"type": "object"}}], work_on)
    runtime = await refreshed(ProxyRuntime(upstream))
    (tool_id,) = runtime.catalog().items
    limits = EngineLimits(tool_timeout_s=0.05, task_s=30)
    rounds = ToolRounds(GatewayFace(runtime), CONTEXT, limits, Interruption(), LoopGuard(None))
    call = ToolCall("c1", "tool_execute", {"tool_id": tool_id}, "")
    async with asyncio.timeout(30):
        ((result,),) = [batch async for batch in rounds.run_turn([call], None)]
    assert isinstance(result, ToolOutput)
    assert "at last" in result.output


READ_HINT = {"readOnlyHint": True}
NOTES = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": hints}
    for name, hints in (("get_note", READ_HINT), ("list_notes", READ_HINT), ("add_note", {"readOnlyHint": False}))
]


class Redirecting(MiddlewarePlugin):
    async def on_request(self, request: Request) -> Continue | Complete:
        return Continue(replace(request, name="add_note"))


async def refused_of_three(
    policy: CallPolicy,
    tool: str,
    *,
    plugin: MiddlewarePlugin | None = None,
    meta_tool: str = "tool_execute",
    **arguments: Any,
) -> list[bool]:
    """For each of three equal calls in as many turns, whether the loop guard refused it."""
    plugins = PluginChain({GLOBAL: [Installed("plugin", plugin)]}, lambda: 0.0) if plugin else None
    options = RuntimeOptions(policies=RuntimePolicies({"notes": policy}), plugins=plugins)
    runtime = await refreshed(ProxyRuntime(StubUpstream(NOTES, name="notes"), options))
    tool_id = next(iter(i for i in runtime.catalog().items if f":{tool}#" in i), "notes:gone#00000000")
    face = GatewayFace(runtime)
    rounds = ToolRounds(face, CONTEXT, EngineLimits(), Interruption(), LoopGuard(3))
    asked = ToolCall("c1", meta_tool, {"tool_id": tool_id, **arguments}, "")
    results = [each for _ in range(3) async for batch in rounds.run_turn([asked], None) for each in batch]
    assert len(results) == 3
    return [text_for_model(result).startswith("loop_guard: ") for result in results]


RUNS, GUARDED = [False, False, False], [False, False, True]


@requirement("CHAT-54", "CHAT-98")
async def test_the_guard_goes_by_what_is_known_to_write_nothing() -> None:
    named, ours = CallPolicy(read_only=("get_*",)), CallPolicy(hints_hold=True)
    assert await refused_of_three(named, "get_note") == GUARDED
    assert await refused_of_three(ours, "get_note") == GUARDED
    assert await refused_of_three(ours, "gone") == GUARDED
    # The hint of a server alone says nothing.
    assert await refused_of_three(CallPolicy(), "get_note") == RUNS
    assert await refused_of_three(CallPolicy(retry=RetryPolicy(declared_safe=True)), "get_note") == RUNS
    assert await refused_of_three(named, "list_notes") == RUNS
    assert await refused_of_three(ours, "add_note") == RUNS
    # What only looks, whatever the tool.
    assert await refused_of_three(ours, "add_note", dry_run=True) == GUARDED
    assert await refused_of_three(ours, "add_note", meta_tool="tool_view") == GUARDED
    assert await refused_of_three(ours, "add_note", meta_tool="tool_browse") == GUARDED


@requirement("CHAT-98")
async def test_a_call_that_a_plugin_may_send_to_another_tool_may_write() -> None:
    ours = CallPolicy(hints_hold=True, read_only=("get_*",))
    assert await refused_of_three(ours, "get_note", plugin=Redirecting(PluginConfig())) == RUNS
    assert await refused_of_three(ours, "get_note", plugin=MiddlewarePlugin(PluginConfig())) == GUARDED


def call(arguments: dict[str, Any] | None = None, name: str = "tool_browse") -> ToolCall:
    arguments = {"path": "/"} if arguments is None else arguments
    return ToolCall("c", name, arguments, json.dumps(arguments))


def turn(asked: ToolCall, result: str) -> list[Message]:
    function = {"name": asked.name, "arguments": asked.raw}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]


@requirement("CHAT-54")
def test_from_the_third_identical_call_with_the_same_result_none_is_run() -> None:
    guard = LoopGuard(3)
    for _ in range(2):
        assert not guard.refusal(call())
        guard.note(call(), "same")
    for _ in range(3):
        refusal = guard.refusal(call())
        assert refusal.startswith("loop_guard: ")
        guard.note(call(), refusal)


@requirement("CHAT-54")
def test_calls_with_other_arguments_tools_or_results_are_no_loop() -> None:
    guard = LoopGuard(3)
    for number in range(6):
        guard.note(call(), f"result {number}")
        guard.note(call({"path": f"/{number}"}), "same")
        guard.note(call(name=f"tool_{number}"), "same")
    assert not guard.refusal(call())
    assert not guard.refusal(call({"path": "/0"}))
    assert not guard.refusal(call(name="tool_0"))


@requirement("CHAT-54")
def test_the_order_of_keys_does_not_matter() -> None:
    guard = LoopGuard(2)
    guard.note(call({"a": 1, "b": 2}), "same")
    assert guard.refusal(call({"b": 2, "a": 1}))


@requirement("CHAT-54")
def test_a_run_that_continues_in_a_second_stream_counts_whole_until_the_next_message_of_the_user() -> None:
    user: Message = {"role": "user", "content": "go on"}
    run = [user, *turn(call(), "same"), *turn(call(), "same")]
    assert LoopGuard(3, run).refusal(call())
    assert not LoopGuard(3, [*run, user]).refusal(call())
    assert not LoopGuard(None, run).refusal(call())


def test_arguments_that_are_no_json_are_compared_as_written() -> None:
    broken = ToolCall("c", "tool_browse", None, '{"path":')
    guard = LoopGuard(2, turn(broken, "invalid arguments"))
    assert guard.refusal(broken)
