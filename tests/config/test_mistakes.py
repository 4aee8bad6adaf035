"""Mistakes in a configuration, each with the whole message that a person gets (OPS-64 to OPS-67).

A row is the file, the variables if it needs some, and the message without its beginning ``Invalid configuration: ``;
FILE stands for the path. Values that may be secrets are called hush here, and stand in no message.
"""
# ruff: noqa: E501

from pathlib import Path

import pytest

from tests.support.requirement import requirement
from wicketgate.config.settings_file import load_settings
from wicketgate.errors import ConfigError

MISTAKES: dict[str, str] = {
    "modle: {provider: scripted}": "modle: unknown key; did you mean model?",
    "port: 9090": "port: unknown key; did you mean server.port?",
    "log_level: debug": "log_level: unknown key; did you mean server.log_level?",
    "timeout_s: 5": "timeout_s: unknown key; did you mean upstreams[].timeout_s?",
    "servers: {a: {command: x}}": "servers: unknown key; list servers under upstreams:, or in the form of MCP clients under mcpServers:",
    "mcp_servers: {a: {command: x}}": "mcp_servers: unknown key; did you mean mcpServers?",
    "context_servers: {a: {command: x}}": "context_servers: unknown key; list servers under upstreams:, or in the form of MCP clients under mcpServers:",
    "tools: []": "tools: unknown key; tools come from servers, which are listed under upstreams: or mcpServers:",
    "server: {prot: 1}": "server.prot: unknown key; did you mean port?",
    "server: {logLevel: debug}": "server.logLevel: unknown key; did you mean log_level?",
    "server: {log-level: debug}": "server.log-level: unknown key; did you mean log_level?",
    "server: {face: gateway}": "server.face: unknown key; did you mean mcp.face?",
    "server: {port: many}": "server.port: must be a whole number",
    "server: {port: 70000}": "server.port: must be at most 65535",
    "server: {port: 80.5}": "server.port: must be a whole number",
    "server: {port: }": "server.port: it has no value; give one, or remove the key",
    "server: {max_body_bytes: 10MB}": "server.max_body_bytes: must be a whole number of bytes, without a unit",
    "server: {max_body_bytes: 10}": "server.max_body_bytes: must be at least 1,024 bytes",
    "server: {drain_s: 5s}": "server.drain_s: must be a number of seconds, without a unit",
    "server: {drain_s: -1}": "server.drain_s: must be at least 0 seconds",
    "server: {start_deadline_s: 0}": "server.start_deadline_s: must be more than 0 seconds",
    "server: {log_level: warn}": "server.log_level: must be debug, info, warning or error; did you mean warning?",
    "server: {log_level: LOUD}": "server.log_level: must be debug, info, warning or error",
    "server: {host: 0.0.0.0}": "auth.keys is empty, so server.host must be a loopback address; make a key with: wicketgate key new",
    "server: {trusted_proxies: 10.0.0.0/8}": "server.trusted_proxies: must be a list, in [brackets] or with '- ' before each entry",
    "server: [port]": "server: must be a section with keys",
    "server:\n": "server: it has no value; give one, or remove the key",
    "upstreams: {time: {command: x}}": "upstreams: must be a list, each entry with '- name:'; servers by name belong under mcpServers:",
    "upstreams: [time]": "upstreams[0]: must be a section with keys",
    "upstreams: [{command: x}]": "upstreams[0].name: is missing: it becomes the namespace of the tools",
    "upstreams: [{name: My Server, command: x}]": "upstreams[0].name: must be lower-case letters, digits, - and _, a letter first: my-server",
    "upstreams: [{name: a__b, command: x}]": "upstreams[0].name: must not contain '__' or end in '_': clients address tools as 'name__tool'",
    "upstreams: [{name: a, command: x}, {name: a, command: y}]": "upstreams: the name 'a' is used twice",
    "upstreams: [{name: a, command: x, url: 'http://x'}]": "upstreams[0]: give exactly one of command, url, openapi and python; here are command and url",
    "upstreams: [{name: a}]": "upstreams[0]: give exactly one of command, url, openapi and python; here is none",
    "upstreams: [{name: a, command: npx -y foo}]": "upstreams[0].command: one text with blanks is not split into words; write a list: [npx, ..., ...]",
    "upstreams: [{name: a, cmd: x}]": "upstreams[0].cmd: unknown key; did you mean command?",
    "upstreams: [{name: a, commands: x}]": "upstreams[0].commands: unknown key; did you mean command?",
    "upstreams: [{name: a, uri: 'http://x'}]": "upstreams[0].uri: unknown key; did you mean url?",
    "upstreams: [{name: a, url: localhost:9000/mcp}]": "upstreams[0]: url must be an http:// or https:// URL with a host",
    "upstreams: [{name: a, command: x, timeout: 30}]": "upstreams[0].timeout: unknown key; some clients count it in seconds, some in milliseconds; write timeout_s, in seconds",
    "upstreams: [{name: a, command: x, timeout_s: 30s}]": "upstreams[0].timeout_s: must be a number of seconds, without a unit",
    "upstreams: [{name: a, command: x, timeot_s: 30}]": "upstreams[0].timeot_s: unknown key; did you mean timeout_s?",
    "upstreams: [{name: a, command: x, connect_timeout: 30}]": "upstreams[0].connect_timeout: unknown key; did you mean connect_timeout_s, in seconds?",
    "upstreams: [{name: a, command: x, enabled: maybe}]": "upstreams[0].enabled: must be true or false",
    "upstreams: [{name: a, command: x, env: {PORT: 8080}}]": "upstreams[0].env.PORT: must be text; put it in quotes",
    "upstreams: [{name: a, command: x, env: [A=b]}]": "upstreams[0].env: must be a section with keys",
    "upstreams: [{name: a, command: x, headers: {A: b}}]": "upstreams[0]: headers belongs to url and openapi, not to command",
    "upstreams: [{name: a, url: 'http://x', headers: {Authorization: $TOKEN}}]": "upstreams[0].headers.Authorization: to read the environment variable TOKEN, write ${TOKEN}",
    "upstreams: [{name: a, url: 'http://x', headers: {Authorization: '${TOKEN}'}}]": "upstreams[0].headers.Authorization: the environment variable TOKEN is not set (${TOKEN:-default} gives a default)",
    "upstreams: [{name: a, url: 'http://x', headers: {Authorization: '${{ secrets.TOKEN }}'}}]": "upstreams[0].headers.Authorization: this is how another program writes a variable; write ${NAME}, and set NAME",
    "upstreams: [{name: a, url: 'http://x', transport: streamable}]": "upstreams[0].transport: must be http or sse",
    "upstreams: [{name: a, python: 'my-module:tools'}]": "upstreams[0].python: must be package.module:name, the module and its registry or function, or the module alone",
    "upstreams: [{name: a, command: x, tool_manager: {}}]": "upstreams[0].tool_manager: unknown key",
    "model: {provider: openai}": "model.provider: must be scripted, openai-chat or anthropic-messages; did you mean openai-chat?",
    "model: {provider: claude}": "model.provider: must be scripted, openai-chat or anthropic-messages; did you mean anthropic-messages?",
    "model: {provider: openai-chat, model: m}": "model: base_url is missing; openai-chat needs https://api.openai.com/v1, or the URL of your server",
    "model: {provider: anthropic-messages, model: m}": "model: base_url is missing; anthropic-messages needs https://api.anthropic.com, or the URL of your server",
    "model: {provider: openai-chat, base_url: 'https://x/v1'}": "model: model is required: the provider's name of the model",
    "model: {base_url: 'https://x/v1', model: m}": "model: provider is missing: openai-chat (any server of chat completions) or anthropic-messages",
    "model: {provider: scripted, apiKey: hush}": "model.apiKey: unknown key; did you mean api_key?",
    "model: {provider: scripted, url: 'http://x'}": "model.url: unknown key; did you mean base_url?",
    "model: {provider: scripted, name: x}": "model.name: unknown key; did you mean model?",
    "model: {provider: scripted, temperature: 0}": "model.temperature: unknown key; a field of requests belongs under extra: {temperature: ...}",
    "model: {provider: scripted, timeout: 5}": "model.timeout: unknown key; use first_event_timeout_s or idle_timeout_s",
    "auth: {keys: [{id: a, sha256: wg_a_hush, actor: x}]}": "auth.keys[0].sha256: this is a key, not its SHA-256; wicketgate key new prints the hash with each key",
    "auth: {keys: [{id: a, sha256: hush-hush, actor: x}]}": "auth.keys[0].sha256: must be the SHA-256 of a key, 64 hex digits; wicketgate key new prints a key and its entry",
    "auth: {keys: [{id: a, sha256: 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', actor: x}]}": "auth.keys[0].sha256: must be 64 hex digits in lower case",
    "auth: {keys: [{id: a, key: wg_a_hush, actor: x}]}": "auth.keys[0].sha256: is missing; wicketgate key new prints a whole entry\nauth.keys[0].key: unknown key; a configuration has the sha256 of a key, never the key; wicketgate key new prints both",
    "auth: {keys: [{id: A, sha256: '0000000000000000000000000000000000000000000000000000000000000000', actor: x}]}": "auth.keys[0].id: must be lower-case letters, digits and hyphens, at most 32, no hyphen first",
    "auth: {keys: [{id: a, sha256: '0000000000000000000000000000000000000000000000000000000000000000', actor: 'a b'}]}": "auth.keys[0].actor: must be letters, digits and ._@:/-, at most 128, a letter or digit first",
    "auth: {keys: [{id: a, sha256: '0000000000000000000000000000000000000000000000000000000000000000', actor: x, permissions: 'tools:*'}]}": "auth.keys[0].permissions: must be a list, in [brackets] or with '- ' before each entry",
    "auth: {keys: [{id: a, sha256: '0000000000000000000000000000000000000000000000000000000000000000', actor: x, expires_at: tomorrow}]}": "auth.keys[0].expires_at: must be a time as in ISO 8601, with its zone: 2027-01-31T00:00:00Z",
    "auth: {keys: wg_a_hush}": "auth.keys: must be a list, in [brackets] or with '- ' before each entry",
    "auth: {key: wg_a_hush}": "auth.key: unknown key; did you mean keys?",
    "access: [{tool: 'a:*'}]": "access[0].match: is missing\naccess[0].tool: unknown key; did you mean match?",
    "access: [{match: 'a:*', effect: block}]": "access[0].effect: must be allow or deny; did you mean deny?",
    "access: [{match: 'a:*', approval: true}]": "access[0].approval: must be never or always; did you mean always?",
    "access: [{match: 'a:*', approval: {by: lead}}]": "access[0].approval.by: must be caller, role:<role>, permission:<permission> or actor:<actor>",
    "access: [{match: 'a:*', approval: {by: 'actor:ann', count: 2}}]": "access[0].approval: count: one actor cannot approve twice; name a role or a permission",
    "access: [{match: 'a:*', approval: {by: 'role:lead', cuont: 2}}]": "access[0].approval.cuont: unknown key; did you mean count?",
    "access_default: maybe": "access_default: must be allow or deny",
    "storage: {url: var/x.db}": "storage.url: must be memory:// or a file (sqlite:///var/wicketgate.db) or a Redis (redis://localhost:6379)",
    "plugins: {security: {github: [{handler: x}]}}": "plugins.security.github: there is no upstream of this name",
    "plugins: {security: [{handler: x}]}": "plugins.security: must be a section with keys",
    "quota: {per_actor: many}": "quota.per_actor: must be a whole number",
    "mcp: {face: strict}": "mcp.face: must be gateway, transparent, registry or namespaced; did you mean gateway?",
    "mcp: {allowed_hosts: [x]}": "mcp.allowed_hosts: unknown key; did you mean server.allowed_hosts?",
    "engine: {foo: 1}": "engine.foo: unknown key; known here: max_iterations, tool_timeout_s, loop_guard, max_streams, max_streams_per_actor, heartbeat_s, on_disconnect, resume",
    "server:\n\tport: 1": "In the configuration file FILE, line 2, column 1: not valid YAML: a tab; indent with blanks only",
    "server:\n  port: 1\n\thost: x": "In the configuration file FILE, line 3, column 1: not valid YAML: a tab; indent with blanks only",
    "server:\n  port: 1\n host: x": "In the configuration file FILE, line 3, column 2: not valid YAML: this line is not indented as those before it, or a quoted text has ended early",
    "upstreams:\n  - name: a\n    command: x\n   url: y": "In the configuration file FILE, line 4, column 4: not valid YAML: this line is not indented as the entries before it",
    "server: port: 1": "In the configuration file FILE, line 1, column 13: not valid YAML: a second ': ' in one line; begin a new line below the key, or quote the text",
    "server: {port: 1": "In the configuration file FILE, line 1, column 17: not valid YAML: a comma is missing, or the bracket of line 1 is not closed",
    "upstreams: [{name: a, command: [x}]": "In the configuration file FILE, line 1, column 34: not valid YAML: a comma is missing, or the bracket of line 1 is not closed",
    "access: [{match: *:delete}]": "In the configuration file FILE, line 1, column 19: not valid YAML: a text that begins with * or & needs quotes",
    "model:\n  api_key: 'hush": "In the configuration file FILE, line 2, column 12: not valid YAML: the quoted text that begins here does not end",
    'upstreams: [{name: a, command: ["C:\\d"]}]': "In the configuration file FILE, line 1, column 36: not valid YAML: in double quotes a backslash begins an escape; put the text in single quotes",
    "server:\n  port: 1\nserver:\n  host: x": "In the configuration file FILE, line 3, column 1: the key 'server' is given twice: line 1 has it too; put what stands under both under that one",
    "model:\n  api_key: @hush": "In the configuration file FILE, line 2, column 12: not valid YAML: a text that begins with this character needs quotes",
    "just words": "The configuration file FILE must hold sections such as 'server:' and 'upstreams:'",
    "- a": "The configuration file FILE must hold sections such as 'server:' and 'upstreams:'",
    "a: !include x": "In the configuration file FILE, line 1, column 4: tags such as '!name' are not read",
    "a: 1\n---\nb: 2": "In the configuration file FILE, line 2, column 1: a second document",
    "server:\n  port\n": "server: must be a section with keys",
    "server: {port: 1}\u0001": "In the configuration file FILE, line 1, column 18: not valid YAML: a control character",
    "model: {sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEF: x}": "model.[redacted]: unknown key; known here: provider, base_url, model, api_key, context_tokens, max_tokens, dialect, extra, prices, answer_tokens, first_event_timeout_s, idle_timeout_s, attempts, fallbacks",
    "model: {provider: scripted, fallbacks: [{provider: scripted}]}": "model.fallbacks[0].provider: must be openai-chat or anthropic-messages",
    "a: 1\n b: 2": "In the configuration file FILE, line 2, column 3: not valid YAML: this line is not indented as the one before it, or that one lacks its ': '",
    "mcpservers: {a: {command: x}}": "mcpservers: unknown key; did you mean mcpServers?",
    "catalog: {}": "catalog: unknown key; known here: server, auth, model, engine, mcp, tasks, code_mode, browse, network, storage, quota, spending, pins, plugins, access, access_default, gates, flow, sandbox, upstreams, mcpServers",
    "upstreams: [{name: a, command: x, env: {TOKEN: [hush]}}]": "upstreams[0].env.TOKEN: must be one text",
    "from_file: x": "from_file: unknown key",
}

OF_VARIABLES: list[tuple[str, dict[str, str], str]] = [
    (
        "upstreams: [{name: a, url: 'http://x', headers: {Authorization: '${TOKE}'}}]",
        {"TOKEN": "t"},
        "upstreams[0].headers.Authorization: the environment variable TOKE is not set (did you mean TOKEN? ${TOKE:-default} gives a default)",
    ),
    (
        "",
        {"WICKETGATE_SEVER__PORT": "1"},
        "WICKETGATE_SEVER__PORT: sever: unknown key; did you mean WICKETGATE_SERVER__PORT?",
    ),
    (
        "",
        {"WICKETGATE_SERVER__PROT": "1"},
        "WICKETGATE_SERVER__PROT: server.prot: unknown key; did you mean WICKETGATE_SERVER__PORT?",
    ),
    ("", {"WICKETGATE_PORT": "1"}, "WICKETGATE_PORT: port: unknown key; did you mean WICKETGATE_SERVER__PORT?"),
    ("", {"WICKETGATE_CONFIGS": "x"}, "WICKETGATE_CONFIGS: configs: unknown key; did you mean WICKETGATE_CONFIG?"),
    ("", {"WICKETGATE_SERVER__PORT": "many"}, "WICKETGATE_SERVER__PORT: server.port: must be a whole number"),
    ("", {"WICKETGATE_SERVER": "x"}, "WICKETGATE_SERVER: server: must be a section with keys"),
    (
        "",
        {"WICKETGATE_UPSTREAMS": "[{"},
        "In the environment variable WICKETGATE_UPSTREAMS, line 1, column 3: not valid YAML: a value is missing, or a bracket is not closed",
    ),
    ("", {"WICKETGATE_MODEL__API_KEY": "[hush]"}, "WICKETGATE_MODEL__API_KEY: model.api_key: must be one text"),
    ("server: {host: localhost, port: '${PORT}'}", {"PORT": "http"}, "server.port: must be a whole number"),
    (
        "",
        {"WICKETGATE_HOME": "/x"},
        "WICKETGATE_HOME: home: unknown key; every variable that begins with WICKETGATE_ is a setting; known here: server, auth, model, engine, mcp, tasks, code_mode, browse, network, storage, quota, spending, pins, plugins, access, access_default, gates, flow, sandbox, upstreams, mcpServers",
    ),
]


@requirement("OPS-1", "OPS-64", "OPS-65", "OPS-66", "OPS-67")
@pytest.mark.parametrize(
    ("text", "environ", "message"), [*((text, {}, message) for text, message in MISTAKES.items()), *OF_VARIABLES]
)
def test_each_mistake_is_named_with_its_mend(tmp_path: Path, text: str, environ: dict[str, str], message: str) -> None:
    path = tmp_path / "wicketgate.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_settings(path if text else None, environ)
    told = str(raised.value).replace(str(path), "FILE").replace("Invalid configuration: ", "")
    assert told == message
    assert "hush" not in told


def test_the_table_is_long() -> None:
    assert len(MISTAKES) + len(OF_VARIABLES) >= 100
