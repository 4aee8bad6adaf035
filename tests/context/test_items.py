import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.conversations import FourCharacters, told
from tests.support.requirement import requirement
from wicketgate.context.build import build
from wicketgate.context.items import (
    ContextItem,
    ItemKind,
    load_mcp_session_jsonl,
    messages_from_items,
    parse_session_jsonl,
)
from wicketgate.errors import SessionFileError

K = ItemKind


def item(item_id: str, kind: ItemKind, text: str, parent: str | None = None, **metadata: Any) -> ContextItem:
    return ContextItem(item_id, kind, text, parent, metadata)


@requirement("CHAT-84")
def test_a_session_file_becomes_what_a_model_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    invoices = "\n".join(f"invoice {number}: open" for number in range(1_000))
    events = [
        {"id": "s1", "type": "system", "text": "Be brief."},
        {"id": "u1", "type": "user_turn", "text": "Search for open invoices"},
        {"id": "a1", "type": "agent_msg", "text": "Let me look."},
        {"id": "tc1", "type": "tool_call", "text": "invoices.search(status='open')", "parent_id": "u1"},
        {"id": "tr1", "type": "tool_result", "content": invoices, "parent_id": "tc1"},
        {"id": "a2", "type": "agent_msg", "text": "A thousand."},
        {"id": "u2", "type": "user_turn", "text": "invoice status"},
    ]
    path.write_text("\n".join(json.dumps(event) for event in events))
    messages = messages_from_items(load_mcp_session_jsonl(path))
    assert messages[2] == {
        "role": "assistant",
        "content": "Let me look.",
        "item_ids": ("a1", "tc1"),
        "tool_calls": [
            {
                "id": "tc1",
                "type": "function",
                "function": {"name": "invoices_search", "arguments": '{"call": "invoices.search(status=\'open\')"}'},
            }
        ],
    }
    assert messages[3] == {"role": "tool", "tool_call_id": "tc1", "content": invoices, "item_ids": ("tr1",)}
    assert told(build(messages, 300, FourCharacters()).messages) == [
        "system: Be brief.",
        "user: Search for open invoices",
        "assistant: Let me look.",
        f"tool: {invoices[:240]}… [{len(invoices) - 240:,} more characters left out to save room]",
        "assistant: A thousand.",
        "user: invoice status",
    ]


def test_calls_in_a_row_are_one_step_and_a_call_after_a_result_begins_the_next() -> None:
    messages = messages_from_items(
        [
            item("c1", K.tool_call, "a()"),
            item("c2", K.tool_call, "b()", args={"x": 1}),
            item("r2", K.tool_result, "two", "c2"),
            item("c3", K.tool_call, "c()", tool="files/read now"),
            item("r1", K.tool_result, "one", "c1"),
            item("r3", K.tool_result, "three", "c3"),
        ]
    )
    assert told(messages) == ["assistant: 2", "tool: one", "tool: two", "assistant: 1", "tool: three"]
    functions = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    assert [function["name"] for function in functions] == ["a", "b", "files_read_now"]
    assert json.loads(functions[1]["arguments"]) == {"x": 1}


def test_what_has_no_counterpart_is_told_as_text() -> None:
    messages = messages_from_items(
        [
            item("u1", K.user_turn, "Go."),
            item("c1", K.tool_call, "never.answered()", "u1"),
            item("r0", K.tool_result, "an answer to nobody"),
            item("c2", K.tool_call, "a()"),
            item("r2", K.tool_result, "first", "c2"),
            item("r3", K.tool_result, "second", "c2"),
        ]
    )
    assert told(messages)[:3] == ["user: Go.", "assistant: never.answered()", "assistant: an answer to nobody"]
    assert messages[2]["tool_calls"][0]["id"] == "c2"
    assert told(messages)[3:] == ["tool: first", "assistant: second"]


@given(st.lists(st.tuples(st.sampled_from(K), st.integers(0, 6)), max_size=12))
def test_no_item_is_lost_and_every_pair_is_whole(drawn: list[tuple[ItemKind, int]]) -> None:
    items = [
        item(f"i{number}", kind, f"<{number}>", f"i{number - back}" if 0 < back <= number else None)
        for number, (kind, back) in enumerate(drawn)
    ]
    messages = messages_from_items(items)
    text = json.dumps(messages)
    assert all(entry.text in text for entry in items)
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting


SESSION = """\
{"id": "u1", "type": "user_turn", "text": "Search for open invoices"}
{"id": "tc1", "type": "tool_call", "text": "invoices.search(status='open')", "parent_id": "u1"}

{"id": "tr1", "type": "tool_result", "content": {"count": 2}, "parent_id": "tc1", "tool": "invoices.search"}
{"id": "a1", "type": "agent_msg", "text": "Two of them."}
"""


@requirement("CHAT-84")
def test_a_session_is_read_in_order_with_its_links(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("\ufeff" + SESSION)
    items = load_mcp_session_jsonl(path)
    assert [(item.id, item.kind, item.parent_id) for item in items] == [
        ("u1", ItemKind.user_turn, None),
        ("tc1", ItemKind.tool_call, "u1"),
        ("tr1", ItemKind.tool_result, "tc1"),
        ("a1", ItemKind.agent_msg, None),
    ]
    assert items[0].text == "Search for open invoices"
    assert json.loads(items[2].text) == {"count": 2}
    assert items[2].metadata == {"tool": "invoices.search"}
    assert items[0].kind.value == "user_turn"


@requirement("CHAT-84")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{bad", "line 2: not JSON"),
        ("[]", "line 2: an event must be an object"),
        ('{"type": "user_turn", "text": "x"}', "line 2: id"),
        ('{"id": "", "type": "user_turn", "text": "x"}', "line 2: id"),
        ('{"id": "x", "type": "robot", "text": "x"}', "line 2: type must be one of system, user_turn"),
        ('{"id": "x", "type": ["user_turn"], "text": "x"}', "line 2: type"),
        ('{"id": "x", "type": "user_turn"}', "line 2: an event needs text or content"),
        ('{"id": "x", "type": "user_turn", "text": "x", "parent_id": 1}', "line 2: parent_id"),
        ('{"id": "x", "type": "user_turn", "text": "x", "parent_id": "later"}', "line 2: no line before it"),
        ('{"id": "u1", "type": "user_turn", "text": "x"}', "line 2: the id 'u1' is used twice"),
        ("[" * 100_000, "line 2: nested too deeply"),
    ],
)
def test_a_line_at_fault_is_named(line: str, told: str) -> None:
    with pytest.raises(SessionFileError) as fault:
        parse_session_jsonl([SESSION.splitlines()[0], line])
    assert str(fault.value).startswith(told)


def test_a_file_that_cannot_be_read_is_told_without_its_path(tmp_path: Path) -> None:
    with pytest.raises(SessionFileError, match="cannot be read") as fault:
        load_mcp_session_jsonl(tmp_path / "none.jsonl")
    assert str(tmp_path) not in str(fault.value)
    (tmp_path / "latin").write_bytes(b'{"id": "\xe9"}')
    with pytest.raises(SessionFileError, match="UTF-8"):
        load_mcp_session_jsonl(tmp_path / "latin")
