"""``wicketgate import``: the servers of a desktop or editor client as our configuration (W-IMPORT)."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import click

from app.commands.client_config import ClientConfig, read_client_config
from app.commands.import_entry import ImportedServer, import_entry
from app.commands.import_values import Variables
from wicketgate.catalog.card import one_line
from wicketgate.errors import ConfigError
from wicketgate.yaml_text import write_yaml

_MAX_NAME_CHARS = 64


def import_servers(path: Path, write: Path | None) -> int:
    """The exit code: 1 when no server at all could be taken over."""
    config = read_client_config(path)
    imported, variables = take_over(config)
    text = as_yaml(imported, path.name)
    if write is None:
        click.echo(text, nl=False)
    else:
        _write(write, text)
    for line in report(imported, config.problems, variables, write):
        click.echo(line, err=True)
    return 0 if any(server.settings is not None for server in imported) else 1


def take_over(config: ClientConfig) -> tuple[list[ImportedServer], Mapping[str, str]]:
    """In the order of the file, and what each variable stands for. Servers that stand in several projects alike are
    one."""
    variables = Variables((json.dumps(server.entry, default=str) for server in config.servers), config.inputs)
    done: list[ImportedServer] = []
    seen: dict[tuple[str, str], str] = {}
    used: set[str] = set()
    for server in config.servers:
        alike = (server.name, json.dumps([server.entry, server.disabled], sort_keys=True, default=str))
        if alike in seen:
            where = f"{server.place}: " if server.place else ""
            done.append(ImportedServer(seen[alike], None, (f"{where}the same once more",)))
            continue
        name = legal_name(server.name, used)
        taken = import_entry(server, name, variables)
        if taken.settings is not None:
            used.add(name)
            seen[alike] = name
        done.append(taken)
    return done, variables.told


def legal_name(name: str, used: Collection[str]) -> str:
    """*name* as an upstream may be called, and none of *used*."""
    made = re.sub(r"_{2,}", "_", re.sub(r"[^a-z0-9_-]+", "-", name.lower())).strip("-_")
    if not made[:1].isalpha():
        made = f"server-{made}".strip("-")
    made = made[:_MAX_NAME_CHARS].rstrip("-_")
    number, candidate = 2, made
    while candidate in used:
        suffix = f"-{number}"
        candidate = made[: _MAX_NAME_CHARS - len(suffix)].rstrip("-_") + suffix
        number += 1
    return candidate


def as_yaml(imported: Sequence[ImportedServer], source: str) -> str:
    taken = any(server.settings is not None for server in imported)
    lines = [f"# Made from {one_line(source)} by wicketgate import", "upstreams:" if taken else "upstreams: []"]
    for server in imported:
        if server.settings is None:
            lines.append(f"  # not taken over: {_told(server)}")
            continue
        lines += [f"  # {one_line(note)}" for note in server.notes]
        entry = write_yaml([dict(server.settings)])
        lines += [f"  {line}" for line in entry.splitlines()]
    return "\n".join(lines) + "\n"


def report(
    imported: Sequence[ImportedServer], problems: Sequence[str], variables: Mapping[str, str], write: Path | None
) -> Iterator[str]:
    """For a person, without any value."""
    taken = [server for server in imported if server.settings is not None]
    yield f"{len(taken)} of {len(imported)} servers taken over."
    for server in imported:
        if server.settings is None:
            yield f"  not taken over: {_told(server)}"
        else:
            yield from (f"  {server.name}: {one_line(note)}" for note in server.notes)
    yield from (f"  {one_line(problem)}" for problem in problems)
    if variables:
        yield "Set these variables before you start:"
        yield from (f"  {name}{f'  ({one_line(told)})' if told else ''}" for name, told in sorted(variables.items()))
    if taken:
        yield f"Then: wicketgate check --config {write or 'FILE'}"


def _told(server: ImportedServer) -> str:
    return f"{server.name}: {one_line('; '.join(server.notes))}"


def _write(path: Path, text: str) -> None:
    """Never over a file that is there: it may be the configuration in use."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}") from None
