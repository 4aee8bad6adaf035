"""The command ``wicketgate import``: from the files of desktop and editor clients to our configuration (OPS-4).

``take_over`` and ``as_yaml`` do the work for ``init`` too: a list of servers becomes upstreams, and these a file.
"""

import json
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import reduce
from pathlib import Path
from typing import Any

import click

from app.clients import CLIENTS
from app.commands.import_entry import ClientServer, ImportedServer, import_entry, is_this_gate
from app.commands.import_files import ClientConfig, client_named, client_places, configs_here, read_client_config
from app.commands.import_tools import ToolChoice, listed
from app.commands.import_variables import Variables, Verbatim
from app.commands.options import with_json
from app.commands.output import bounded_line, count, printable
from wicketgate.config.client_entries import legal_name
from wicketgate.config.settings_file import create_file
from wicketgate.errors import ConfigError
from wicketgate.yaml_text import write_yaml

_MAX_ORIGINS = 3
_OF_THE_CLIENT = ("name", "enabled", "timeout_s", "connect_timeout_s")


@click.command("import")
@click.argument("sources", nargs=-1, metavar="[CLIENT|PATH]...")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="Write to this new file, not to stdout.")
@with_json
def import_command(sources: tuple[str, ...], write: Path | None, as_json: bool) -> None:
    """Turn the MCP servers of desktop and editor clients into a configuration.

    Without arguments the command looks where clients keep their lists, for the user and for this folder, and takes all
    of them. CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, zed, cline, continue, codex, gemini or
    opencode; PATH is a file in the form of one of them.

    Servers and tools that are switched off stay off. A value that looks like a secret becomes a variable, and is not
    written. Exits with 1 if no server was found or could be imported.
    """
    named = {source: client_named(source) for source in sources}
    found = [] if sources else [*configs_here()]
    for source, client in named.items():
        found += configs_here({client}) if client else [read_client_config(Path(source))]
    problems = [f"{each.source}: {problem}" for each in found for problem in each.problems]
    problems += [each.fault for each in found if each.fault]
    servers = [server for each in found for server in each.servers]
    imported, variables = take_over(servers)
    if any(each.servers or each.problems for each in found):
        text = as_yaml(imported, listed([each.source for each in found if each.servers], _MAX_ORIGINS))
        lines = _report(found, imported, problems, variables, write)
    else:
        text, lines = "", _looked([client for client in named.values() if client] or CLIENTS.keys(), problems)
    if write is not None and text:
        write_new(write, text, "; choose another name")
    if as_json:
        text = json.dumps(_document(found, imported, variables, problems, write), indent=2) + "\n"
    if as_json or write is None:
        click.echo(text, nl=False)
    for line in lines:  # on stderr: stdout is for the configuration
        click.echo(line, err=True)
    sys.exit(0 if any(server.settings is not None for server in imported) else 1)


def take_over(servers: Sequence[ClientServer]) -> tuple[list[ImportedServer], Mapping[str, str]]:
    """The servers in the order of the file, and the description of each variable.

    A server that several projects or clients have alike is taken once: with the name of the first, on if it is on in
    one of them, and without the tools that are off in any.
    """
    used, names = dict[str, None](), dict[int, str]()
    variables, verbatim = Variables(json.dumps(server.entry, default=str) for server in servers), Verbatim()
    reads = [None if is_this_gate(each) else import_entry(each, legal_name(each.name), verbatim) for each in servers]
    groups = _alike(servers, reads)
    done: list[ImportedServer] = []
    for place, (server, read) in enumerate(zip(servers, reads, strict=True)):
        places = groups.get(place, [place])
        if read is None:
            reason = "it leads to a Wicketgate; if that is not this one, add it by hand"
            done.append(ImportedServer(legal_name(server.name), None, (reason,), server.origin))
        elif places[0] in names:
            done.append(ImportedServer(names[places[0]], None, ("the same server again",), server.origin))
        else:
            members = [(servers[each], each_read) for each in places if (each_read := reads[each])]
            done.append(_import_group(members, legal_name(server.name, used), variables))
            if done[-1].settings is not None:
                names[places[0]] = done[-1].name
                used[done[-1].name] = None
    return done, variables.descriptions


def as_yaml(imported: Sequence[ImportedServer], source: str) -> str:
    taken = any(server.settings is not None for server in imported)
    lines = [f"# Made from {bounded_line(source)} by wicketgate import", "upstreams:" if taken else "upstreams: []"]
    for server in imported:
        if server.settings is None:
            lines.append(f"  # {_not_taken(server)}")
            continue
        lines += [f"  # {bounded_line(note)}" for note in (f"from {server.origin}", *server.notes)]
        lines += [f"  {line}" for line in yaml_lines([dict(server.settings)])]
    if plugins := _plugins(imported):
        lines += ["# The tools that are switched off at the client", *yaml_lines({"plugins": plugins})]
    return "\n".join(lines) + "\n"


def _alike(servers: Sequence[ClientServer], reads: Sequence[ImportedServer | None]) -> dict[int, list[int]]:
    """Returns, by place in *servers*, the places of the servers that are started or reached in the same way.

    In one file two names are two servers; the person meant them to be.
    """
    groups: dict[int, list[int]] = {}
    # By the way to a server with its name or its file, the group.
    by_name: dict[tuple[str, str], list[int]] = {}
    by_source: dict[str, dict[str, list[int]]] = {}
    for place, (server, read) in enumerate(zip(servers, reads, strict=True)):
        if read is None or read.settings is None:
            continue
        settings = {key: value for key, value in read.settings.items() if key not in _OF_THE_CLIENT}
        way = json.dumps(settings, sort_keys=True)
        sources = by_source.setdefault(way, {})
        elsewhere = next((group for source, group in sources.items() if source != server.source), [])
        group = groups[place] = by_name.setdefault((way, read.name), elsewhere)
        sources.setdefault(server.source, group)
        group.append(place)
    return groups


def _import_group(
    group: Sequence[tuple[ClientServer, ImportedServer]], name: str, variables: Variables
) -> ImportedServer:
    """Imports the entries of one server in several places as one. Each comes with what was read of it."""
    on = [server for server, _ in group if not server.is_off]
    chosen = import_entry(on[0] if on else group[0][0], name, variables)
    if len(group) == 1 or chosen.settings is None:
        return chosen
    tools = reduce(ToolChoice.narrowed, (read.tools for _, read in group))
    notes = [note for note in chosen.notes if note != chosen.tools.note()]
    notes += [f"switched off in {server.origin}" for server, _ in group if on and server.is_off]
    notes += [note] if (note := tools.note()) else []
    return replace(chosen, notes=tuple(notes), tools=tools)


def _plugins(imported: Sequence[ImportedServer]) -> dict[str, Any]:
    entries = {server.name: server.tools.plugins() for server in imported if server.settings is not None}
    chosen = {name: plugins for name, plugins in entries.items() if plugins}
    return {"middleware": chosen} if chosen else {}


def yaml_lines(value: Any) -> list[str]:
    text = write_yaml(value)
    if all(line.isprintable() for line in text.split("\n")):
        return text.splitlines()
    # YAML leaves some invisible characters as they are, such as those that turn a line round. JSON is YAML too.
    if isinstance(value, list):
        return [f"- {json.dumps(each)}" for each in value]
    return [f"{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()]


def _looked(names: Collection[str], problems: Sequence[str]) -> Iterator[str]:
    yield "No client of this machine has a list of MCP servers. Looked for:"
    yield from (f"  {client.title}: {printable(str(path))}" for client, path in client_places(names))
    yield from (f"  {bounded_line(problem)}" for problem in problems)
    yield "With the file elsewhere: wicketgate import PATH"


def _document(
    found: Sequence[ClientConfig],
    imported: Sequence[ImportedServer],
    variables: Mapping[str, str],
    problems: Sequence[str],
    write: Path | None,
) -> dict[str, Any]:
    """Makes the document of ``--json``. No value of a variable is in it."""
    servers = [server for each in found for server in each.servers]
    upstreams = [dict(each.settings) for each in imported if each.settings is not None]
    plugins = _plugins(imported)
    return {
        "files": [
            {
                "client": each.client or None,
                "file": str(each.path),
                "servers": len(each.servers),
                "switched_off": sum(server.is_off for server in each.servers),
                "problem": each.fault or None,
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
            for server, each in zip(servers, imported, strict=True)
        ],
        "variables": dict(variables),
        "problems": list(problems),
        "configuration": {"upstreams": upstreams, **({"plugins": plugins} if plugins else {})},
        "written": None if write is None else str(write),
    }


def _report(
    found: Sequence[ClientConfig],
    imported: Sequence[ImportedServer],
    problems: Sequence[str],
    variables: Mapping[str, str],
    write: Path | None,
) -> Iterator[str]:
    """The lines for a person, without any secret."""
    for each in found:
        if each.servers or each.problems or each.fault:
            off = sum(server.is_off for server in each.servers)
            number = f"{count(len(each.servers), 'server')}, {off} switched off"
            yield f"{printable(each.source)}: {'not readable' if each.fault else number}"
    taken = sum(server.settings is not None for server in imported)
    yield f"{taken} of {len(imported)} servers imported."
    for server in imported:
        if server.settings is None:
            yield f"  {_not_taken(server)}"
        else:
            yield from (f"  {server.name}: {bounded_line(note)}" for note in server.notes)
    yield from (f"  {bounded_line(problem)}" for problem in problems)
    yield from variables_to_set(variables)
    if taken:
        yield f"Then: wicketgate check --config {write or 'FILE'}"


def variables_to_set(variables: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each of *variables* that is not set here, with its description, below a line that says so."""
    if missing := sorted(name for name in variables if name not in os.environ):
        yield "Set these variables before you start:"
        for name in missing:
            yield f"  {bounded_line(name)}{f'  ({bounded_line(variables[name])})' if variables[name] else ''}"


def _not_taken(server: ImportedServer) -> str:
    return f"not imported: {server.name}: " + bounded_line(f"{server.origin}: {'; '.join(server.notes)}")


def write_new(path: Path, text: str, taken: str) -> None:
    """Creates the file. An existing file may be the configuration in use, so it is never replaced: the error ends in
    *taken*. Raises ConfigError; then there is no file, or a different one."""
    try:
        create_file(path, text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already{taken}") from None
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}") from None
