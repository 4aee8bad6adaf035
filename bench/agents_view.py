"""The agent's view: the share of tasks whose tools are all on the screen after one, two, three browses.

A task is solved after n browses if all its tools were shown in the first n calls of ``tool_browse`` at the gateway
face. ``top_k`` is not set. The agents are simulated (``bench/agents.py``): they recognize a right tool when it is
shown, and stop when they have all.

*the rest of its words*: the next browse is a query with the words of the task that no right tool found so far has. *the
namespaces of its hint*: ``/<namespace>`` of each namespace that the hint names; on a page of levels, the level that
shares most words with the task. *the right ones of its hint, else /*: the right namespaces that the hint names,
otherwise ``/``, then each right namespace, level by level; these agents know the right namespace, so it is an upper
bound, and the others are lower bounds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bench.agents import WAYS, Browse, walk
from bench.gated_set import GatedSet, Page, gated
from bench.metrics import found, whole
from bench.progress import step
from bench.routing_sets import DEV_SETS, Task, routing_set
from bench.table import Table, figure, share
from wicketgate.tokens import shipped_token_counter

BROWSES = 3
_TOP_KS = (5, 10, 20, None)

_Count = Callable[[str], int]


async def agents_view(data: Path, names: Sequence[str] = DEV_SETS) -> dict[str, list[dict[str, Any]]]:
    """Rows of two tables: ``one`` browse with each top_k, and the ``ways`` of up to BROWSES of them."""
    rows: dict[str, list[dict[str, Any]]] = {"one": [], "ways": []}
    for name in names:
        tried = routing_set(data, name)
        about = {"set": name, "tasks": len(tried.tasks), "several": _share(len(task.gold) > 1 for task in tried.tasks)}
        with step(f"agent's view: {name}, {len(tried.tasks)} tasks"):
            gate = await gated(tried.tools)
            count = cache(shipped_token_counter().count)
            first: Mapping[str, Page] = {}
            for top_k in _TOP_KS:
                first = await _first_pages(gate, tried.tasks, top_k)
                rows["one"].append(about | {"top_k": top_k} | _one_browse(tried.tasks, first, count))
            rows["ways"] += [about | row for row in await _ways(gate, tried.tasks, first, count)]
    return rows


def one_browse_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = [
        [
            *_about(row),
            str(row["top_k"] or "left out"),
            share(row["any"]),
            share(row["all"]),
            figure(row["shown"]),
            figure(row["tokens"]),
        ]
        for row in rows
    ]
    head = ["set", "tasks", "of several tools", "top_k", "any tool", "all tools", "tools shown", "tokens"]
    return Table("On the screen after one browse, % of tasks", head, shown)


def ways_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = [[*_about(row), row["way"], *map(share, row["all"]), figure(row["tokens"])] for row in rows]
    head = ["set", "tasks", "of several tools", "way", *(f"after {count}" for count in range(1, BROWSES + 1)), "tokens"]
    notes = ["tokens: of all browses of a task, on average; an agent stops when it has all tools"]
    return Table("All tools of the task on the screen, % of tasks", head, shown, notes)


async def _first_pages(gate: GatedSet, tasks: Sequence[Task], top_k: int | None) -> Mapping[str, Page]:
    """By task. *top_k* None: left out."""
    asked = {"top_k": top_k} if top_k else {}
    return {task.id: await gate.browse({"query": task.query, **asked}) for task in tasks}


def _one_browse(tasks: Sequence[Task], pages: Mapping[str, Page], count: _Count) -> dict[str, Any]:
    shown = [(task, pages[task.id]) for task in tasks]
    return {
        "any": _share(bool(found(page.keys, task)) for task, page in shown),
        "all": _share(whole(page.keys, task) for task, page in shown),
        "shown": _mean(len(page.tools) for _, page in shown),
        "tokens": _mean(count(page.text) for _, page in shown),
    }


async def _ways(
    gate: GatedSet, tasks: Sequence[Task], first: Mapping[str, Page], count: _Count
) -> list[dict[str, Any]]:
    places = await gate.places()
    rows = []
    for told, way in WAYS.items():
        walks = [(task, await walk(way, task, places, _after(first[task.id], task, gate), BROWSES)) for task in tasks]
        after = [_share(whole(one.keys(browses), task) for task, one in walks) for browses in range(1, BROWSES + 1)]
        tokens = _mean(sum(count(page.text) for page in one.pages) for _, one in walks)
        rows.append({"way": told, "all": after, "tokens": tokens})
    return rows


def _after(first: Page, task: Task, gate: GatedSet) -> Browse:
    """Every way begins with the same browse, which has been made."""

    async def browse(arguments: Mapping[str, Any]) -> Page:
        return first if arguments == {"query": task.query} else await gate.browse(arguments)

    return browse


def _about(row: Mapping[str, Any]) -> list[str]:
    return [row["set"], f"{row['tasks']:,}", f"{100 * row['several']:.0f} %"]


def _share(hits: Iterable[bool]) -> float:
    return _mean(map(float, hits))


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
