"""The quality table: one contestant in a process of its own, and the rows of those that are there or are not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.catalogs import ROOT
from bench.quality import figures, quality_table
from bench.routing_sets import Task, namespaces, routing_set, sample
from wicketgate.tokens import shipped_token_counter

TASKS = [Task("one", "first", ("a",), {}), Task("two", "second", ("b",), {})]


def answer(task: Task, ranked: list[str], ms: float, text: str | None) -> dict[str, Any]:
    return {"id": task.id, "cpu_ms": ms, "shown": len(ranked), "text": text, "ranked": ranked}


def test_figures_are_of_the_tasks_that_were_drawn() -> None:
    told = [answer(TASKS[0], ["a"], 3, "a card"), answer(TASKS[1], ["x", "b"], 1, "two cards"), {"remarks": ["so"]}]
    row = figures(told, TASKS)
    assert (row["n"], row["recall_1"], row["recall_5"], row["any_5"]) == (2, 0.5, 1.0, 1.0)
    assert (row["shown"], row["cpu_ms"], row["remarks"]) == (1.5, 1, ["so"])
    assert row["tokens"] == sum(map(shipped_token_counter().count, ("a card", "two cards"))) / 2
    assert figures(told, TASKS[1:])["recall_1"] == 0


def test_a_library_that_shows_nothing_has_no_tokens() -> None:
    row = figures([answer(TASKS[0], ["a"], 3, None), {"remarks": []}], TASKS[:1])
    assert (row["shown"], row["tokens"]) == (None, None)


def test_a_contestant_that_ended_early_or_is_not_there_has_a_row_that_says_so() -> None:
    ended = figures([answer(TASKS[0], ["a"], 3, None)], TASKS)
    assert ended["n"] == 0
    missing = {"set": "azure", "contestant": "fastmcp", "n": 0, "remarks": ["fastmcp could not be installed"]}
    table = quality_table([{"set": "azure", "contestant": "bm25s", **ended}, missing])
    assert [row[2] for row in table.rows] == ["0", "0"]
    assert any("could not be installed" in note for note in table.notes)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "azure"
    folder.mkdir()
    tools = [
        {"key": f"s::{name}", "server": "S", "name": name, "description": f"{name} it"} for name in ("push", "pull")
    ]
    queries = [{"id": name, "query": f"{name} something", "gold": [f"s::{name}"]} for name in ("push", "pull")]
    for file, lines in (("tools", tools), ("queries_dev", queries)):
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_a_contestants_process_answers_each_task_and_ends_with_its_remarks(data: Path) -> None:
    command = [sys.executable, "-m", "bench.ranked", "bench.rank_wicketgate", str(data), "azure", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    *rows, last = map(json.loads, done.stdout.splitlines())
    assert {row["id"]: row["ranked"][0] for row in rows} == {"push": "s::push", "pull": "s::pull"}
    assert all(row["cpu_ms"] > 0 and row["text"].startswith("s:") for row in rows)
    assert last["remarks"]


def test_a_set_is_read_and_its_sample_is_the_same_every_time(data: Path) -> None:
    tried = routing_set(data, "azure")
    assert [task.gold for task in tried.tasks] == [("s::push",), ("s::pull",)]
    numbers = list(range(100))
    assert sample(numbers, 10) == sample(numbers, 10) != numbers[:10]
    assert sorted(sample(numbers, 1_000)) == numbers


def test_servers_get_names_that_differ() -> None:
    tools = [{"server": server} for server in ("My Server", "my-server", "My Server", "9 lives")]
    assert namespaces(tools) == {"My Server": "my-server", "my-server": "my-server-2", "9 lives": "s-9-lives"}
