import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.models.openai.request import DIALECTS, Dialect, chat_body, dialect_of, optional_fields, without_fields
from wicketgate.models.provider import Kept

COMPATIBLE = DIALECTS["compatible"]
HI = {"role": "user", "content": "hi"}


def body(*messages: Mapping[str, Any], dialect: Dialect = COMPATIBLE, **options: Any) -> dict[str, Any]:
    return chat_body(messages, (), model="model-1", dialect=dialect, origin="here", **options)


def called(*ids: str, kept: Kept | None = None) -> dict[str, Any]:
    calls = [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call_id in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls} | ({"kept": kept} if kept else {})


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "r"}


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "openai"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://API.groq.com/openai/v1", "groq"),
        ("https://notgroq.com/v1", "compatible"),
        ("http://127.0.0.1:11434/v1", "compatible"),
        ("https://proxy.example/api.mistral.ai", "compatible"),
    ],
)
def test_the_dialect_goes_by_the_host(base_url: str, name: str) -> None:
    assert dialect_of(base_url) == name


def test_mistral_gets_ids_of_nine_letters_and_digits_that_still_pair() -> None:
    messages = [HI, called("call_1", "abcDEF123"), result("call_1"), result("abcDEF123"), called("call_2")]
    sent = body(*messages, dialect=DIALECTS["mistral"])["messages"]
    first, second = (call["id"] for call in sent[1]["tool_calls"])
    assert (sent[2]["tool_call_id"], sent[3]["tool_call_id"], second) == (first, second, "abcDEF123")
    assert len(first) == 9 and first.isalnum() and first != sent[4]["tool_calls"][0]["id"]
    assert body(*messages, dialect=DIALECTS["mistral"])["messages"] == sent
    assert body(*messages)["messages"] == messages


def test_several_system_messages_become_one_except_where_they_are_welcome() -> None:
    messages = [{"role": "system", "content": "a"}, HI, {"role": "system", "content": "b"}]
    assert body(*messages)["messages"] == [{"role": "system", "content": "a\n\nb"}, HI]
    assert body(*messages, dialect=DIALECTS["openai"])["messages"] == messages
    assert body(messages[0], HI)["messages"] == [messages[0], HI]


def test_the_bound_of_an_answer_has_the_name_that_the_server_knows() -> None:
    assert body(HI, max_tokens=5, dialect=DIALECTS["openai"])["max_completion_tokens"] == 5
    assert body(HI, max_tokens=5)["max_tokens"] == 5
    assert not {"max_tokens", "max_completion_tokens"} & body(HI).keys()


@requirement("CHAT-61")
def test_nothing_but_messages_and_the_operators_fields_is_sent() -> None:
    sent = body(HI, extra={"parallel_tool_calls": False, "stream": False})
    assert sent == {
        "parallel_tool_calls": False,
        "stream": True,
        "model": "model-1",
        "messages": [HI],
        "stream_options": {"include_usage": True},
    }


THOUGHT = Kept("here", {"reasoning_content": "Hm.", "extra_content": [None, {"google": {"s": 1}}]}, "Hm.")


def test_thoughts_and_signatures_go_back_where_they_were() -> None:
    (_, said) = body(HI, called("a", "b", kept=THOUGHT))["messages"]
    assert said["reasoning_content"] == "Hm."
    assert [call.get("extra_content") for call in said["tool_calls"]] == [None, {"google": {"s": 1}}]
    assert "kept" not in said


@pytest.mark.parametrize(
    ("kept", "dialect"),
    [
        (Kept("elsewhere", THOUGHT.data, ""), COMPATIBLE),
        (THOUGHT, DIALECTS["mistral"]),
        (THOUGHT, DIALECTS["groq"]),
    ],
)
def test_thoughts_of_another_model_and_unwelcome_ones_stay_away(kept: Kept, dialect: Dialect) -> None:
    (_, said) = body(HI, called("abcdefgh1", "abcdefgh2", kept=kept), dialect=dialect)["messages"]
    assert said == called("abcdefgh1", "abcdefgh2")


def test_fields_that_a_server_refused_are_left_out_and_the_bound_changes_its_name() -> None:
    sent = body(HI, called("a", "b", kept=THOUGHT), max_tokens=5)
    assert optional_fields(sent) == {"stream_options", "max_tokens", "reasoning_content"}
    left = without_fields(sent, {"stream_options", "max_tokens", "reasoning_content"})
    assert "reasoning_content" not in json.dumps(left)
    assert ("stream_options" in left, "max_tokens" in left, left["max_completion_tokens"]) == (False, False, 5)
    neither = without_fields(sent, {"max_tokens", "max_completion_tokens"})
    assert not {"max_tokens", "max_completion_tokens"} & neither.keys()
    assert without_fields(sent, frozenset()) is sent
