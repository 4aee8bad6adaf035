"""The entry of this gate in a client's own spelling, and the text of the client's file with it (OPS-70, OPS-71).

Nothing here reads or writes files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.clients import KnownClient
from app.commands.client_formats import FormatError, add_json_item, read_format, set_entry
from wicketgate.yaml_text import write_yaml

KEY_VARIABLE = "WG_KEY"


@dataclass(frozen=True, slots=True)
class StartedGate:
    """A gate that the client starts. *needed* are the variables that its configuration reads and *env* lacks."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    needed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReachedGate:
    """A running service. Without a *key* the entry refers to the variable WG_KEY."""

    url: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """*question* is the one that the client asks its user for the key, if it does."""

    settings: Mapping[str, Any]
    question: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """*text* is that of the whole file. *was_there* is true if there was an entry; *kept* names what of it stays."""

    text: str
    was_there: bool
    kept: tuple[str, ...] = ()


_WAY_TO_SERVER = frozenset(
    {"type", "transport", "source", "command", "args", "env", "environment", "env_vars", "cwd", "envFile"}
    | {"url", "serverUrl", "httpUrl", "headers", "http_headers", "env_http_headers", "bearer_token_env_var"}
    | {"bearer_token", "requestOptions", "name"}
)
"""Keys that are replaced. Others are the client's own, such as what it may do without asking."""

_OPENCODE_FILE = '{\n  "$schema": "https://opencode.ai/config.json",\n  "mcp": {}\n}\n'
# Codex gave up on a server after 10 s, opencode after 5 s. The gate answers a client when its own servers are there.
_START_S = 30


def make_entry(client: KnownClient, name: str, gate: StartedGate | ReachedGate) -> ClientEntry:
    """Returns the entry. A URL needs a client with ``url``, and one without a key needs a client with ``reference``."""
    if isinstance(gate, StartedGate):
        return ClientEntry(_start(client, gate))
    kind = {"type": client.reach} if client.reach else {}
    way: dict[str, Any] = {**kind, client.url: gate.url}
    if client.name == "codex" and gate.key is None:
        return ClientEntry({**way, client.reference: KEY_VARIABLE})
    bearer = {"Authorization": f"Bearer {gate.key or client.reference.replace('NAME', name)}"}
    if client.name == "codex":
        return ClientEntry({**way, "http_headers": bearer})
    if client.name == "continue":
        return ClientEntry({**way, "requestOptions": {"headers": bearer}})
    question = None
    if client.name == "vscode" and gate.key is None:
        question = {"type": "promptString", "id": f"{name}-key", "description": f"Key of {name}", "password": True}
    return ClientEntry({**way, "headers": bearer}, question)


def _start(client: KnownClient, gate: StartedGate) -> dict[str, Any]:
    kind = {"type": client.start} if client.start else {}
    env = dict(gate.env)
    if client.name == "opencode":
        environment = {"environment": env} if env else {}
        return {**kind, "command": list(gate.command), "enabled": True, "timeout": _START_S * 1000, **environment}
    needed = [variable for variable in gate.needed if variable not in env]
    if client.name == "gemini":
        # It takes variables away whose names look like secrets, unless the entry names them.
        env |= {variable: f"${{{variable}}}" for variable in needed}
    entry: dict[str, Any] = {**kind, "command": gate.command[0], "args": list(gate.command[1:])}
    entry |= {"env": env} if env else {}
    if client.name == "codex":
        entry |= {"env_vars": needed} if needed else {}
        entry["startup_timeout_sec"] = _START_S
    return entry


def render_entry(client: KnownClient, name: str, entry: ClientEntry) -> str:
    """Returns the text of a file with this entry alone."""
    return put_entry(client, name, entry, "").text


def find_entry(client: KnownClient, name: str, text: str) -> Mapping[str, Any] | None:
    """Returns the entry *name* of a file. Raises FormatError if the file cannot be read."""
    root = read_format(client.form, text)
    if root is not None and not isinstance(root, Mapping):
        raise FormatError("holds no object")
    if client.form == "yaml":
        return _only_entry(name, root)
    inner: Any = root
    for key in (*_place(client, root), name):
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    return inner if inner is None or isinstance(inner, Mapping) else {"": inner}


def put_entry(client: KnownClient, name: str, entry: ClientEntry, text: str) -> Change:
    """Puts the entry into the *text* of a file. Everything else stays as it is. Raises FormatError."""
    before = find_entry(client, name, text)
    kept = {key: value for key, value in (before or {}).items() if key and key not in _WAY_TO_SERVER}
    settings = {**entry.settings, **kept}
    if before != settings and client.form == "yaml":
        text = write_yaml(
            {"name": name, "version": "0.0.1", "schema": "v1", "mcpServers": [{"name": name, **settings}]}
        )
    elif before != settings:
        text = _OPENCODE_FILE if client.name == "opencode" and not text.strip() else text
        text = set_entry(client.form, text, [*_place(client, read_format(client.form, text)), name], settings)
    if entry.question is not None:
        text = _with_question(entry.question, text)
    return Change(text, before is not None, tuple(key for key in kept if kept[key] != entry.settings.get(key)))


def _place(client: KnownClient, root: Any) -> Sequence[str]:
    if client.name == "opencode" and isinstance(root, Mapping) and isinstance(root.get("mcp"), Mapping):
        # The form of version 2: a map of servers, and no server that is called so.
        servers = root["mcp"].get("servers")
        if isinstance(servers, Mapping) and not isinstance(servers.get("type"), str):
            return (*client.place, "servers")
    return client.place


def _with_question(question: Mapping[str, Any], text: str) -> str:
    root = read_format("json", text)
    given = root.get("inputs") if isinstance(root, Mapping) else None
    asked = isinstance(given, list) and any(
        isinstance(each, Mapping) and each.get("id") == question["id"] for each in given
    )
    return text if asked else add_json_item(text, "inputs", question)


def _only_entry(name: str, root: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns the entry of a file that holds nothing else."""
    if root is None:
        return None
    servers = root.get("mcpServers")
    (only,) = servers if isinstance(servers, list) and len(servers) == 1 else (None,)
    others = root.keys() - {"name", "version", "schema", "mcpServers"}
    if others or not isinstance(only, Mapping) or only.get("name") != name:
        raise FormatError("holds other things than this entry, and this client reads a file for each")
    return {key: value for key, value in only.items() if key != "name"}
