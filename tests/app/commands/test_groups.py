"""The help of the commands, their exit codes, the nearest name of a misspelt one, and completion in a shell."""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from app.cli import cli, main
from app.commands.groups import Group, TaskGroup
from tests.support.python_upstream import python_upstream
from tests.support.requirement import requirement
from wicketgate.access.identity import hash_key

CODES = re.compile(r"Exit codes: 0 \S.*; 1 \S.*; 2 \S.*\.$")


def commands(group: click.Group = cli, *above: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield (*above, name)


def run(*words: str) -> int:
    """The exit code of the entry point."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
        sys.exit(0)
    return int(ended.value.code or 0)


def configured(tool: str = "double") -> None:
    """A gate with one tool, ``local:double``."""
    upstream = python_upstream(Path.cwd(), (tool, "number: int", "Doubles a number."))
    Path("wicketgate.yaml").write_text(json.dumps({"upstreams": [upstream]}))


@requirement("OPS-111")
@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_the_help_of_every_command_tells_its_exit_codes(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*command, "--help"])
    assert (result.exit_code, bool(CODES.search(" ".join(result.output.split())))) == (0, True), result.output


@requirement("OPS-111")
@pytest.mark.parametrize(
    ("command", "good", "failing"),
    [
        (["version"], [], None),
        (["completion"], ["bash"], None),
        (["openapi"], [], None),
        (["key", "new"], ["--actor", "ann"], None),
        (["check"], [], ["--config", "empty.yaml"]),
        (["serve"], None, ["--config", "missing.yaml"]),
        (["mcp"], None, ["--config", "missing.yaml"]),
        (
            ["explain"],
            ["local:double", "--actor", "ann", "--permission", "*"],
            ["x:y", "--actor", "a", "--permission", "*"],
        ),
        (["browse"], ["/"], ["/nowhere"]),
        (["execute"], ["local:double", '{"number": 2}'], ["local:double", "{}"]),
        (["view"], None, ["text:local:double:0000"]),
        (["chat"], ["hello"], ["hello", "--url", "http://127.0.0.1:9"]),
        (["lock"], [], ["--diff", "--lock", "another.lock"]),
        (["learned", "list"], ["--config", "kept.yaml"], []),
        (["learned", "reset"], ["--yes", "--config", "kept.yaml"], ["--yes"]),
        (["import"], ["client.json"], ["missing.json"]),
    ],
    ids=lambda value: " ".join(value) if value else "",
)
def test_the_exit_codes_are_those(command: list[str], good: list[str] | None, failing: list[str] | None) -> None:
    configured()
    Path("empty.yaml").write_text("upstreams: []\n")
    Path("kept.yaml").write_text("storage: {url: 'sqlite:///kept.db'}\n")
    Path("client.json").write_text('{"mcpServers": {"a": {"command": "b"}}}')
    if good is not None:
        assert run(*command, *good) == 0
    if failing is not None:
        assert run(*command, *failing) == 1
    assert run(*command, "--no-such-option") == 2


def test_a_command_leaves_the_log_of_its_process_as_it_was() -> None:
    before = list(logging.getLogger().handlers)
    run("version")
    run("check", "--config", "missing.yaml")
    assert logging.getLogger().handlers == before


@requirement("OPS-111", "OPS-54")
def test_a_question_that_is_answered_with_no_is_a_refusal() -> None:
    import asyncio

    from wicketgate.catalog.learned_words import Lesson
    from wicketgate.storage.learned_words import StoredLearnedWords
    from wicketgate.storage.sqlite import SqliteStore

    async def learn() -> None:
        store = SqliteStore(Path("kept.db"))
        words = StoredLearnedWords(store, shared=True)
        assert await words.learn((Lesson("ann", "a:b#00000000", ("film",)),), 0) is not None
        await store.aclose()

    asyncio.run(learn())
    Path("wicketgate.yaml").write_text("storage: {url: 'sqlite:///kept.db'}\n")
    result = CliRunner().invoke(cli, ["learned", "reset"], input="n\n")
    assert (result.exit_code, "Nothing was forgotten" in result.stderr) == (1, True)


@requirement("OPS-112")
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["chekc"], "Did you mean check?"),
        (["serv"], "Did you mean serve?"),
        (["learned", "lsit"], "Did you mean list?"),
        (["key", "nwe"], "Did you mean new?"),
        (["completion", "bsh"], "Did you mean bash or zsh?"),
        (["mcp", "--face", "namespace"], "Did you mean namespaced?"),
        (["check", "--modle"], "--model"),
        (["qqqqqq"], ""),
    ],
    ids=" ".join,
)
def test_a_misspelt_name_is_answered_with_the_nearest(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert meant in error if meant else "Did you mean" not in error


@requirement("OPS-112")
def test_a_misspelt_tool_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    configured()
    assert run("execute", "local:duble", '{"number": 1}') == 1
    assert re.search(r"Did you mean local:double#\w{8}\?", capsys.readouterr().err)
    assert run("explain", "local:duble", "--actor", "ann", "--permission", "*") == 1
    assert "did you mean local:double#" in capsys.readouterr().out


@requirement("OPS-135")
def test_explain_takes_the_only_actor_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    configured()
    file = Path("wicketgate.yaml")
    keys = [{"id": each, "sha256": hash_key(each), "actor": "ann", "permissions": ["tools:*"]} for each in ("a", "b")]
    file.write_text(json.dumps({**json.loads(file.read_text()), "auth": {"keys": keys}}))
    assert run("explain", "local:double", "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["actor"] == "ann"
    assert "For ann, the only actor of auth.keys; --actor names another." in shown.err


@requirement("OPS-112")
def test_a_misspelt_upstream_or_tool_to_accept_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    configured("treble")
    assert run("lock") == 0
    configured()
    for wanted, meant in (
        ("loacl:double", "No upstream is called loacl. Did you mean local?"),
        ("local:duble", "No difference matches local:duble. Did you mean local:double or "),
        ("nothing:like", "No difference matches nothing:like. See: wicketgate lock --diff"),
    ):
        assert run("lock", "--accept", wanted) == 1
        assert meant in capsys.readouterr().err


@requirement("OPS-110")
@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["version", "--json"], {"wicketgate", "python", "platform"}),
        (["key", "new", "--actor", "ann", "--json"], {"key", "entry"}),
        (
            ["explain", "local:double", "--actor", "ann", "--permission", "*", "--json"],
            {"tool", "actor", "key", "roles", "usable", "reasons"},
        ),
        (["lock", "--json"], {"lock", "pinned", "accepted", "differences", "silent"}),
        (["lock", "--diff", "--lock", "none", "--json"], {"lock", "pinned", "accepted", "differences", "silent"}),
        (["browse", "double", "--json"], {"cards"}),
        (["execute", "local:double", '{"number": 2}', "--json"], {"status"}),
        (
            ["check", "--json"],
            {"ok", "upstreams", "models", "keys", "issuers", "notes", "careless", "faults", "summary", "config"},
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_json_is_all_that_stdout_holds(words: list[str], keys: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    configured()
    run(*words)
    found = json.loads(capsys.readouterr().out)
    assert keys <= found.keys() if words[0] in ("browse", "execute") else keys == found.keys()


@requirement("OPS-110")
def test_a_failure_before_the_answer_leaves_stdout_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--json", "--config", "missing.yaml") == 1
    said = capsys.readouterr()
    assert (said.out, "missing.yaml" in said.err) == ("", True)


@requirement("OPS-110")
def test_the_differences_of_a_lock_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    configured("treble")
    assert run("lock", "--json") == 0
    assert json.loads(capsys.readouterr().out)["pinned"] == {"local": ["treble"]}
    configured()
    assert run("lock", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert {each["tool"]: each["kind"] for each in found["differences"]} == {
        "local:double": "new",
        "local:treble": "gone",
    }
    assert run("lock", "--all", "--json") == 0
    assert sorted(json.loads(capsys.readouterr().out)["accepted"]) == ["local:double", "local:treble"]


@requirement("OPS-115")
def test_the_help_lists_the_commands_by_task() -> None:
    lines = CliRunner().invoke(cli, ["--help"]).output.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Options:",
        "Start:",
        "Clients and servers:",
        "Logins:",
        "Try:",
        "Keep:",
        "Contracts:",
        "This command:",
    ]
    at = {
        name: next(n for n, line in enumerate(lines) if line.startswith(f"  {name} "))
        for name in cli.list_commands(click.Context(cli))
    }
    assert at["check"] < at["serve"] < at["mcp"] < at["browse"] < at["lock"] < at["conform"] < at["completion"]
    assert not any(line.endswith("...") for line in lines[1:]), "no sentence is cut"


@requirement("OPS-115", "OPS-111")
def test_a_command_without_a_section_and_exit_codes_of_its_own_is_listed_all_the_same() -> None:
    group = TaskGroup("a", sections={"One": ("b", "missing")})
    for name in ("b", "c"):
        group.add_command(click.Command(name, help=f"Does {name}."))
    inner = Group("inner")
    inner.add_command(click.Command("d", epilog="Exit codes: none."))
    group.add_command(inner)
    assert "One:\n  b      Does b.\n\nOthers:\n  c      Does c.\n" in CliRunner().invoke(group, ["--help"]).output
    assert "Exit codes: 0 success; " in " ".join(CliRunner().invoke(group, ["c", "--help"]).output.split())
    assert "Exit codes: none." in CliRunner().invoke(group, ["inner", "d", "--help"]).output


@requirement("OPS-114")
@pytest.mark.parametrize(("shell", "line"), [("bash", "complete "), ("zsh", "compdef "), ("fish", "complete ")])
def test_each_shell_gets_its_script(shell: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("completion", shell) == 0
    script = capsys.readouterr().out
    assert line in script
    assert "_WICKETGATE_COMPLETE" in script


@requirement("OPS-114")
def test_bash_completes_commands_and_values(folder: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    installed = Path(sys.executable).parent
    script = """
eval "$(wicketgate completion bash)"
complete_line() {
    COMP_WORDS=($1); COMP_CWORD=$2; COMPREPLY=()
    _wicketgate_completion wicketgate
    echo "$1 -> ${COMPREPLY[*]}"
}
complete_line "wicketgate ch" 1
complete_line "wicketgate mcp --face name" 3
"""
    environment = {"PATH": f"{installed}:{os.environ['PATH']}", "HOME": str(folder)}
    ran = subprocess.run(
        [bash, "--norc", "-c", script], env=environment, cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.splitlines() == [
        "wicketgate ch -> check chat",
        "wicketgate mcp --face name -> namespaced",
    ], ran.stderr
