"""``wicketgate init`` writes a configuration that works, and nothing else (OPS-69)."""

import errno
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft7Validator

from app.cli import cli
from app.commands import init as command
from tests.support.requirement import requirement
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import load_settings
from wicketgate.errors import ConfigError
from wicketgate.yaml_text import read_yaml

CURSOR = {"git": {"command": "uvx", "args": ["mcp-server-git"]}, "web": {"url": "https://x.example/mcp"}}
SECRET = {"hub": {"command": "npx", "args": ["-y", "hub"], "env": {"HUB_TOKEN": "hush-hush-hush-hush-hush-1"}}}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "in_terminal", lambda: True)


def run(*words: str, answers: str = "", **environ: str) -> Result:
    return CliRunner().invoke(cli, ["init", *words], input=answers, env=environ)


def write_servers(path: str, servers: dict[str, Any]) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": servers}))


def written(file: str = "wicketgate.yaml", **environ: str) -> Settings:
    return load_settings(Path(file), environ)


@requirement("OPS-422")
def test_what_it_writes_can_be_changed_by_its_owner_only_whatever_the_umask_is() -> None:
    before = os.umask(0)
    try:
        assert run().exit_code == 0
    finally:
        os.umask(before)
    assert Path("wicketgate.yaml").stat().st_mode & 0o777 == 0o644
    written()


@requirement("OPS-69")
def test_without_a_word_it_writes_an_example_a_key_and_the_schema() -> None:
    result = run()
    assert result.exit_code == 0, result.output
    settings = written()
    assert settings.model.provider == "scripted"
    secret = re.search(r"wg_first_\S+", result.output)
    assert secret is not None
    (key,) = settings.auth.keys
    assert (key.sha256, key.permissions) == (hash_key(secret[0]), ("*",))
    text = Path("wicketgate.yaml").read_text()
    assert secret[0] not in text
    # The editor finds the schema beside the file, and the file fits it.
    line = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert line is not None
    assert list(Draft7Validator(json.loads(Path(line[1]).read_text())).iter_errors(read_yaml(text))) == []


@requirement("OPS-69")
def test_what_it_has_written_passes_the_check_at_once() -> None:
    assert run().exit_code == 0
    assert [upstream.name for upstream in written().upstreams] == ["time"]
    checked = CliRunner().invoke(cli, ["check"])
    assert checked.exit_code == 0, checked.output
    assert "get_current_time" in checked.output


@requirement("OPS-69")
@pytest.mark.parametrize(
    ("on_path", "beside", "words"),
    [
        ("", "python", None),
        ("uvx", "python", ["uvx", "mcp-server-time"]),
        ("mcp-server-time", "python", ["mcp-server-time"]),
        ("", "mcp-server-time", ["mcp-server-time"]),  # by its name, which outlives a move
    ],
)
def test_the_example_is_what_this_machine_can_start(
    on_path: str, beside: str, words: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/bin/{name}" if name == on_path else None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / beside).touch()
    assert run().exit_code == 0
    commands = [upstream.command for upstream in written().upstreams]
    assert commands == ([] if words is None else [(*words, "--local-timezone=UTC")])
    # Each example can be taken in by itself.
    file = Path("wicketgate.yaml")
    text = file.read_text()
    file.write_text(text.replace("# - {name: files", "- {name: files"))
    assert [upstream.name for upstream in written().upstreams][-1] == "files"


@requirement("OPS-69")
@pytest.mark.parametrize(
    ("environ", "provider"),
    [
        ({"OPENAI_API_KEY": "k"}, "openai-chat"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic-messages"),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "openai-chat"),
        ({"OPENAI_API_KEY": ""}, "scripted"),
    ],
)
def test_the_environment_chooses_the_model_and_its_key_stays_there(environ: dict[str, str], provider: str) -> None:
    result = run(**environ)
    assert "Set these variables" not in result.output
    settings = written(**environ)
    assert settings.model.provider == provider
    if provider != "scripted":
        assert settings.model.api_key is not None
        assert settings.model.api_key.get_secret_value() == "k"


@requirement("OPS-69")
@pytest.mark.parametrize("source", ["cursor", "~/.cursor/mcp.json"])
def test_the_servers_of_a_client_are_taken_over_and_their_secrets_become_variables(source: str) -> None:
    write_servers("../.cursor/mcp.json", {**CURSOR, **SECRET})
    result = run("--from", source)
    assert result.exit_code == 0, result.output
    assert [upstream.name for upstream in written(HUB_TOKEN="t").upstreams] == ["git", "web", "hub"]
    assert "hush-hush" not in Path("wicketgate.yaml").read_text() + result.output
    assert re.search(r"Set these variables before you start:\n  HUB_TOKEN ", result.output)
    assert "wicketgate connect cursor" in result.output


@requirement("OPS-69")
def test_a_client_that_is_not_here_and_a_word_that_is_none_are_named() -> None:
    for source, expected in (
        ("zed", "Zed has no servers here: looked at "),
        ("zde", "neither a file nor a client known here"),
        ("", "neither a file nor a client known here"),
    ):
        result = run("--from", source)
        assert isinstance(result.exception, ConfigError)
        assert expected in str(result.exception)
    assert list(Path().iterdir()) == []


@requirement("OPS-69")
@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("answers", "names", "provider"),
    [
        ("1\n\n", ["time"], "scripted"),
        ("2\n2\n", ["git", "web"], "anthropic-messages"),
        ("3\n1\n", ["hub"], "openai-chat"),
        ("\n\n", ["git", "web", "hub"], "scripted"),
    ],
)
def test_in_a_terminal_it_asks_for_servers_and_model(answers: str, names: list[str], provider: str) -> None:
    write_servers("../.cursor/mcp.json", CURSOR)
    write_servers(".mcp.json", SECRET)
    result = run(answers=answers)
    assert result.exit_code == 0, result.output
    assert "2  those of Cursor: 2 servers" in result.output
    assert "3  those of Claude Code: 1 server" in result.output
    settings = written(HUB_TOKEN="t", OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k")
    assert ([upstream.name for upstream in settings.upstreams], settings.model.provider) == (names, provider)


GATE = {"wicketgate": {"command": "/opt/bin/wicketgate", "args": ["mcp", "--config", "/etc/gate.yaml"]}}


@requirement("OPS-69")
@pytest.mark.usefixtures("terminal")
def test_only_what_can_be_taken_over_is_offered_and_counted() -> None:
    write_servers("../.cursor/mcp.json", {**CURSOR, **GATE})
    write_servers(".mcp.json", GATE)
    result = run(answers="2\n\n")
    assert result.exit_code == 0, result.output
    assert "2  those of Cursor: 2 servers" in result.output
    assert "Claude Code" not in result.output
    assert [upstream.name for upstream in written().upstreams] == ["git", "web"]


@requirement("OPS-69")
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_where_it_finds_no_servers_it_says_so_and_puts_in_an_example(
    there: bool, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "in_terminal", lambda: asks)
    if there:
        write_servers("../.cursor/mcp.json", GATE)
    result = run(answers="\n" * asks)
    assert result.exit_code == 0, result.output
    assert "Which servers" not in result.output
    assert "No MCP client with servers to import was found here; time is put in as an example." in result.output
    assert [upstream.name for upstream in written().upstreams] == ["time"]


@requirement("OPS-69")
@pytest.mark.usefixtures("terminal")
def test_servers_that_are_there_are_named_when_it_may_not_ask() -> None:
    write_servers("../.cursor/mcp.json", CURSOR)
    result = run("--yes")
    assert (result.exit_code, "Which" in result.output) == (0, False)
    assert "time is put in as an example; wicketgate import shows the servers that MCP clients have" in result.output
    assert [upstream.name for upstream in written().upstreams] == ["time"]


@requirement("OPS-69")
@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("answers", ["", "2\n", "interrupt"])
def test_an_end_in_the_middle_writes_nothing(answers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(default: str) -> str:
        raise KeyboardInterrupt

    write_servers("../.cursor/mcp.json", CURSOR)
    if answers == "interrupt":
        monkeypatch.setattr(command, "_choose_model", interrupted)
    result = run(answers="2\n" if answers == "interrupt" else answers)
    assert (result.exit_code, "Nothing was written." in result.stderr) == (1, True)
    assert list(Path().iterdir()) == []


@requirement("OPS-69")
@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("kind", ["missing", "file", "read-only"])
def test_a_folder_that_takes_no_file_is_told_before_anything_is_asked(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "file":
        Path("no").write_text("")
    elif kind == "read-only":  # os.access says yes to root
        Path("no").mkdir()
        monkeypatch.setattr("os.access", lambda *_: False)
    result = run("--config", "no/gate.yaml", answers="\n\n")
    assert isinstance(result.exception, ConfigError)
    assert "Which" not in result.output
    assert "no" in str(result.exception)


@requirement("OPS-69")
def test_it_says_that_servers_were_not_taken_over_whole() -> None:
    write_servers("../.cursor/mcp.json", {**CURSOR, "Big One": {"command": "x", "icon": "x", "gallery": True}})
    output = run("--from", "cursor").output
    assert "of big-one: was called 'Big One'; not imported: gallery, icon" in output


@requirement("OPS-69")
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_there_is_never_written_over(kind: str) -> None:
    path = Path("wicketgate.yaml")
    match kind:
        case "file":
            path.write_text("server: {}\n")
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("nowhere.yaml")
    result = run()
    assert isinstance(result.exception, ConfigError)
    assert "never writes over a file" in str(result.exception)
    assert [each.name for each in Path().iterdir()] == ["wicketgate.yaml"]
    assert kind != "file" or path.read_text() == "server: {}\n"


@requirement("OPS-69")
def test_the_file_is_the_one_that_the_other_commands_would_read() -> None:
    result = run(WICKETGATE_CONFIG="gate.yaml")
    assert Path("gate.yaml").is_file()
    assert "wicketgate check   " in result.output
    result = run("--config", "other.yaml")
    assert Path("other.yaml").is_file()
    assert "wicketgate check --config other.yaml" in result.output
    assert isinstance(run("--config", "no/such/folder.yaml").exception, ConfigError)


@requirement("OPS-69")
def test_a_full_disk_leaves_no_file_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next try would find a configuration that exists already, and is empty."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = run()
    assert result.exit_code == 1 and "No space left" in str(result.exception)
    assert list(Path().iterdir()) == []


@requirement("OPS-69")
@pytest.mark.parametrize("kind", ["pipe", "dangling link", "foreign file"])
def test_the_schema_is_written_over_nothing_but_an_earlier_one(kind: str, tmp_path: Path) -> None:
    """Reading a pipe would never end, and the key that was made would never be shown."""
    path, elsewhere = Path("wicketgate.schema.json"), tmp_path / "elsewhere"
    make = {"pipe": os.mkfifo, "dangling link": lambda path: path.symlink_to(elsewhere)}
    make.get(kind, lambda path: path.write_text("{}"))(path)
    assert "Your key" in run().stdout
    assert not elsewhere.exists() and (path.read_text() == "{}" if kind == "foreign file" else not path.is_file())
