"""Halves of a set's tasks: what is asked was not logged."""

import pytest

from bench.routing_sets import Task
from bench.splits import by_query, by_tools, met, strangers

TASKS = [Task(f"t{number}", f"query {number}", (f"a{number % 13}", f"b{number % 7}"), {}) for number in range(300)]


@pytest.mark.parametrize("split", [by_query, by_tools, strangers])
def test_no_task_is_in_both_halves_and_both_are_the_same_every_time(split) -> None:  # type: ignore[no-untyped-def]
    made = split(TASKS)
    assert made == split(TASKS)
    assert {task.id for task in made.log}.isdisjoint(task.id for task in made.asked)
    assert min(len(made.log), len(made.asked)) > 20


def test_by_query_and_by_tools_leave_no_task_out() -> None:
    assert all(len(made.log) + len(made.asked) == len(TASKS) for made in (by_query(TASKS), by_tools(TASKS)))


def test_by_tools_keeps_the_tasks_of_one_set_of_tools_together() -> None:
    made = by_tools(TASKS)
    assert {task.gold for task in made.log}.isdisjoint(task.gold for task in made.asked)
    turned = Task("other", "the same in another order", tuple(reversed(made.log[0].gold)), {})
    assert turned in by_tools([*TASKS, turned]).log


def test_strangers_ask_for_no_tool_of_the_log_nor_for_one_that_is_equally_right() -> None:
    alike = [Task(f"u{number}", "", (f"a{number}",), {f"a{number}": (f"c{number}",)}) for number in range(40)]
    made = strangers([*TASKS, *alike])
    logged = {key for task in made.log for key in (*task.gold, *(k for ks in task.alternatives.values() for k in ks))}
    assert all(logged.isdisjoint(task.gold) for task in made.asked)
    assert all(logged.isdisjoint(others) for task in made.asked for others in task.alternatives.values())
    assert met(made) == 0
    assert met(by_query(TASKS)) == 1
