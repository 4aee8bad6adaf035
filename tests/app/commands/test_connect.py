"""``wicketgate connect``: the entry of this gate in the files of eleven clients."""

import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from click.testing import CliRunner, Result
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from app.cli import cli
from app.clients import CLIENTS
from app.commands.client_formats import read_format
from tests.app.commands.test_client_formats import inserted
from tests.support.process import ROOT
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, FileServer, running_service

EACH = pytest.mark.parametrize("client", CLIENTS)
EACH_FORM = pytest.mark.parametrize("client", ["cursor", "opencode", "codex", "continue"])
SEARCHING = ("claude-code", "opencode")
WITH_URL = pytest.mark.parametrize("client", [name for name in CLIENTS if name != "claude-desktop"])
NO_REFERENCE = ("zed", "cline")
SECTIONS = {"vscode": "servers", "zed": "context_servers", "codex": "mcp_servers", "opencode": "mcp"}
PROGRAM = str(Path(sys.executable).with_name("wicketgate"))
URL = "http://127.0.0.1:8080"


class Home:
    """A home folder, and one in it with a configuration."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder = folder
        self.project = project
        self.config = project / "wicketgate.yaml"
        self.config.write_text("upstreams: []\n")

    def file(self, client: str, name: str = "wicketgate") -> Path:
        return CLIENTS[client].user_files(name, written=True)[0]

    def has(self, client: str, content: str | bytes) -> Path:
        path = self.file(client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def entry(self, client: str, name: str = "wicketgate") -> dict[str, Any]:
        return entry_of(client, self.file(client, name).read_text("utf-8-sig"), name)


def entry_of(client: str, text: str, name: str = "wicketgate") -> dict[str, Any]:
    """Reads as the client does."""
    entry: dict[str, Any]
    if client == "codex":
        entry = tomllib.loads(text)["mcp_servers"][name]
    elif client == "continue":
        (entry,) = yaml.safe_load(text)["mcpServers"]
        assert entry.pop("name") == name
    else:
        entry = read_format("json", text)[SECTIONS.get(client, "mcpServers")][name]
    return entry


def started(client: str, entry: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The words and the variables that the client starts the gate with."""
    if client == "opencode":
        return entry["command"], entry.get("environment", {})
    return [entry["command"], *entry["args"]], entry.get("env", {})


def reached(client: str, entry: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The url and the headers that the client reaches the gate with, references as they stand."""
    url = entry[{"windsurf": "serverUrl", "gemini": "httpUrl"}.get(client, "url")]
    if client == "codex" and "bearer_token_env_var" in entry:
        return url, {"Authorization": f"Bearer <{entry['bearer_token_env_var']}>"}
    holder = entry["requestOptions"] if client == "continue" else entry
    return url, holder["http_headers" if client == "codex" else "headers"]


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["connect", *words])
    failed = result.exception is not None and not isinstance(result.exception, SystemExit)
    if failed and code == 1:  # a ConfigError, which main turns into one line and exit code 1
        assert type(result.exception).__name__ == "ConfigError", result.exception
        return result
    assert not failed, result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def home(tmp_path: Path, folder: Path) -> Home:
    return Home(tmp_path, folder)


def crowded(client: str) -> str:
    """A file with a person's comments, spaces and other servers."""
    if client == "codex":
        git = '[mcp_servers.git]\ncommand = "uvx" # why\nargs = [\n  "mcp-server-git"\n]\n'
        return f'# mine\nmodel   =  "o" # keep\n\n{git}'
    git = '{"type": "local", "command": ["uvx"]}' if client == "opencode" else '{"command": "uvx", "args": [ ]}'
    return (
        '{\n   // mine: {"a": 1,}\n   "theme" : "dark",\n\n'
        f'   "{SECTIONS.get(client, "mcpServers")}": {{\n      /* the first */\n      "git": {git}, // keep\n'
        '      // "off": {}\n   },\n   "last": [1, 2,],\n}\n'
    )


@requirement("OPS-70", "OPS-460")
def test_an_entry_is_printed_and_nothing_is_written(home: Home) -> None:
    result = run("cursor")
    assert started("cursor", entry_of("cursor", result.stdout)) == (
        [PROGRAM, "mcp", "--config", str(home.config)],
        {},
    )
    assert str(home.file("cursor")) in result.stderr
    assert list(home.folder.iterdir()) == [home.project]
    for tools, words in (("search", []), ("all", ["--face", "namespaced"])):
        for client in ("cursor", *SEARCHING):
            assert started(client, entry_of(client, run(client, "--tools", tools).stdout))[0][4:] == words


@EACH
@requirement("OPS-70", "OPS-72", "OPS-73")
def test_an_entry_is_written_once(home: Home, client: str) -> None:
    first = run(client, "--write", "--face", "namespaced")
    path = home.file(client)
    words, _ = started(client, home.entry(client))
    assert words == [PROGRAM, "mcp", "--config", str(home.config), "--face", "namespaced"]
    assert f"Connected {CLIENTS[client].title}: put wicketgate into {path}" in first.stderr
    assert "was not found on this machine" in first.stderr
    assert [each.name for each in path.parent.iterdir() if each.is_file()] == [path.name], (
        "no copy of nothing, nothing left over"
    )
    before = path.read_bytes(), path.stat().st_mtime_ns
    second = run(client, "--write", "--face", "namespaced")
    assert "is already connected, nothing changed" in second.stderr
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("spelling", ["plain", "windows"])
@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "continue"])
@requirement("OPS-72", "OPS-73")
def test_everything_else_stays_byte_for_byte(home: Home, client: str, spelling: str) -> None:
    before = crowded(client)
    if spelling == "windows":
        before = "\ufeff" + before.replace("\n", "\r\n")
    path = home.has(client, before)
    path.chmod(0o640)
    result = run(client, "--write")
    after = path.read_bytes().decode()
    put = inserted(before, after)
    assert "wicketgate" in put
    assert ("\r\n" in put) == (spelling == "windows")
    assert "\n" not in put.replace("\r\n", "") or spelling == "plain"
    assert started(client, home.entry(client))[0][0] == PROGRAM
    copy = path.with_name(f"{path.name}.before-wicketgate")
    assert copy.read_bytes().decode() == before
    assert str(copy) in result.stderr
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(copy.stat().st_mode) == 0o640
    assert {each.name for each in path.parent.iterdir() if each.is_file()} == {path.name, copy.name}
    run(client, "--write")
    assert path.read_bytes().decode() == after


BROKEN = {"codex": 'model = "o"\n[mcp_servers\n', "continue": "name: x\n\t- y\n"}


@EACH_FORM
@requirement("OPS-73")
def test_a_broken_file_is_refused_untouched_with_its_line_and_the_key_is_not_shown(home: Home, client: str) -> None:
    before = BROKEN.get(client, '{\n  "mcpServers": {\n    "git": {"command" "uvx"}\n  }\n}\n')
    path = home.has(client, before)
    result = run(client, "--write", code=1)
    reason = str(result.exception)
    assert re.search(r"\bline [23]\b", reason), reason
    assert "Nothing was changed" in reason
    assert started(client, entry_of(client, result.stdout))[0][0] == PROGRAM, "to put in by hand"
    with_key = run(client, "--write", "--url", URL, "--key", KEY, code=1)
    assert (KEY in with_key.output, "the key>" in with_key.stdout) == (False, True)
    assert path.read_text() == before
    assert list(path.parent.iterdir()) == [path]


@EACH_FORM
@requirement("OPS-73")
def test_a_symlink_is_followed(home: Home, client: str) -> None:
    path, real = home.file(client), home.folder / "dotfiles" / "servers"
    real.parent.mkdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(real)
    real.write_text("" if client == "continue" else crowded(client))
    assert f"{path} is a link; the file that was written is {real}" in run(client, "--write").stderr
    assert path.is_symlink()
    assert started(client, entry_of(client, real.read_text()))[0][0] == PROGRAM
    assert (real.parent / "servers.before-wicketgate").is_file()


@EACH_FORM
@requirement("OPS-72", "OPS-73")
def test_an_entry_that_differs_is_replaced_and_kept_in_the_copy(home: Home, client: str) -> None:
    if client != "continue":
        home.has(client, crowded(client))
    run(client, "--write", "--face", "registry")
    path = home.file(client)
    other = path.read_bytes()
    result = run(client, "--write")
    assert "replaced wicketgate in" in result.stderr
    assert "registry" not in path.read_text() + result.stderr
    copies = sorted(path.parent.glob(f"{path.name}.before-wicketgate*"))
    assert copies[-1].read_bytes() == other
    assert len(copies) == (1 if client == "continue" else 2), "an earlier copy that differs stays"
    if client != "continue":
        assert copies[0].read_text() == crowded(client)
        # Both ways lead to the same file.
        path.write_text(crowded(client))
        run(client, "--write")
        once = path.read_bytes()
        run(client, "--write", "--face", "registry")
        run(client, "--write")
        assert path.read_bytes() == once


@requirement("OPS-72")
def test_what_the_client_keeps_in_the_entry_stays(home: Home) -> None:
    own = {"autoApprove": ["tool_browse"], "disabled": True, "timeout": 90}
    old = {"command": "old", "cwd": "/old", "env": {"TOKEN": "ghp_secret_value"}, **own}
    path = home.has("cline", json.dumps({"mcpServers": {"wicketgate": old}}))
    result = run("cline", "--write")
    assert home.entry("cline") == {
        "type": "stdio",
        "command": PROGRAM,
        "args": ["mcp", "--config", str(home.config)],
        **own,
    }
    assert '"command"' not in result.output, "the copy has it"
    assert "ghp_secret_value" not in result.output
    home.has("codex", "[mcp_servers.wicketgate]\ncommand = 'x'\nstartup_timeout_sec = 90\n")
    run("codex", "--write")
    assert home.entry("codex")["startup_timeout_sec"] == 90
    assert path.is_file()


@requirement("OPS-73")
def test_a_file_of_continue_that_holds_more_is_left_alone(home: Home) -> None:
    config = home.folder / ".continue" / "config.yaml"
    config.parent.mkdir()
    config.write_text("name: mine\nmodels: []\nmcpServers:\n- name: git\n  command: uvx\n")
    result = run("continue", "--write", "--path", str(config), code=1)
    assert "reads a file for each" in str(result.exception)
    assert config.read_text().startswith("name: mine\nmodels: []")


@requirement("OPS-72")
def test_opencode_of_version_2_keeps_its_form(home: Home) -> None:
    home.has("opencode", '{"mcp": {"servers": {"git": {"type": "local", "command": ["uvx"]}}}}')
    run("opencode", "--write")
    root = json.loads(home.file("opencode").read_text())
    assert list(root["mcp"]) == ["servers"]
    assert root["mcp"]["servers"]["wicketgate"]["command"][0] == PROGRAM


@requirement("OPS-73")
def test_a_file_that_cannot_be_written_or_read_is_refused_in_one_line(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = home.folder / "pipe"
    os.mkfifo(pipe)  # to read it would never end
    assert "is not a file" in str(run("cursor", "--write", "--path", str(pipe), code=1).exception)
    home.has("cursor", b'{"a": "\xff"}')
    assert "is not UTF-8 text" in str(run("cursor", "--write", code=1).exception)
    home.file("cursor").unlink()
    home.file("cursor").mkdir()
    assert "Cannot read" in str(run("cursor", "--write", code=1).exception)
    path = home.has("zed", "{}")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for a file without the right to write
    assert "it is read-only" in str(run("zed", "--write", code=1).exception)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@requirement("OPS-73")
def test_what_another_program_writes_at_the_same_time_is_not_thrown_away(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home.has("claude-code", '{"numStartups": 1}')
    fsync = os.fsync

    def written_meanwhile(descriptor: int) -> None:
        fsync(descriptor)
        path.write_text('{"numStartups": 2}')

    monkeypatch.setattr(os, "fsync", written_meanwhile)
    assert "Another program has just changed" in str(run("claude-code", "--write", code=1).exception)
    assert path.read_text() == '{"numStartups": 2}'


@WITH_URL
@requirement("OPS-71")
async def test_an_entry_with_a_url_is_one_that_a_client_can_use(home: Home, client: str) -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        result = run(client, "--url", service.url, "--key", KEY, "--face", "namespaced", "--write")
        assert KEY not in result.output
        assert stat.S_IMODE(home.file(client).stat().st_mode) == 0o600
        url, headers = reached(client, home.entry(client))
        assert url == f"{service.url}/mcp/namespaced"
        async with (
            httpx2.AsyncClient(headers=headers, timeout=BOUND_S) as http,
            McpClient(streamable_http_client(url, http_client=http)) as connected,
        ):
            assert "files__read_file" in [tool.name for tool in (await connected.list_tools()).tools]


@requirement("OPS-71")
def test_vs_code_asks_for_the_key_once(home: Home) -> None:
    other = '{\n  "inputs": [\n    {"id": "x", "type": "promptString"} // mine\n  ],\n  "servers": {}\n}\n'
    path = home.has("vscode", other)
    run("vscode", "--url", URL, "--write")
    root = read_format("json", path.read_text())
    assert [each["id"] for each in root["inputs"]] == ["wicketgate-key", "x"]
    assert root["inputs"][0]["password"] is True
    assert "// mine" in path.read_text()
    before = path.read_text()
    assert "nothing changed" in run("vscode", "--url", URL, "--write").stderr
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("client", "words", "path"),
    [
        ("cursor", (URL,), "/mcp"),
        ("cursor", (f"{URL}/mcp",), "/mcp"),
        ("opencode", (URL, "--face", "registry"), "/mcp/registry"),
        ("opencode", (f"{URL}/mcp/gateway",), "/mcp/gateway"),
        ("claude-code", (URL,), "/mcp?tools=all"),
        ("claude-code", (URL, "--gate", "support"), "/mcp/gates/support"),
        ("opencode", (f"{URL}/own/mcp", "--gate", "support"), "/own/mcp/gates/support"),
        ("opencode", (f"{URL}/gate/mcp/",), "/gate/mcp?tools=all"),
        ("cursor", (URL, "--tools", "all"), "/mcp?tools=all"),
        ("opencode", (URL, "--tools", "search"), "/mcp"),
    ],
)
@requirement("OPS-71", "OPS-460")
def test_the_url_asks_for_the_tools_that_suit_the_client(
    home: Home, client: str, words: tuple[str, ...], path: str
) -> None:
    given = (client, "--url", *words)
    assert reached(client, entry_of(client, run(*given).stdout))[0] == URL + path
    run(*given, "--write")
    assert "nothing changed" in run(*given, "--write").stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("claude-desktop", "--url", URL), "accepts only programs to start"),
        *(((client, "--url", URL), '--key "$WG_KEY"') for client in NO_REFERENCE),
        (("cursor", "--url", "127.0.0.1:8080"), "--url must be like"),
        (("cursor", "--url", "http://a:b@host/"), "--url must be like"),
        (("cursor", "--url", "http://[::1"), "--url must be like"),
        (("cursor", "--url", f"{URL}/mcp/gateway", "--face", "registry"), "--face and --gate need"),
        (("cursor", "--url", URL, "--key", "two words"), "--key must be a key"),
        (("cursor", "--url", URL, "--env", "HOME"), "--env is for a gate that the client starts"),
        (("cursor", "--key", KEY), "--key needs --url"),
        (("cursor", "--gate", "support"), "--gate needs --url"),
        (("cursor", "--gate", "support", "--url", f"{URL}/mcp/gateway"), "--url that ends with its host"),
        (("cursor", "--gate", "support", "--tools", "all", "--url", URL), "give --gate alone"),
        (("cursor", "--gate", "../x", "--url", URL), "--gate must be"),
        (("cursor", "--env", "NOT_SET_HERE"), "--env NOT_SET_HERE"),
        (("cursor", "--project", "--path", "x"), "not both"),
        (("cursor", "--tools", "all", "--face", "gateway"), "not both"),
        (("cursor", "--tools", "all", "--url", f"{URL}/mcp/gateway"), "--tools all needs"),
        (("windsurf", "--project"), "has no file for a project"),
        (("cursor", "--name", "a b"), "--name must be"),
        (("cursor", "--json"), "omit CLIENT"),
        (("--write",), "--write needs a CLIENT"),
        (("emacs",), "is not one of"),
    ],
)
@requirement("OPS-70", "OPS-71")
def test_wrong_options_are_told(home: Home, words: tuple[str, ...], reason: str) -> None:
    assert reason in run(*words, code=2).stderr


@requirement("OPS-70")
def test_without_a_configuration_the_way_out_is_named(home: Home) -> None:
    home.config.unlink()
    for words in (("cursor",), ("cursor", "--config", "other.yaml", "--write")):
        reason = str(run(*words, code=1).exception)
        assert "wicketgate init" in reason
        assert ("other.yaml" if "--config" in words else "./wicketgate.yaml") in reason
    assert "Authorization" in run("cursor", "--url", URL).stdout, "a service has its own"


@requirement("OPS-70")
def test_files_of_projects_other_files_and_names(home: Home) -> None:
    for client, file in (
        ("claude-code", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("zed", ".zed/settings.json"),
        ("continue", ".continue/mcpServers/gate.yaml"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("opencode", "opencode.json"),
    ):
        result = run(client, "--project", "--name", "gate", "--write")
        assert "paths of this machine" in result.stderr
        assert started(client, entry_of(client, (home.project / file).read_text(), "gate"))[0][0] == PROGRAM
    run("cline", "--path", "here/mcp.json", "--write")
    assert entry_of("cline", (home.project / "here/mcp.json").read_text())["command"] == PROGRAM


@requirement("OPS-74")
def test_variables_that_a_desktop_program_lacks_are_told_and_copied(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "a-secret")
    home.config.write_text(
        f"upstreams: [{{name: x, command: [{sys.executable}], env: {{A: '${{A_TOKEN}}', B: '${{NOT_SET:-}}'}}}}]\n"
    )
    result = run("cursor")
    assert "reads A_TOKEN, which Cursor does not have" in result.stderr
    assert "--env A_TOKEN copies" in result.stderr
    assert "NOT_SET" not in result.stderr
    copied = run("cursor", "--env", "A_TOKEN", "--write")
    assert "A_TOKEN}" not in copied.stderr
    assert home.entry("cursor")["env"] == {"A_TOKEN": "a-secret"}
    assert stat.S_IMODE(home.file("cursor").stat().st_mode) == 0o600
    assert "chmod 600" not in copied.stderr
    home.file("cursor").chmod(0o644)
    assert "chmod 600" in run("cursor", "--env", "A_TOKEN", "--write").stderr
    assert "keep this one out of git" in run("cursor", "--env", "A_TOKEN", "--project").stderr
    # Programs of the terminal have them, or hand them on by name.
    assert "A_TOKEN" not in run("claude-code").stderr
    assert entry_of("codex", run("codex").stdout)["env_vars"] == ["A_TOKEN"]
    assert entry_of("gemini", run("gemini").stdout)["env"] == {"A_TOKEN": "${A_TOKEN}"}
    assert entry_of("opencode", run("opencode", "--env", "A_TOKEN").stdout)["environment"] == {"A_TOKEN": "a-secret"}
    monkeypatch.setenv("WICKETGATE_MCP__FACE", "registry")
    assert "reads WICKETGATE_MCP__FACE, which Cursor does not have" in run("cursor").stderr
    assert entry_of("codex", run("codex").stdout)["env_vars"] == ["A_TOKEN", "WICKETGATE_MCP__FACE"]
    monkeypatch.delenv("A_TOKEN")
    assert "${A_TOKEN}, which is not set here" in run("claude-code").stderr


@requirement("OPS-74")
def test_folders_of_commands_and_of_paths_are_put_into_the_entry(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home.folder / "node" / "bin"
    folder.mkdir(parents=True)
    (folder / "our-npx").write_text("#!/bin/sh\n")
    (folder / "our-npx").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "platform", "linux")
    home.config.write_text(
        "upstreams:\n- {name: a, command: [our-npx, -y, x]}\n- {name: b, command: [sh]}\n"
        "- {name: c, command: [uvx-none]}\n- {name: off, enabled: false, command: [gone-none]}\n"
        "- {name: d, openapi: shop.json, base_url: 'http://x.test'}\n"
    )
    result = run("claude-desktop", "--write")
    words, env = started("claude-desktop", home.entry("claude-desktop"))
    assert env == {"PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin"}
    assert words[-2:] == ["--cwd", str(home.project)]
    assert f"our-npx is in {folder}" in result.stderr
    assert "paths from here: shop.json" in result.stderr
    assert "env" not in entry_of("claude-code", run("claude-code").stdout), "it has the PATH of the shell"


@requirement("OPS-74")
def test_a_configuration_with_faults_is_reported(home: Home) -> None:
    home.config.write_text("upstreams: [{name: x}]\n")
    result = run("cursor", "--write")
    assert "the configuration has faults" in result.stderr
    assert home.entry("cursor")["command"] == PROGRAM


@requirement("OPS-75")
def test_the_clients_of_this_machine_are_listed(home: Home) -> None:
    (home.folder / ".cursor/extensions").mkdir(parents=True)
    (home.folder / ".cursor/extensions/list").touch()
    run("cursor", "--write")
    home.has("codex", "broken = \n")
    (home.folder / ".continue").mkdir()
    rows = {row["client"]: row for row in json.loads(run("--json").stdout)}
    assert list(rows) == list(CLIENTS)
    assert (rows["cursor"]["found"], rows["cursor"]["connected"]) == (True, True)
    assert (rows["codex"]["found"], rows["codex"]["connected"]) == (True, None)
    assert "line 1" in rows["codex"]["problem"]
    assert (rows["continue"]["found"], rows["continue"]["connected"]) == (True, False)
    assert (rows["zed"]["found"], rows["zed"]["connected"]) == (False, False)
    shown = run()
    assert re.search(r"cursor +found +yes +~/\.cursor/mcp\.json", shown.stdout)
    assert re.search(r"zed +not found +no", shown.stdout)
    assert "config.toml" in shown.stderr


@requirement("OPS-436")
def test_a_client_whose_program_is_on_the_path_is_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home.folder / "bin/claude"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    assert re.search(r"claude-code +found +no", run().stdout)


@requirement("OPS-75")
def test_the_file_that_is_there_is_taken(home: Home) -> None:
    second = home.folder / ".cline/data/settings/cline_mcp_settings.json"
    second.parent.mkdir(parents=True)
    second.write_text("{}")
    run("cline", "--write")
    assert "wicketgate" in second.read_text()
    home.has("cline", "{}")
    assert f"{second} exists too" in run("cline", "--write").stderr


@requirement("OPS-70")
def test_the_files_on_macos_and_those_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("HOME", "/Users/ada")
    expected = {
        "claude-desktop": "Library/Application Support/Claude/claude_desktop_config.json",
        "claude-code": ".claude.json",
        "vscode": "Library/Application Support/Code/User/mcp.json",
        "zed": ".config/zed/settings.json",
        "codex": ".codex/config.toml",
    }
    for client, file in expected.items():
        assert CLIENTS[client].user_files()[0] == Path("/Users/ada", file)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/c")
    assert CLIENTS["claude-code"].user_files() == [Path("/c/.claude.json")]


def imported(path: Path) -> dict[str, Any]:
    """The upstream that ``wicketgate import`` makes of the entry *gate*, under other words: it leaves out itself."""
    text = path.read_text("utf-8-sig")
    for old, new in {PROGRAM: "/opt/other", "WG_KEY": "OTHER_KEY"}.items():
        text = text.replace(old, new)
    read = path.with_name(f"read-{path.name}")
    read.write_text(text)
    result = CliRunner().invoke(cli, ["import", str(read)])
    assert result.exit_code == 0, result.output
    (upstream,) = (each for each in yaml.safe_load(result.stdout)["upstreams"] if each["name"] == "gate")
    return {key: upstream[key] for key in upstream if key in ("command", "env", "url", "headers", "enabled")}


@EACH
@requirement("OPS-71", "OPS-76")
def test_what_was_written_is_read_by_import_as_what_it_stands_for(
    home: Home, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WG_KEY", KEY)
    path = home.file(client, "gate")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("" if client == "continue" else crowded(client))
    run(client, "--name", "gate", "--write")
    itself = CliRunner().invoke(cli, ["import", str(path)])
    assert re.search(r"not imported: gate: .*: it leads to a Wicketgate", itself.stderr)
    face = ["--face", "namespaced"] if client in SEARCHING else []
    assert imported(path) == {"command": ["/opt/other", "mcp", "--config", str(home.config), *face]}
    if client in ("claude-desktop", *NO_REFERENCE):
        return
    result = run(client, "--name", "gate", "--url", URL, "--write")
    assert KEY not in path.read_text() + result.output, "the file refers to it"
    variable = "GATE_KEY" if client == "vscode" else "OTHER_KEY"
    header = {"Authorization": f"Bearer ${{{variable}}}"}
    assert imported(path) == {"url": f"{URL}/mcp{'?tools=all' if client in SEARCHING else ''}", "headers": header}


GUIDE = ROOT / "docs" / "guide" / "mcp-clients.md"
SNIPPET = re.compile(
    r"^```sh\nwicketgate connect (?P<words>[^\n]*)\n```\n+(?:[^\n`]+\n+)*?```\w+\n(?P<shown>.*?)^```$", re.M | re.S
)


@requirement("OPS-77")
def test_the_snippets_of_the_guide_are_those_of_the_program(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(SNIPPET.finditer(GUIDE.read_text()))
    assert {match["words"].split()[0] for match in found} == set(CLIENTS)
    for match in found:
        printed = run(*match["words"].replace('"$WG_KEY"', "wg_...").split()).stdout
        printed = printed.replace(PROGRAM, "/home/ada/.local/bin/wicketgate")
        assert match["shown"] == printed.replace(str(home.config), "/home/ada/wicketgate.yaml"), match["words"]
