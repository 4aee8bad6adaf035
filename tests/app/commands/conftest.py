"""The machine of a person, with nothing on it."""

import os
from pathlib import Path

import pytest

from tests.app.commands.machine import FakeMachine

_OF_THE_DEVELOPER = (
    "WICKETGATE_",
    "WG_",
    "XDG_",
    "OPENAI_",
    "ANTHROPIC_",
    "CODEX_HOME",
    "CLAUDE_CONFIG_DIR",
    "APPDATA",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory in an empty home folder."""
    for name in [*filter(lambda name: name.startswith(_OF_THE_DEVELOPER), os.environ), "USERPROFILE"]:
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    monkeypatch.setattr("sys.platform", "linux")
    return FakeMachine(tmp_path)
