"""An entry of ``wicketgate connect`` is started as a desktop program starts it: with no variables but those of the
entry, from another folder."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.support.process import ROOT, START_BOUND_S, command
from tests.support.requirement import requirement


@requirement("OPS-70", "OPS-74")
async def test_the_written_entry_starts_the_gate_in_a_bare_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server whose command is on the PATH of this shell only, with a variable and a folder of this shell.
    commands, home, project = tmp_path / "commands", tmp_path / "home", tmp_path / "project"
    for folder in (commands, home, project):
        folder.mkdir()
    (commands / "own-echo").write_text(
        f'#!/bin/sh\ntest -n "$WORD" && exec {sys.executable} -m tests.support.echo_server\n'
    )
    (commands / "own-echo").chmod(0o755)
    (project / "server").symlink_to(ROOT)
    server = {"name": "echo", "command": ["own-echo"], "cwd": "server", "env": {"WORD": "${WORD}"}}
    (project / "wicketgate.yaml").write_text(json.dumps({"upstreams": [server]}))
    program = shutil.which("wicketgate", path=str(Path(sys.executable).parent))
    assert program is not None
    environ = {"HOME": str(home), "XDG_CONFIG_HOME": "", "WORD": "from the shell", "PATH": f"{commands}:/usr/bin:/bin"}
    connecting = [program, "connect", "claude-desktop", "--write", "--env", "WORD"]
    async with command(*connecting, folder=project, env=environ) as running:
        assert await running.ended(START_BOUND_S) == 0, running.stderr
    (written,) = home.rglob("claude_desktop_config.json")
    entry = json.loads(written.read_text())["mcpServers"]["wicketgate"]

    monkeypatch.chdir("/")
    bare = ["-i", f"HOME={home}", *(f"{name}={value}" for name, value in entry["env"].items())]
    started = StdioServerParameters(command="/usr/bin/env", args=[*bare, entry["command"], *entry["args"]], cwd="/")
    async with asyncio.timeout(START_BOUND_S), Client(started) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["tool_browse", "tool_execute", "tool_view"]
        found = await client.call_tool("tool_browse", {"query": "echo"})
        assert "echo:echo" in str(found.content)
