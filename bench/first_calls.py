"""Measures the share of first calls of a tool that are right: ``python -m bench.first_calls``.

Over 100 tasks of each set of ``BENCH_ROUTING_DATA`` with schemas (``bench.routing_sets``) an agent
browses once with the words of the task, takes the right tool if it is on the screen, and calls it. It fills in only
what it has read: the required arguments of the line that the hint shows, by the types written there. A refused call is
made again with the example of the refusal. *blind*: the same without that line.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bench.catalogs import MISSING, routing_data
from bench.gated_set import GatedSet, gated
from bench.routing_sets import DEV_SETS, Task, routing_set, sample
from bench.table import table
from wicketgate.tokens import shipped_token_counter

TASKS = 100
_MOST_CALLS = 3
_CALL = re.compile(r"\S+\((.*)\)")
_ARGUMENT = re.compile(r"([\w$-]+)(\?)?(?:: (.*?))?(?:, (?=[\w$-]+\??(?:[:,]|$)|…)|$)")
_PLAIN = {"integer": 1, "number": 1.5, "boolean": True, "null": None}


def arguments_read(line: str) -> dict[str, Any]:
    """The required arguments that a hint shows, filled in by their types alone."""
    call = _CALL.search(line)
    read = _ARGUMENT.findall(call[1]) if call else []
    return {name: _value(shape) for name, optional, shape in read if not optional}


async def first_calls(behind: GatedSet, tasks: Sequence[Task], *, blind: bool) -> tuple[int, int, int, int]:
    """The tasks whose tool was on the screen, how many first calls of these were right, all calls, all tokens read."""
    count = shipped_token_counter().count
    shown = right = calls = tokens = 0
    for task in tasks:
        page = await behind.browse({"query": task.query})
        key = next((key for key in page.keys if key in task.gold), None)
        if key is None:
            continue
        text, line = page.text, page.hint if key == page.keys[0] and _CALL.search(page.hint) else ""
        if blind and _CALL.search(page.hint):
            text, line = text.removesuffix(page.hint), ""
        args = arguments_read(line)
        shown, tokens = shown + 1, tokens + count(text)
        for attempt in range(_MOST_CALLS):
            answer = await behind.attempt(key, args)
            calls, tokens = calls + 1, tokens + count(json.dumps(args)) + count(answer.shown)
            if not answer.is_error:
                right += attempt == 0
                break
            args = answer.structured.get("details", {}).get("example", args)
    return shown, right, calls, tokens


def _value(shape: str) -> Any:
    first = shape.split("|")[0]
    if first.startswith(("array", "[")):
        return [_value(first.removeprefix("array").removeprefix(" of "))] if " of " in first else []
    if first.startswith(('"', "-", *"0123456789")):
        return _json(first)
    kind, _, limits = first.partition(" ")
    if kind in ("integer", "number") and (low := limits.partition("..")[0]):
        return _json(low)
    return {} if first.startswith(("object", "{")) else _PLAIN.get(kind, "text")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def main(data: Any) -> None:
    rows = []
    for name in DEV_SETS:
        made = routing_set(data, name)
        if not any(tool.get("inputSchema") for tool in made.tools):
            continue
        required: Mapping[str, bool] = {
            tool["key"]: bool((tool.get("inputSchema") or {}).get("required")) for tool in made.tools
        }
        tasks = sample([task for task in made.tasks if any(map(required.get, task.gold))], TASKS)
        behind = await gated(made.tools, strict=True)
        for way in ("blind", "with the hint"):
            shown, right, calls, tokens = await first_calls(behind, tasks, blind=way == "blind")
            rows.append(
                [name, way, str(shown), str(right), f"{calls / max(shown, 1):.2f}", f"{tokens / max(shown, 1):.0f}"]
            )
    print(table(["set", "agent", "tool on the screen", "first call right", "calls a task", "tokens a task"], rows))


if __name__ == "__main__":
    found = routing_data()
    if found is None:
        raise SystemExit(MISSING)
    asyncio.run(main(found))
