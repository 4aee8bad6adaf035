"""Reads the file of a client, and finds the servers in it (OPS-4, OPS-83, OPS-87).

It reads JSON with comments and trailing commas, as editors write it, YAML and TOML by the file's name. A file of a
project can come from a stranger, so size, depth and number are bounded before anything else looks at it.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.commands.import_entry import ClientServer
from app.commands.import_tools import ALL_TOOLS, from_rules
from wicketgate.errors import ConfigError
from wicketgate.yaml_text import NotYaml, read_yaml

_MAX_BYTES = 16 * 1024 * 1024
# tomllib takes quadratic time for a name of many parts.
_MAX_TOML_BYTES = 1024 * 1024
_MANY_PARTS = re.compile(r"""(?<![\w"'.-])(?:["']?[\w-]{1,100}["']?[ \t]{0,8}\.[ \t]{0,8}){64}""")
_MAX_DEPTH = 100
_MAX_VALUES = 2_000_000
_MAX_CHARS = 64 * 1024 * 1024
_MAX_SERVERS = 1000
_MAX_SERVERS_CHARS = 1024 * 1024
_MAX_INPUTS = 1000

# No step back inside a string, and one that does not end takes the rest: the time is linear in the text.
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*(?:.*?\*/|.*+)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)

_YAML = (".yaml", ".yml")
_MAPS = ("mcpServers", "servers", "context_servers", "mcp_servers")
# Servers that are off, and those that alone are on; Claude Code, and Gemini beside the servers or under mcp.
_OFF, _ON = ("disabledMcpServers", "disabledMcpjsonServers", "excludeMCPServers"), ("allowMCPServers",)
_OFF_IN_MCP, _ON_IN_MCP = ("excluded",), ("allowed",)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """*inputs* holds by id the client's description of a value that it asks its user for. *problems* names the parts
    that could not be read."""

    servers: tuple[ClientServer, ...]
    inputs: Mapping[str, str]
    problems: tuple[str, ...]


def read_client_config(path: Path, client: str = "") -> ClientConfig:
    """Reads the file of *client*, or guesses whose it is. Raises ConfigError if nothing in it could be servers."""
    config = find_config(path, client)
    if not (config.servers or config.problems):
        raise ConfigError(
            f"{path} holds no MCP servers: looked for mcpServers, servers, context_servers, mcp_servers and mcp"
        )
    return config


def find_config(path: Path, client: str = "") -> ClientConfig:
    """The same, but a file without servers is none. Raises ConfigError if the file cannot be read."""
    problems: list[str] = []
    root = parse_file(path, problems)
    if not isinstance(root, Mapping):
        return ClientConfig((), {}, ())
    client = client or _client_of(root)
    found: list[ClientServer] = []
    chars = 0
    for server in _find_servers(root, client, problems):
        chars += len(json.dumps(server.entry, default=str))
        if len(found) == _MAX_SERVERS or chars > _MAX_SERVERS_CHARS:
            bound = f"{_MAX_SERVERS} servers" if len(found) == _MAX_SERVERS else "1 Mi characters of servers"
            problems.append(f"there are more than {bound}; the rest was left out")
            break
        found.append(server)
    # VS Code keeps its inputs beside the servers, at the top of the file or under mcp.
    lists = [part.get("inputs") for part in (root, root.get("mcp")) if isinstance(part, Mapping)]
    inputs = [
        item for each in lists if isinstance(each, list) for item in each[:_MAX_INPUTS] if isinstance(item, Mapping)
    ]
    texts = {item["id"]: str(item.get("description") or "") for item in inputs if isinstance(item.get("id"), str)}
    return ClientConfig(tuple(found), texts, tuple(problems))


def merge(configs: Sequence[ClientConfig]) -> ClientConfig:
    """Puts several files together. Values that two clients ask their users for are two, also under one id."""
    servers: list[ClientServer] = []
    inputs: dict[str, str] = {}
    for config in configs:
        renamed: dict[str, str] = {}
        for name, description in config.inputs.items():
            own, number = name, 1
            while own in inputs and inputs[own] != description:
                number += 1
                own = f"{name}-{number}"
            inputs[own] = description
            if own != name:
                renamed[f"${{input:{name}}}"] = f"${{input:{own}}}"
        servers += (
            [replace(server, entry=_replaced(server.entry, renamed)) for server in config.servers]
            if (renamed)
            else config.servers
        )
    return ClientConfig(tuple(servers), inputs, tuple(problem for config in configs for problem in config.problems))


def without_comments(text: str) -> str:
    """Plain JSON from the JSON that editors write."""

    def keep_string(match: re.Match[str]) -> str:
        return match.group(1) or " "

    return _TRAILING_COMMA.sub(keep_string, _COMMENT.sub(keep_string, text))


def parse_file(path: Path, problems: list[str]) -> Any:
    """Returns the file as JSON values. Raises ConfigError in one line that says what is wrong with it, and where."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        if len(counts) < len(pairs):
            twice = sorted(name for name, count in counts.items() if count > 1)
            problems.append(f"given twice, the last counts: {', '.join(twice)}")
        return dict(pairs)

    try:
        text = _text_of(path)
        if path.suffix == ".toml":
            if _MANY_PARTS.search(text):
                raise ConfigError(f"{path} has a name of more than 64 parts")
            root = tomllib.loads(text)
        elif path.suffix in _YAML:
            root = read_yaml(text)
        else:
            root = json.loads(without_comments(text), object_pairs_hook=unique)
        _check_size(root, path)
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {str(error)[:300]}") from None
    except NotYaml as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from None
    except (ValueError, RecursionError):
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise ConfigError(f"{path} cannot be read as {kind}") from None
    return root


def _text_of(path: Path) -> str:
    most = _MAX_TOML_BYTES if path.suffix == ".toml" else _MAX_BYTES
    with path.open("rb") as file:  # also a pipe or a device, which have no size
        content = file.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{path} is larger than {most // 1024 // 1024} MiB")
    return content.decode("utf-8-sig")


def _check_size(root: Any, path: Path) -> None:
    """Counts what an alias repeats each time, because it is written out later."""
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
                raise ConfigError(f"{path} holds more than any list of servers")
        values += len(below)
        level = below
        if not level:
            return
    raise ConfigError(f"{path} is nested more than {_MAX_DEPTH} deep")


def _client_of(root: Mapping[str, Any]) -> str:
    if "mcp_servers" in root:
        return "codex"
    if "context_servers" in root:
        return "zed"
    mcp = root.get("mcp")
    inner = mcp.get("servers") if isinstance(mcp, Mapping) else None
    return "opencode" if _of_opencode(mcp, sure=False) or _of_opencode(inner, sure=False) else ""


def _find_servers(root: Mapping[str, Any], client: str, problems: list[str]) -> Iterator[ClientServer]:
    # The parts of a file that may hold servers: all of it, the settings of VS Code, the projects of ~/.claude.json.
    projects = root.get("projects")
    parts = [(root, ""), (root.get("mcp"), "" if client == "opencode" else "mcp")]
    parts += [(part, f"project {name}") for name, part in (projects if isinstance(projects, Mapping) else {}).items()]
    disabled, allowed = _server_lists(root.get("mcp"), _OFF_IN_MCP, _ON_IN_MCP)
    found = False
    for part, place in parts:
        if not isinstance(part, Mapping):
            continue
        own_disabled, own_allowed = _server_lists(part, _OFF, _ON)
        for key in _MAPS:
            if key in part:
                found = True
                for server in _servers(part[key], key, place, client, problems):
                    off = server.name in disabled | own_disabled
                    off = off or any(server.name not in names for names in (allowed, own_allowed) if names is not None)
                    yield _with_root(replace(server, disabled=off), root, client)
    # opencode, version 1: the servers stand under mcp themselves.
    if servers := _of_opencode(root.get("mcp"), sure=client == "opencode"):
        found = True
        for server in _servers(servers, "mcp", "", "opencode", problems):
            yield _with_root(server, root, "opencode")
    # The older form of Continue.
    experimental = root.get("experimental")
    if isinstance(experimental, Mapping) and "modelContextProtocolServers" in experimental:
        found = True
        yield from _servers(experimental["modelContextProtocolServers"], "experimental", "", client, problems)
    if not found and root and all(map(_looks_like_server, root.values())):
        yield from _servers(root, "the file", "", client, problems)


def _server_lists(
    part: object, off_keys: Sequence[str], on_keys: Sequence[str]
) -> tuple[frozenset[object], frozenset[object] | None]:
    """The names of servers that are off, and of those that alone are on; None for all."""
    if not isinstance(part, Mapping):
        return frozenset(), None
    off = [name for key in off_keys if isinstance(part.get(key), list) for name in part[key]]
    on = [part[key] for key in on_keys if isinstance(part.get(key), list)]
    return _texts(off), _texts(on[0]) if on else None


def _texts(values: Collection[object]) -> frozenset[object]:
    return frozenset(value for value in values if isinstance(value, str))


def _with_root(server: ClientServer, root: Mapping[str, Any], client: str) -> ClientServer:
    """Adds what the file says of all servers: opencode's switches of tools, and the usual timeouts."""
    if client == "zed" and "timeout" not in server.entry and "context_server_timeout" in root:
        return replace(server, entry={**server.entry, "timeout": root["context_server_timeout"]})
    if client != "opencode":
        return server
    usual = [(root.get("experimental"), "mcp_timeout"), (root.get("mcp"), "timeout")]
    for part, key in usual:
        if "timeout" not in server.entry and isinstance(part, Mapping) and key in part:
            server = replace(server, entry={**server.entry, "timeout": part[key]})
    rules = opencode_rules(root)
    if not rules:
        return server
    notes: list[str] = []
    tools = from_rules(rules, re.sub(r"[^a-zA-Z0-9_-]", "_", server.name), notes)
    return replace(server, disabled=server.disabled or tools is None, tools=tools or ALL_TOOLS, notes=tuple(notes))


def opencode_rules(root: Mapping[str, Any]) -> dict[str, bool]:
    """The rules on tools: ``tools`` with true and false, ``permission`` with allow, ask and deny."""
    rules: dict[str, bool] = {}
    for key, meanings in (("tools", _SWITCHES), ("permission", _PERMISSIONS)):
        given = root.get(key)
        if isinstance(given, Mapping):
            rules |= {
                name: meanings[value]
                for name, value in list(given.items())[:_MAX_SERVERS]
                if isinstance(value, bool | str) and value in meanings
            }
    return rules


_SWITCHES: Mapping[Any, bool] = {True: True, False: False}
_PERMISSIONS: Mapping[Any, bool] = {"allow": True, "ask": True, "deny": False}


def _of_opencode(mcp: object, *, sure: bool) -> dict[str, Any]:
    """The entries under ``mcp`` that are servers of opencode; *sure* if the file is known to be its own."""
    if not isinstance(mcp, Mapping):
        return {}
    entries = {str(name): entry for name, entry in mcp.items() if isinstance(entry, Mapping)}
    if sure:
        return {name: entry for name, entry in entries.items() if name not in ("servers", "timeout")}
    return {
        name: entry
        for name, entry in entries.items()
        if entry.get("type") in ("local", "remote") or isinstance(entry.get("command"), list)
    }


def _servers(given: object, key: str, place: str, client: str, problems: list[str]) -> Iterator[ClientServer]:
    if isinstance(given, Mapping):
        named = [(str(name), entry) for name, entry in given.items()]
    elif isinstance(given, list):  # Continue
        named = [(_own_name(entry) or f"server-{number}", entry) for number, entry in enumerate(given, 1)]
    else:
        problems.append(f"{key}: not an object")
        return
    for name, entry in named:
        if isinstance(entry, Mapping):
            yield ClientServer(name, entry, place=place, client=client)
        else:
            problems.append(f"{name}: not an object")


def _own_name(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else ""


def _looks_like_server(entry: object) -> bool:
    return isinstance(entry, Mapping) and any(isinstance(entry.get(key), str) for key in ("command", "url"))


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for old, new in texts.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, Mapping):
        return {key: _replaced(each, texts) for key, each in value.items()}
    return [_replaced(each, texts) for each in value] if isinstance(value, list) else value
