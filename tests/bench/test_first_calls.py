"""The agent that calls a tool for the first time: what it makes of a hint."""

from typing import Any

import pytest

from bench.first_calls import arguments_read, first_calls
from bench.gated_set import gated
from bench.routing_sets import Task
from tests.bench.test_agents import tool


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("f(owner, body?, labels?: array of string)", {"owner": "text"}),
        (
            'f(a-b: integer 2..9, kind: "x"|"y", at: string (date), l: array of integer)',
            {"a-b": 2, "kind": "x", "at": "text", "l": [1]},
        ),
        ("f(o: {a: string, b?: number}, on: boolean, …)", {"o": {}, "on": True}),
        ("Best for this query: a:f#1. f(id)", {"id": "text"}),
        ("No clear match. Try other words, or browse '/'.", {}),
    ],
)
def test_required_arguments_are_filled_in_from_the_line_alone(line: str, args: dict[str, Any]) -> None:
    assert arguments_read(line) == args


async def test_a_first_call_is_right_with_the_hint_and_refused_without() -> None:
    tools = [tool("git", "list_commits", "Commits of a branch."), tool("git", "open_issue", "Opens an issue.")]
    behind = await gated(tools, strict=True)
    tasks = [Task("1", "open an issue", ("git::open_issue",), {})]
    assert [(await first_calls(behind, tasks, blind=blind))[:3] for blind in (True, False)] == [(1, 0, 2), (1, 1, 1)]
