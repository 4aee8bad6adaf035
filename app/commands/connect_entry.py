"""The entry of this gate in a client's own spelling, and the text of the client's file with it (OPS-70, OPS-71).

Nothing here reads or writes files. Where the spellings were found, in November 2026:

- Claude Code 2.1, Codex 0.169 and opencode 1.18 were given entries over stdio, and connected or listed them; Claude
  Code and Gemini CLI 0.61 connected over HTTP, with the key by reference.
- Claude Desktop: guides of servers; all agree that the file takes programs only.
- Cursor and Windsurf: guides of servers that work with them (userjot.com/docs/mcp-cursor and mcp-windsurf), which agree
  with one another on the keys and on ``${env:NAME}``. The vendors' own pages were not at hand.
- VS Code: microsoft/vscode, src/vs/workbench/contrib/mcp/common/mcpConfiguration.ts, and
  code.visualstudio.com/docs/copilot/reference/mcp-configuration.
- Zed: zed.dev/docs/ai/mcp. Its headers know no variables (zed-industries/zed issue 60459).
- Cline: cline/cline, src/services/mcp/schemas.ts: a url without ``streamableHttp`` is the older SSE transport. No
  variables in headers were found there.
- Continue: continuedev/continue, packages/config-yaml/src/schemas/mcp/index.ts; secrets come from .env files (issue
  5902); files of their own below the home folder: core/config/yaml/loadYaml.ts, ``includeGlobal``.
- Codex: openai/codex, codex-rs/config/src/mcp_types.rs: ``bearer_token`` is refused.
- Gemini CLI: google-gemini/gemini-cli, docs/tools/mcp-server.md: ``url`` alone is the older SSE transport.
- opencode: opencode.ai/docs/mcp-servers and /docs/migrate-v1: version 2 reads ``mcp.NAME`` of version 1 too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app.clients import Client
from app.commands.connect_json import NotEditable, append_item, read_json, render_json, set_member
from app.commands.connect_toml import read_toml, set_table
from app.commands.import_secrets import glued, is_short_secret, looks_secret, password_of, secrets_in
from wicketgate.yaml_text import NotYaml, read_yaml, write_yaml

KEY_VARIABLE = "WG_KEY"


@dataclass(frozen=True, slots=True)
class Start:
    """A gate that the client starts. *needed* are the variables that its configuration reads and *env* lacks."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    needed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reach:
    """A service that runs. Without a *key* the entry refers to the variable WG_KEY."""

    url: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """*inputs* are the values that the client asks its user for."""

    settings: Mapping[str, Any]
    inputs: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """*text* is that of the whole file. *before* is the entry that was there, *kept* names what of it stays."""

    text: str
    before: Mapping[str, Any] | None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Spelling:
    """*start* and *reach* are the words for the kind of an entry, if the client has them. *reference* is the key."""

    place: tuple[str, ...] = ("mcpServers",)
    start: str = ""
    reach: str = ""
    url: str = "url"
    reference: str = ""


_SPELLINGS: Mapping[str, _Spelling] = {
    "claude-desktop": _Spelling(url=""),
    "claude-code": _Spelling(start="stdio", reach="http", reference="${WG_KEY}"),
    "cursor": _Spelling(start="stdio", reference="${env:WG_KEY}"),
    "vscode": _Spelling(("servers",), "stdio", "http", reference="${input:NAME-key}"),
    "windsurf": _Spelling(url="serverUrl", reference="${env:WG_KEY}"),
    "zed": _Spelling(("context_servers",)),
    "cline": _Spelling(start="stdio", reach="streamableHttp"),
    "continue": _Spelling(start="stdio", reach="streamable-http", reference="${{ secrets.WG_KEY }}"),
    "codex": _Spelling(("mcp_servers",), reference="bearer_token_env_var"),
    "gemini": _Spelling(url="httpUrl", reference="${WG_KEY}"),
    "opencode": _Spelling(("mcp",), "local", "remote", reference="{env:WG_KEY}"),
}

_OURS = frozenset(
    {"type", "transport", "source", "command", "args", "env", "environment", "env_vars", "cwd", "envFile"}
    | {"url", "serverUrl", "httpUrl", "headers", "http_headers", "env_http_headers", "bearer_token_env_var"}
    | {"bearer_token", "requestOptions", "name"}
)
"""The keys of the way to a server. Others are the client's own, such as what it may do without asking."""

_OPENCODE_START = '{\n  "$schema": "https://opencode.ai/config.json"\n}\n'
# Codex gave up on a server after 10 s, opencode after 5 s. The gate answers a client when its own servers are there.
_START_S = 30


def takes_urls(client: Client) -> bool:
    return bool(_SPELLINGS[client.name].url)


def refers_to_key(client: Client) -> bool:
    """Returns whether the client's file can name a key instead of holding it."""
    return bool(_SPELLINGS[client.name].reference)


def hands_on(client: Client) -> bool:
    """Returns whether an entry can name variables that its program gets from the client's environment."""
    return client.name in ("codex", "gemini")


def make_entry(client: Client, name: str, gate: Start | Reach) -> Entry:
    """Raises ValueError if the client cannot be told this."""
    spelling = _SPELLINGS[client.name]
    if isinstance(gate, Start):
        return Entry(_start(client, spelling, gate))
    if not spelling.url:
        raise ValueError("takes programs only, no url")
    if gate.key is None and not spelling.reference:
        raise ValueError("cannot refer to a variable for the key")
    reference = spelling.reference.replace("NAME", name)
    kind = {"type": spelling.reach} if spelling.reach else {}
    if client.name == "codex":
        if gate.key is None:
            return Entry({"url": gate.url, "bearer_token_env_var": KEY_VARIABLE})
        return Entry({"url": gate.url, "http_headers": {"Authorization": f"Bearer {gate.key}"}})
    headers: dict[str, Any] = {"headers": {"Authorization": f"Bearer {reference if gate.key is None else gate.key}"}}
    if client.name == "continue":
        headers = {"requestOptions": headers}
    inputs: tuple[Mapping[str, Any], ...] = ()
    if client.name == "vscode" and gate.key is None:
        inputs = ({"type": "promptString", "id": f"{name}-key", "description": f"Key of {name}", "password": True},)
    return Entry({**kind, spelling.url: gate.url, **headers}, inputs)


def _start(client: Client, spelling: _Spelling, gate: Start) -> dict[str, Any]:
    kind = {"type": spelling.start} if spelling.start else {}
    env = dict(gate.env)
    if client.name == "opencode":
        environment = {"environment": env} if env else {}
        return {**kind, "command": list(gate.command), "enabled": True, "timeout": _START_S * 1000, **environment}
    entry: dict[str, Any] = {**kind, "command": gate.command[0], "args": list(gate.command[1:])}
    needed = [variable for variable in gate.needed if variable not in env]
    if client.name == "gemini":
        # It takes variables away whose names look like secrets, unless the entry names them.
        env |= {variable: f"${{{variable}}}" for variable in needed}
    if env:
        entry["env"] = env
    if client.name == "codex":
        entry |= {"env_vars": needed} if needed else {}
        entry["startup_timeout_sec"] = _START_S
    return entry


def render_entry(client: Client, name: str, entry: Entry) -> str:
    """Returns the text of a file with this entry alone."""
    return put_entry(client, name, entry, "").text


def find_entry(client: Client, name: str, text: str) -> Mapping[str, Any] | None:
    """Returns the entry *name* of a file. Raises NotEditable if the file cannot be read."""
    match _format(client):
        case "toml":
            inner: Any = read_toml(text)
        case "yaml":
            return _block(name, text)
        case _:
            inner = read_json(text)
    if inner is not None and not isinstance(inner, Mapping):
        raise NotEditable("it holds no object")
    for key in _place(client, inner):
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    found = inner.get(name) if isinstance(inner, Mapping) else None
    return found if found is None or isinstance(found, Mapping) else {"": found}


def put_entry(client: Client, name: str, entry: Entry, text: str) -> Change:
    """Puts the entry into the *text* of a file. Everything else stays as it is. Raises NotEditable."""
    before = find_entry(client, name, text)
    kept = {key: value for key, value in (before or {}).items() if key and key not in _OURS}
    settings = {**entry.settings, **kept}
    form = _format(client)
    if form == "json":
        text = _with_inputs(entry.inputs, text)
    if before != settings:
        if form == "toml":
            text = set_table(text, [*_SPELLINGS[client.name].place, name], settings)
        elif form == "yaml":
            block = {"name": name, **settings}
            text = write_yaml({"name": name, "version": "0.0.1", "schema": "v1", "mcpServers": [block]})
        else:
            root = read_json(text)
            text = _OPENCODE_START if client.name == "opencode" and root is None and not text.strip() else text
            text = set_member(text, [*_place(client, root), name], settings)
    return Change(text, before, tuple(key for key in kept if kept[key] != entry.settings.get(key)))


def show_entry(entry: Mapping[str, Any]) -> str:
    """Returns an entry for a terminal. Hidden are the values of variables and headers, and what looks like a secret."""

    def hide(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: dict.fromkeys(each, "...") if key in _HIDDEN and isinstance(each, Mapping) else hide(key, each)
                for key, each in value.items()
            }
        if isinstance(value, list):  # a value may follow the flag that names it
            return [hide(before if isinstance(before, str) else "", each) for before, each in pairwise(["", *value])]
        return _without_secret(name, value) if isinstance(value, str) else value

    return render_json(hide("", dict(entry)))


def _without_secret(name: str, text: str) -> str:
    if "://" in text:
        # What else may be a credential in a URL stands before the @ or behind the question mark.
        text = re.sub(r"(?<=[?#]).*", "...", re.sub(r"(?<=://)[^/@]*@", "...@", text), flags=re.DOTALL)
    key, equals, value = text.partition("=")
    if equals and looks_secret(key, value):
        return f"{key}=..."
    if looks_secret(name, text) or is_short_secret(name, text):
        return "..."
    short, _ = glued(text)
    secret = password_of(name, text)
    if short or secret:
        return f"{short or text.removesuffix(secret)}..."
    for start, end, _ in reversed(secrets_in(text)):
        text = f"{text[:start]}...{text[end:]}"
    return text


_HIDDEN = frozenset({"env", "environment", "headers", "http_headers"})


def _format(client: Client) -> str:
    return {"codex": "toml", "continue": "yaml"}.get(client.name, "json")


def _place(client: Client, root: Any) -> Sequence[str]:
    place = _SPELLINGS[client.name].place
    if client.name == "opencode" and isinstance(root, Mapping) and isinstance(root.get("mcp"), Mapping):
        # The form of version 2: a map of servers, and no server that is called so.
        servers = root["mcp"].get("servers")
        if isinstance(servers, Mapping) and not isinstance(servers.get("type"), str):
            return (*place, "servers")
    return place


def _with_inputs(inputs: Sequence[Mapping[str, Any]], text: str) -> str:
    for wanted in inputs:
        root = read_json(text)
        given = root.get("inputs", []) if isinstance(root, Mapping) else []
        if not isinstance(given, list):
            raise NotEditable("inputs is not a list")
        if not any(isinstance(each, Mapping) and each.get("id") == wanted["id"] for each in given):
            text = append_item(text, "inputs", dict(wanted))
    return text


def _block(name: str, text: str) -> Mapping[str, Any] | None:
    """The entry of a file that holds nothing else."""
    try:
        root = read_yaml(text)
    except NotYaml as error:
        raise NotEditable(str(error)) from None
    if root is None:
        return None
    servers = root.get("mcpServers") if isinstance(root, Mapping) else None
    if (
        not isinstance(servers, list)
        or len(servers) != 1
        or not isinstance(servers[0], Mapping)
        or servers[0].get("name") != name
        or root.keys() - {"name", "version", "schema", "mcpServers"}
    ):
        raise NotEditable("it holds other things than this entry, and this client reads a file for each")
    return {key: value for key, value in servers[0].items() if key != "name"}
