"""The entry of this gate in a client's own spelling, and the text of the client's file with it (OPS-70, OPS-71).

Nothing here reads or writes files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.clients import KEY_VARIABLE, KINDS, LOCAL, REMOTE, URLS, KnownClient
from app.commands.client_formats import FormatError, add_json_item, nested, read_format, set_entry
from wicketgate.yaml_text import write_yaml


@dataclass(frozen=True, slots=True)
class StartedGate:
    """A gate that the client starts. *needed* are the variables that its configuration reads and *env* lacks."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    needed: tuple[str, ...] = ()

    @property
    def has_secret(self) -> bool:
        return bool(self.env.keys() - {"PATH"})


@dataclass(frozen=True, slots=True)
class ReachedGate:
    """A running service. Without a *key* the entry refers to the variable WG_KEY."""

    url: str
    key: str | None = None

    @property
    def has_secret(self) -> bool:
        return self.key is not None


_WAY_TO_SERVER = frozenset({"command", "source", "name", "envFile", *KINDS, *URLS, *LOCAL, *REMOTE})
"""Keys that are replaced. Others are the client's own, such as what it may do without asking."""

# Codex gave up on a server after 10 s, opencode after 5 s. The gate answers a client when its own servers are there.
_START_S = 30


def make_entry(client: KnownClient, name: str, gate: StartedGate | ReachedGate) -> Mapping[str, Any]:
    """Returns the entry. A URL needs a client with ``url``, and one without a key needs a client with ``reference``."""
    kind = client.start if isinstance(gate, StartedGate) else client.reach
    entry: dict[str, Any] = {"type": kind} if kind else {}
    if isinstance(gate, StartedGate):
        return entry | _start(client, gate)
    entry[client.url] = gate.url
    if client.name == "codex" and gate.key is None:
        return entry | {client.reference: KEY_VARIABLE}
    bearer = {"Authorization": f"Bearer {gate.key or client.reference.replace('{name}', name)}"}
    return {**entry, **nested(client.headers, bearer)}


def _start(client: KnownClient, gate: StartedGate) -> dict[str, Any]:
    env = dict(gate.env)
    if client.name == "opencode":
        entry: dict[str, Any] = {"command": list(gate.command), "timeout": _START_S * 1000}
        return entry | ({"environment": env} if env else {})
    if client.name == "gemini":
        # It takes variables away whose names look like secrets, unless the entry names them.
        env |= {variable: f"${{{variable}}}" for variable in gate.needed}
    entry = {"command": gate.command[0], "args": list(gate.command[1:])}
    entry |= {"env": env} if env else {}
    if client.name == "codex":
        entry |= {"env_vars": list(gate.needed)} if gate.needed else {}
        entry["startup_timeout_sec"] = _START_S
    return entry


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


def put_entry(client: KnownClient, name: str, entry: Mapping[str, Any], text: str = "") -> str:
    """Puts the entry into the *text* of a file. Everything else stays as it is. Raises FormatError."""
    before = find_entry(client, name, text)
    kept = {key: value for key, value in (before or {}).items() if key and key not in _WAY_TO_SERVER}
    settings = {**entry, **kept}
    if before != settings and client.form == "yaml":
        servers = [{"name": name, **settings}]
        text = write_yaml({"name": name, "version": "0.0.1", "schema": "v1", "mcpServers": servers})
    elif before != settings:
        text = set_entry(client.form, text, [*_place(client, read_format(client.form, text)), name], settings)
    if client.name == "vscode" and client.reference.replace("{name}", name) in str(entry):
        question = {"type": "promptString", "id": f"{name}-key", "description": f"Key of {name}", "password": True}
        text = text if _asks(read_format("json", text), question["id"]) else add_json_item(text, "inputs", question)
    return text


def _place(client: KnownClient, root: Any) -> Sequence[str]:
    if client.name == "opencode" and isinstance(root, Mapping) and isinstance(root.get("mcp"), Mapping):
        # The form of version 2: a map of servers, and no server that is called so.
        servers = root["mcp"].get("servers")
        if isinstance(servers, Mapping) and not isinstance(servers.get("type"), str):
            return (*client.place, "servers")
    return client.place


def _asks(root: Mapping[str, Any], wanted: object) -> bool:
    """Returns whether VS Code asks for an input with the id *wanted*."""
    inputs = root.get("inputs")
    return isinstance(inputs, list) and any(isinstance(each, Mapping) and each.get("id") == wanted for each in inputs)


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
