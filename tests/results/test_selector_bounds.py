"""Selectors and data as they come in the wild: huge numbers, long names, byte order marks, JSON Lines (gateway 97)."""

import json

import pytest

from wicketgate.errors import ViewFailed
from wicketgate.results.selector import select

JSON = json.dumps({"a": [1, 2, 3]}).encode()


@pytest.mark.parametrize("huge", [2**31, 2**63, 2**64, 10**30])
@pytest.mark.parametrize(
    "selector",
    [
        {"type": "head"},
        {"type": "lines"},
        {"type": "rows"},
        {"type": "json_keys", "keys": ["a"]},
        {"type": "json_path", "path": "$.a[*]"},
        {"type": "grep", "pattern": "a"},
    ],
    ids=lambda selector: str(selector["type"]),
)
def test_any_count_however_large_is_answered(selector: dict[str, object], huge: int) -> None:
    view = select(JSON, "application/json", {**selector, "start": huge})
    assert view.content == ""
    assert view.next is None


def test_names_that_would_swell_the_answer_are_refused() -> None:
    with pytest.raises(ViewFailed, match="together"):
        select(JSON, "application/json", {"type": "json_keys", "keys": ["k" * 1_000] * 3})


def test_a_byte_order_mark_is_no_part_of_the_data() -> None:
    marked = b"\xef\xbb\xbf" + JSON
    assert select(marked, "application/json", {"type": "json_path", "path": "$.a[0]"}).content == "1"
    assert select(marked, "application/json", {"type": "json_keys", "keys": ["a"]}).content != ""
    assert select(b"\xef\xbb\xbfid,x\n1,2", "text/csv", {"type": "rows", "start": 1}).content == "id,x\n1,2"


def test_json_lines_have_no_header_to_repeat() -> None:
    lines = b'{"a":1}\n{"a":2}\n{"a":3}'
    assert select(lines, "text/plain", {"type": "rows", "start": 1, "end": 2}).content == '{"a":2}'
