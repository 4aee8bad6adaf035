"""Learning which tool was meant, before and after: half of a set's tasks are the log, the other half is asked.

The log is made through the public face: a browse, then an execution of each right tool that was shown. What is never
shown is never learnt. One actor makes all calls, so that the default reach of learning covers them.

Tools that are not shown are not learned; the same actor asks the other half in new sessions. *after, 30 % wrong*: that
share of the calls runs another tool of the same answer. Splits: *by query*: each query is in one half, its tools may be
in both. *by task*: tasks with the same set of tools are in one half, for sets whose tasks mostly need several tools.
*strangers*: the second half needs no tool of the log, which shows the harm of a log that does not fit. *of them with a
tool of the log* is the share of asked tasks that can gain.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gated_set import GatedSet, gated
from bench.metrics import Scores, mean, score
from bench.progress import step
from bench.ranking import RANKED
from bench.routing_sets import DEV_SETS, RoutingSet, Task, routing_set
from bench.splits import Split, by_query, by_tools, met, strangers
from bench.table import Table, share
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies

WRONG = 0.3
"""The share of calls that go to another tool of the same answer, in the third column."""

_SPLITS: Mapping[str, Callable[[Sequence[Task]], Split]] = {
    "by query": by_query,
    "by task": by_tools,
    "strangers": strangers,
}


def learner() -> RuntimeOptions:
    """Makes options under which a runtime learns, each actor from its own calls."""
    return RuntimeOptions(RuntimePolicies(learn="actor"))


async def learning(data: Path, names: Sequence[str] = DEV_SETS) -> list[dict[str, Any]]:
    """One row a set and split."""
    rows = []
    for name in names:
        tried = routing_set(data, name)
        for told, split in _splits_of(tried):
            with step(f"learning: {name}, {told}, {len(split.log)} tasks logged, {len(split.asked)} asked"):
                about = {"set": name, "split": told, "asked": len(split.asked), "met": met(split)}
                rows.append(about | await _before_after(tried, split))
    return rows


def learning_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = [
        [row["set"], row["split"], f"{row['calls']:,}", f"{row['asked']:,}", share(row["met"])]
        + [share(row[run][place]) for place in (0, 1) for run in ("before", "after", "wrong")]
        for row in rows
    ]
    head = ["set", "split", "calls logged", "tasks asked", "of them with a tool of the log"]
    head += [f"recall@{place} {run}" for place in (1, 5) for run in ("before", "after", f"after, {WRONG:.0%} wrong")]
    notes = [
        "by query: a query is in one half; by task: tasks of the same set of tools are in one half",
        "strangers: no tool of the log is asked for, so nothing can be gained",
    ]
    return Table("Learning from what was executed, %", head, shown, notes)


async def make_log(gate: GatedSet, tasks: Sequence[Task], wrong: float) -> list[str]:
    """Browse and execute for each task, a session for each; returns the keys that were executed.

    *wrong*: the share of them that run another tool that the same answer shows.
    """
    ran: list[str] = []
    for task in tasks:
        chance = random.Random(task.id)
        page = await gate.browse({"query": task.query}, f"log {task.id}")
        right = {*task.gold, *(other for others in task.alternatives.values() for other in others)}
        others = [key for key in page.keys if key not in right]
        for key in page.keys:
            if key not in right:
                continue
            if others and chance.random() < wrong:
                key = chance.choice(others)
            if await gate.execute(key, f"log {task.id}"):
                ran.append(key)
    await gate.settle()
    return ran


async def asked(gate: GatedSet, tasks: Sequence[Task]) -> Scores:
    pages = [await gate.browse({"query": task.query, "top_k": RANKED}, f"asked {task.id}") for task in tasks]
    return mean([score(page.keys, task) for page, task in zip(pages, tasks, strict=True)])


def _splits_of(tried: RoutingSet) -> Iterator[tuple[str, Split]]:
    """By task only where most tasks take several tools: with one tool each it would be the strangers."""
    several = sum(len(task.gold) > 1 for task in tried.tasks) > len(tried.tasks) / 2
    for told in ("by query", *(["by task"] if several else []), "strangers"):
        yield told, _SPLITS[told](tried.tasks)


async def _before_after(tried: RoutingSet, split: Split) -> dict[str, Any]:
    figures: dict[str, Any] = {"before": _pair(await asked(await gated(tried.tools), split.asked))}
    for run, wrong in (("after", 0.0), ("wrong", WRONG)):
        options = learner()
        gate = await gated(tried.tools, options)
        ran = await make_log(gate, split.log, wrong)
        figures |= {"calls": len(ran), run: _pair(await asked(gate, split.asked))}
    return figures


def _pair(scores: Scores) -> tuple[float, float]:
    return scores.recall_1, scores.recall_5
