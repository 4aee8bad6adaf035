"""Turns that the model's output limit has cut off in the middle of a call (CHAT-99, CHAT-100)."""

import json
from typing import Any

import pytest

from tests.contract.test_providers import READ_FILE, model
from tests.support.anthropic_replies import begin, end, messages_text_turn, tool_block
from tests.support.model_server import ModelServer, Reply, text_turn, tool_turn
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, Turn, calls, says
from tests.support.service import FileServer, Frame, running_service
from wicketgate.models.provider import Finish, ToolCall, Usage

Call = tuple[str, str, str]

WHOLE: Call = ("c1", "tool_execute", json.dumps({"tool_id": READ_FILE, "args": {"path": "a"}}))
CUT: Call = ("c2", "tool_execute", '{"tool_id": "files:write", "args": {"text": "It was the best of tim')
BROKEN: Call = ("c0", "tool_execute", '{"tool_id": nothing}')


def openai_cut(*asked: Call, tokens: int | None) -> Reply:
    return tool_turn(*asked, usage=None if tokens is None else (10, tokens), finish_reason="length")


def anthropic_cut(*asked: Call, tokens: int) -> Reply:
    blocks = [piece for index, call in enumerate(asked) for piece in tool_block(index, *call)]
    return Reply([begin(), *blocks, *end("max_tokens", tokens)])


WIRES: dict[str, Any] = {
    "openai-chat": (openai_cut, text_turn),
    "anthropic-messages": (anthropic_cut, messages_text_turn),
}


async def chat(provider: str, cut: Reply, **settings: Any) -> tuple[list[Frame], ModelServer, FileServer]:
    files = FileServer()
    async with ModelServer(cut, WIRES[provider][1]("shorter")) as server:
        configured = {"model": model(server, provider, **settings)}
        async with running_service(upstreams=[files], settings=configured, configured_model=True) as service:
            return await service.chat(), server, files


def results(stream: list[Frame]) -> dict[str, dict[str, Any]]:
    return {data["id"]: data for event, data in stream if event == "tool-result"}


@requirement("CHAT-49", "CHAT-99", "CHAT-100")
@pytest.mark.parametrize("provider", WIRES)
async def test_the_model_learns_that_its_call_was_cut_off_and_whole_calls_of_the_turn_run(provider: str) -> None:
    cut = WIRES[provider][0](WHOLE, CUT, tokens=512)
    stream, server, files = await chat(provider, cut, max_tokens=1_000)
    answers = results(stream)
    assert answers["c2"]["error"].startswith("not run: this call was cut off at 512 tokens: make it shorter")
    assert json.loads(answers["c1"]["output"])["summary"] == "contents of a"
    assert [call[0] for call in files.calls] == ["read_file"]
    # The run goes on: the reason of an inner turn ends nothing.
    assert stream[-1][1]["finish_reason"] == "stop"
    assert "cut off at 512 tokens" in json.dumps(server.requests[1].body)
    assert [data["arguments"] for event, data in stream if event == "tool-call"][1] == {}


@requirement("CHAT-99")
async def test_without_a_count_the_bound_that_was_asked_for_is_named() -> None:
    stream, _, _ = await chat("openai-chat", openai_cut(CUT, tokens=None), max_tokens=256)
    assert "was cut off at 256 tokens: make it shorter" in results(stream)["c2"]["error"]


@requirement("CHAT-99")
async def test_where_neither_is_known_no_number_is_made_up() -> None:
    stream, _, _ = await chat("openai-chat", openai_cut(CUT, tokens=None))
    assert results(stream)["c2"]["error"].startswith(
        "not run: this call was cut off at the limit of one answer: make it shorter"
    )


@requirement("CHAT-99")
@pytest.mark.parametrize("provider", WIRES)
async def test_a_call_that_was_broken_before_the_cut_is_told_what_is_wrong_with_it(provider: str) -> None:
    stream, _, _ = await chat(provider, WIRES[provider][0](BROKEN, CUT, tokens=64))
    answers = results(stream)
    assert answers["c0"]["error"].startswith("invalid arguments")
    assert "cut off at 64 tokens" in answers["c2"]["error"]


@requirement("CHAT-99")
async def test_a_server_that_hides_the_cut_behind_another_reason_is_seen_through_by_its_count() -> None:
    hidden = tool_turn(CUT, usage=(10, 256))
    stream, _, _ = await chat("openai-chat", hidden, max_tokens=256)
    assert "cut off at 256 tokens" in results(stream)["c2"]["error"]
    stream, _, _ = await chat("openai-chat", tool_turn(CUT, usage=(10, 255)), max_tokens=256)
    assert results(stream)["c2"]["error"].startswith("invalid arguments")


@requirement("CHAT-99")
async def test_the_answer_stays_the_same_however_often_the_model_is_cut_off() -> None:
    asked = ToolCall("c", "tool_execute", None, CUT[2])
    turn: Turn = [[asked, Finish("length", Usage(1, 9))]]
    async with running_service(ScriptModel(*[turn] * 4, says("ok")), [FileServer()]) as service:
        stream = await service.chat()
    assert len({data["error"] for data in results(stream).values()}) == 1


@requirement("CHAT-32", "CHAT-100")
async def test_a_turn_of_text_that_was_cut_off_is_the_end() -> None:
    found = ToolCall("c1", "tool_browse", {"path": "/"}, '{"path":"/"}')
    async with running_service(ScriptModel(calls(found), says("and so", reason="length")), [FileServer()]) as service:
        stream = await service.chat()
    assert stream[-1] == ("done", {**stream[-1][1], "finish_reason": "length"})
