"""Messages that belong to the process where a call runs are told from the others, whatever they look like."""

import json
from typing import Any

import pytest

from app.mcp.requests import Addressed, addressed, same
from tests.support.requirement import requirement

ABOUT: list[tuple[dict[str, Any], Addressed]] = [
    ({"id": 7, "result": {"x": [1, {"id": 9}]}}, Addressed("answer", 7)),
    ({"id": "7", "error": {"code": -1, "message": "no"}}, Addressed("answer", "7")),
    ({"method": "notifications/cancelled", "params": {"requestId": 0}}, Addressed("cancel", 0)),
    ({"method": "notifications/cancelled", "params": {"requestId": "a", "reason": "r"}}, Addressed("cancel", "a")),
    ({"method": "notifications/progress", "params": {"progressToken": 3, "progress": 1}}, Addressed("progress", 3)),
]
NOT: list[Any] = [
    {"id": 1, "method": "tools/list"},
    {"id": None, "method": "notifications/cancelled", "params": {"requestId": 1}},
    {"method": "notifications/initialized"},
    {"method": "notifications/cancelled"},
    {"method": "notifications/cancelled", "params": {"requestId": True}},
    {"method": "notifications/cancelled", "params": [1]},
    {"method": "notifications/progress", "params": {"progressToken": {}}},
    {"method": 5, "params": {"requestId": 1}},
    {"id": None, "result": {}},
    {"id": 1.5, "result": {}},
    {"result": {}},
    [{"id": 1, "result": {}}],
    7,
    None,
]


@pytest.mark.parametrize(("message", "about"), ABOUT)
@requirement("FACE-118")
def test_what_belongs_to_a_call_names_it(message: dict[str, Any], about: Addressed) -> None:
    assert addressed(json.dumps({"jsonrpc": "2.0", **message}, indent=1).encode()) == about


@pytest.mark.parametrize("message", NOT)
@requirement("FACE-118")
def test_nothing_else_does(message: Any) -> None:
    whole = {"jsonrpc": "2.0", **message} if isinstance(message, dict) else message
    assert addressed(json.dumps(whole).encode()) is None


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"id":' + b"[" * 100_000, b'{"id": 1' + b"0" * 5_000 + b"}"])
def test_what_is_no_message_is_left_to_those_who_refuse_it(body: bytes) -> None:
    assert addressed(body) is None


def test_an_integer_in_a_string_is_that_integer() -> None:
    assert [same(id) for id in ("7", 7, "a", " 8 ", "")] == [7, 7, "a", 8, ""]
