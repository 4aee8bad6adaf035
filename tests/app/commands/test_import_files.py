"""``wicketgate import`` finds the files of clients and makes one configuration of them (OPS-80 to OPS-82, OPS-86)."""

import json
import os
import threading
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from app.cli import cli
from app.clients import CLIENTS
from tests.app.commands.machine import FakeMachine, off_tools
from tests.support.requirement import requirement
from wicketgate.errors import ConfigError

TOKEN = "ghp_" + "a1" * 18
OTHER = "ghp_" + "b2" * 18


def servers(**entries: Any) -> dict[str, Any]:
    return {"mcpServers": entries}


def github(token: str = TOKEN, **more: Any) -> dict[str, Any]:
    return {"command": "npx", "args": ["-y", "@x/github"], "env": {"GITHUB_TOKEN": token}, **more}


@requirement("OPS-80")
def test_every_client_is_looked_for(machine: FakeMachine) -> None:
    names = {
        "claude-desktop": ".config/Claude/claude_desktop_config.json",
        "claude-code": ".claude.json",
        "cursor": "work/.cursor/mcp.json",
        "vscode": "work/.vscode/mcp.json",
        "windsurf": ".codeium/windsurf/mcp_config.json",
        "zed": ".config/zed/settings.json",
        "cline": ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "continue": ".continue/mcpServers/one.yaml",
        "codex": ".codex/config.toml",
        "gemini": ".gemini/settings.json",
        "opencode": ".config/opencode/opencode.jsonc",
    }
    assert names.keys() == CLIENTS.keys()
    for client, file in names.items():
        content: str | dict[str, Any] = servers(**{client: {"command": client}})
        if client == "codex":
            content = '[mcp_servers.codex]\ncommand = "codex"\nenabled = false\n'
        elif client == "continue":
            content = "mcpServers: [{name: continue, command: continue}]"
        elif client == "opencode":
            content = {"mcp": {"opencode": {"type": "local", "command": ["opencode"]}}}
        elif client in ("vscode", "zed"):
            content = {"servers" if client == "vscode" else "context_servers": {client: {"command": client}}}
        machine.put(file, content)
    result = machine.run()
    assert result.exit_code == 0
    # A line for each client, with its file, its servers, and how many are off.
    for client, file in names.items():
        shown = file.removeprefix("work/") if file.startswith("work/") else f"~/{file}"
        off = 1 if client == "codex" else 0
        assert f"{CLIENTS[client].title} ({shown}): 1 server, {off} switched off\n" in result.stderr
    settings = machine.taken()
    assert {upstream.name: upstream.command for upstream in settings.upstreams} == {name: (name,) for name in names}
    # One by its name.
    assert [upstream.name for upstream in machine.taken("zed", "cursor").upstreams] == ["zed", "cursor"]


@requirement("OPS-80")
def test_when_nothing_is_there_it_says_where_it_looked(machine: FakeMachine) -> None:
    machine.put(".config/Code/User/settings.json", {"editor.fontSize": 12})
    result = machine.run()
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Cursor: {machine.home}/.cursor/mcp.json" in result.stderr
    assert f"VS Code: {machine.project}/.vscode/mcp.json" in result.stderr
    only = machine.run("codex")
    assert only.exit_code == 1
    assert "Cursor" not in only.stderr
    assert json.loads(machine.run("codex", "--json").stdout)["configuration"] == {"upstreams": []}


@requirement("OPS-80")
def test_a_machine_without_a_home_folder_still_has_a_project(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put("work/.mcp.json", servers(a={"command": "x"}))
    monkeypatch.delenv("HOME")
    assert machine.run().exit_code == 0


@requirement("OPS-80")
def test_one_file_that_cannot_be_read_does_not_hold_up_the_rest(machine: FakeMachine) -> None:
    machine.put(".cursor/mcp.json", '{"mcpServers": ')
    machine.put(".gemini/settings.json", servers(a={"command": "x"}))
    result = machine.run()
    assert result.exit_code == 0
    assert "not readable" in result.stderr
    assert "mcp.json is not JSON: line 1" in result.stderr
    assert "is not JSON" in machine.failure(str(machine.home / ".cursor/mcp.json"))
    # Alone it is all there is.
    assert "is not JSON" in machine.run("cursor").stderr


@requirement("OPS-80")
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("curser", "did you mean cursor?"),
        ("nonsense", "the clients are claude-desktop, claude-code"),
        ("", "the clients are claude-desktop, claude-code"),
        ("./nothing.json", "Cannot read nothing.json: No such file"),
        (".", "Cannot read .: Is a directory"),
    ],
)
def test_a_wrong_word_is_told_with_a_way_on(machine: FakeMachine, word: str, message: str) -> None:
    assert message in machine.failure(word)


@requirement("OPS-81")
def test_a_server_of_several_clients_is_taken_once(machine: FakeMachine) -> None:
    machine.put(".cursor/mcp.json", servers(GitHub=github(disabled=True)))
    machine.put(".codeium/windsurf/mcp_config.json", servers(github=github(disabledTools=["rm"])))
    machine.put(".gemini/settings.json", servers(gh=github(includeTools=["ls", "rm"])))
    vscode = {"servers": {"github": {"type": "stdio", **github()}}}
    machine.put("work/.vscode/mcp.json", vscode)
    result = machine.run()
    assert TOKEN not in result.output
    assert "1 of 4 servers imported" in result.stderr
    assert "github: switched off in Cursor (~/.cursor/mcp.json)" in result.stderr
    assert "not imported: github: VS Code (.vscode/mcp.json): the same server again" in result.stderr
    settings = machine.taken()
    (upstream,) = settings.upstreams
    assert (upstream.name, upstream.enabled) == ("github", True)
    assert off_tools(settings, "github") == [("allowlist", ["ls"])]
    assert "${GITHUB_TOKEN:-}" not in result.stdout  # it is on, so its variable is needed


@requirement("OPS-81")
def test_different_servers_of_one_name_get_names_apart(machine: FakeMachine) -> None:
    machine.put(".cursor/mcp.json", servers(github=github()))
    machine.put(".gemini/settings.json", servers(github=github(OTHER, excludeTools=["rm"])))
    result = machine.run()
    assert "# from Gemini CLI (~/.gemini/settings.json)" in result.stdout
    settings = machine.taken()
    first, second = settings.upstreams
    assert (first.name, second.name) == ("github", "github-2")
    values = [upstream.env["GITHUB_TOKEN"].get_secret_value() for upstream in settings.upstreams]
    assert values == ["<GITHUB_TOKEN>", "<GITHUB_2_GITHUB_TOKEN>"]
    assert off_tools(settings, "github") == []
    assert off_tools(settings, "github-2") == [("denylist", ["rm"])]


@requirement("OPS-81")
def test_two_files_with_a_question_of_one_id_are_asked_twice(machine: FakeMachine) -> None:
    for file, what in ((".config/Code/User/mcp.json", "of work"), ("work/.vscode/mcp.json", "of home")):
        entry = {"command": "x", "args": [what], "env": {"KEY": "${input:key}"}}
        machine.put(file, {"servers": {"a": entry}, "inputs": [{"id": "key", "description": f"The key {what}"}]})
    result = machine.run()
    assert "  KEY  (The key of work)" in result.stderr
    assert "  KEY_2  (The key of home)" in result.stderr
    values = [upstream.env["KEY"].get_secret_value() for upstream in machine.taken().upstreams]
    assert values == ["<KEY>", "<KEY_2>"]


@requirement("OPS-82")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "/opt/venv/bin/wicketgate", "args": ["mcp", "--config", "/x.yaml"]},
        {"command": "C:\\Python\\Scripts\\wicketgate.exe", "args": ["mcp"]},
        {"command": "uvx", "args": ["--from", "wicketgate[demo]==1.0", "wicketgate", "mcp"]},
        {"command": "python", "args": ["-m", "wicketgate", "mcp"]},
        {"command": ["wicketgate", "mcp"]},
        {"command": {"path": "/bin/wicketgate", "args": ["mcp"]}},
        {"command": "wicketgate mcp --config x"},
        {"command": "docker", "args": ["run", "-i", "example.org/wicketgate:1.2", "mcp"]},
        {"url": "http://127.0.0.1:8080/mcp", "headers": {"Authorization": "Bearer ${env:WG_KEY}"}},
        {"url": "http://127.0.0.1:8080/mcp", "bearer_token_env_var": "WG_KEY"},
        {"url": "http://127.0.0.1:8080/mcp", "headers": {"Authorization": "Bearer wg_first_" + "a1" * 16}},
    ],
)
def test_the_gate_itself_is_not_taken_over(machine: FakeMachine, entry: dict[str, Any]) -> None:
    machine.put(".cursor/mcp.json", servers(gate=entry, other={"command": "x", "args": ["wicketgate"]}))
    result = machine.run()
    assert "not imported: gate: Cursor (~/.cursor/mcp.json): it leads to a Wicketgate" in result.stderr
    assert [upstream.name for upstream in machine.taken().upstreams] == ["other"]


@requirement("OPS-82")
def test_an_entry_of_the_name_that_connect_gives_is_the_gate(machine: FakeMachine) -> None:
    machine.put(".cursor/mcp.json", servers(wicketgate={"url": "https://gate.example/mcp"}))
    assert "it leads to a Wicketgate" in machine.run().stderr


@requirement("OPS-86")
def test_json_for_programs(machine: FakeMachine) -> None:
    machine.put(".cursor/mcp.json", servers(GitHub=github(disabledTools=["rm"]), bad={}))
    machine.put(".codex/config.toml", "x")
    written = machine.project / "new.yaml"
    result = machine.run("--json", "--write", str(written))
    assert result.exit_code == 0
    assert TOKEN not in result.output
    document = json.loads(result.stdout)
    assert document["files"][0] == {
        "client": "cursor",
        "file": f"{machine.home}/.cursor/mcp.json",
        "servers": 2,
        "switched_off": 0,
        "problem": None,
    }
    assert "is not TOML" in document["files"][1]["problem"]
    assert "is not TOML" in document["problems"][0]
    taken, left = document["servers"]
    assert (taken["name"], taken["was"], taken["client"], taken["taken"]) == ("github", "GitHub", "cursor", True)
    assert taken["tools"] == {"only": None, "off": ["rm"]}
    assert (left["taken"], left["notes"][-1]) == (False, "it has neither a command nor a url")
    assert document["variables"] == {"GITHUB_TOKEN": "env GITHUB_TOKEN of github"}
    assert document["written"] == str(written)
    assert document["configuration"] == yaml.safe_load(written.read_text())


HOSTILE = {
    "deep.json": '{"mcpServers": {"a": ' + '{"a": ' * 500 + "1" + "}" * 502,
    "deep.toml": "x = " + "[" * 5000 + "]" * 5000,
    "long-name.toml": ".".join("a" * 100_000) + " = 1",
    "digits.toml": "x = " + "9" * 10_000,
    "aliases.yaml": f"a: &a [{'x' * 100_000}]\nmcpServers: [{', '.join(['*a'] * 2000)}]\n",
    "openings.json": json.dumps({"mcpServers": {"a": {"command": "x", "args": ["${" * 16_000]}}}),
    "questions.json": json.dumps({"mcpServers": {"a": {"command": "x", "args": ["http://a/" + "?" * 30_000]}}}),
    "much.json": json.dumps({"mcpServers": {f"a{n}": {"command": "x", "args": ["y" * 30_000]} for n in range(50)}}),
    "stars.json": json.dumps({"mcpServers": {"a": {"command": "x", "excludeTools": ["*a" * 250 + "b"] * 900}}}),
    "many.json": json.dumps({"mcpServers": {f"a{number}": {"command": "x"} for number in range(1001)}}),
    "one-name.json": json.dumps({"mcpServers": [{"name": "a", "command": str(number)} for number in range(300)]}),
    "long.json": json.dumps({"mcpServers": {"a": {"command": "x" * 100_000}}}),
    "secrets.json": json.dumps(
        {
            "mcpServers": {
                "a": {"command": "x", "args": [word for n in range(499) for word in ("--token", f"s3cret{n}")]}
            }
        }
    ),
}


@requirement("OPS-87")
@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - {"many.json", "much.json"}))
def test_a_hostile_file_is_read_to_an_end(machine: FakeMachine, name: str) -> None:
    path = machine.put(name, HOSTILE[name])
    done = threading.Event()

    def read() -> None:
        result = CliRunner().invoke(cli, ["import", str(path)])
        assert result.exception is None or isinstance(result.exception, SystemExit | ConfigError), result.exception
        assert all(len(line) < 70_000 for line in result.output.splitlines())
        done.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert done.wait(30)
    thread.join(30)


@requirement("OPS-87")
def test_the_bounds_say_what_they_left_out(machine: FakeMachine) -> None:
    for name, words in (
        ("many.json", "more than 1000 servers"),
        ("long.json", "a: has more than 32 Ki characters"),
        ("much.json", "or too long ones; the rest was omitted"),
    ):
        assert words in machine.run(str(machine.put(name, HOSTILE[name]))).stderr
    assert "nested more than 100 deep" in machine.failure(str(machine.put("deep.json", HOSTILE["deep.json"])))
    assert "cannot be read as TOML" in machine.failure(str(machine.put("deep.toml", HOSTILE["deep.toml"])))
    assert "larger than 16 MiB" in machine.failure(str(machine.put("big.json", " " * (16 * 1024 * 1024 + 1))))
    assert "larger than 1 MiB" in machine.failure(str(machine.put("big.toml", " " * (1024 * 1024 + 1))))
    assert "larger than 16 MiB" in machine.failure("/dev/zero"), "without an end"


@requirement("OPS-87")
def test_a_pipe_can_be_read(machine: FakeMachine) -> None:
    reading, writing = os.pipe()
    os.write(writing, json.dumps(servers(a={"command": "x"})).encode())
    os.close(writing)
    try:
        assert machine.run(f"/dev/fd/{reading}").exit_code == 0
    finally:
        os.close(reading)


@requirement("OPS-87")
def test_no_name_moves_the_cursor(machine: FakeMachine) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\u200b\r\n# x: y"
    entry = {
        "command": f"run{evil}",
        "args": [evil],
        "env": {"A": evil},
        "disabledTools": [evil],
        f"key{evil}": 1,
        "type": evil,
    }
    machine.put(".cursor/mcp.json", {"mcpServers": {evil: entry, f"{evil}2": 5}})
    machine.put(f"work/.continue/mcpServers/{evil[-8:].replace('/', '')}.yaml", "mcpServers: 5")
    for words in ((), ("--json",)):
        result = machine.run(*words)
        for text in (result.stdout, result.stderr):
            assert all(char.isprintable() or char == "\n" for char in text), repr(text)
    # It is still what the client has.
    (upstream,) = machine.taken().upstreams
    assert upstream.command == (f"run{evil}", evil)
    assert off_tools(machine.taken(), upstream.name) == [("denylist", [evil])]
