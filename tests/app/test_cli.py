"""The command line as a whole: the configuration file that a command takes when none is named."""

import json
import os
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import cli
from tests.support.requirement import requirement
from wicketgate.config.settings_file import find_config, load_settings, log_configuration
from wicketgate.errors import ConfigError

COMMANDS = {
    "serve": [],
    "mcp": [],
    "check": [],
    "console": [],
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
def test_the_help_of_every_command_names_the_file_that_it_takes(command: str) -> None:
    text = " ".join(run(command, "--help").output.split())
    assert "WICKETGATE_CONFIG" in text
    assert "./wicketgate.yaml" in text


@requirement("OPS-25")
def test_check_says_which_file_it_has_read() -> None:
    assert "only defaults; wicketgate init writes one. Valid: 0 upstreams." in run("check").stderr
    Path("wicketgate.yaml").write_text("server: {port: 9000}\n")
    assert "Configuration: ./wicketgate.yaml. Valid: 0 upstreams." in run("check").stderr


@requirement("OPS-25")
def test_a_service_named_by_its_url_is_asked_although_there_is_a_file() -> None:
    broken("wicketgate.yaml", "usual")
    for result in (run("browse", "--url", "http://127.0.0.1:1"), run("browse", WG_URL="http://127.0.0.1:1")):
        assert "cannot reach the service" in str(result.exception)
    both = run("browse", "--url", "http://127.0.0.1:1", "--config", "wicketgate.yaml")
    assert (both.exit_code, "not both" in both.stderr) == (2, True)


@requirement("OPS-60")
def test_what_stands_on_the_command_line_counts_before_variables() -> None:
    broken("wicketgate.yaml", "usual")
    broken("other.yaml", "other")
    gone = "http://127.0.0.1:1"
    # --config starts a gate here although WG_URL is exported.
    here = run("browse", "--config", "other.yaml", WG_URL=gone)
    assert "engine.other: unknown key" in str(here.exception)
    # --url asks the service although a file is named by a variable, and another one is found.
    for result in (run("browse", "--url", gone, WICKETGATE_CONFIG="other.yaml"), run("browse", "--url", gone)):
        assert "cannot reach the service" in str(result.exception)
        assert "Configuration:" not in result.stderr
    # A URL from a variable counts before a file that is merely there.
    assert "cannot reach the service" in str(run("browse", WG_URL=gone).exception)


@requirement("OPS-25", "OPS-58")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_finds_the_usual_file_unless_another_one_is_named_and_says_which(command: str) -> None:
    broken("wicketgate.yaml", "usual")
    broken("other.yaml", "other")
    path = str(Path("other.yaml").resolve())
    overrides = {"WICKETGATE_SERVER__PORT": "1", "WICKETGATE_MODEL__API_KEY": "hush"}
    for words, environ, key, said in (
        ([], {}, "usual", "./wicketgate.yaml"),
        ([], {"WICKETGATE_CONFIG": "other.yaml"}, "other", "other.yaml, named by WICKETGATE_CONFIG"),
        (["--config", "other.yaml"], {"WICKETGATE_CONFIG": "x.yaml"}, "other", "./other.yaml"),
        (["--config", path], {}, "other", path),
        ([], overrides, "usual", f"./wicketgate.yaml; overridden by {', '.join(sorted(overrides))}"),
    ):
        result = run(command, *words, **environ)
        assert isinstance(result.exception, ConfigError), result.output
        assert f"engine.{key}: unknown key" in str(result.exception)
        assert result.stdout == ""
        if command not in ("serve", "mcp"):  # they have a log; a person reads the others
            assert result.stderr.splitlines()[0] == f"Configuration: {said}"


@requirement("OPS-58")
def test_without_a_file_a_command_says_how_to_get_one() -> None:
    line = "Configuration: no file, only defaults; wicketgate init writes one"
    assert run("check").stderr.splitlines()[0] == f"{line}. Valid: 0 upstreams."
    assert run("learned", "--json").stdout == run("learned").stdout == ""  # memory has nothing to list


@requirement("OPS-58")
@pytest.mark.parametrize("environ", [{}, {"WICKETGATE_CONFIG": "other.yaml"}])
def test_the_log_of_a_service_says_it(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("wicketgate.yaml").write_text("upstreams: [{name: a, python: 'm:r'}]\n")
    Path("other.yaml").write_text("server: {port: 9000}\n")
    for name, value in {"WICKETGATE_CONFIG": "", **environ}.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level("INFO", "wicketgate.configuration"):
        log_configuration(load_settings(find_config(os.environ)))
    expected = (
        ["Configuration: other.yaml, named by WICKETGATE_CONFIG"] if environ else ["Configuration: ./wicketgate.yaml"]
    )
    assert [record.message for record in caplog.records][:1] == expected
    assert any("There are no upstreams" in record.message for record in caplog.records) == bool(environ)


@requirement("OPS-59")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("server: {}", "There are no upstreams, so there are no tools. wicketgate init writes a file with some"),
        ("upstreams: [{name: a, command: x, enabled: false}]", "The only upstream is disabled, so there are no tools"),
        (
            "mcpServers: {a: {command: x, disabled: true}, b: {command: x, disabled: true}}",
            "All 2 upstreams are disabled",
        ),
    ],
)
def test_a_check_says_that_there_are_no_upstreams_and_how_to_get_some(text: str, said: str) -> None:
    Path("wicketgate.yaml").write_text(f"{text}\n")
    result = run("check")
    assert (result.exit_code, said in result.stdout) == (1, True)


@requirement("OPS-437")
@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("{port: 9090}", "http://127.0.0.1:9090/console/"),
        ('{host: "0.0.0.0", public_url: "https://gate.example/wg/"}', "https://gate.example/wg/console/"),
        ('{host: "::1"}', "http://[::1]:8080/console/"),
    ],
)
def test_the_address_of_the_console_is_printed(server: str, address: str) -> None:
    key = {"id": "k", "sha256": "0" * 64, "actor": "me", "permissions": ["*"]}
    Path("wicketgate.yaml").write_text(f"server: {server}\nauth: {json.dumps({'keys': [key]})}\n")
    assert run("console").stdout == f"{address}\n"


@requirement("OPS-25")
def test_watching_needs_a_file_and_takes_the_usual_one() -> None:
    assert "--watch needs --config" in run("serve", "--watch").stderr
    broken("wicketgate.yaml", "usual")
    assert isinstance(run("serve", "--watch").exception, ConfigError)
