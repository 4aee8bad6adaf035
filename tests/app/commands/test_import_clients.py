"""The forms of the clients, their timeouts and their switches (OPS-83 to OPS-85)."""

import re
import sys
from pathlib import Path

import pytest

from tests.app.commands.machine import FakeMachine, off_tools, revealed
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.gate import Gate
from wicketgate.ports import CallContext

SECRET = "abc123secret"
ECHO = [sys.executable, "-m", "tests.support.echo_server"]
ROOT = str(Path(__file__).resolve().parents[3])


def by_name(settings: Settings) -> dict[str, UpstreamSettings]:
    return {upstream.name: upstream for upstream in settings.upstreams}


@requirement("OPS-83", "OPS-84", "OPS-85")
def test_codex(machine: FakeMachine) -> None:
    machine.put(
        ".codex/config.toml",
        f"""
        model = "gpt-5"
        [mcp_servers.GitHub]
        command = "npx"
        args = ["-y", "@x/github"]
        cwd = "/srv"
        env = {{ LOG_LEVEL = "debug", API_KEY = "{SECRET}" }}
        env_vars = ["PATH_TO_X", {{ name = "OTHER", source = "local" }}]
        enabled_tools = ["read", "write", "drop"]
        disabled_tools = ["drop"]
        startup_timeout_sec = 20.0
        tool_timeout_sec = 90.5
        [mcp_servers.GitHub.tools.read]
        approval_mode = "approve"
        [mcp_servers.figma]
        url = "https://mcp.figma.test/mcp"
        bearer_token_env_var = "FIGMA_TOKEN"
        http_headers = {{ "X-Region" = "us", "X-Key" = "{SECRET}" }}
        env_http_headers = {{ "X-Org" = "ORG" }}
        startup_timeout_ms = 30000
        disabled_tools = ["rm"]
        [mcp_servers.off]
        command = "x"
        enabled = false
        """,
    )
    result = machine.run("codex")
    assert SECRET not in result.output
    assert "github: not imported: tools" in result.stderr
    settings = machine.taken("codex", PATH_TO_X="/x", OTHER="y")
    github, figma, off = settings.upstreams
    assert (github.name, github.command, github.cwd) == ("github", ("npx", "-y", "@x/github"), "/srv")
    assert revealed(github.env) == {
        "LOG_LEVEL": "debug",
        "API_KEY": "<API_KEY>",
        "PATH_TO_X": "/x",
        "OTHER": "y",
    }
    assert (github.connect_timeout_s, github.timeout_s) == (20, 90.5)
    assert revealed(figma.headers) == {
        "X-Region": "us",
        "X-Key": "<FIGMA_X_KEY>",
        "X-Org": "<ORG>",
        "Authorization": "Bearer <FIGMA_TOKEN>",
    }
    assert figma.connect_timeout_s == 30
    assert off.enabled is False
    assert off_tools(settings, "github") == [("allowlist", ["read", "write"])]
    assert off_tools(settings, "figma") == [("denylist", ["rm"])]


@requirement("OPS-83")
def test_a_fault_in_toml_is_shown_with_its_line(machine: FakeMachine) -> None:
    path = machine.put("config.toml", "[mcp_servers.a]\ncommand = \n")
    assert re.search("is not TOML: .*line 2", machine.failure(str(path)))


@requirement("OPS-83", "OPS-84", "OPS-85")
@pytest.mark.parametrize("name", [".config/opencode/opencode.json", "work/opencode.jsonc", "some.jsonc"])
def test_opencode(machine: FakeMachine, name: str) -> None:
    path = machine.put(
        name,
        """{ // comments, and commas at the end
        "mcp": {
          "ev.x": {"type": "local", "command": ["npx", "-y", "ev"], "environment": {"A_KEY": "{env:B_KEY}"},
                   "enabled": true, "timeout": 120000},
          "far": {"type": "remote", "url": "https://r.test/mcp", "headers": {"X-Key": "abc123secret"}, "timeout": 5000},
          "off": {"type": "local", "command": ["x"], "enabled": false},
          "none": {"type": "local", "command": ["y"]},
          "few": {"type": "local", "command": ["z"]},
        },
        "tools": {"ev_x_delete": false, "ev_x_write*": false, "none*": false, "few_*": false, "few_read": true,
                  "bash": false},
        "permission": {"far_rm": "deny", "far_ls": "ask", "edit": {"*": "deny"}},
        }""",
    )
    words = (str(path),) if name == "some.jsonc" else ("opencode",)
    assert SECRET not in machine.run(*words).output
    settings = machine.taken(*words)
    found = by_name(settings)
    assert found["ev-x"].command == ("npx", "-y", "ev")
    assert revealed(found["ev-x"].env) == {"A_KEY": "<B_KEY>"}
    # Its timeout bounds the start too; 5 s would be too short for that.
    assert (found["ev-x"].timeout_s, found["ev-x"].connect_timeout_s) == (120, 120)
    assert (found["far"].url, found["far"].timeout_s) == ("https://r.test/mcp", 5)
    assert found["far"].connect_timeout_s == UpstreamSettings(name="a", url="https://r.test/mcp").connect_timeout_s
    assert [found[each].enabled for each in ("far", "off", "none", "few")] == [True, False, False, True]
    assert off_tools(settings, "ev-x") == [("denylist", ["delete", "write*"])]
    assert off_tools(settings, "far") == [("denylist", ["rm"])]
    assert off_tools(settings, "few") == [("allowlist", ["read"])]


@requirement("OPS-83", "OPS-85")
def test_opencode_of_the_second_version(machine: FakeMachine) -> None:
    servers = {
        "a": {"type": "local", "command": ["x", "y"], "timeout": {"startup": 90_000, "request": 20_000}},
        "b": {"type": "remote", "url": "https://b.test/mcp", "disabled": True},
    }
    machine.put("work/opencode.json", {"mcp": {"timeout": {"request": 7000}, "servers": servers}})
    first, second = machine.taken("opencode").upstreams
    assert (first.command, first.connect_timeout_s, first.timeout_s) == (("x", "y"), 90, 20)
    assert (second.enabled, second.timeout_s) == (False, 7)


@requirement("OPS-83", "OPS-85")
def test_continue_keeps_a_file_for_each_server(machine: FakeMachine) -> None:
    machine.put(
        ".continue/config.yaml", "models: []\nmcpServers: [{name: one, command: a, connectionTimeout: 30000}]\n"
    )
    machine.put(".continue/mcpServers/two.yaml", "name: Two\nschema: v1\nmcpServers: [{name: two, command: b}]\n")
    machine.put("work/.continue/mcpServers/three.json", {"mcpServers": {"three": {"command": "c"}}})
    found = by_name(machine.taken("continue"))
    assert {upstream.command[0] for upstream in found.values()} == {"a", "b", "c"}
    assert found["one"].connect_timeout_s == 30


@requirement("OPS-84", "OPS-85")
def test_gemini(machine: FakeMachine) -> None:
    servers = {
        "a": {
            "httpUrl": "https://a.test/mcp",
            "timeout": 30000,
            "trust": False,
            "allowedTools": ["x", "y(one)", "z"],
            "includeTools": None,
            "excludeTools": ["z"],
        },
        "b": {"command": "b", "excludeTools": ["q"], "trust": True},
        "c": {"command": "c", "includeTools": []},
        "off": {"command": "d"},
    }
    machine.put(".gemini/settings.json", {"theme": "x", "mcp": {"excluded": ["off"]}, "mcpServers": servers})
    result = machine.run("gemini")
    assert "b: not imported: trust" in result.stderr
    assert "a: not imported" not in result.stderr
    settings = machine.taken("gemini")
    assert [upstream.enabled for upstream in settings.upstreams] == [True, True, True, False]
    assert settings.upstreams[0].timeout_s == 30
    assert off_tools(settings, "a") == [("allowlist", ["x", "y"])]
    assert off_tools(settings, "b") == [("denylist", ["q"])]
    assert off_tools(settings, "c") == [("allowlist", [])]
    machine.put(".gemini/settings.json", {"mcp": {"allowed": ["a"]}, "mcpServers": servers})
    assert [upstream.enabled for upstream in machine.taken("gemini").upstreams] == [True, False, False, False]


@requirement("OPS-84", "OPS-85")
def test_windsurf_and_cline(machine: FakeMachine) -> None:
    windsurf = {"a": {"serverUrl": "https://a.test/mcp", "disabledTools": ["rm", "${HOME}"], "disabled": False}}
    machine.put(".codeium/windsurf/mcp_config.json", {"mcpServers": windsurf})
    settings = machine.taken("windsurf")
    assert off_tools(settings, "a") == [("denylist", ["rm", "*HOME}"])]
    cline = {"a": {"command": "x", "timeout": 1800, "autoApprove": ["q"], "alwaysAllow": ["q"], "disabled": True}}
    path = machine.put(
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", {"mcpServers": cline}
    )
    assert "a: not imported: alwaysAllow, autoApprove" in machine.run("cline").stderr
    (upstream,) = machine.taken(str(path)).upstreams
    assert (upstream.enabled, upstream.timeout_s) == (False, 1800)


@requirement("OPS-83")
@pytest.mark.parametrize(
    ("name", "entry", "transport"),
    [
        ("cline_mcp_settings.json", {"url": "https://a.test/mcp"}, "sse"),
        ("cline_mcp_settings.json", {"url": "https://a.test/mcp", "type": "streamableHttp"}, "http"),
        (".gemini/settings.json", {"url": "https://a.test/events"}, "sse"),
        (".gemini/settings.json", {"url": "https://a.test/mcp"}, "http"),
        (".gemini/settings.json", {"httpUrl": "https://a.test/x"}, "http"),
        (".gemini/settings.json", {"url": "https://a.test/x", "type": "http"}, "http"),
        (".cursor/mcp.json", {"url": "https://a.test/sse"}, "sse"),
        (".cursor/mcp.json", {"url": "https://a.test/x"}, "http"),
    ],
)
def test_a_url_without_a_type_means_what_the_client_means(
    machine: FakeMachine, name: str, entry: dict[str, str], transport: str
) -> None:
    path = machine.put(name, {"mcpServers": {"a": entry}})
    assert machine.taken(str(path)).upstreams[0].transport == transport


@requirement("OPS-84")
def test_claude_code_has_its_switches_in_other_files(machine: FakeMachine) -> None:
    servers = {name: {"command": name} for name in ("a", "b", "b__c", "d", "e")}
    machine.put("work/.mcp.json", {"mcpServers": servers})
    machine.put(".claude/settings.json", {"permissions": {"deny": ["mcp__a__rm", "mcp__a__put_*", "mcp__b", "Bash"]}})
    machine.put("work/.claude/settings.local.json", {"disabledMcpjsonServers": ["d"]})
    machine.put(".claude.json", {"projects": {str(machine.project): {"disabledMcpjsonServers": ["e"]}}})
    settings = machine.taken("claude-code")
    assert [(each.name, each.enabled) for each in settings.upstreams] == [
        ("a", True),
        ("b", False),
        ("b_c", True),
        ("d", False),
        ("e", False),
    ]
    assert off_tools(settings, "a") == [("denylist", ["rm", "put_*"])]
    assert off_tools(settings, "b_c") == []


@requirement("OPS-85")
@pytest.mark.parametrize(
    ("name", "timeout", "seconds", "note"),
    [
        (".claude.json", 30_000, 30, ""),
        (".claude.json", 500, None, "from 1 to 86400 seconds"),
        (".config/zed/settings.json", 90, 90, ""),
        (".gemini/settings.json", 1_600, 1.6, ""),
        (".gemini/settings.json", 600_000_000, None, "from 1 to 86400 seconds"),
        (".cursor/mcp.json", 60, None, "could be seconds or milliseconds"),
        (".config/zed/settings.json", "60", None, "from 1 to 86400 seconds"),
        (".config/zed/settings.json", True, None, "from 1 to 86400 seconds"),
    ],
)
def test_each_client_has_its_unit(
    machine: FakeMachine, name: str, timeout: object, seconds: float | None, note: str
) -> None:
    key = "context_servers" if "zed" in name else "mcpServers"
    path = machine.put(name, {key: {"a": {"command": "x", "timeout": timeout}}})
    result = machine.run(str(path))
    assert note in result.stderr
    assert ("timeout" in result.stderr) == bool(note)
    assert machine.taken(str(path)).upstreams[0].timeout_s == seconds


@requirement("OPS-85")
def test_infinity_is_no_timeout(machine: FakeMachine) -> None:
    path = machine.put("x.toml", '[mcp_servers.a]\ncommand = "x"\ntool_timeout_sec = inf\nstartup_timeout_sec = nan\n')
    assert "tool_timeout_sec is not imported" in machine.run(str(path)).stderr
    assert machine.taken(str(path)).upstreams[0].timeout_s is None


@requirement("OPS-84")
@pytest.mark.parametrize("given", [5, {"a": True}, True])
@pytest.mark.parametrize("key", ["includeTools", "excludeTools"])
def test_a_choice_that_cannot_be_read_leaves_no_tool_on(machine: FakeMachine, key: str, given: object) -> None:
    path = machine.put("x.json", {"mcpServers": {"a": {"command": "x", key: given}}})
    assert "all its tools stay disabled" in machine.run(str(path)).stderr
    expected = ("allowlist", []) if key == "includeTools" else ("denylist", ["*"])
    assert off_tools(machine.taken(str(path)), "a") == [expected]


async def called(gate: Gate, upstream: str, tool: str) -> tuple[bool, str]:
    """Is the tool in the catalog, and what comes of a call by its name?"""
    context = CallContext(Identity("me", ("*",)), "trace", "session")
    listed = [
        item for item in gate.runtime.catalog().items.values() if (item.server, item.upstream_name) == (upstream, tool)
    ]
    tool_id = listed[0].id if listed else f"{upstream}:{tool}"
    answer = await gate.surface.call("tool_execute", {"tool_id": tool_id, "args": {}}, context)
    return bool(listed), str(answer.structured.get("status") or answer.structured.get("error"))


@requirement("OPS-84", "OPS-4")
async def test_a_tool_that_was_off_cannot_be_called_and_the_rest_can(machine: FakeMachine) -> None:
    toml = f'[mcp_servers.a]\ncommand = "{ECHO[0]}"\nargs = ["-m", "{ECHO[2]}", "a"]\ncwd = "{ROOT}"\n'
    machine.put(".codex/config.toml", f'{toml}enabled_tools = ["pid", "die"]\ndisabled_tools = ["die"]\n')
    opencode = {"c": {"type": "local", "command": [*ECHO, "c"], "cwd": ROOT}}
    machine.put(
        "work/opencode.json", {"mcp": opencode, "tools": {"c_*": False, "c_pid": True, "c_e*": True, "c_ec*": False}}
    )
    settings = machine.taken()
    assert [upstream.name for upstream in settings.upstreams] == ["a", "c"]
    async with Gate(settings) as gate:
        await gate.wait_ready()
        assert await called(gate, "a", "pid") == (True, "ok")
        assert await called(gate, "a", "die") == (False, "HYDRATE_FAILED")
        assert await called(gate, "a", "environment") == (False, "HYDRATE_FAILED")
        assert await called(gate, "c", "environment") == (True, "ok")
        assert await called(gate, "c", "echo") == (False, "HYDRATE_FAILED")
        assert await called(gate, "c", "die") == (False, "HYDRATE_FAILED")
        assert await called(gate, "c", "pid") == (True, "ok")
