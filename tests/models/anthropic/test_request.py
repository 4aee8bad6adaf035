import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.models.anthropic.request import messages_body
from wicketgate.models.provider import Kept, ModelTool

TOOLS = [ModelTool(name, f"{name}.", {"type": "object"}) for name in ("one", "two", "three")]
MARK = {"type": "ephemeral"}


def body(*messages: Mapping[str, Any], tools: Sequence[ModelTool] = (), **options: Any) -> dict[str, Any]:
    return messages_body(messages, tools, model="model-1", max_tokens=1000, origin="here", **options)


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def marks(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(marks, value.values()))
    return sum(map(marks, value)) if isinstance(value, list) else 0


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(*calls: tuple[str, str, str], text: str = "", **more: Any) -> dict[str, Any]:
    asked = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    return {"role": "assistant", "content": text, "tool_calls": asked, **more}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def turns(*messages: Mapping[str, Any]) -> Any:
    return unmarked(body(*messages)["messages"])


@requirement("CHAT-43")
def test_a_conversation_with_tools_is_written_in_the_providers_shape() -> None:
    sent = body(
        system("Be brief."),
        system("Be kind."),
        user("hi"),
        called(("toolu_1", "one", '{"a": 1}'), ("toolu_2", "two", "{}"), text="Looking. "),
        result("toolu_1", "found"),
        result("toolu_2", ""),
        user("and now?"),
        tools=TOOLS,
    )
    assert unmarked(sent) == {
        "model": "model-1",
        "max_tokens": 1000,
        "stream": True,
        "tools": [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in TOOLS],
        "system": [{"type": "text", "text": "Be brief.\n\nBe kind."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "toolu_1", "name": "one", "input": {"a": 1}},
                    {"type": "tool_use", "id": "toolu_2", "name": "two", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "found"},
                    {"type": "tool_result", "tool_use_id": "toolu_2"},
                    {"type": "text", "text": "and now?"},
                ],
            },
        ],
    }


def test_the_last_tool_the_system_text_and_the_ends_of_the_last_two_user_messages_are_marked() -> None:
    sent = body(
        system("s"), user("a"), called(("t1", "one", "{}")), result("t1", "r"), called(("t2", "one", "{}")),
        result("t2", "r"), tools=TOOLS,
    )  # fmt: skip
    assert marks(sent) == 4
    assert sent["tools"][-1]["cache_control"] == sent["system"][0]["cache_control"] == MARK
    marked = [turn["content"][-1].get("cache_control") for turn in sent["messages"] if turn["role"] == "user"]
    assert marked == [None, MARK, MARK]
    assert marks([turn for turn in sent["messages"] if turn["role"] == "assistant"]) == 0


def test_a_longer_conversation_begins_with_the_same_bytes() -> None:
    begun = [system("s"), user("a"), called(("t1", "one", '{"b":1, "a":2}'), text="x"), result("t1", "r")]
    shorter = unmarked(body(*begun, tools=TOOLS))
    longer = unmarked(body(*begun, called(("t2", "one", "{}")), result("t2", "r"), tools=TOOLS))
    longer["messages"] = longer["messages"][: len(shorter["messages"])]
    assert json.dumps(longer) == json.dumps(shorter)


def test_blank_texts_are_left_out_and_roles_alternate() -> None:
    assert turns(user("a"), {"role": "assistant", "content": " \n"}, user(""), user("b")) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]
    assert [turn["role"] for turn in turns(system("s"))] == ["user"]
    assert [turn["role"] for turn in turns({"role": "assistant", "content": "I begin."})] == ["user", "assistant"]
    assert "system" not in body(system(" "), user("a"))


def test_what_a_provider_would_refuse_in_a_call_is_made_acceptable() -> None:
    (_, asked, answered) = turns(user("a"), called(("functions.x:0", "a b!", "[1]")), result("functions.x:0", "r"))
    (call,) = asked["content"]
    assert call["id"].isalnum() and (call["name"], call["input"]) == ("a_b_", {})
    assert answered["content"][0]["tool_use_id"] == call["id"]


KEPT: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
    {"type": "text", "text": "Looking."},
    {"type": "tool_use", "id": "toolu_1", "name": "one", "input": {"a": 1}},
]


def test_thoughts_go_back_unchanged_in_their_place_under_the_ids_that_the_results_carry() -> None:
    kept = Kept("here", {"content": KEPT}, "Hm.")
    sent = turns(user("a"), called(("toolu_1_2", "one", "{}"), kept=kept), result("toolu_1_2", "r"))
    assert sent[1]["content"] == [*KEPT[:2], {**KEPT[2], "id": "toolu_1_2"}]
    assert sent[2]["content"][0]["tool_use_id"] == "toolu_1_2"


@requirement("CHAT-62")
def test_thoughts_of_another_model_stay_away() -> None:
    kept = Kept("elsewhere", {"content": KEPT}, "Hm.")
    sent = turns(user("a"), called(("toolu_1", "one", "{}"), kept=kept), result("toolu_1", "r"))
    assert [part["type"] for part in sent[1]["content"]] == ["tool_use"]


def test_fields_of_the_operator_are_sent_and_cannot_replace_ours() -> None:
    sent = body(user("a"), extra={"temperature": 0, "max_tokens": 1})
    assert (sent["temperature"], sent["max_tokens"]) == (0, 1000)


@given(
    st.lists(
        st.sampled_from(
            [
                [system("s")],
                [user("u")],
                [user(" ")],
                [{"role": "assistant", "content": "a "}],
                [{"role": "assistant", "content": ""}],
                [called(("t1", "one", "{}")), result("t1", "r")],
                [called(("t1", "one", "{}"), ("t2", "two", ""), text="x"), result("t2", ""), result("t1", "r")],
            ]
        ),
        max_size=8,
    )
)
def test_whatever_the_conversation_roles_alternate_from_the_user_and_results_follow_their_calls(
    groups: list[list[dict[str, Any]]],
) -> None:
    sent = body(*(message for group in groups for message in group), tools=TOOLS)
    roles = [turn["role"] for turn in sent["messages"]]
    assert roles == [("user", "assistant")[place % 2] for place in range(len(roles))] != []
    assert marks(sent) <= 4
    asked: list[str] = []
    for turn in sent["messages"]:
        assert turn["content"]
        kinds = [part["type"] for part in turn["content"]]
        answered = [part["tool_use_id"] for part in turn["content"] if part["type"] == "tool_result"]
        assert sorted(answered) == sorted(asked) and kinds[: len(answered)] == ["tool_result"] * len(answered)
        assert all(part["text"].strip() for part in turn["content"] if part["type"] == "text")
        asked = [part["id"] for part in turn["content"] if part["type"] == "tool_use"]
