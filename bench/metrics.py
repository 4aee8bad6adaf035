"""Shares of a task's tools among those that are shown. Where several tools are equally right, one of them suffices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from bench.routing_sets import Task


@dataclass(frozen=True, slots=True)
class Scores:
    """*recall_1*, *recall_5*: the share of the task's tools among the first one and five. *any_5*: 1 if any is among
    the first five."""

    recall_1: float
    recall_5: float
    any_5: float


def found(keys: Iterable[str], task: Task) -> set[str]:
    """The task's tools among *keys*, each by its own key."""
    stands_for = _stands_for(task)
    return {stands_for[key] for key in keys if key in stands_for}


def whole(keys: Iterable[str], task: Task) -> bool:
    """True if all of the task's tools are there."""
    return len(found(keys, task)) == len(task.gold)


def score(ranked: Sequence[str], task: Task) -> Scores:
    """*ranked*: keys, best first. A key that comes again takes no second place."""
    first = list(dict.fromkeys(ranked))[:5]
    recall_5 = len(found(first, task)) / len(task.gold)
    return Scores(len(found(first[:1], task)) / len(task.gold), recall_5, float(recall_5 > 0))


def mean(scores: Sequence[Scores]) -> Scores:
    return Scores(*(sum(getattr(one, field.name) for one in scores) / len(scores) for field in fields(Scores)))


def _stands_for(task: Task) -> Mapping[str, str]:
    by_key = {key: key for key in task.gold}
    for key in task.gold:
        for other in task.alternatives.get(key, ()):
            by_key.setdefault(other, key)
    return by_key
