"""Shares of a task's tools among what is shown."""

import pytest

from bench.metrics import Scores, found, mean, score, whole
from bench.routing_sets import Task


def task(*gold: str, **alternatives: tuple[str, ...]) -> Task:
    return Task("t", "do it", gold, alternatives)


@pytest.mark.parametrize(
    ("ranked", "scores"),
    [
        (["a", "b", "x"], Scores(0.5, 1.0, 1.0)),
        (["x", "b", "y", "z", "w", "a"], Scores(0.0, 0.5, 1.0)),
        (["x", "y", "z", "v", "w", "a", "b"], Scores(0.0, 0.0, 0.0)),
        ([], Scores(0.0, 0.0, 0.0)),
        (["x", "x", "x", "x", "x", "x", "a"], Scores(0.0, 0.5, 1.0)),
    ],
)
def test_recall_is_the_share_of_the_tasks_tools_in_the_first_places(ranked: list[str], scores: Scores) -> None:
    assert score(ranked, task("a", "b")) == scores


def test_a_tool_that_is_equally_right_counts_once_and_keeps_its_place() -> None:
    either = task("a", "b", a=("a2",))
    assert score(["a2", "a", "b"], either) == Scores(0.5, 1.0, 1.0)
    assert score(["a2", "a", "x", "y", "z", "b"], either).recall_5 == 0.5
    assert found(["a2", "a"], either) == {"a"}
    assert not whole(["a2", "a"], either)
    assert whole(["b", "a2"], either)


def test_the_mean_is_over_tasks() -> None:
    assert mean([Scores(1, 1, 1), Scores(0, 0.5, 1)]) == Scores(0.5, 0.75, 1)
