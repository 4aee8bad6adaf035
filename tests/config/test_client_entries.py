"""Servers as MCP clients write them are read as they stand (OPS-61 to OPS-63)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.config.test_settings import fault, load
from tests.support.requirement import requirement
from wicketgate.config.client_entries import legal_name
from wicketgate.config.settings import UpstreamSettings


def only(folder: Path, text: str | dict[str, Any], **environ: str) -> UpstreamSettings:
    (upstream,) = load(folder, text, **environ).upstreams
    return upstream


@requirement("OPS-61")
@pytest.mark.parametrize(
    "entry",
    [
        "{command: npx, args: [-y, foo]}",
        "{command: [npx], args: [-y, foo]}",
        "{command: [npx, -y, foo], args: []}",
        "{command: npx, args: [-y, foo], type: stdio, disabled: false, description: a remark of the client}",
    ],
)
def test_a_command_and_its_arguments_become_one_list(tmp_path: Path, entry: str) -> None:
    upstream = only(tmp_path, f"mcpServers: {{foo: {entry}}}")
    assert (upstream.name, upstream.command, upstream.enabled) == ("foo", ("npx", "-y", "foo"), True)


@requirement("OPS-61")
def test_both_spellings_stand_side_by_side_and_their_order_is_that_of_the_file(tmp_path: Path) -> None:
    text = """
upstreams:
  - {name: time, command: mcp-server-time, args: [--local-timezone=UTC], env: {A: "${A}"}, timeout_s: 5}
  - {name: api, openapi: x.yaml}
mcpServers:
  git: {command: uvx, args: [mcp-server-git], disabled: true, cwd: /repo}
  web: {type: http, url: "https://x.example/mcp", headers: {Authorization: "Bearer ${env:TOKEN}"}}
"""
    time, api, git, web = load(tmp_path, text, A="1", TOKEN="t").upstreams
    assert (time.command, time.timeout_s, api.openapi) == (("mcp-server-time", "--local-timezone=UTC"), 5, "x.yaml")
    assert (git.command, git.enabled, git.cwd) == (("uvx", "mcp-server-git"), False, "/repo")
    assert (web.url, web.transport) == ("https://x.example/mcp", "http")
    assert web.headers["Authorization"].get_secret_value() == "Bearer t"


@requirement("OPS-61")
def test_the_file_of_a_client_is_a_configuration(tmp_path: Path) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "x y.exe", "args": []}, "b": {"serverUrl": "https://b/mcp"}}})
    first, second = load(tmp_path, text).upstreams
    assert (first.command, second.url) == (("x y.exe",), "https://b/mcp")


@requirement("OPS-62")
@pytest.mark.parametrize(
    ("entry", "url", "transport"),
    [
        ("{url: 'https://x/mcp'}", "https://x/mcp", "http"),
        ("{type: streamable-http, url: 'https://x/mcp'}", "https://x/mcp", "http"),
        ("{type: sse, url: 'https://x/events'}", "https://x/events", "sse"),
        ("{transport: sse, url: 'https://x/events'}", "https://x/events", "sse"),
        ("{url: 'https://x/sse?a=b'}", "https://x/sse?a=b", "sse"),
        ("{type: http, url: 'https://x/sse'}", "https://x/sse", "http"),
        ("{httpUrl: 'https://x/mcp'}", "https://x/mcp", "http"),
        ("{serverUrl: 'https://x/mcp'}", "https://x/mcp", "http"),
    ],
)
def test_words_of_clients_for_urls_and_transports_are_understood(
    tmp_path: Path, entry: str, url: str, transport: str
) -> None:
    upstream = only(tmp_path, f"mcpServers: {{x: {entry}}}")
    assert (upstream.url, upstream.transport) == (url, transport)


@requirement("OPS-62")
def test_our_own_url_is_taken_at_its_word(tmp_path: Path) -> None:
    assert only(tmp_path, "upstreams: [{name: a, url: 'https://x/sse'}]").transport == "http"


@requirement("OPS-63")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "mcpServers: {My Server: {command: x}}",
            "mcpServers.My Server: this name cannot be the namespace of tools; write my-server",
        ),
        (
            "{upstreams: [{name: a, command: x}], mcpServers: {a: {command: y}}}",
            "mcpServers.a: upstreams[0] has this name too; rename one of them",
        ),
        (
            "mcpServers: {a: {command: npx -y foo --token=hush}}",
            "mcpServers.a.command: one text with blanks is not split into words; write a list: [npx, ..., ..., ...]",
        ),
        (
            "mcpServers: {a: {command: '/opt/my server/run'}}",
            "mcpServers.a.command: one text with blanks is not split into words; write a list: [..., ...]",
        ),
        ("mcpServers: {a: {command: x, args: -y}}", "mcpServers.a.args: must be a list, one word each"),
        (
            "mcpServers: {a: {command: x, args: [y, 8080]}}",
            "mcpServers.a.args[1]: must be text; put it in quotes",
        ),
        (
            "mcpServers: {a: {url: 'http://x', args: [y]}}",
            "mcpServers.a.args: belongs to command, the program to start, and there is none",
        ),
        ("mcpServers: {a: {command: ' '}}", "mcpServers.a: command starts with an empty word"),
        (
            "mcpServers: {a: {serverUrl: localhost}}",
            "mcpServers.a.serverUrl: must be an http:// or https:// URL with a host",
        ),
        (
            "mcpServers: {a: {url: 'http://x', httpUrl: 'http://y'}}",
            "mcpServers.a.httpUrl: says the same as url; give one of them",
        ),
        ("mcpServers: {a: {type: websocket, url: 'http://x'}}", "mcpServers.a.type: must be stdio, http or sse"),
        (
            "mcpServers: {a: {type: stdio, url: 'http://x'}}",
            "mcpServers.a.type: such a server is started: give command, not url",
        ),
        ("mcpServers: {a: {type: sse, command: x}}", "mcpServers.a.type: sse belongs to url, not to command"),
        (
            "mcpServers: {a: {type: http, transport: sse, url: 'http://x'}}",
            "mcpServers.a.type: and transport differ; give one of them",
        ),
        (
            "mcpServers: {a: {command: x, disabled: true, enabled: true}}",
            "mcpServers.a.disabled: must be true or false, without enabled beside it",
        ),
        (
            "mcpServers: {a: {command: x, name: b}}",
            "mcpServers.a.name: the key above is the name already; leave this one out",
        ),
        ("mcpServers: {a: npx}", "mcpServers.a: must be a section with keys"),
        (
            "mcpServers: [{name: a, command: x}]",
            "mcpServers: must be a section with a name for each server: time: {command: ...}",
        ),
        (
            "mcpServers: {a: {command: x, timeout: 30}}",
            (
                "mcpServers.a.timeout: unknown key; some clients count it in seconds, some in milliseconds; write "
                "timeout_s, in seconds"
            ),
        ),
        (
            "mcpServers: {a: {command: x, disabledTools: [y]}}",
            (
                "mcpServers.a.disabledTools: unknown key; the plugin tool_manager switches tools off: "
                "plugins.middleware, mode: denylist"
            ),
        ),
        (
            "mcpServers: {a: {command: x, alwaysAllow: [y]}}",
            (
                "mcpServers.a.alwaysAllow: unknown key; it is the client's own approval; remove it. The gate uses "
                "rules under access:"
            ),
        ),
        (
            "mcpServers: {a: {command: x, env: {PORT: 8080}}}",
            "mcpServers.a.env.PORT: must be text; put it in quotes",
        ),
        (
            "mcpServers: {a: {command: x, env: {TOKEN: '${input:token}'}}}",
            "mcpServers.a.env.TOKEN: this is how another program writes a variable; write ${NAME}, and set NAME",
        ),
    ],
)
def test_what_cannot_be_taken_is_named_as_the_user_wrote_it(tmp_path: Path, text: str, message: str) -> None:
    assert fault(tmp_path, text) == f"Invalid configuration: {message}"


@requirement("OPS-61")
def test_the_same_servers_read_again_keep_their_sessions(tmp_path: Path) -> None:
    before = only(tmp_path, "mcpServers: {a: {command: npx, args: [-y, foo]}}")
    after = only(tmp_path, "upstreams: [{name: a, command: [npx, -y, foo], timeout_s: 5}]")
    assert after.same_session(before)


def test_any_name_can_be_made_legal_and_is_unused() -> None:
    assert [legal_name(name) for name in ("My Server", "9lives", "a__b_", "é")] == [
        "my-server", "server-9lives", "a_b", "server",
    ]  # fmt: skip
    assert legal_name("A", {"a", "a-2"}) == "a-3"
