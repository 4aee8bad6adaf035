"""Conversations as SDKs write them: parts, null content beside calls, ``developer``, and keys of their own
(CHAT-101 to CHAT-103)."""

import json
from typing import Any

import pytest

from tests.contract.test_before_the_stream import refusal
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import FileServer, running_service
from wicketgate.engine.contract import InvalidRequest, parse_chat_request

# An assistant message as ``ChatCompletionMessage.model_dump()`` of the openai package writes it: every field, set or
# not, and the fields that the API has added to its calls.
ANSWER = {
    "content": None,
    "refusal": None,
    "role": "assistant",
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": [
        {
            "id": "call_a",
            "function": {"arguments": '{"path":"/"}', "name": "tool_browse"},
            "type": "function",
            "index": 0,
        }
    ],
    "reasoning_content": "Hm.",
}
RESULT = {"role": "tool", "tool_call_id": "call_a", "content": [{"type": "text", "text": "one"}], "name": "tool_browse"}
SPOKEN = {**ANSWER, "content": "There.", "tool_calls": None}
CALL = {"id": "call_a", "type": "function", "function": {"name": "tool_browse", "arguments": '{"path":"/"}'}}


def body(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(messages), "metadata": {"correlation_id": "req_1"}}


async def shown(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    model = ScriptModel(says("ok"))
    async with running_service(model, [FileServer()]) as service:
        assert (await service.chat(body(*messages)))[-1][0] == "done"
    return [dict(message) for message in model.requests[0].messages]


@requirement("CHAT-101", "CHAT-102", "CHAT-103")
async def test_a_history_out_of_an_sdk_is_read_and_its_own_keys_have_no_effect() -> None:
    parts = [
        {"type": "text", "text": "What is", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "at the root?"},
    ]
    assert await shown(
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "boss"},
        {"role": "user", "content": parts, "name": "ann"},
        ANSWER,
        RESULT,
        SPOKEN,
        {"role": "user", "content": "and?"},
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is\nat the root?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_a", "content": "one"},
        {"role": "assistant", "content": "There."},
        {"role": "user", "content": "and?"},
    ]


@requirement("CHAT-102")
async def test_content_may_be_absent_beside_calls() -> None:
    absent = {"role": "assistant", "tool_calls": [CALL]}
    written = await shown({"role": "user", "content": "hi"}, absent, {**RESULT, "content": ""})
    assert written[1] == {"role": "assistant", "content": "", "tool_calls": [CALL]}


@requirement("CHAT-102")
async def test_a_refusal_in_place_of_content_is_what_the_model_said() -> None:
    refused = {**ANSWER, "tool_calls": None, "refusal": "I cannot help with that."}
    written = await shown({"role": "user", "content": "hi"}, refused, {"role": "user", "content": "why?"})
    assert written[1] == {"role": "assistant", "content": "I cannot help with that."}


@requirement("CHAT-106")
async def test_a_refusal_may_stand_among_the_parts_of_an_assistant_message() -> None:
    parts = [{"type": "text", "text": "Sorry."}, {"type": "refusal", "refusal": "I cannot help with that."}]
    refused = {"role": "assistant", "content": parts}
    written = await shown({"role": "user", "content": "hi"}, refused, {"role": "user", "content": "why?"})
    assert written[1] == {"role": "assistant", "content": "Sorry.\nI cannot help with that."}


@requirement("CHAT-101")
@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "image_url"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "input_audio"),
        ({"type": "refusal", "refusal": 5}, "refusal"),
        ({"type": "x" * 5_000}, "x" * 64),
    ],
)
async def test_a_part_of_another_type_is_refused_and_named(role: str, part: dict[str, Any], named: str) -> None:
    message = {"role": role, "content": [{"type": "text", "text": "see:"}, part], "tool_call_id": "call_a"}
    before: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, ANSWER] if role == "tool" else []
    with pytest.raises(InvalidRequest) as refused:
        parse_chat_request(body(*before, message))
    assert str(refused.value) == (
        f"messages.{len(before)}.content: part 1 is of type '{named}'; only parts of type 'text' are supported"
    )


@requirement("CHAT-101", "CHAT-102", "CHAT-23")
async def test_what_cannot_be_read_is_400_before_the_model_is_called() -> None:
    model = ScriptModel()
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    async with running_service(model) as service:
        one = await service.http.post("/engine/chat", json=body({"role": "user", "content": [image]}))
        other = await service.http.post("/engine/chat", json=body({"role": "user", "content": None}))
    assert "part 0 is of type 'image_url'" in refusal(one, 400, "invalid_request")
    assert refusal(other, 400, "invalid_request") == (
        "messages.0.content: a text is required, or a list of text parts; "
        "only an assistant message with tool_calls may have none"
    )
    assert model.requests == []


@requirement("CHAT-73", "CHAT-101")
async def test_the_same_words_in_parts_are_the_same_request() -> None:
    plain = parse_chat_request(body({"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\nb"}))
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    developer = {"role": "developer", "content": "Be brief."}
    assert parse_chat_request(body(developer, {"role": "user", "content": parts})) == plain


@requirement("CHAT-21", "CHAT-101")
async def test_the_bounds_of_a_body_hold_for_parts() -> None:
    many = [{"type": "text", "text": "x"}] * 20_000
    settings = {"server": {"max_body_bytes": 1_000_000}}
    async with running_service(ScriptModel(), settings=settings) as service:
        values = await service.http.post("/engine/chat", json=body({"role": "user", "content": many}))
        large = body({"role": "user", "content": [{"type": "text", "text": "x" * 2_000_000}]})
        size = await service.http.post("/engine/chat", json=large)
    assert [refusal(answer, 413, "payload_too_large") != "" for answer in (values, size)] == [True, True]


@requirement("CHAT-40", "CHAT-101")
async def test_in_process_the_same_history_is_read() -> None:
    request = parse_chat_request(body({"role": "user", "content": "hi"}, ANSWER, RESULT))
    assert [message.content for message in request.messages] == ["hi", "", "one"]
    assert json.loads(request.model_dump_json())["messages"][2]["content"] == "one"


@requirement("CHAT-107")
def test_a_role_that_is_none_is_refused_with_all_that_are() -> None:
    with pytest.raises(InvalidRequest, match=r"messages\.0\.role: .*'developer'"):
        parse_chat_request(body({"role": "boss", "content": "a"}))
