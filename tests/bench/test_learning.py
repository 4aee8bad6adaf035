"""The log of the learning benchmark: real browses and executions, right ones and wrong ones."""

import pytest

from bench.gated_set import GatedSet, gated
from bench.learning import asked, learning_table, make_log
from bench.metrics import Scores
from bench.routing_sets import Task, Tool

TOOLS: list[Tool] = [
    {"key": f"{server}::{name}", "server": server, "name": name, "description": f"{name} of {server}"}
    for server in ("mail", "files")
    for name in ("send", "list", "remove")
]
TASKS = [
    Task("t1", "send mail", ("mail::send",), {}),
    Task("t2", "list files, then remove files", ("files::list", "files::remove"), {}),
    Task("t3", "nothing of the kind", ("mail::list",), {}),
]


@pytest.fixture
async def gate() -> GatedSet:
    return await gated(TOOLS)


async def test_the_log_runs_each_right_tool_that_was_shown(gate: GatedSet) -> None:
    assert sorted(await make_log(gate, TASKS, 0.0)) == ["files::list", "files::remove", "mail::send"]


async def test_wrong_calls_run_another_tool_of_the_same_answer(gate: GatedSet) -> None:
    ran = await make_log(gate, TASKS, 1.0)
    for task, key in zip((TASKS[0], TASKS[1], TASKS[1]), ran, strict=True):
        assert key not in task.gold
        assert key in (await gate.browse({"query": task.query})).keys


async def test_what_is_asked_is_scored(gate: GatedSet) -> None:
    assert await asked(gate, TASKS[:1]) == Scores(1.0, 1.0, 1.0)


def test_the_table_has_before_after_and_wrong_of_both_recalls() -> None:
    row = {"set": "s", "split": "by query", "asked": 10, "met": 0.5, "calls": 9}
    runs = {"before": (0.1, 0.4), "after": (0.2, 0.5), "wrong": (0.15, 0.45)}
    (cells,) = learning_table([row | runs]).rows
    assert list(cells) == ["s", "by query", "9", "10", "50.0", "10.0", "20.0", "15.0", "40.0", "50.0", "45.0"]
