"""``wicketgate import``: the files of other clients as our configuration, without secrets (OPS-4)."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app.commands.import_entry import ClientServer
from app.commands.import_servers import as_yaml, take_over
from tests.app.commands.machine import FakeMachine, revealed
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.config.client_entries import legal_name
from wicketgate.config.settings import UpstreamSettings
from wicketgate.config.settings_file import load_settings

TOKEN = "ghp_" + "a1" * 18
KEY = "sk-live-0123456789abcdef"


@requirement("OPS-4")
def test_claude_desktop_and_secrets(machine: FakeMachine) -> None:
    config = {
        "mcpServers": {
            "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/data"]},
            "GitHub": {
                "command": "docker",
                "args": ["run", "-i", "--rm", "-e", "GITHUB_TOKEN", "-e", f"OTHER_TOKEN={KEY}", "ghcr.io/x/y"],
                "env": {"GITHUB_TOKEN": TOKEN, "LOG_LEVEL": "debug", "MAX_TOKENS": "4096", "KEY_FILE": "/etc/key"},
            },
        }
    }
    result = machine.run_on(config)
    assert TOKEN not in result.output
    assert KEY not in result.output
    assert "# was called 'GitHub'" in result.stdout
    assert "  GITHUB_TOKEN  (env GITHUB_TOKEN of github)" in result.stderr
    files, github = machine.taken_of(config).upstreams
    assert (files.name, files.command) == (
        "filesystem",
        ("npx", "-y", "@modelcontextprotocol/server-filesystem", "/data"),
    )
    assert github.command[-3:] == ("-e", "OTHER_TOKEN=<OTHER_TOKEN>", "ghcr.io/x/y")
    assert revealed(github.env | github.headers) == {
        "GITHUB_TOKEN": "<GITHUB_TOKEN>",
        "LOG_LEVEL": "debug",
        "MAX_TOKENS": "4096",
        "KEY_FILE": "/etc/key",
    }


@requirement("OPS-4")
def test_claude_code_with_its_projects_and_its_variables(machine: FakeMachine) -> None:
    same = {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": {}}
    config = {
        "numStartups": 3,
        "mcpServers": {
            "api": {
                "type": "http",
                "url": "${API_URL:-https://api.test}/mcp",
                "headers": {"Authorization": "Bearer ${KEY}"},
            }
        },
        "projects": {
            "/home/me/a": {"mcpServers": {"git": same}},
            "/home/me/b": {"mcpServers": {"git": same, "api": {"type": "sse", "url": "https://b.test/sse"}}},
            "/home/me/c": {"mcpServers": {"off": same}, "disabledMcpServers": ["off"]},
        },
    }
    result = machine.run_on(config)
    assert "git: ~/mcp.json, project /home/me/b: the same server again" in result.stderr
    assert "from ~/mcp.json, project /home/me/a" in result.stdout
    api, git, second, off = machine.taken_of(config, API_URL="https://x.test").upstreams
    assert (api.url, revealed(api.env | api.headers)) == ("https://x.test/mcp", {"Authorization": "Bearer <KEY>"})
    assert git.command == ("uvx", "mcp-server-git")
    assert (second.name, second.transport) == ("api-2", "sse")
    assert (off.name, off.enabled) == ("off", False)


@requirement("OPS-4")
def test_vs_code_with_comments_inputs_and_predefined_variables(machine: FakeMachine) -> None:
    config = """\ufeff{
      // asked for once
      "inputs": [{"id": "perplexity-key", "type": "promptString", "description": "Perplexity // key"},],
      "servers": {
        "perplexity": {
          "type": "stdio", "command": "npx", /* the server */ "args": ["-y", "server-perplexity", "--at", "http://x//y"],
          "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "HOME_DIR": "${userHome}/x", "A": "${env:A_TOKEN}"},
          "envFile": "${workspaceFolder}/.env",
          "cwd": "${workspaceFolder}",
        },
        "remote": {"type": "http", "url": "https://api.test/mcp", "dev": {"watch": "x"}},
      },
    }"""
    result = machine.run_on(config)
    assert "  PERPLEXITY_KEY  (Perplexity // key)" in result.stderr
    assert "perplexity: not imported: envFile" in result.stderr
    assert "# not imported: dev" in result.stdout
    first, remote = machine.taken_of(config, HOME="/home/me").upstreams
    assert first.command[-1] == "http://x//y"
    assert revealed(first.env | first.headers) == {
        "PERPLEXITY_API_KEY": "<PERPLEXITY_KEY>",
        "HOME_DIR": "/home/me/x",
        "A": "<A_TOKEN>",
    }
    assert (first.cwd, remote.url) == ("<WORKSPACE_FOLDER>", "https://api.test/mcp")
    assert (
        machine.taken_of({"mcp": {"servers": {"a": {"command": "x"}}}, "editor.fontSize": 12}).upstreams[0].name == "a"
    )


@requirement("OPS-4")
def test_cursor_windsurf_and_cline(machine: FakeMachine) -> None:
    config = {
        "mcpServers": {
            "cursor one": {"command": "npx -y some-server --api-key " + KEY},
            "windsurf": {"serverUrl": "https://w.test/mcp", "headers": {"X-API-Key": "abc123", "Accept": "text/plain"}},
            "cline": {"url": "https://c.test/sse", "disabled": True, "autoApprove": ["a"], "timeout": 60},
            "cline2": {"type": "streamableHttp", "url": f"https://c.test/mcp?token={KEY}&x=1", "disabled": False},
            "bridge": {
                "command": "npx",
                "args": ["mcp-remote", "https://r.test", "--header", f"Authorization: Bearer {KEY}"],
            },
            "db": {
                "command": "pg",
                "args": ["postgresql://me:hunter22@db/x"],
                "env": {"PORT": 5432, "PGPASS_AUTH": "pa$SWORD", "SSL": True, "N": None},
            },
        }
    }
    result = machine.run_on(config)
    for secret in (KEY, "abc123", "hunter22"):
        assert secret not in result.output
    assert "cline: not imported: autoApprove" in result.stderr
    assert "cline: timeout is not imported: it could be seconds or milliseconds" in result.stderr
    cursor, windsurf, cline, cline2, bridge, db = machine.taken_of(config).upstreams
    assert cursor.command == ("npx", "-y", "some-server", "--api-key", "<CURSOR_ONE_API_KEY>")
    assert (windsurf.url, revealed(windsurf.env | windsurf.headers)) == (
        "https://w.test/mcp",
        {"X-API-Key": "<WINDSURF_X_API_KEY>", "Accept": "text/plain"},
    )
    assert (cline.enabled, cline.transport) == (False, "sse")
    assert (cline2.enabled, cline2.url) == (True, "https://c.test/mcp?token=<CLINE2_TOKEN>&x=1")
    assert bridge.command[-1] == "Authorization: Bearer <BRIDGE_AUTHORIZATION>"
    assert db.command[-1] == "postgresql://me:<DB_PASSWORD>@db/x"
    assert revealed(db.env | db.headers) == {"PORT": "5432", "PGPASS_AUTH": "<PGPASS_AUTH>", "SSL": "true"}


@requirement("OPS-4")
def test_zed_and_continue(machine: FakeMachine) -> None:
    zed = {
        "theme": "One Dark",
        "context_servers": {
            "old": {"command": {"path": "/bin/server", "args": ["run"], "env": {"A": "b"}}, "settings": {}},
            "new": {
                "source": "custom",
                "enabled": False,
                "command": "uvx",
                "args": ["x"],
                "env": {"API_TOKEN": "$API_TOKEN"},
            },
            "ext": {"source": "extension", "enabled": True, "settings": {"github_personal_access_token": TOKEN}},
        },
    }
    result = machine.run_on(zed)
    assert "not imported: ext: Zed (~/mcp.json): this server belongs to an extension" in result.stderr
    assert "# not imported: ext: Zed (~/mcp.json): this server" in result.stdout
    assert TOKEN not in result.output
    old, new = machine.taken_of(zed).upstreams
    assert (old.command, revealed(old.env | old.headers)) == (("/bin/server", "run"), {"A": "b"})
    assert (new.enabled, revealed(new.env | new.headers)) == (False, {"API_TOKEN": "<API_TOKEN>"})

    text = """
    mcpServers:
      - name: Linear MCP
        type: streamable-http
        url: https://linear.test/mcp
        requestOptions: {headers: {Authorization: "Bearer ${{ secrets.LINEAR }}"}, verifySsl: false}
    """
    result = machine.run_on(text, name="config.yaml")
    assert "linear-mcp: not imported: requestOptions.verifySsl" in result.stderr
    assert "Authorization: Bearer ${LINEAR}" in result.stdout


LONG = "NGJkZTA5ODctYWJjZC00ZWYw0aGk5"


@requirement("OPS-4")
@pytest.mark.parametrize(
    ("entry", "secret", "written"),
    [
        ({"url": f"https://h.test/mcp/{LONG}/sse"}, LONG, "https://h.test/mcp/${HUB_PATH}/sse"),
        ({"url": f"https://h.test/mcp/bot12345:{LONG}.x?a=b"}, LONG, "https://h.test/mcp/${HUB_PATH}?a=b"),
        ({"url": f"https://h.test/mcp#{LONG}"}, LONG, "https://h.test/mcp"),
        ({"url": "https://h.test/mcp#token=hush1"}, "hush1", "https://h.test/mcp"),
        ({"command": "x", "args": [f"https://h.test/s/{LONG}"]}, LONG, "https://h.test/s/${HUB_PATH}"),
        ({"command": "x", "args": ["https://h.test/s#key=hush1"]}, "hush1", "https://h.test/s#key=${HUB_KEY}"),
        ({"command": "x", "args": ['{"apiKey": "hush1", "n": "2"}']}, "hush1", '{"apiKey": "${HUB_APIKEY}", "n": "2"}'),
        ({"command": "x", "args": ['"{\\"token\\":\\"hush1\\"}"']}, "hush1", '"{\\"token\\":\\"${HUB_TOKEN}\\"}"'),
        ({"command": "x", "args": ["--config={'apiKey':'hush1'}"]}, "hush1", "--config={'apiKey':'${HUB_APIKEY}'}"),
        ({"command": "x", "env": {"OPTIONS": '{"password":"hush1"}'}}, "hush1", '{"password":"${HUB_PASSWORD}"}'),
        ({"command": "x", "args": ["host=db;password=hush1;n=1"]}, "hush1", "host=db;password=${HUB_PASSWORD};n=1"),
        ({"command": "env", "args": ["API_KEY=hush1", "x"]}, "hush1", "API_KEY=${HUB_API_KEY}"),
        ({"command": "x", "args": ["--user", "bob:hush1"]}, "hush1", "bob:${HUB_PASSWORD}"),
        ({"command": "x", "args": ["--user=bob:hush1"]}, "hush1", "--user=bob:${HUB_PASSWORD}"),
        ({"command": "x", "args": ["-u", "bob:hush1"]}, "hush1", "bob:${HUB_PASSWORD}"),
        ({"command": "x", "args": ["-k", "hush12", "y"]}, "hush12", "${HUB_K}"),
        ({"command": "x", "args": ["-pHush12", f"-k{LONG}"]}, "Hush12", "-p${HUB_P}"),
        ({"url": f"https://me:hunter22@h.test/${{WHERE}}?token={TOKEN}"}, "hunter22", ""),
        ({"command": "x", "env": {"HEADERS": f"X-Org ${{ORG}} X-Key {TOKEN}"}}, TOKEN, ""),
        ({"command": "x", "env": {"API_KEY": "${PREFIX} 0123456789abcdef0123456789abcdef"}}, "0123456789abcdef012", ""),
        ({"command": "x", "args": ["--header", f"Authorization: Basic ${{USER}} {TOKEN}"]}, TOKEN, ""),
        ({"command": "x", "args": ["-token", "hunter22"]}, "hunter22", ""),
        ({"url": "https://h.test/mcp", "bearer_token": "hunter22"}, "hunter22", ""),
        ({"url": "https://h.test/mcp", "http_headers": {"X-Api-Key": "hunter22"}}, "hunter22", ""),
        ({"command": "x", "environment": {"PASSWORD": "hunter22"}}, "hunter22", ""),
        ({"command": ["x", "--password=hunter22"]}, "hunter22", ""),
        ({"url": f"${{HUB_URL:-https://bob:hush1@h.test/{LONG}}}/mcp"}, "hush1", "${HUB_URL}/mcp"),
        ({"url": f"${{HUB_URL:-https://bob:hush1@h.test/{LONG}}}/mcp"}, LONG, "${HUB_URL}/mcp"),
    ],
)  # fmt: skip
def test_a_secret_is_not_written_wherever_it_is(
    machine: FakeMachine, entry: dict[str, Any], secret: str, written: str
) -> None:
    result = machine.run_on({"mcpServers": {"hub": entry}})
    assert result.exit_code == 0, result.output
    assert secret not in result.output + machine.run_on({"mcpServers": {"hub": entry}}, "--json").output
    (upstream,) = yaml.safe_load(result.stdout)["upstreams"]
    assert not written or written in [
        upstream.get("url"),
        *upstream.get("command", ()),
        *upstream.get("env", {}).values(),
    ]


@requirement("OPS-4")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "docker", "args": ["run", "-p", "8080:80", "-p8080:80", "-u", "1000:1000", "--user", "me:me", "x"]},
        {"command": "uvx", "args": ["--from", f"git+https://h.test/o/r@{'0a' * 20}#subdirectory=src", "server"]},
        {"command": "npx", "args": ["-y", "-p", "@scope/server@1.2.3", "-k", "on", "--mode={'mode':'fast'}", "-port"]},
        {"url": "https://h.test/api/v1/projects/my-project/mcp"},
    ],
)  # fmt: skip
def test_what_is_no_secret_stays_as_it_is(machine: FakeMachine, entry: dict[str, Any]) -> None:
    result = machine.run_on({"mcpServers": {"hub": entry}})
    assert "Set these" not in result.stderr
    (upstream,) = yaml.safe_load(result.stdout)["upstreams"]
    words = [entry["command"], *entry["args"]] if "command" in entry else entry["url"]
    assert upstream.get("command", upstream.get("url")) == words


@requirement("OPS-4")
def test_a_variable_that_is_set_is_not_asked_for_and_a_long_name_is_cut(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    env = {"A": "${HOME}/x", "B": "${NOT_SET}"}
    result = machine.run_on({"mcpServers": {"N" * 5000: {"command": "x", "env": env, "icon": "x"}}})
    assert "N" * 100 not in result.output
    assert "not imported: icon" in result.stdout
    assert result.stderr.partition("Set these")[2].split()[3:5] == ["start:", "NOT_SET"]


@requirement("OPS-4")
def test_one_variable_never_stands_for_two_values(machine: FakeMachine) -> None:
    def server(value: str) -> dict[str, Any]:
        return {"command": "x", "env": {"API_KEY": value}}

    config = {
        "mcpServers": {"a": server("one-1"), "b": server("two-2"), "c": server("one-1"), "d": server("${API_KEY}")}
    }
    used = [revealed(upstream.env | upstream.headers)["API_KEY"] for upstream in machine.taken_of(config).upstreams]
    assert used == ["<A_API_KEY>", "<B_API_KEY>", "<A_API_KEY>", "<API_KEY>"]


def test_a_disabled_server_does_not_need_its_variables(machine: FakeMachine) -> None:
    config = {"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "one-1", "B": "${B}"}, "disabled": True}}}
    path = machine.put("ours.yaml", machine.run_on(config).stdout)
    assert load_settings(path, {}).upstreams[0].enabled is False


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON: line 1"),
        ("[]", "holds no MCP servers"),
        ('[{"a": 1, "a": 2}]', "holds no MCP servers"),
        ('{"editor.fontSize": 12}', "holds no MCP servers"),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_a_file_without_servers_is_an_error_in_one_line(machine: FakeMachine, content: str, message: str) -> None:
    assert message in machine.failure(str(machine.put("x.json", content)))


@requirement("OPS-4")
def test_entries_that_are_no_servers_are_reported_and_the_rest_is_taken_over(machine: FakeMachine) -> None:
    config = """{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}, "b": 5, "c": {},
        "d": {"url": "ftp://x"}, "e": {"command": "x", "args": "y"}}}"""
    result = machine.run_on(config)
    assert result.exit_code == 0
    for line in (
        "given twice, the last counts: a",
        "b: not an object",
        "c: ~/mcp.json: it has neither",
        "d: ~/mcp.json: url must be",
        "e: ~/mcp.json: args is not",
    ):
        assert line in result.stderr
    assert [upstream["command"] for upstream in yaml.safe_load(result.stdout)["upstreams"]] == [["y"]]
    assert machine.run_on({"mcpServers": {"c": {}}}).exit_code == 1


@requirement("OPS-4")
@pytest.mark.parametrize("inputs", [5, "x", [None], {"id": "x"}])
def test_malformed_inputs_are_ignored(machine: FakeMachine, inputs: object) -> None:
    config = {"servers": {"a": {"command": "x", "env": {"KEY": "${input:x}"}}}, "inputs": inputs}
    assert revealed(machine.taken_of(config).upstreams[0].env) == {"KEY": "<X>"}


@requirement("OPS-4")
def test_an_existing_file_is_never_replaced(machine: FakeMachine) -> None:
    config = {"mcpServers": {"a": {"command": "x"}}}
    target = machine.home / "new.yaml"
    assert machine.run_on(config, "--write", str(target)).exit_code == 0
    assert load_settings(target, {}).upstreams[0].name == "a"
    assert "exists already" in machine.failure(str(machine.home / "mcp.json"), "--write", str(target))


@given(st.lists(st.text(max_size=80), max_size=6))
@settings(max_examples=examples(40))
def test_every_name_becomes_a_legal_one_of_its_own(names: list[str]) -> None:
    used: set[str] = set()
    for name in names:
        made = legal_name(name, used)
        assert made not in used
        UpstreamSettings(name=made, command=("x",))
        used.add(made)


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.sampled_from(["${A}", "$B", "http://u:p@h/"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
KEYS = ["command", "args", "env", "url", "headers", "type", "transport", "disabled", "requestOptions", "cwd", "other"]
KEYS += ["timeout", "includeTools", "disabledTools", "tools", "env_vars", "env_http_headers", "bearer_token_env_var"]


@requirement("OPS-4")
@given(
    st.dictionaries(st.text(max_size=10), st.dictionaries(st.sampled_from(KEYS), json_values, max_size=5), max_size=4)
)
@settings(max_examples=examples(40))
def test_any_entry_gives_a_valid_configuration_or_a_note(servers: Any) -> None:
    imported, _ = take_over([ClientServer(name, entry) for name, entry in servers.items()])
    assert len(imported) == len(servers)
    assert all(server.settings is not None or server.notes for server in imported)
    written = yaml.safe_load(as_yaml(imported, "x.json"))
    assert [upstream["name"] for upstream in written["upstreams"]] == [
        s.name for s in imported if s.settings is not None
    ]
