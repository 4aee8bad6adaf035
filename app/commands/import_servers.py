"""The command ``wicketgate import``: from the file of a desktop or editor client to our configuration (OPS-4).

It reads JSON with comments and trailing commas, as editors write it, and YAML if the file's name says so.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.commands.import_entry import ClientServer, ImportedServer, Variables, import_entry
from wicketgate.catalog.card import one_line
from wicketgate.errors import ConfigError
from wicketgate.yaml_text import NotYaml, read_yaml, write_yaml

_MAX_NAME_CHARS = 64
_MAX_BYTES = 16 * 1024 * 1024
# No step back inside a string, and one that does not end takes the rest: the time is linear in the text.
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
_COMMENT = re.compile(rf"({_STRING})|//[^\n]*|/\*(?:.*?\*/|.*+)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)

_YAML = (".yaml", ".yml")
_MAPS = ("mcpServers", "servers", "context_servers")
_DISABLED = ("disabledMcpServers", "disabledMcpjsonServers")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """*inputs* holds by id the client's description of a value that it asks its user for. *problems* names the parts
    that could not be read."""

    servers: tuple[ClientServer, ...]
    inputs: Mapping[str, str]
    problems: tuple[str, ...]


def import_servers(path: Path, write: Path | None) -> int:
    """Returns the exit code: 1 if no server could be taken over."""
    config = _read_client_config(path)
    imported, variables = take_over(config)
    text = as_yaml(imported, path.name)
    if write is None:
        click.echo(text, nl=False)
    else:
        _write(write, text)
    for line in _report(imported, config.problems, variables, write):
        click.echo(line, err=True)
    return 0 if any(server.settings is not None for server in imported) else 1


def take_over(config: ClientConfig) -> tuple[list[ImportedServer], Mapping[str, str]]:
    """The servers in the order of the file, and the description of each variable. A server that several projects have
    alike is taken once."""
    variables = Variables((json.dumps(server.entry, default=str) for server in config.servers), config.inputs)
    done: list[ImportedServer] = []
    names: dict[tuple[str, str], str] = {}
    for server in config.servers:
        alike = (server.name, json.dumps([server.entry, server.disabled], sort_keys=True, default=str))
        if alike in names:
            note = f"{server.place}: the same once more".removeprefix(": ")
            done.append(ImportedServer(names[alike], None, (note,)))
            continue
        done.append(import_entry(server, legal_name(server.name, names.values()), variables))
        if done[-1].settings is not None:
            names[alike] = done[-1].name
    return done, variables.descriptions


def legal_name(name: str, used: Collection[str]) -> str:
    """*name* changed to a legal upstream name that is none of *used*."""
    legal = re.sub(r"_{2,}", "_", re.sub(r"[^a-z0-9_-]+", "-", name.lower())).strip("-_")
    if not legal[:1].isalpha():
        legal = f"server-{legal}".strip("-")
    number, suffix = 1, ""
    while (candidate := legal[: _MAX_NAME_CHARS - len(suffix)].rstrip("-_") + suffix) in used:
        number += 1
        suffix = f"-{number}"
    return candidate


def as_yaml(imported: Sequence[ImportedServer], source: str) -> str:
    taken = any(server.settings is not None for server in imported)
    lines = [f"# Made from {one_line(source)} by wicketgate import", "upstreams:" if taken else "upstreams: []"]
    for server in imported:
        if server.settings is None:
            lines.append(f"  # {_not_taken(server)}")
            continue
        lines += [f"  # {one_line(note)}" for note in server.notes]
        lines += [f"  {line}" for line in write_yaml([dict(server.settings)]).splitlines()]
    return "\n".join(lines) + "\n"


def _report(
    imported: Sequence[ImportedServer], problems: Sequence[str], variables: Mapping[str, str], write: Path | None
) -> Iterator[str]:
    """The lines for a person, without any secret."""
    taken = sum(server.settings is not None for server in imported)
    yield f"{taken} of {len(imported)} servers taken over."
    for server in imported:
        if server.settings is None:
            yield f"  {_not_taken(server)}"
        else:
            yield from (f"  {server.name}: {one_line(note)}" for note in server.notes)
    yield from (f"  {one_line(problem)}" for problem in problems)
    if variables:
        yield "Set these variables before you start:"
        yield from (f"  {name}{f'  ({one_line(text)})' if text else ''}" for name, text in sorted(variables.items()))
    if taken:
        yield f"Then: wicketgate check --config {write or 'FILE'}"


def _not_taken(server: ImportedServer) -> str:
    return f"not taken over: {server.name}: {one_line('; '.join(server.notes))}"


def _write(path: Path, text: str) -> None:
    """Creates the file. An existing file may be the configuration in use, so it is never replaced."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}") from None


def _read_client_config(path: Path) -> ClientConfig:
    """Raises ConfigError if nothing in the file could be servers."""
    problems: list[str] = []
    root = _parse(path, problems)
    found = tuple(_find_servers(root, problems)) if isinstance(root, Mapping) else ()
    if not isinstance(root, Mapping) or not (found or problems):
        raise ConfigError(f"{path} holds no MCP servers: looked for mcpServers, servers and context_servers")
    # VS Code keeps its inputs beside the servers, at the top of the file or under mcp.
    lists = [part.get("inputs") for part in (root, root.get("mcp")) if isinstance(part, Mapping)]
    inputs = [item for each in lists if isinstance(each, list) for item in each if isinstance(item, Mapping)]
    texts = {item["id"]: str(item.get("description") or "") for item in inputs if isinstance(item.get("id"), str)}
    return ClientConfig(found, texts, tuple(problems))


def without_comments(text: str) -> str:
    """Plain JSON from the JSON that editors write."""

    def keep_string(match: re.Match[str]) -> str:
        return match.group(1) or " "

    return _TRAILING_COMMA.sub(keep_string, _COMMENT.sub(keep_string, text))


def _parse(path: Path, problems: list[str]) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        if len(counts) < len(pairs):
            twice = sorted(name for name, count in counts.items() if count > 1)
            problems.append(f"given twice, the last counts: {', '.join(twice)}")
        return dict(pairs)

    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_BYTES // 1024 // 1024} MiB")
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix in _YAML:
            return read_yaml(text)
        return json.loads(without_comments(text), object_pairs_hook=unique)
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from None
    except NotYaml as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} cannot be read as JSON") from None


def _find_servers(root: Mapping[str, Any], problems: list[str]) -> Iterator[ClientServer]:
    # The parts of a file that may hold servers: all of it, the settings of VS Code, the projects of ~/.claude.json.
    projects = root.get("projects")
    parts = [(root, ""), (root.get("mcp"), "mcp")]
    parts += [(part, f"project {name}") for name, part in (projects if isinstance(projects, Mapping) else {}).items()]
    found = False
    for part, place in parts:
        if not isinstance(part, Mapping):
            continue
        lists = [part[key] for key in _DISABLED if isinstance(part.get(key), list)]
        disabled = [name for names in lists for name in names]
        for key in _MAPS:
            if key in part:
                found = True
                yield from _servers(part[key], key, disabled, place, problems)
    # The older form of Continue.
    experimental = root.get("experimental")
    if isinstance(experimental, Mapping) and "modelContextProtocolServers" in experimental:
        found = True
        yield from _servers(experimental["modelContextProtocolServers"], "experimental", (), "", problems)
    if not found and root and all(map(_looks_like_server, root.values())):
        yield from _servers(root, "the file", (), "", problems)


def _servers(
    given: object, key: str, disabled: Collection[object], place: str, problems: list[str]
) -> Iterator[ClientServer]:
    if isinstance(given, Mapping):
        named = [(str(name), entry) for name, entry in given.items()]
    elif isinstance(given, list):  # Continue
        named = [(_own_name(entry) or f"server-{number}", entry) for number, entry in enumerate(given, 1)]
    else:
        problems.append(f"{key}: not an object")
        return
    for name, entry in named:
        if isinstance(entry, Mapping):
            yield ClientServer(name, entry, name in disabled, place)
        else:
            problems.append(f"{name}: not an object")


def _own_name(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else ""


def _looks_like_server(entry: object) -> bool:
    return isinstance(entry, Mapping) and any(isinstance(entry.get(key), str) for key in ("command", "url"))
