"""A home and a project folder with the files of clients, and ``wicketgate import`` run in them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import cli
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import load_settings


class FakeMachine:
    """*home* has a folder ``work``, which commands run in."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home = home
        self.project = home / "work"
        self.project.mkdir()
        for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "APPDATA", "USERPROFILE"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        patch.setattr("sys.platform", "linux")
        patch.chdir(self.project)

    def put(self, name: str, content: str | dict[str, Any]) -> Path:
        """Writes a file below the home folder."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def run(self, *words: str) -> Result:
        result = CliRunner().invoke(cli, ["import", *words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def taken(self, *words: str) -> Settings:
        """The printed configuration, read with the variables set that it asks for."""
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        path = self.home / "ours.yaml"
        path.write_text(result.stdout)
        wanted = re.findall(r"^  ([A-Za-z_]\w*)(?:  \(|$)", result.stderr.partition("Set these")[2], re.M)
        return load_settings(path, {name: f"<{name}>" for name in wanted})


def off_tools(settings: Settings, upstream: str) -> list[tuple[str, list[str]]]:
    """The mode and the tools of each tool manager of an upstream."""
    entries = settings.plugins.middleware.get(upstream, ())
    assert all(entry.handler == "tool_manager" for entry in entries)
    return [(entry.config["mode"], entry.config["tools"]) for entry in entries]
