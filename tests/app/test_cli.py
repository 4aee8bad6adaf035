"""The command line as a whole: the configuration file that a command takes when none is named."""

from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import cli
from tests.support.requirement import requirement
from wicketgate.errors import ConfigError

COMMANDS = {
    "serve": [],
    "mcp": [],
    "check": [],
    "explain": ["a:b", "--actor", "ann"],
    "lock": [],
    "learned": ["list"],
    "browse": ["/"],
    "execute": ["a:b"],
    "view": ["art_1"],
    "chat": ["hello"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty working directory."""
    with chdir(tmp_path):
        yield tmp_path


def run(command: str, *words: str, **environ: str) -> Result:
    env = {"WG_URL": None, "WICKETGATE_CONFIG": None, **environ}
    return CliRunner().invoke(cli, [command, *COMMANDS[command], *words], env=env)


def broken(file: str, key: str) -> None:
    """Writes a configuration whose error names *key*, so that the error shows which file was read."""
    Path(file).write_text(f"engine: {{{key}: 1}}\n")


@requirement("OPS-25")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_finds_the_usual_file_unless_another_one_is_named(command: str) -> None:
    broken("wicketgate.yaml", "usual")
    broken("other.yaml", "other")
    broken("third.yaml", "third")
    for result, key in (
        (run(command), "usual"),
        (run(command, WICKETGATE_CONFIG="other.yaml"), "other"),
        (run(command, "--config", "third.yaml", WICKETGATE_CONFIG="other.yaml"), "third"),
    ):
        assert isinstance(result.exception, ConfigError), result.output
        assert f"engine.{key}: unknown key" in str(result.exception)


@requirement("OPS-25")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_names_the_file_that_it_takes(command: str) -> None:
    text = " ".join(run(command, "--help").output.split())
    assert "WICKETGATE_CONFIG" in text
    assert "./wicketgate.yaml" in text


@requirement("OPS-25")
def test_check_says_which_file_it_has_read() -> None:
    assert "The default configuration is valid: 0 upstreams" in run("check").stderr
    Path("wicketgate.yaml").write_text("server: {port: 9000}\n")
    assert "wicketgate.yaml is valid: 0 upstreams" in run("check").stderr


@requirement("OPS-25")
def test_a_service_named_by_its_url_is_asked_although_there_is_a_file() -> None:
    broken("wicketgate.yaml", "usual")
    for result in (run("browse", "--url", "http://127.0.0.1:1"), run("browse", WG_URL="http://127.0.0.1:1")):
        assert (result.exit_code, "cannot be reached" in result.stderr) == (1, True)
    both = run("browse", "--url", "http://127.0.0.1:1", "--config", "wicketgate.yaml")
    assert (both.exit_code, "not both" in both.stderr) == (2, True)


@requirement("OPS-25")
def test_without_a_file_and_a_url_there_is_nothing_to_ask() -> None:
    result = run("browse")
    assert (result.exit_code, "there is no ./wicketgate.yaml" in result.stderr) == (2, True)


@requirement("OPS-25")
def test_watching_needs_a_file_and_takes_the_usual_one() -> None:
    assert "--watch needs --config" in run("serve", "--watch").stderr
    broken("wicketgate.yaml", "usual")
    assert isinstance(run("serve", "--watch").exception, ConfigError)
