"""Which tools and queries the benchmarks run on: real ones from the folder ``BENCH_ROUTING_DATA``, or made ones.

The sets of that folder are described in docs/benchmarks.md ("Data from outside"). Both kinds are the same in every run.
Names are ``<server>.<tool>``, so that one upstream holds many namespaces.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.contest import Definition

ROOT = Path(__file__).resolve().parent.parent

# Servers with real definitions first; the large single-server sets last, or they would fill a small catalog alone.
_TOOL_SETS = ("mcpzero", "azure", "sealtools", "metatool", "bfcl")
_QUERY_SETS = ("azure", "metatool", "sealtools", "bfcl")
_NEEDED = (*_TOOL_SETS, "toolbench")

# Not WICKETGATE_...: the service takes that prefix for settings of its own and refuses names that it does not know.
ROUTING_DATA = "BENCH_ROUTING_DATA"
MISSING = (
    f"{ROUTING_DATA} is not set: name the folder with the public sets {', '.join(_NEEDED)}, each with its "
    'tools.jsonl and most with queries_dev.jsonl (docs/benchmarks.md, "Data from outside")'
)
"""Printed by a benchmark that goes without the real tools, and the reason of a test that is skipped."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """*definitions* have distinct names; *source* says in words where they come from."""

    source: str
    definitions: list[Definition]
    queries: list[str]


def routing_data() -> Path | None:
    """The folder of routing sets; None if the variable is not set. Raises FileNotFoundError if sets are missing."""
    named = os.environ.get(ROUTING_DATA)
    if not named:
        return None
    for name in _NEEDED:
        if not (expected := Path(named, name, "tools.jsonl")).is_file():
            raise FileNotFoundError(
                f"{ROUTING_DATA}: {expected} is not there; docs/benchmarks.md says what belongs there"
            )
    return Path(named)


def corpus(size: int, queries: int, data: Path | None) -> Corpus:
    """*size* tools and *queries* queries. Real servers come in an order drawn by digest; when they do not suffice
    they come again under another name."""
    if data is None:
        return Corpus(f"synthetic ({ROUTING_DATA} is not set)", _synthetic(size), _synthetic_queries(queries))
    real = _real(data)
    definitions: list[Definition] = []
    for copy in range(-(-size // len(real))):
        definitions += [_renamed(tool, copy) for tool in real[: size - len(definitions)]]
    source = f"real tools of {', '.join(_TOOL_SETS)}"
    if size > len(real):
        source += f", {size - len(real)} of them again under another name"
    return Corpus(source, definitions, _spread(list(_real_queries(data)), queries))


def _real(data: Path) -> list[Definition]:
    found: dict[str, Definition] = {}
    for name in _TOOL_SETS:
        tools = [json.loads(line) for line in (data / name / "tools.jsonl").read_text("utf-8").splitlines()]
        tools.sort(key=lambda tool: _digest(tool["server"]))
        for tool in tools:
            full = f"{slug(tool['server'])}.{tool['name']}"
            schema = tool.get("inputSchema") or {"type": "object", "properties": {}}
            # Slugs can meet, and the same tool twice is a collision: the first one counts.
            found.setdefault(full, {"name": full, "description": tool["description"], "inputSchema": schema})
    return list(found.values())


def _renamed(tool: Definition, copy: int) -> Definition:
    if copy == 0:
        return tool
    server, _, name = tool["name"].partition(".")
    return {**tool, "name": f"{server}-{copy + 1}.{name}"}


def _real_queries(data: Path) -> Iterator[str]:
    for name in _QUERY_SETS:
        for line in (data / name / "queries_dev.jsonl").read_text("utf-8").splitlines():
            yield json.loads(line)["query"]


def _spread(items: list[str], count: int) -> list[str]:
    """*count* items, drawn by digest, so that every set has its share."""
    return sorted(items, key=_digest)[:count]


def slug(server: str) -> str:
    """The name of a server as a namespace of the gate."""
    words = re.sub(r"[^a-z0-9_-]+", "-", server.lower()).strip("-_")
    return re.sub(r"_{2,}", "_", words if words[:1].isalpha() else f"s-{words}")[:60].rstrip("-_")


_VERBS = ("create", "delete", "get", "list", "search", "update", "export", "archive", "share", "rename")
_NOUNS = ("issue", "invoice", "calendar", "branch", "contact", "volume", "ticket", "report", "playlist", "certificate")
_WHERE = ("billing", "support", "storage", "music", "source", "mail", "maps", "cluster", "shop", "clinic")


def _synthetic(size: int) -> list[Definition]:
    return [_made(number) for number in range(size)]


def _made(number: int) -> Definition:
    verb, noun, where = _words(number)
    return {
        "name": f"{where}-{number // 40}.{verb}_{noun}_{number}",
        "description": f"{verb.capitalize()} one {noun} in the {where} service. Needs the {noun}'s id; answers JSON.",
        "inputSchema": {
            "type": "object",
            "properties": {
                f"{noun}_id": {"type": "string", "description": f"Which {noun}."},
                "limit": {"type": "integer"},
            },
            "required": [f"{noun}_id"],
        },
    }


def _synthetic_queries(count: int) -> list[str]:
    return [f"{verb} the {noun} of my {where}" for verb, noun, where in map(_words, range(count))]


def _words(number: int) -> tuple[str, str, str]:
    digest = int(_digest(str(number)), 16)
    return _VERBS[digest % 10], _NOUNS[digest // 10 % 10], _WHERE[number // 40 % 10]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
