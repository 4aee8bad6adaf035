"""Session files become context items, or say which line is wrong (S1 "load_mcp_session_jsonl")."""

import json
from pathlib import Path

import pytest

from tests.support.requirement import requirement
from wicketgate.context.items import ItemKind
from wicketgate.errors import SessionFileError
from wicketgate.storage.session_file import load_mcp_session_jsonl, parse_session_jsonl

SESSION = """\
{"id": "u1", "type": "user_turn", "text": "Search for open invoices"}
{"id": "tc1", "type": "tool_call", "text": "invoices.search(status='open')", "parent_id": "u1"}

{"id": "tr1", "type": "tool_result", "content": {"count": 2}, "parent_id": "tc1", "tool": "invoices.search"}
{"id": "a1", "type": "agent_msg", "text": "Two of them."}
"""


@requirement("S1 load_mcp_session_jsonl")
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
