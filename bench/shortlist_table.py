"""The cards that a browse without ``top_k`` shows, beside a fixed number of cards: ``python -m bench.shortlist_table``.

On the dev sets of ``BENCH_ROUTING_DATA`` (docs/benchmarks.md, "Data from outside"): mean cards, mean tokens of the
lines, and the share of queries of which any, and of which all right tools are shown; then how often the hint says that
no match is clear, where right tools are shown and where they are missing. The constants of ``catalog/shortlist.py``
were chosen with it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.catalogs import MISSING, routing_data
from bench.routing_adapter import item
from bench.table import table
from wicketgate.catalog.card import build_card, render_card
from wicketgate.catalog.router import Router
from wicketgate.catalog.shortlist import MOST_SHOWN, count_deserved, is_clear
from wicketgate.catalog.tool_id import ToolId
from wicketgate.tokens import shipped_token_counter

SETS = ("azure", "metatool", "sealtools", "bfcl", "toolbench")
NUMBERS: Mapping[str, Callable[[Sequence[float]], int]] = {
    "5": lambda scores: 5,
    "10": lambda scores: 10,
    "20": lambda scores: 20,
    "by the scores": count_deserved,
}


@dataclass(frozen=True, slots=True)
class Answered:
    """One query: scores and tokens of the best tools, the places of right tools among them, their number."""

    scores: Sequence[float]
    tokens: Sequence[int]
    places: Sequence[int]
    right: int


def main() -> None:
    data = routing_data()
    if data is None:
        raise SystemExit(MISSING)
    answered = {name: list(_answers(data / name)) for name in SETS}
    columns = [*SETS, "mean"]
    for title, measure in (
        ("cards", lambda one, shown: min(shown, len(one.scores))),
        ("tokens", lambda one, shown: sum(one.tokens[:shown])),
        ("any, %", lambda one, shown: 100 * any(place < shown for place in one.places)),
        ("all, %", lambda one, shown: 100 * (sum(place < shown for place in one.places) == one.right)),
    ):
        rows = []
        for name, number in NUMBERS.items():
            means = [fmean(measure(one, number(one.scores)) for one in answered[each]) for each in SETS]
            rows.append([name, *(f"{mean:.1f}" for mean in [*means, fmean(means)])])
        print(f"\n{table([title, *columns], rows)}")
    hinted = []
    for title, missing in (("all shown", False), ("some missing", True)):
        rates = []
        for each in SETS:
            such = [one for one in answered[each] if missing is _misses(one)]
            rates.append(100 * fmean(not is_clear(one.scores) for one in such) if such else 0.0)
        hinted.append([title, *(f"{rate:.0f}" for rate in [*rates, fmean(rates)])])
    print(f"\n{table(['hint, %', *columns], hinted)}")


def _misses(one: Answered) -> bool:
    shown = count_deserved(one.scores)
    return sum(place < shown for place in one.places) < one.right


def _answers(folder: Path) -> Iterator[Answered]:
    items = {made.id: made for made in map(item, _lines(folder / "tools.jsonl"))}
    router = Router.build(items.values())
    counter = shipped_token_counter()

    @cache
    def cost(key: str) -> int:
        # With an id of the usual form.
        tool = items[ToolId(key)]
        named = f"{tool.namespace}:{tool.name}#{hashlib.sha256(key.encode()).hexdigest()[:8]}"
        return counter.count(render_card(build_card(replace(tool, id=ToolId(named)), counter)) + "\n")

    for query in _lines(folder / "queries_dev.jsonl"):
        ranked = router.route(query["query"], MOST_SHOWN)
        right = {key: key for key in query["gold"]}
        for key, others in (query.get("gold_alt") or {}).items():
            right.update({other: key for other in others if other not in right})
        first: dict[str, int] = {}
        for place, (key, _) in enumerate(ranked):
            if key in right:
                first.setdefault(right[key], place)
        costs = [cost(key) for key, _ in ranked]
        yield Answered([score for _, score in ranked], costs, list(first.values()), len(query["gold"]))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


if __name__ == "__main__":
    main()
