"""The command ``wicketgate import``: from the files of desktop and editor clients to our configuration (OPS-4).

``take_over`` and ``as_yaml`` do the work for other commands too: a list of servers becomes upstreams, and these a file.
"""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from app.clients import CLIENTS
from app.commands.import_entry import ClientServer, ImportedServer, import_entry, is_this_gate
from app.commands.import_file import ClientConfig, merge, read_client_config, without_comments
from app.commands.import_find import Machine, client_named
from app.commands.import_tools import ALL_TOOLS
from app.commands.import_variables import Variables, Verbatim
from app.commands.output import bounded_line, printable
from wicketgate.config.client_entries import legal_name
from wicketgate.config.settings_file import unshared
from wicketgate.errors import ConfigError
from wicketgate.yaml_text import write_yaml

__all__ = ["ClientConfig", "as_yaml", "import_servers", "legal_name", "read_client_config", "take_over"]
__all__ += ["without_comments"]

_read_client_config = read_client_config

_MAX_PLACES = 60
_MAX_ORIGINS = 3
_OF_THE_CLIENT = ("name", "enabled", "timeout_s", "connect_timeout_s")
_LONGEST = ("timeout_s", "connect_timeout_s")


@dataclass(frozen=True, slots=True)
class _Found:
    """A file that was read. *problem* says why it could not be."""

    client: str
    title: str
    path: Path
    config: ClientConfig
    problem: str = ""


def import_servers(sources: Sequence[str], write: Path | None, *, as_json: bool) -> int:
    """Returns the exit code: 1 if no server could be taken over. *sources* are paths and names of clients; without any
    every client is looked for. Raises ConfigError."""
    machine = Machine(sys.platform, Path.cwd(), os.environ)
    found = _read_all(machine, sources)
    named = [source for source in sources if client_named(source) is None]
    if not any(each.config.servers or each.config.problems for each in found) and not named:
        return _nothing_found(machine, sources, found, as_json=as_json)
    searched = len(named) < len(sources) or not sources
    config = merge([_with_source(each, machine, len(found) > 1 or searched) for each in found])
    imported, variables = take_over(config)
    problems = (*config.problems, *(each.problem for each in found if each.problem))
    text = as_yaml(imported, _origins([_origin_of(each, machine) for each in found if each.config.servers]))
    if write is not None:
        _write(write, text)
    if as_json:
        click.echo(json.dumps(_document(found, config, imported, variables, problems, write), indent=2))
        return _exit_code(imported)
    if searched:
        _show_found(found, machine)
    if write is None:
        click.echo(text, nl=False)
    for line in _report(imported, problems, variables, write):
        click.echo(line, err=True)
    return _exit_code(imported)


def take_over(config: ClientConfig) -> tuple[list[ImportedServer], Mapping[str, str]]:
    """The servers in the order of the file, and the description of each variable.

    A server that several projects or clients have alike is taken once: with the name of the first, on if it is on in
    one of them, and without the tools that are off in any.
    """
    variables = Variables((json.dumps(server.entry, default=str) for server in config.servers), config.inputs)
    groups = _alike(config.servers)
    members: dict[int, list[ClientServer]] = {}
    for place, group in groups.items():
        members.setdefault(group, []).append(config.servers[place])
    done: list[ImportedServer] = []
    used: dict[str, None] = {}
    names: dict[int, str] = {}
    for place, server in enumerate(config.servers):
        first = groups.get(place, place)
        if is_this_gate(server):
            name = legal_name(server.name)
            done.append(
                ImportedServer(
                    name, None, _with_origin(server, "it leads to a Wicketgate; if not to this one, add it by hand")
                )
            )
        elif first in names:
            done.append(ImportedServer(names[first], None, _with_origin(server, "the same once more")))
        else:
            done.append(_import_group(members.get(first, [server]), legal_name(server.name, used), variables))
            if done[-1].settings is not None:
                names[first] = done[-1].name
                used[done[-1].name] = None
    return done, variables.descriptions


def as_yaml(imported: Sequence[ImportedServer], source: str) -> str:
    taken = any(server.settings is not None for server in imported)
    lines = [f"# Made from {bounded_line(source)} by wicketgate import", "upstreams:" if taken else "upstreams: []"]
    for server in imported:
        if server.settings is None:
            lines.append(f"  # {_not_taken(server)}")
            continue
        lines += [f"  # {bounded_line(note)}" for note in server.notes]
        lines += [f"  {line}" for line in _yaml_lines([dict(server.settings)])]
    if plugins := _plugins(imported):
        lines += ["# The tools that are switched off at the client", *_yaml_lines({"plugins": plugins})]
    return "\n".join(lines) + "\n"


def _alike(servers: Sequence[ClientServer]) -> dict[int, int]:
    """By place in *servers* the place of the first server that is started or reached in the same way.

    In one file two names are two servers; the person meant them to be.
    """
    groups: dict[int, int] = {}
    # By the way to a server the groups that there are, by name and by file.
    known: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
    for place, server in enumerate(servers):
        name = legal_name(server.name)
        settings = import_entry(server, name, Verbatim()).settings
        if settings is None or is_this_gate(server):
            continue
        way = json.dumps({key: value for key, value in settings.items() if key not in _OF_THE_CLIENT}, sort_keys=True)
        names, sources = known.setdefault(way, ({}, {}))
        elsewhere = next((group for source, group in sources.items() if source != server.source), place)
        group = groups[place] = names.get(name, elsewhere)
        names.setdefault(name, group)
        sources.setdefault(server.source, group)
    return groups


def _import_group(group: Sequence[ClientServer], name: str, variables: Variables) -> ImportedServer:
    """Imports the entries of one server in several places as one."""
    each = [import_entry(server, name, Verbatim()) for server in group]
    on = [server for server, read in zip(group, each, strict=True) if (read.settings or {}).get("enabled", True)]
    chosen = import_entry((on or group)[0], name, variables)
    if len(group) == 1 or chosen.settings is None:
        return chosen
    settings, tools = dict(chosen.settings), ALL_TOOLS
    for read in each:
        tools = tools.narrowed(read.tools)
        longer = {key: (read.settings or {}).get(key, 0) for key in _LONGEST}
        settings |= {key: value for key, value in longer.items() if value > settings.get(key, 0)}
    notes = [note for note in chosen.notes if note != chosen.tools.note()]
    notes += [f"switched off in {server.origin}" for server in group if on and server not in on and server.origin]
    notes += [note] if (note := tools.note()) else []
    return ImportedServer(name, settings, tuple(notes), tools)


def _plugins(imported: Sequence[ImportedServer]) -> dict[str, Any]:
    entries = {server.name: server.tools.plugins() for server in imported if server.settings is not None}
    chosen = {name: plugins for name, plugins in entries.items() if plugins}
    return {"middleware": chosen} if chosen else {}


def _yaml_lines(value: Any) -> list[str]:
    text = write_yaml(value)
    if all(line.isprintable() for line in text.split("\n")):
        return text.splitlines()
    # YAML leaves some invisible characters as they are, such as those that turn a line round. JSON is YAML too.
    if isinstance(value, list):
        return [f"- {json.dumps(each)}" for each in value]
    return [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()]


def _with_origin(server: ClientServer, reason: str) -> tuple[str, ...]:
    return (f"{server.origin}: {reason}".removeprefix(": "),)


def _read_all(machine: Machine, sources: Sequence[str]) -> list[_Found]:
    """Raises ConfigError if a file that was named cannot be read. One that was found is listed with its problem."""
    found: list[_Found] = []
    if not sources:
        return _search(machine, tuple(CLIENTS))
    for source in dict.fromkeys(sources):
        name = client_named(source)
        if name is not None:
            found += _search(machine, (name,))
            continue
        path = Path(source)
        owner = machine.owner(path)
        config = machine.read(owner, path)
        if not (config.servers or config.problems):
            config = read_client_config(path, owner)  # says what it looked for
        found.append(_Found(owner, CLIENTS[owner].title if owner else "", path, config))
    return found


def _search(machine: Machine, names: Collection[str]) -> list[_Found]:
    found: list[_Found] = []
    for client, path in machine.files(names):
        try:
            found.append(_Found(client.name, client.title, path, machine.read(client.name, path)))
        except ConfigError as error:
            found.append(_Found(client.name, client.title, path, ClientConfig((), {}, ()), str(error)))
    return found


def _with_source(found: _Found, machine: Machine, several: bool) -> ClientConfig:
    if not several:
        return found.config
    source = _origin_of(found, machine)
    problems = tuple(f"{source}: {problem}" for problem in found.config.problems)
    servers = tuple(replace(server, source=source) for server in found.config.servers)
    return replace(found.config, servers=servers, problems=problems)


def _origin_of(found: _Found, machine: Machine) -> str:
    shown = machine.shown(found.path)
    return f"{found.title} ({shown})" if found.title else shown


def _origins(origins: Sequence[str]) -> str:
    more = f" and {len(origins) - _MAX_ORIGINS} more" if len(origins) > _MAX_ORIGINS else ""
    return ", ".join(origins[:_MAX_ORIGINS]) + more


def _nothing_found(machine: Machine, sources: Sequence[str], found: Sequence[_Found], *, as_json: bool) -> int:
    names = [name for source in sources if (name := client_named(source))] or [*CLIENTS]
    looked = [(client.title, str(path)) for client, path in machine.places(names)]
    problems = [each.problem for each in found if each.problem]
    if as_json:
        places = [{"client": title, "file": path} for title, path in looked]
        click.echo(json.dumps({"files": [], "servers": [], "problems": problems, "looked": places}, indent=2))
        return 1
    click.echo("No client of this machine has a list of MCP servers. Looked for:", err=True)
    for title, path in looked[:_MAX_PLACES]:
        click.echo(f"  {title}: {printable(path)}", err=True)
    for problem in problems:
        click.echo(f"  {bounded_line(problem)}", err=True)
    click.echo("With the file elsewhere: wicketgate import PATH", err=True)
    return 1


def _show_found(found: Sequence[_Found], machine: Machine) -> None:
    """The table of files, on stderr: stdout is for the configuration."""
    from app.commands.console import console, table

    rows = [
        (each.title, machine.shown(each.path), _count(each), str(_count_off(each.config)))
        for each in found
        if each.problem or each.config.servers or each.config.problems
    ]
    shown = table(("client", "file", "servers", "switched off"), rows, ("bold",))
    shown.columns[1].overflow = "fold"  # a path that is cut cannot be opened
    console(stderr=True).print(shown)


def _count(found: _Found) -> str:
    return "not readable" if found.problem else str(len(found.config.servers))


def _count_off(config: ClientConfig) -> int:
    return sum(
        (import_entry(server, "server", Verbatim()).settings or {}).get("enabled") is False for server in config.servers
    )


def _document(
    found: Sequence[_Found],
    config: ClientConfig,
    imported: Sequence[ImportedServer],
    variables: Mapping[str, str],
    problems: Sequence[str],
    write: Path | None,
) -> dict[str, Any]:
    """Makes the document of ``--json``. No value of a variable is in it."""
    pairs = zip(config.servers, imported, strict=True)
    configuration: dict[str, Any] = {
        "upstreams": [dict(each.settings) for each in imported if each.settings is not None]
    }
    if plugins := _plugins(imported):
        configuration["plugins"] = plugins
    return {
        "files": [
            {
                "client": each.client or None,
                "file": str(each.path),
                "servers": len(each.config.servers),
                "switched_off": _count_off(each.config),
                "problem": each.problem or None,
            }
            for each in found
        ],
        "servers": [
            {
                "name": each.name,
                "was": server.name,
                "client": server.client or None,
                "from": server.origin or None,
                "taken": each.settings is not None,
                "enabled": each.settings is not None and each.settings.get("enabled", True),
                "tools": None if each.settings is None else asdict(each.tools),
                "notes": list(each.notes),
            }
            for server, each in pairs
        ],
        "variables": dict(variables),
        "problems": list(problems),
        "configuration": configuration,
        "written": None if write is None else str(write),
    }


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
            yield from (
                f"  {server.name}: {bounded_line(note)}" for note in server.notes if not note.startswith("from ")
            )
    yield from (f"  {bounded_line(problem)}" for problem in problems)
    if missing := sorted(name for name in variables if name not in os.environ):
        yield "Set these variables before you start:"
        for name in missing:
            yield f"  {bounded_line(name)}{f'  ({bounded_line(variables[name])})' if variables[name] else ''}"
    if taken:
        yield f"Then: wicketgate check --config {write or 'FILE'}"


def _not_taken(server: ImportedServer) -> str:
    return f"not taken over: {server.name}: {bounded_line('; '.join(server.notes))}"


def _exit_code(imported: Sequence[ImportedServer]) -> int:
    return 0 if any(server.settings is not None for server in imported) else 1


def _write(path: Path, text: str) -> None:
    """Creates the file. An existing file may be the configuration in use, so it is never replaced."""
    try:
        with open(path, "x", encoding="utf-8", opener=unshared) as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}") from None
