"""The gate that a command opens for itself."""

import asyncio
import os
import shlex
from pathlib import Path

from app.commands.check import connected
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
