"""This program as a contestant: each operation of the benchmark does what its row says."""

import json
from pathlib import Path

import pytest

from bench.catalogs import corpus
from bench.contestant import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(corpus(60, 0, None).definitions))
    return Stage("bench.wicketgate", tools)


async def test_every_refresh_keeps_the_number_of_tools(stage: Stage) -> None:
    first = await stage.do({"do": "first"})
    assert first["tools"] == 60
    assert first["wall_ms"] > 0
    for change in ("unchanged", "described", "renamed", "cold"):
        assert (await stage.do({"do": "refresh", "change": change}))["tools"] == 60


async def test_queries_find_cards_and_each_call_has_its_time(stage: Stage) -> None:
    await stage.do({"do": "first"})
    answer = await stage.do({"do": "queries", "queries": corpus(60, 8, None).queries, "budget_s": 20})
    assert len(answer["ms"]) == 8
    assert None not in answer["ms"]
    assert answer["cards"] > 8


async def test_a_budget_that_is_spent_ends_the_round(stage: Stage) -> None:
    await stage.do({"do": "first"})
    answer = await stage.do({"do": "queries", "queries": ["create", "delete", "list"], "budget_s": 0})
    assert len(answer["ms"]) == 1


async def test_paths_are_those_of_the_inner_cards(stage: Stage) -> None:
    await stage.do({"do": "first"})
    answer = await stage.do({"do": "paths", "budget_s": 20})
    assert len(answer["ms"]) > 2
    assert None not in answer["ms"]
    assert answer["cards"] >= 60, "the tools are below these paths"
