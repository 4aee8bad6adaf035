"""The routing sets of ``BENCH_ROUTING_DATA``: tools, and tasks whose right tools are known.

Each set is a folder with ``tools.jsonl``, one tool per line: ``{"key", "server", "name", "description",
"inputSchema"?}``, where ``key`` is unique in the set. All except ``mcpzero`` also have ``queries_dev.jsonl``, one task
(a query) per line: ``{"id", "query", "gold": [key, ...], "gold_alt"?: {key: [key, ...]}}``. ``gold`` lists the right
tools, ``gold_alt`` tools that are equally right.

Standard library only: the environments of the peers have nothing else. The metrics over them: ``bench.metrics``.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.catalogs import slug

_T = TypeVar("_T")

DEV_SETS = ("azure", "metatool", "sealtools", "bfcl", "toolbench")

Tool = Mapping[str, Any]
"""``key``, ``server``, ``name``, ``description``, and ``inputSchema`` where there is one."""


@dataclass(frozen=True, slots=True)
class Task:
    """*gold*: the keys of the tools that it takes. *alternatives*: by such a key, those that are equally right."""

    id: str
    query: str
    gold: tuple[str, ...]
    alternatives: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RoutingSet:
    name: str
    tools: tuple[Tool, ...]
    tasks: tuple[Task, ...]


def routing_set(data: Path, name: str) -> RoutingSet:
    tools, queries = _lines(data / name / "tools.jsonl"), _lines(data / name / "queries_dev.jsonl")
    return RoutingSet(name, tuple(tools), tuple(map(_task, queries)))


def sample(items: Sequence[_T], count: int) -> list[_T]:
    """*count* of them, or all; the same ones every time."""
    drawn = list(items)
    random.Random(0).shuffle(drawn)
    return drawn[:count]


def namespaces(tools: Sequence[Tool]) -> dict[str, str]:
    """By server a name that the gate takes, no two the same."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for server in dict.fromkeys(tool["server"] for tool in tools):
        name, number = slug(server), 1
        while name in taken:
            number += 1
            name = f"{slug(server)[:56]}-{number}"
        taken.add(name)
        names[server] = name
    return names


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]


def _task(query: Mapping[str, Any]) -> Task:
    alternatives = {key: tuple(others) for key, others in (query.get("gold_alt") or {}).items()}
    return Task(query["id"], query["query"], tuple(query["gold"]), alternatives)
