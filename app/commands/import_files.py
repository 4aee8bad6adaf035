"""Finds the files of clients on this machine, and the servers in them (OPS-4, OPS-80, OPS-83, OPS-87).

A file of a project can come from a stranger, so size, depth and number are bounded before anything else reads it.
"""

import json
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.clients import CLIENTS, KnownClient, user_files
from app.commands.client_formats import FormatError, read_format
from app.commands.import_entry import ClientServer
from app.commands.import_tools import ALL_TOOLS, from_rules
from wicketgate.errors import ConfigError

_MAX_BYTES = {"toml": 1024 * 1024}
_MAX_BYTES_OTHERWISE = 16 * 1024 * 1024
_MAX_DEPTH = 100
_MAX_VALUES = 2_000_000
_MAX_CHARS = 64 * 1024 * 1024
_MAX_SERVERS = 1000
_MAX_SERVERS_CHARS = 1024 * 1024
_MAX_INPUTS = 1000
_MAX_FILES = 200

_FORMS = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_MAPS = ("mcpServers", "servers", "context_servers", "mcp_servers")
# Servers that are off, and those that alone are on: Claude Code, and Gemini beside the servers or under mcp.
_OFF = ("disabledMcpServers", "disabledMcpjsonServers", "excludeMCPServers", "excluded")
_ON = ("allowMCPServers", "allowed")

# Further files of some clients, which connect does not write: other editions, and folders with a file for each server.
_FURTHER = (
    KnownClient("vscode", "VS Code Insiders", ("{config}/Code - Insiders/User/mcp.json",)),
    KnownClient("vscode", "VSCodium", ("{config}/VSCodium/User/mcp.json",)),
    KnownClient(
        "opencode",
        "opencode",
        ("~/.config/opencode/opencode.jsonc", "~/.config/opencode/config.json"),
        ("opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
    ),
    KnownClient(
        "continue",
        "Continue",
        tuple(f"~/.continue/mcpServers/*.{ending}" for ending in ("yaml", "yml", "json")),
        tuple(f".continue/mcpServers/*.{ending}" for ending in ("yaml", "yml", "json")),
    ),
)
# Names that several clients give to their files.
_COMMON = frozenset({"settings.json", "mcp.json", "config.json", "config.yaml", "config.toml"})


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """*problems* names the parts that could not be read."""

    servers: tuple[ClientServer, ...]
    problems: tuple[str, ...]


def read_client_config(path: Path, client: str = "", *, may_be_empty: bool = False) -> ClientConfig:
    """Reads the file of *client*, or guesses whose it is. Raises ConfigError if it cannot be read or, unless
    *may_be_empty*, if nothing in it could be servers."""
    problems: list[str] = []
    root = _parse_file(path, problems)
    found: list[ClientServer] = []
    if isinstance(root, Mapping):
        chars = 0
        for server in _find_servers(root, client or _client_of(root), problems):
            chars += len(json.dumps(server.entry, default=str))
            if len(found) == _MAX_SERVERS or chars > _MAX_SERVERS_CHARS:
                bound = f"{_MAX_SERVERS} servers" if len(found) == _MAX_SERVERS else "1 Mi characters of servers"
                problems.append(f"there are more than {bound}; the rest was omitted")
                break
            found.append(server)
    else:
        problems.clear()
    if not (found or problems or may_be_empty):
        raise ConfigError(
            f"{path} holds no MCP servers: looked for mcpServers, servers, context_servers, mcp_servers and mcp"
        )
    return ClientConfig(tuple(found), tuple(problems))


@dataclass(frozen=True, slots=True)
class Machine:
    """The places to look in: *platform* as in ``sys.platform``, the folder of the project, and the environment."""

    platform: str = field(default_factory=lambda: sys.platform)
    project: Path = field(default_factory=Path.cwd)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def places(self, names: Collection[str]) -> Iterator[tuple[KnownClient, Path]]:
        """Yields the files that the clients *names* may have, those of the user first. A name may hold ``*``."""
        clients = [client for client in (*CLIENTS.values(), *_FURTHER) if client.name in names]
        for client in clients:
            yield from ((client, path) for path in self._user_files(client))
        for client in clients:
            yield from ((client, self.project / file) for file in client.project_files)

    def files(self, names: Collection[str]) -> Iterator[tuple[KnownClient, Path]]:
        """Yields the files that exist, each once."""
        seen: set[Path] = set()
        for client, place in self.places(names):
            paths = sorted(place.parent.glob(place.name)) if "*" in place.name else [place]
            for path in paths[:_MAX_FILES]:
                try:
                    known = path.resolve()
                    there = path.is_file() and known not in seen
                except (OSError, RuntimeError):  # no right to look, or a link to itself
                    continue
                if there and len(seen) < _MAX_FILES:
                    seen.add(known)
                    yield client, path

    def shown(self, path: Path) -> str:
        """Returns the path as a person writes it: relative to the project or the home folder, if it is below."""
        if path.is_relative_to(self.project):
            return str(path.relative_to(self.project))
        home = self._home()
        return f"~/{path.relative_to(home)}" if home and path.is_relative_to(home) else str(path)

    def named(self, path: Path, title: str) -> str:
        """Returns the path for a person, with the *title* of the client that it belongs to."""
        return f"{title} ({self.shown(path)})" if title else self.shown(path)

    def owner(self, path: Path) -> str:
        """Returns the name of the client that has this file, or one of the same name in another folder."""
        tail = path.absolute().parts[-2:]
        for client, place in self.places(CLIENTS):
            same_name = path.name == place.name and place.name not in _COMMON
            if path.absolute() == place or tail == place.parts[-2:] or same_name:
                return client.name
        return ""

    def read(self, client: str, path: Path) -> ClientConfig:
        """Reads a file, and applies what other files of the client switch off in it. Raises ConfigError."""
        config = read_client_config(path, client, may_be_empty=True)
        if client != "claude-code" or not config.servers:
            return config
        disabled, denied = self._claude_switches(path)
        return replace(config, servers=tuple(_switched(server, disabled, denied) for server in config.servers))

    def _user_files(self, client: KnownClient) -> tuple[Path, ...]:
        try:
            return user_files(client, self.platform, self.environ)
        except ConfigError:  # no home folder
            return ()

    def _home(self) -> Path | None:
        named = self.environ.get("HOME") or self.environ.get("USERPROFILE")
        return Path(named) if named else None

    def _claude_switches(self, path: Path) -> tuple[set[str], list[str]]:
        """Returns the servers that Claude Code's settings switch off, and the rules that deny tools."""
        named, home = self.environ.get("CLAUDE_CONFIG_DIR"), self._home()
        folders = {path.parent / ".claude", *([Path(named)] if named else [home / ".claude"] if home else [])}
        settings = [_members(folder / f"settings{local}.json") for folder in folders for local in ("", ".local")]
        disabled = [name for each in settings for name in _list(each.get("disabledMcpjsonServers"))]
        denied = [rule for each in settings for rule in _list(_map(each.get("permissions")).get("deny"))]
        # The user's answers to questions about the servers of this folder.
        if path.name == ".mcp.json":
            for file in self._user_files(CLIENTS["claude-code"])[:1]:
                project = _map(_map(_members(file).get("projects")).get(str(path.parent.absolute())))
                disabled += _list(project.get("disabledMcpjsonServers")) + _list(project.get("disabledMcpServers"))
        return {*_names(disabled)}, [rule for rule in _names(denied) if rule.startswith("mcp__")]


def client_named(word: str) -> str | None:
    """Returns the name of the client that *word* names, None for a path. Raises ConfigError for an unknown name."""
    if word in CLIENTS:
        return word
    if word and (Path(word).exists() or re.search(r"[/\\.]", word)):
        return None
    close = get_close_matches(word.lower(), CLIENTS, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"the clients are {', '.join(CLIENTS)}"
    raise ConfigError(f"{word!r} is neither a file nor a client known here: {hint}")


def _switched(server: ClientServer, disabled: Collection[str], denied: Collection[str]) -> ClientServer:
    notes: list[str] = []
    # Tools are mcp__server__tool; mcp__server alone is all of them.
    prefix = "mcp__" + re.sub(r"[^a-zA-Z0-9_-]", "_", server.name)
    tools = from_rules({("*" if rule == prefix else rule): False for rule in denied}, f"{prefix}_", notes)
    off = server.disabled or tools is None or server.name in disabled
    return replace(server, disabled=off, tools=tools or server.tools, notes=(*server.notes, *notes))


def _members(path: Path) -> Mapping[str, Any]:
    """Returns the members of a file, none if it does not exist or cannot be read."""
    try:
        return _map(_parse_file(path, [])) if path.is_file() else {}
    except (ConfigError, OSError):
        return {}


def _parse_file(path: Path, problems: list[str]) -> Any:
    """Returns the file as JSON values. Raises ConfigError in one line that names the fault and its place."""
    form = _FORMS.get(path.suffix, "json")
    most, twice = _MAX_BYTES.get(form, _MAX_BYTES_OTHERWISE), list[str]()
    try:
        with path.open("rb") as file:  # also a pipe or a device, which have no size
            content = file.read(most + 1)
        if len(content) > most:
            raise ConfigError(f"{path} is larger than {most // 1024 // 1024} MiB")
        root = read_format(form, content.decode("utf-8-sig"), twice)
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except FormatError as error:
        raise ConfigError(f"{path} {error}") from None
    _check_size(root, path)
    problems += [f"given twice, the last counts: {', '.join(twice)}"] if twice else []
    return root


def _check_size(root: Any, path: Path) -> None:
    """Raises ConfigError. Counts what an alias repeats each time, because it is written out later."""
    values = chars = 0
    level = [root]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                chars += sum(map(len, map(str, value)))
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str):
                chars += len(value)
            if values + len(below) > _MAX_VALUES or chars > _MAX_CHARS:
                raise ConfigError(f"{path} is too large for a list of servers")
        values += len(below)
        level = below
        if not level:
            return
    raise ConfigError(f"{path} is nested more than {_MAX_DEPTH} deep")


def _client_of(root: Mapping[str, Any]) -> str:
    if "mcp_servers" in root or "context_servers" in root:
        return "codex" if "mcp_servers" in root else "zed"
    mcp = _map(root.get("mcp"))
    return "opencode" if _of_opencode(mcp) or _of_opencode(mcp.get("servers")) else ""


def _find_servers(root: Mapping[str, Any], client: str, problems: list[str]) -> Iterator[ClientServer]:
    # VS Code keeps its inputs beside the servers, at the top of the file or under mcp.
    inputs: dict[str, str] = {}
    for item in [*_list(root.get("inputs")), *_list(_map(root.get("mcp")).get("inputs"))][:_MAX_INPUTS]:
        if isinstance(name := _map(item).get("id"), str):
            inputs[name] = str(_map(item).get("description") or "")
    # The parts of a file that may hold servers: all of it, the settings of VS Code, the projects of ~/.claude.json.
    mcp = _map(root.get("mcp"))
    parts = [(root, ""), (mcp, "" if client == "opencode" else "mcp")]
    parts += [(part, f"project {name}") for name, part in _map(root.get("projects")).items()]
    lists = [(_map(part), key, place, client) for part, place in parts for key in _MAPS if key in _map(part)]
    if servers := _of_opencode(mcp, sure=client == "opencode"):  # version 1
        lists.append(({"mcp": servers}, "mcp", "", "opencode"))
    older = _map(root.get("experimental"))
    if "modelContextProtocolServers" in older:  # Continue
        lists.append((older, "modelContextProtocolServers", "", client))
    if not lists and root and all(map(_looks_like_server, root.values())):
        lists.append(({"the file": root}, "the file", "", client))
    for part, key, place, owner in lists:
        off = {name for each in (mcp, part) for list_name in _OFF for name in _names(each.get(list_name))}
        given = [each.get(list_name) for each in (mcp, part) for list_name in _ON]
        on = [{*_names(each)} for each in given if isinstance(each, list)]
        for server in _servers(part[key], key, place, owner, problems):
            disabled = server.name in off or any(server.name not in names for names in on)
            yield _with_root(replace(server, disabled=disabled, inputs=inputs), root)


def _with_root(server: ClientServer, root: Mapping[str, Any]) -> ClientServer:
    """Adds what the file says of all servers: opencode's switches of tools, and the usual timeouts."""
    if server.client == "zed":
        return _with_timeout(server, root.get("context_server_timeout"))
    if server.client != "opencode":
        return server
    for timeout in (_map(root.get("experimental")).get("mcp_timeout"), _map(root.get("mcp")).get("timeout")):
        server = _with_timeout(server, timeout)
    rules: dict[str, bool] = {}
    for key, meanings in _RULES.items():
        given = list(_map(root.get(key)).items())[:_MAX_SERVERS]
        rules |= {name: meanings[value] for name, value in given if isinstance(value, bool | str) and value in meanings}
    notes: list[str] = []
    tools = from_rules(rules, re.sub(r"[^a-zA-Z0-9_-]", "_", server.name), notes) if rules else ALL_TOOLS
    off = server.disabled or tools is None
    return replace(server, disabled=off, tools=tools or ALL_TOOLS, notes=tuple(notes))


_RULES: Mapping[str, Mapping[Any, bool]] = {
    "tools": {True: True, False: False},
    "permission": {"allow": True, "ask": True, "deny": False},
}


def _with_timeout(server: ClientServer, timeout: object) -> ClientServer:
    if timeout is None or "timeout" in server.entry:
        return server
    return replace(server, entry={**server.entry, "timeout": timeout})


def _of_opencode(mcp: object, *, sure: bool = False) -> dict[str, Any]:
    """The entries under ``mcp`` that are servers of opencode; *sure* if the file is known to be its own."""
    entries = {str(name): entry for name, entry in _map(mcp).items() if isinstance(entry, Mapping)}
    if sure:
        return {name: entry for name, entry in entries.items() if name not in ("servers", "timeout")}
    return {
        name: entry
        for name, entry in entries.items()
        if entry.get("type") in ("local", "remote") or isinstance(entry.get("command"), list)
    }


def _servers(given: object, key: str, place: str, client: str, problems: list[str]) -> Iterator[ClientServer]:
    if isinstance(given, list):  # Continue
        names = [_map(entry).get("name") for entry in given]
        named = [
            (name if name and isinstance(name, str) else f"server-{number}", entry)
            for number, (name, entry) in enumerate(zip(names, given, strict=True), 1)
        ]
    elif isinstance(given, Mapping):
        named = [(str(name), entry) for name, entry in given.items()]
    else:
        problems.append(f"{key}: not an object")
        return
    for name, entry in named:
        if isinstance(entry, Mapping):
            yield ClientServer(name, entry, place=place, client=client)
        else:
            problems.append(f"{name}: not an object")


def _looks_like_server(entry: object) -> bool:
    return any(isinstance(_map(entry).get(key), str) for key in ("command", "url"))


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value[:1000] if isinstance(value, list) else []
