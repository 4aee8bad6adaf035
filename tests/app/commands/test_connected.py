"""The gate that a command opens for itself."""

import asyncio
import os
import shlex
from pathlib import Path

import pytest

from app.commands.check import check_all, connected
from tests.support.process import ROOT
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, UNRULY
from wicketgate.config.settings import Settings


@requirement("UP-72")
async def test_a_command_waits_for_a_server_that_starts_slower_than_the_start_deadline(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    command = ["sh", "-c", f"cat {go}; exec {shlex.join(UNRULY)}"]
    upstreams = [{"name": "slow", "command": command, "cwd": str(ROOT)}]
    settings = Settings.model_validate({"server": {"start_deadline_s": 0.001}, "upstreams": upstreams})
    letting_go = asyncio.create_task(asyncio.to_thread(go.write_text, ""))  # as soon as it waits
    async with asyncio.timeout(BOUND_S), connected(settings) as gate:
        await letting_go
        assert gate.fleet.statuses()["slow"].phase == "ready"


@requirement("OPS-105")
async def test_a_check_that_is_broken_off_leaves_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that still ran when the command ends would be cancelled by the end of the loop in the middle of its
    cleaning up, and hang."""
    settings = Settings.model_validate({"upstreams": [{"name": "mute", "command": ["cat"]}]})
    before = asyncio.all_tasks()
    checking = asyncio.create_task(check_all(settings, None, model=False, everything=False, as_json=True))

    def interrupt(_: Settings) -> None:
        checking.cancel()  # as Ctrl-C does, while the gate is made

    monkeypatch.setattr("app.commands.check.search_python_folders", interrupt)
    await asyncio.wait([checking])
    assert checking.cancelled() and asyncio.all_tasks() <= before
