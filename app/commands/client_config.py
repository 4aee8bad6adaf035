"""The files in which desktop and editor clients keep their MCP servers: where in them the servers are (W-IMPORT).

JSON with comments and trailing commas, as editors write it, and YAML by its ending. What an entry means is decided in
``commands/import_entry.py``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wicketgate.errors import ConfigError
from wicketgate.yaml_text import NotYaml, read_yaml

_MAX_BYTES = 16 * 1024 * 1024
_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)

_YAML = (".yaml", ".yml")
_MAPS = ("mcpServers", "servers", "context_servers")


@dataclass(frozen=True, slots=True)
class ClientServer:
    """One entry. *disabled*: by a list beside it, not by itself. *place*: where it stands, where that is not plain."""

    name: str
    entry: Mapping[str, Any]
    disabled: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """*inputs*: what a client asks its user for, by id, in its own words. *problems*: parts that could not be read."""

    servers: tuple[ClientServer, ...]
    inputs: Mapping[str, str]
    problems: tuple[str, ...]


def read_client_config(path: Path) -> ClientConfig:
    """Raises ConfigError when there is nothing in it that could be servers."""
    problems: list[str] = []
    root = _parse(path, problems)
    found = tuple(_found(root, problems)) if isinstance(root, Mapping) else ()
    if not found and not problems:
        raise ConfigError(f"{path} holds no MCP servers: looked for mcpServers, servers and context_servers")
    return ClientConfig(found, _inputs(root), tuple(problems))


def without_comments(text: str) -> str:
    """JSON as editors write it, as JSON."""
    return _TRAILING_COMMA.sub(_kept, _COMMENT.sub(_kept, text))


def _kept(match: re.Match[str]) -> str:
    return match.group(1) or " "


def _parse(path: Path, problems: list[str]) -> Any:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_BYTES // 1024 // 1024} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            problems.append(
                f"given twice, the last counts: {', '.join(sorted({n for n in names if names.count(n) > 1}))}"
            )
        return made

    try:
        if path.suffix in _YAML:
            return read_yaml(text)
        return json.loads(without_comments(text), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from None
    except NotYaml as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} cannot be read as JSON") from None


def _found(root: Mapping[str, Any], problems: list[str]) -> Iterator[ClientServer]:
    whole = [(root, "")]
    if isinstance(root.get("mcp"), Mapping):  # the settings file of VS Code
        whole.append((root["mcp"], "mcp"))
    if isinstance(root.get("projects"), Mapping):  # ~/.claude.json
        whole += [
            (project, f"project {name}") for name, project in root["projects"].items() if isinstance(project, Mapping)
        ]
    any_map = False
    for part, place in whole:
        off = {name for key in _DISABLED for name in _texts(part.get(key))}
        for key in _MAPS:
            if key in part:
                any_map = True
                yield from _servers(part[key], key, off, place, problems)
    experimental = root.get("experimental")
    if isinstance(experimental, Mapping) and "modelContextProtocolServers" in experimental:  # Continue, its older form
        any_map = True
        yield from _servers(experimental["modelContextProtocolServers"], "experimental", set(), "", problems)
    if not any_map and root and all(map(_looks_like_server, root.values())):
        yield from _servers(root, "the file", set(), "", problems)


_DISABLED = ("disabledMcpServers", "disabledMcpjsonServers")


def _servers(given: object, key: str, off: set[str], place: str, problems: list[str]) -> Iterator[ClientServer]:
    if isinstance(given, Mapping):
        named = [(str(name), entry) for name, entry in given.items()]
    elif isinstance(given, list):  # Continue
        named = [(_own_name(entry, index), entry) for index, entry in enumerate(given)]
    else:
        problems.append(f"{key}: not an object")
        return
    for name, entry in named:
        if isinstance(entry, Mapping):
            yield ClientServer(name, entry, name in off, place)
        else:
            problems.append(f"{name}: not an object")


def _own_name(entry: object, index: int) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) and name else f"server-{index + 1}"


def _looks_like_server(entry: object) -> bool:
    return isinstance(entry, Mapping) and any(isinstance(entry.get(key), str) for key in ("command", "url"))


def _inputs(root: Mapping[str, Any]) -> dict[str, str]:
    holders = [root, root.get("mcp")]
    inputs = [each for holder in holders if isinstance(holder, Mapping) for each in holder.get("inputs") or []]
    return {
        each["id"]: str(each.get("description") or "")
        for each in inputs
        if isinstance(each, Mapping) and isinstance(each.get("id"), str)
    }


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
