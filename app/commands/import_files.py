"""Finds the files of clients on this machine, and the servers in them (OPS-4, OPS-80, OPS-83, OPS-87).

A file of a project can come from a stranger, so size, depth and number are bounded before anything else reads it.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.clients import CLIENTS, KnownClient, shown_path
from app.commands.client_files import read_text
from app.commands.client_formats import FormatError, read_format
from app.commands.import_entry import ClientServer
from app.commands.import_tools import ALL_TOOLS, from_rules
from wicketgate.errors import ConfigError

_MAX_DEPTH = 100
_MAX_CHARS = 64 * 1024 * 1024
_MAX_MEMBERS = 1000
_MAX_SERVERS_CHARS = 1024 * 1024
_MAX_ENTRY_CHARS = 32 * 1024
_MAX_FILES = 200

_FORMS = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_MAPS = ("mcpServers", "servers", "context_servers", "mcp_servers")
# Servers that are off, and those that alone are on: Claude Code, and Gemini beside the servers or under mcp.
_OFF = ("disabledMcpServers", "disabledMcpjsonServers", "excludeMCPServers", "excluded")
_ON = ("allowMCPServers", "allowed")
# Names that several clients give to their files.
_COMMON = frozenset({"settings.json", "mcp.json", "config.json", "config.yaml", "config.toml"})
# By key of opencode's file, what a value says of a tool.
_RULES: Mapping[str, Mapping[Any, bool]] = {
    "tools": {True: True, False: False},
    "permission": {"allow": True, "ask": True, "deny": False},
}


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The servers in one file. *client* is the name of its client, empty if it is not known.

    *problems* names the parts that could not be read, and *fault* says why nothing could.
    """

    client: str
    path: Path
    servers: tuple[ClientServer, ...] = ()
    problems: tuple[str, ...] = ()
    fault: str = ""

    @property
    def source(self) -> str:
        """The file as a person names it."""
        return _source(self.client, self.path)


def read_client_config(path: Path, client: str = "", *, may_be_empty: bool = False) -> ClientConfig:
    """Reads the file of *client*, or guesses whose it is. Raises ConfigError if it cannot be read or, unless
    *may_be_empty*, if nothing in it could be servers."""
    twice: list[str] = []
    root = _map(_parse_file(path, twice))
    client = client or _owner(path) or _client_of(root)
    problems = [f"given twice, the last counts: {', '.join(twice)}"] if twice and root else []
    found: list[ClientServer] = []
    chars = 0
    for server in _find_servers(root, client, path, problems):
        size = len(json.dumps(server.entry, default=str))
        chars += size
        if len(found) == _MAX_MEMBERS or chars > _MAX_SERVERS_CHARS:
            problems.append(f"there are more than {_MAX_MEMBERS} servers, or too long ones; the rest was omitted")
            break
        if size <= _MAX_ENTRY_CHARS:
            found.append(server)
        else:
            problems.append(f"{server.name}: has more than {_MAX_ENTRY_CHARS // 1024} Ki characters")
    if not (found or problems or may_be_empty):
        raise ConfigError(
            f"{path} holds no MCP servers: looked for mcpServers, servers, context_servers, mcp_servers and mcp"
        )
    return ClientConfig(client, path, tuple(found), tuple(problems))


def client_places(names: Collection[str] = CLIENTS.keys()) -> Iterator[tuple[KnownClient, Path]]:
    """Yields the files that the clients *names* may have, those of the user first. A name may hold ``*``."""
    clients = [client for client in CLIENTS.values() if client.name in names]
    for client in clients:
        yield from ((client, path) for path in client.user_files())
    for client in clients:
        yield from ((client, path) for path in client.files_of_project())


def client_files(names: Collection[str] = CLIENTS.keys()) -> Iterator[tuple[KnownClient, Path]]:
    """Yields the files that exist, each once."""
    seen: set[Path] = set()
    for client, place in client_places(names):
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


def configs_here(names: Collection[str] = CLIENTS.keys()) -> Iterator[ClientConfig]:
    """Reads the files that exist."""
    for client, path in client_files(names):
        try:
            yield read_client_config(path, client.name, may_be_empty=True)
        except ConfigError as error:
            yield ClientConfig(client.name, path, fault=str(error))


def client_named(word: str) -> str | None:
    """Returns the name of the client that *word* names, None for a path. Raises ConfigError for an unknown name."""
    if word in CLIENTS:
        return word
    if word and (Path(word).exists() or re.search(r"[/\\.]", word)):
        return None
    close = get_close_matches(word.lower(), CLIENTS, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"the clients are {', '.join(CLIENTS)}"
    raise ConfigError(f"{word!r} is neither a file nor a client known here: {hint}")


def _source(client: str, path: Path) -> str:
    shown = shown_path(path.absolute())
    return f"{CLIENTS[client].title} ({shown})" if client else shown


def _owner(path: Path) -> str:
    """Returns the name of the client that has this file, or one of the same name in another folder."""
    for client, place in client_places():
        same_name = path.name == place.name and place.name not in _COMMON
        if same_name or path.absolute().match("/".join(place.parts[-2:])):
            return client.name
    return ""


def _client_of(root: Mapping[str, Any]) -> str:
    if "mcp_servers" in root or "context_servers" in root:
        return "codex" if "mcp_servers" in root else "zed"
    mcp = _map(root.get("mcp"))
    entries = [_map(entry) for entry in (*mcp.values(), *_map(mcp.get("servers")).values())]
    if any(each.get("type") in ("local", "remote") or isinstance(each.get("command"), list) for each in entries):
        return "opencode"
    return ""


def _parse_file(path: Path, twice: list[str]) -> Any:
    """Returns the file as JSON values. Raises ConfigError in one line that names the fault and its place."""
    try:
        root = read_format(_FORMS.get(path.suffix, "json"), read_text(path).removeprefix("\ufeff"), twice)
    except FormatError as error:
        raise ConfigError(f"{path} {error}") from None
    # Counts what an alias repeats each time, because it is written out later. The parsers bound the number of values.
    chars, level = 0, [root]
    for _ in range(_MAX_DEPTH):
        chars += sum(len(value) for value in level if isinstance(value, str))
        if chars > _MAX_CHARS:
            raise ConfigError(f"{path} is too large for a list of servers")
        level = [part for value in level for part in _parts(value)]
        if not level:
            return root
    raise ConfigError(f"{path} is nested more than {_MAX_DEPTH} deep")


def _parts(value: Any) -> Collection[Any]:
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return value if isinstance(value, list) else ()


def _find_servers(root: Mapping[str, Any], client: str, path: Path, problems: list[str]) -> Iterator[ClientServer]:
    mcp = _map(root.get("mcp"))
    # VS Code keeps its inputs beside the servers, at the top of the file or under mcp.
    asked = [_map(item) for item in (*_list(root.get("inputs")), *_list(mcp.get("inputs")))]
    inputs = {item["id"]: str(item.get("description") or "") for item in asked if isinstance(item.get("id"), str)}
    # The parts of a file that may hold servers: all of it, the settings of VS Code, the projects of ~/.claude.json.
    parts = [(root, ""), (mcp, "" if client == "opencode" else "mcp")]
    parts += [(_map(part), f"project {name}") for name, part in _map(root.get("projects")).items()]
    lists = [(part, key, place) for part, place in parts for key in _MAPS if key in part]
    if client == "opencode":  # version 1 has them beside what version 2 has
        first = {name: entry for name, entry in mcp.items() if name not in ("servers", "timeout") and _map(entry)}
        lists.append(({"mcp": first}, "mcp", ""))
    usual = {"zed": root.get("context_server_timeout"), "opencode": _timeout_of_opencode(root)}.get(client)
    off_elsewhere, rules = _claude_switches(path) if client == "claude-code" else ([], _rules_of_opencode(root, client))
    for part, key, place in lists:
        on = [{*_names(each[name])} for each in (mcp, part) for name in _ON if isinstance(each.get(name), list)]
        off = {name for each in (mcp, part) for switch in _OFF for name in _names(each.get(switch))}
        for name, entry in _entries(part[key], key):
            if not isinstance(entry, Mapping):
                problems.append(f"{name}: not an object")
                continue
            notes: list[str] = []
            shown = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
            prefix = f"{shown}_" if client == "opencode" else f"mcp__{shown}__"
            tools = from_rules(rules, prefix, notes)
            disabled = tools is None or name in {*off, *off_elsewhere} or any(name not in names for names in on)
            entry = entry if usual is None else {"timeout": usual, **entry}
            yield ClientServer(
                name, entry, disabled, place, client, _source(client, path), tools or ALL_TOOLS, tuple(notes), inputs
            )


def _entries(given: object, key: str) -> Iterator[tuple[str, object]]:
    if isinstance(given, Mapping):
        yield from ((str(name), entry) for name, entry in given.items())
    elif isinstance(given, list):  # Continue
        for number, entry in enumerate(given, 1):
            name = _map(entry).get("name")
            yield (name if name and isinstance(name, str) else f"server-{number}"), entry
    else:
        yield key, given


def _timeout_of_opencode(root: Mapping[str, Any]) -> object:
    first = _map(root.get("experimental")).get("mcp_timeout")
    return _map(root.get("mcp")).get("timeout") if first is None else first


def _rules_of_opencode(root: Mapping[str, Any], client: str) -> dict[str, bool]:
    """Returns whether tools are on, by pattern, in the order of the file."""
    rules: dict[str, bool] = {}
    for key, meanings in _RULES.items() if client == "opencode" else ():
        given = list(_map(root.get(key)).items())[:_MAX_MEMBERS]
        rules |= {name: meanings[value] for name, value in given if isinstance(value, bool | str) and value in meanings}
    return rules


def _claude_switches(path: Path) -> tuple[list[str], dict[str, bool]]:
    """Returns the servers that Claude Code's settings switch off, and the rules that deny tools."""
    user = CLIENTS["claude-code"].user_files()[:1]
    named = os.environ.get("CLAUDE_CONFIG_DIR")
    folders = {path.parent / ".claude", *(Path(named) if named else file.parent / ".claude" for file in user)}
    settings = [_members(folder / f"settings{local}.json") for folder in folders for local in ("", ".local")]
    disabled = [name for each in settings for name in _names(each.get("disabledMcpjsonServers"))]
    denied = [rule for each in settings for rule in _names(_map(each.get("permissions")).get("deny"))]
    # The user's answers to questions about the servers of this folder.
    for file in user if path.name == ".mcp.json" else ():
        project = _map(_map(_members(file).get("projects")).get(str(path.parent.absolute())))
        disabled += _names(project.get("disabledMcpjsonServers")) + _names(project.get("disabledMcpServers"))
    return disabled, {rule: False for rule in denied if rule.startswith("mcp__")}


def _members(path: Path) -> Mapping[str, Any]:
    """Returns the members of a file, none if it does not exist or cannot be read."""
    try:
        return _map(_parse_file(path, [])) if path.is_file() else {}
    except (ConfigError, OSError):
        return {}


def _names(value: object) -> list[str]:
    return [name for name in _list(value) if isinstance(name, str)]


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value[:_MAX_MEMBERS] if isinstance(value, list) else []
