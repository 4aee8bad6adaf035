"""Conversations that outgrow the model's window, over HTTP (CHAT-79 to CHAT-83)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import Frame, chat_body, running_service
from wicketgate.catalog.tool_id import derive_tool_id
from wicketgate.context.build import message_tokens
from wicketgate.models.provider import Message, ToolCall
from wicketgate.ports import CallContext
from wicketgate.results.page import page_of_json
from wicketgate.tokens import shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

LOG = "".join(f"{number:05} the pump of hall 7 was started by hand\n" for number in range(2_000))
TOOL = {"name": "read_log", "description": "Read the log.", "inputSchema": {"type": "object"}}
TOOL_ID = derive_tool_id("read_log", TOOL["inputSchema"], None, "plant")
HANDLE = f"text:{TOOL_ID}:{hashlib.sha256(LOG.encode()).hexdigest()[:16]}"

SMALL = {"model": {"context_tokens": 8_000, "answer_tokens": 1_000}}
TOKENS = shipped_token_counter()


class Plant(StubUpstream):
    def __init__(self) -> None:
        super().__init__([TOOL], self._answer, name="plant")

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": LOG}]}


def execute(call_id: str) -> ToolCall:
    return _call(call_id, "tool_execute", {"tool_id": TOOL_ID})


def view(call_id: str, start: int) -> ToolCall:
    return _call(
        call_id, "tool_view", {"handle": HANDLE, "selector": {"type": "lines", "start": start, "end": start + 50}}
    )


def _call(call_id: str, tool: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(call_id, tool, arguments, json.dumps(arguments))


def size(messages: Sequence[Message]) -> int:
    return sum(message_tokens(message, TOKENS) for message in messages)


def answered(messages: Sequence[Message]) -> bool:
    """Every call of every assistant message is answered by the tool messages right behind it, and by nothing else."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        else:
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    return not waiting


async def chat(model: ScriptModel, settings: Mapping[str, Any], *messages: Message) -> list[Frame]:
    async with running_service(model, [Plant()], settings=settings) as service:
        return await service.chat({**chat_body(), "messages": list(messages)})


@requirement("CHAT-80")
async def test_a_conversation_that_outgrows_the_window_goes_on_with_handles() -> None:
    question: Message = {"role": "user", "content": "Who started the pump?"}
    rules: Message = {"role": "system", "content": "Answer from the log."}
    views = [calls(view(f"v{turn}", 50 * turn)) for turn in range(30)]
    model = ScriptModel(calls(execute("e1")), *views, says("Somebody did, by hand."))
    stream = await chat(model, SMALL, rules, question)
    assert [event for event, _ in stream][-2:] == ["text-delta", "done"]
    assert stream[-1][1]["finish_reason"] == "stop"

    # The client saw every result whole, and together they are far more than the window.
    results = [data["output"] for event, data in stream if event == "tool-result"]
    assert sum(TOKENS.count(result) for result in results) > 20_000
    for request in model.requests:
        assert size(request.messages) <= 8_000 - 1_000
        assert answered(request.messages)
        assert list(request.messages[:2]) == [rules, question]
    last = model.requests[-1].messages
    assert last[-1]["content"] == page_of_json(results[-1])
    shrunk = [message["content"] for message in last if message["content"].endswith(" to save room]")]
    assert shrunk
    assert HANDLE in str(last[2:4]), "a result that was shrunk, or the call that views it, names the handle"

    # From one call to the next what was shown before mostly stands as it was.
    pairs = zip(model.requests, model.requests[1:], strict=False)
    kept = sum(after.messages[: len(before.messages)] == before.messages for before, after in pairs)
    assert kept >= 15


@requirement("CHAT-80")
async def test_the_oldest_turns_of_a_long_history_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    history: list[Message] = []
    for number in range(40):
        history.append({"role": "user", "content": f"Question {number}. " + "Say more. " * 100})
        history.append({"role": "assistant", "content": f"Answer {number}."})
    question: Message = {"role": "user", "content": "And now?"}
    model = ScriptModel(says("Now, this."))
    caplog.set_level("INFO", "wicketgate.engine")
    stream = await chat(model, SMALL, *history, question)
    assert stream[-1][0] == "done"
    shown = model.requests[0].messages
    assert size(shown) <= 7_000
    assert shown[-1] == question
    assert list(shown[-3:-1]) == history[-2:]
    assert shown[0]["content"].startswith("[Earlier messages left out to save room: ")
    dropped = (len(history) + 1 - len(shown)) // 2
    told = [record.getMessage() for record in caplog.records if "reduced" in record.getMessage()]
    assert told == [f"history reduced to {size(shown)} tokens: {dropped} turns and 0 steps dropped, 0 results shrunk"]


@requirement("CHAT-79")
async def test_a_message_longer_than_the_window_ends_in_an_overflow_and_no_model_is_called() -> None:
    model = ScriptModel()
    stream = await chat(model, SMALL, {"role": "user", "content": "word " * 9_000})
    assert stream == [
        (
            "error",
            {"code": "context_overflow", "message": "The conversation is longer than the model's context window."},
        )
    ]
    assert model.requests == []


@requirement("CHAT-79")
async def test_what_fits_is_shown_as_it_came() -> None:
    messages: list[Message] = [{"role": "user", "content": "word " * 5_000}]
    model = ScriptModel(says("ok"))
    await chat(model, SMALL, *messages)
    assert list(model.requests[0].messages) == messages
