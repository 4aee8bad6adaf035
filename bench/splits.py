"""Halves of a set's tasks: one is the log that is learnt from, the other is asked. The same every time."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.routing_sets import Task


@dataclass(frozen=True, slots=True)
class Split:
    log: tuple[Task, ...]
    asked: tuple[Task, ...]


def by_query(tasks: Sequence[Task]) -> Split:
    """Two tasks of one tool may be in different halves."""
    return _halves(tasks, lambda task: task.id)


def by_tools(tasks: Sequence[Task]) -> Split:
    """Tasks that take the same set of tools are in one half; a single tool may be in both."""
    return _halves(tasks, lambda task: " ".join(sorted(task.gold)))


def strangers(tasks: Sequence[Task]) -> Split:
    """No tool of the log is asked for: a task whose tools would be in both halves is left out."""
    log, asked = [], []
    for task in tasks:
        keys = {*task.gold, *(other for others in task.alternatives.values() for other in others)}
        if all(_in_log(key) for key in keys):
            log.append(task)
        elif not any(_in_log(key) for key in keys):
            asked.append(task)
    return Split(tuple(log), tuple(asked))


def met(split: Split) -> float:
    """The share of the asked tasks of which a tool is in the log: only these can gain."""
    logged = {key for task in split.log for key in task.gold}
    return sum(not logged.isdisjoint(task.gold) for task in split.asked) / len(split.asked)


def _halves(tasks: Sequence[Task], together: Callable[[Task], str]) -> Split:
    return Split(
        tuple(task for task in tasks if _in_log(together(task))),
        tuple(task for task in tasks if not _in_log(together(task))),
    )


def _in_log(key: str) -> bool:
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 0
