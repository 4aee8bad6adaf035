"""``wicketgate learned``: what was learned is listed and forgotten, also while a service uses the file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import cli
from tests.gateway.test_learning import QUERY, Setting
from tests.support.locked_file import locked
from tests.support.requirement import requirement
from wicketgate.catalog.learned_words import Lesson
from wicketgate.errors import ConfigError
from wicketgate.storage import sqlite_file
from wicketgate.storage.learned_words import StoredLearnedWords
from wicketgate.storage.sqlite import SqliteStore


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "wicketgate.yaml"
    path.write_text(f"storage: {{url: 'sqlite:///{tmp_path}/store.db'}}\n")
    return path


def learn(folder: Path, *lessons: Lesson) -> None:
    async def go() -> None:
        store = SqliteStore(folder / "store.db")
        assert await StoredLearnedWords(store, shared=True).learn(lessons, 0) is not None
        await store.aclose()

    asyncio.run(go())


LESSONS = (
    Lesson("ann", "media:search#00000000", ("film", "new")),
    Lesson("ann", "media:search#00000000", ("film",)),
    Lesson("bob", "media:search#00000000", ("play",)),
    Lesson("bob", "shop:orders@1", (), first=True),
)


def run(config: Path, *words: str, **more: Any) -> Result:
    return CliRunner().invoke(cli, ["learned", *words, "--config", str(config)], **more)


@requirement("OPS-53")
def test_the_list_names_actors_tools_and_words(config: Path, tmp_path: Path) -> None:
    learn(tmp_path, *LESSONS)
    assert run(config, "list").stdout.splitlines() == [
        "ann  media:search#00000000  2 runs: film 2, new 1",
        "bob  media:search#00000000  1 run: play 1",
        "bob  shop:orders@1  1 run: no words of its own",
    ]
    assert run(config, "list", "--actor", "ann").stdout.count("\n") == 1
    assert run(config, "list", "--tool", "media:search").stdout.count("\n") == 2
    (entry,) = json.loads(run(config, "list", "--json", "--actor", "ann").stdout)
    assert entry == {"actor": "ann", "tool": "media:search#00000000", "runs": 2.0, "words": {"film": 2.0, "new": 1.0}}


@requirement("OPS-53")
def test_a_line_stays_a_line_whatever_an_actor_is_called(config: Path, tmp_path: Path) -> None:
    learn(tmp_path, Lesson("an\x1b[2Jn\n", "a:b", ("film",)))
    (line,) = run(config, "list").stdout.splitlines()
    assert "\x1b" not in line


@requirement("OPS-54")
def test_what_is_forgotten_is_gone_and_the_rest_stays(config: Path, tmp_path: Path) -> None:
    learn(tmp_path, *LESSONS)
    refused = run(config, "reset", "--actor", "bob", input="n\n")
    assert refused.exit_code != 0
    assert "2 tools, from 1 actor" in refused.stderr
    assert run(config, "list").stdout.count("\n") == 3
    assert run(config, "reset", "--actor", "bob", "--tool", "media:search", "--yes").stdout == "1 entry forgotten\n"
    assert run(config, "reset", "--tool", "shop:orders", "--yes").stdout == "1 entry forgotten\n"
    assert run(config, "list").stdout.startswith("ann  media:search")
    assert run(config, "reset", input="y\n").stdout == "1 entry forgotten\n"
    assert run(config, "list").stdout == ""
    assert "nothing to forget" in run(config, "reset", "--yes").stderr


@requirement("OPS-53", "OPS-54")
def test_without_a_file_the_command_says_where_it_is(tmp_path: Path, config: Path) -> None:
    assert "No words have been learned yet" in run(config, "list").stderr
    assert not (tmp_path / "store.db").exists(), "looking makes no file"
    config.write_text("storage: {url: 'memory://'}\n")
    for words in (["list"], ["reset", "--yes"]):
        error = run(config, *words).exception
        assert isinstance(error, ConfigError)
        assert "a restart forgets it" in str(error)


@requirement("OPS-54")
def test_a_locked_file_is_an_error_in_plain_words(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(tmp_path, *LESSONS)
    monkeypatch.setattr(sqlite_file, "_BUSY_S", 0.2)  # ten seconds otherwise
    monkeypatch.setattr(sqlite_file.connect, "__defaults__", (0.2,))
    with locked(tmp_path / "store.db"):
        error = run(config, "list").exception
    assert isinstance(error, ConfigError)
    assert "cannot be read" in str(error) or "locked" in str(error)


@requirement("OPS-54")
async def test_a_service_that_runs_forgets_too(config: Path, tmp_path: Path) -> None:
    clock_ahead = 0.0
    store = SqliteStore(tmp_path / "store.db")
    words = StoredLearnedWords(store, shared=True, now=lambda: 1_800_000_000.0 + clock_ahead)
    here = await Setting(store=words).ready()
    await here.teach(QUERY, "search_titles")
    assert await here.ranks("blockbusters") == ["search_titles"]
    result = await asyncio.to_thread(run, config, "reset", "--yes")
    assert result.stdout == "1 entry forgotten\n"
    clock_ahead = 11.0
    await here.ranks("anything")
    await here.runtime.learning.settle()
    assert await here.ranks("blockbusters") == []
    await here.teach(QUERY, "search_titles")
    assert await here.ranks("blockbusters") == ["search_titles"]
    await here.runtime.aclose()
    await store.aclose()
