"""A home and a project folder with the files of clients, and ``wicketgate import`` run in them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from pydantic import SecretStr

from app.cli import cli
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import load_settings
from wicketgate.errors import ConfigError


class FakeMachine:
    """*home* has a folder ``work``, which commands run in."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "work"

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

    def failure(self, *words: str) -> str:
        """The error of a run, one line."""
        result = CliRunner().invoke(cli, ["import", *words])
        assert isinstance(result.exception, ConfigError)
        assert "\n" not in str(result.exception)
        return str(result.exception)

    def run_on(self, content: str | dict[str, Any], *words: str, name: str = "mcp.json") -> Result:
        return self.run(str(self.put(name, content)), *words)

    def taken_of(self, content: str | dict[str, Any], **environ: str) -> Settings:
        return self.taken(str(self.put("mcp.json", content)), **environ)

    def taken(self, *words: str, **environ: str) -> Settings:
        """The printed configuration, read with the variables set that it asks for."""
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        path = self.home / "ours.yaml"
        path.write_text(result.stdout)
        wanted = re.findall(r"^  ([A-Za-z_]\w*)(?:  \(|$)", result.stderr.partition("Set these")[2], re.M)
        return load_settings(path, {**{name: f"<{name}>" for name in wanted}, **environ})


def revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}


def off_tools(settings: Settings, upstream: str) -> list[tuple[str, list[str]]]:
    """The mode and the tools of each tool manager of an upstream."""
    entries = settings.plugins.middleware.get(upstream, ())
    assert all(entry.handler == "tool_manager" for entry in entries)
    return [(entry.config["mode"], entry.config["tools"]) for entry in entries]
