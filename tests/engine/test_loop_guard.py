"""When a call is taken for a loop, and when not (E62)."""

import json
from typing import Any

from tests.support.requirement import requirement
from wicketgate.engine.loop_guard import LoopGuard
from wicketgate.models.provider import Message, ToolCall


def call(arguments: dict[str, Any] | None = None, name: str = "tool_browse") -> ToolCall:
    arguments = {"path": "/"} if arguments is None else arguments
    return ToolCall("c", name, arguments, json.dumps(arguments))


def turn(asked: ToolCall, result: str) -> list[Message]:
    function = {"name": asked.name, "arguments": asked.raw}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]


@requirement("E62")
def test_from_the_third_identical_call_with_the_same_result_none_is_run() -> None:
    guard = LoopGuard(3)
    for _ in range(2):
        assert not guard.refusal(call())
        guard.note(call(), "same")
    for _ in range(3):
        refusal = guard.refusal(call())
        assert refusal.startswith("loop_guard: ")
        guard.note(call(), refusal)


@requirement("E62")
def test_other_arguments_another_tool_and_another_result_are_no_loop() -> None:
    guard = LoopGuard(3)
    for number in range(6):
        guard.note(call(), f"result {number}")
        guard.note(call({"path": f"/{number}"}), "same")
        guard.note(call(name=f"tool_{number}"), "same")
    assert not guard.refusal(call())
    assert not guard.refusal(call({"path": "/0"}))
    assert not guard.refusal(call(name="tool_0"))


@requirement("E62")
def test_the_order_of_keys_makes_no_other_call() -> None:
    guard = LoopGuard(2)
    guard.note(call({"a": 1, "b": 2}), "same")
    assert guard.refusal(call({"b": 2, "a": 1}))


@requirement("E62")
def test_a_run_that_goes_on_in_another_stream_is_counted_whole_and_a_word_of_the_user_begins_anew() -> None:
    user: Message = {"role": "user", "content": "go on"}
    run = [user, *turn(call(), "same"), *turn(call(), "same")]
    assert LoopGuard(3, run).refusal(call())
    assert not LoopGuard(3, [*run, user]).refusal(call())
    assert not LoopGuard(None, run).refusal(call())


def test_arguments_that_are_no_json_are_compared_as_written() -> None:
    broken = ToolCall("c", "tool_browse", None, '{"path":')
    guard = LoopGuard(2, turn(broken, "invalid arguments"))
    assert guard.refusal(broken)
