"""One contestant in a process of its own, told by the parent what to do: so the two can take turns, and its memory is
its own. ``python -m bench.contestant MODULE TOOLS``; commands and answers are JSON lines.

Runs in the peer's environment too, so it needs the standard library only.
"""

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.contest import Contestant, Definition, Refused

_PATHS = 150
_CALLS_A_SESSION = 20


class Stage:
    """*module* has a function ``contestant()``; *tools* is the file of definitions."""

    def __init__(self, module: str, tools: Path) -> None:
        self._make = importlib.import_module(module).contestant
        self._tools = tools
        self._contestant: Contestant = self._make()
        self._changed: dict[int, Definition] = {}

    async def do(self, order: Mapping[str, Any]) -> dict[str, Any]:
        match order["do"]:
            case "first":
                return await self._first()
            case "refresh":
                return await self._refresh(order["change"])
            case "queries":
                return await self._timed([{"query": query} for query in order["queries"]], order["budget_s"])
            case "paths":
                return await self._timed([{"path": path} for path in await self._inner_paths()], order["budget_s"])
            case "root":
                return await self._timed([{"path": "/"}], order["budget_s"])
            case unknown:
                raise ValueError(unknown)

    async def _first(self) -> dict[str, Any]:
        """A cold refresh with the growth of resident memory over it; a tiny one before it pays for what is loaded
        lazily."""
        await self._contestant.refresh([{"name": "some.tool", "description": "One.", "inputSchema": {}}])
        self._contestant = self._make()
        gc.collect()
        before = _resident_mb()
        took = await self._refresh("cold")
        gc.collect()
        return {**took, "mb": _resident_mb() - before, "remarks": list(self._contestant.remarks)}

    async def _refresh(self, change: str) -> dict[str, Any]:
        """*change*: cold, unchanged, described or renamed. Reading the definitions is not in the time."""
        if change == "cold":
            self._contestant = self._make()
        definitions = self._definitions()
        if change in ("described", "renamed"):
            number = len(self._changed) * 37 % len(definitions)
            tool = dict(definitions[number])
            tool["description"] += " Revised."
            if change == "renamed":
                tool["name"] += "_too"
            definitions[number] = self._changed[number] = tool
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        tools = await self._contestant.refresh(definitions)
        return {
            "wall_ms": (time.perf_counter() - wall) * 1e3,
            "cpu_ms": (time.process_time() - cpu) * 1e3,
            "tools": tools,
        }

    async def _timed(self, calls: Sequence[Mapping[str, Any]], budget_s: float) -> dict[str, Any]:
        """Milliseconds a call, wall and CPU, None for a refused one; the calls that the budget does not reach are left
        out."""
        took: list[tuple[float, float] | None] = []
        cards = 0
        end = time.perf_counter() + budget_s
        for number, arguments in enumerate(calls):
            session = f"s{number // _CALLS_A_SESSION}"
            cpu, start = time.process_time(), time.perf_counter()
            try:
                answer = await self._contestant.browse(arguments, session)
            except Refused:
                took.append(None)
                continue
            now = time.perf_counter()
            took.append(((now - start) * 1e3, (time.process_time() - cpu) * 1e3))
            cards += len(self._contestant.cards(answer))
            if now > end:
                break
        return {"ms": took, "cards": cards}

    async def _inner_paths(self) -> list[str]:
        """The first inner paths below the root, level by level, as the cards give them."""
        found: list[str] = []
        waiting = ["/"]
        while waiting and len(found) < _PATHS:
            try:
                answer = await self._contestant.browse({"path": waiting.pop(0)}, "walk")
            except Refused:
                continue
            cards = self._contestant.cards(answer)
            inner = [self._contestant.path_of(card) for card in cards if card["kind"] == "internal"]
            found += inner
            waiting += inner
        return found[:_PATHS]

    def _definitions(self) -> list[Definition]:
        definitions: list[Definition] = json.loads(self._tools.read_text("utf-8"))
        for number, tool in self._changed.items():
            definitions[number] = dict(tool)
        return definitions


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def main(module: str, tools: str) -> None:
    stage = Stage(module, Path(tools))
    # Contestants may print; the answers have the real stdout to themselves.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(await stage.do(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
