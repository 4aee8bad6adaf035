"""The command ``wicketgate connect``: this gate in the list of servers of a desktop or editor client (OPS-70)."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from app.clients import CLIENTS, KEY_VARIABLE, KnownClient, shown_path
from app.commands.client_files import read_client_file, replace_client_file
from app.commands.client_formats import FormatError
from app.commands.connect_entry import ReachedGate, StartedGate, find_entry, make_entry, put_entry
from app.commands.connect_gate import gate_to_reach, gate_to_start
from app.commands.groups import NearChoice
from app.commands.options import with_config, with_json
from app.commands.output import printable
from wicketgate.config.settings import FACES, GATE_NAME
from wicketgate.errors import ConfigError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@click.command()
@click.argument("client", required=False, type=NearChoice(list(CLIENTS)), metavar="[CLIENT]")
@click.option("--write", is_flag=True, help="Write the entry into the client's file. Without it: print the entry.")
@click.option("--url", help="Connect to a running service at this URL. Without it: the client starts the gate itself.")
@click.option(
    "--key",
    help=f"The key for --url, written into the file. Without it the entry refers to the variable {KEY_VARIABLE}, if "
    "the client can do that.",
)
@with_config
@click.option("--face", type=NearChoice(FACES), help="The face that the client sees; replaces --tools.")
@click.option(
    "--tools",
    type=NearChoice(["all", "search"]),
    help="all: every tool, if the client searches by itself; search: the face of /mcp. Without it: as CLIENT needs.",
)
@click.option("--gate", "virtual", metavar="NAME", help="Connect to this virtual gate of the service at --url.")
@click.option("--name", default="wicketgate", show_default=True, help="The name of the entry.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME", help="Copy this variable into the entry; may be repeated."
)
@click.option("--project", is_flag=True, help="Use the client's file of this folder, not that of the user.")
@click.option(
    "--path",
    "other",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Use this file, not the client's usual one.",
)
@with_json
def connect(
    client: str | None,
    write: bool,
    url: str | None,
    key: str | None,
    config: Path | None,
    face: str | None,
    tools: str | None,
    virtual: str | None,
    name: str,
    variables: tuple[str, ...],
    project: bool,
    other: Path | None,
    as_json: bool,
) -> None:
    """Connect a client to this gate: print the entry for its list of servers, or write it with --write.

    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, zed, cline, continue, codex, gemini or opencode.
    Without CLIENT the command lists the clients on this machine. --write changes only this entry, keeps a copy of the
    file next to it, and changes nothing if the entry is already there.
    """
    needs_client: dict[str, object] = {"--write": write, "--url": url, "--key": key, "--face": face, "--tools": tools}
    needs_client |= {"--gate": virtual, "--env": variables, "--path": other, "--project": project}
    given = [option for option, value in needs_client.items() if value]
    wrong = {
        "--name must be letters, digits, _ and -, at most 64, and begin with a letter": not _NAME.fullmatch(name),
        f"{''.join(given[:1])} needs a CLIENT: one of {', '.join(CLIENTS)}": given and client is None,
        "--key needs --url: a gate that the client starts asks for no key": key is not None and url is None,
        "--env is for a gate that the client starts; a service at --url has its own environment": url and variables,
        "give --face or --tools, not both": face and tools,
        "--gate needs --url: virtual gates are paths of a running service": virtual is not None and url is None,
        "--gate must be the name of a virtual gate: lower-case letters, digits and hyphens": virtual is not None
        and not re.fullmatch(GATE_NAME, virtual),
        "give --gate alone: a virtual gate has its own face and tools": virtual and (face or tools),
        "give --project or --path, not both": project and other,
        "--json lists the clients; omit CLIENT": as_json and client,
    }
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise click.UsageError(reason)
    if client is None:
        _list_clients(name, as_json=as_json)
        return
    chosen = CLIENTS[client]
    path, *others = _files(chosen, name, other, project=project)
    notes: list[str] = []
    every_tool = tools == "all" or (tools is None and face is None and chosen.searches)
    gate: StartedGate | ReachedGate
    if url is None:
        gate = gate_to_start(chosen, config, "namespaced" if every_tool else face, variables, notes)
    else:
        face = f"gates/{virtual}" if virtual else face
        gate = gate_to_reach(chosen, url, key, face, notes, every_tool=every_tool)
        if tools == "all" and not gate.url.endswith("?tools=all"):
            raise click.UsageError("--tools all needs a --url that ends with its host or with /mcp")
    if project and gate.has_secret:
        notes.append("the entry holds a secret, and files of projects are often shared: keep this one out of git")
    elif project and isinstance(gate, StartedGate):
        notes.append("the entry names paths of this machine; others who share the project need their own")
    notes += [f"{each} exists too; --path {each} uses it" for each in others if each.is_file()]
    if write:
        _write(chosen, name, gate, path, notes)
    else:
        click.echo(f"{chosen.title} reads {printable(str(path))}. Put this into it, or add --write:", err=True)
        click.echo(put_entry(chosen, name, make_entry(chosen, name, gate)), nl=False)
    for note in notes:
        click.echo(f"Note: {printable(note)}", err=True)


def _write(client: KnownClient, name: str, gate: StartedGate | ReachedGate, path: Path, notes: list[str]) -> None:
    """Raises ConfigError; then the entry has been printed without the key of ``--key``, if the file cannot be
    changed in one place."""
    file, is_here = read_client_file(path), _is_here(client)
    try:
        was_there = find_entry(client, name, file.plain) is not None
        text = put_entry(client, name, make_entry(client, name, gate), file.plain)
    except FormatError as reason:
        shown = replace(gate, key="<the key>") if isinstance(gate, ReachedGate) and gate.key else gate
        click.echo(put_entry(client, name, make_entry(client, name, shown)), nl=False)
        raise ConfigError(f"{path} {reason}. Nothing was changed; insert the entry from stdout by hand") from None
    if text != file.plain:
        copy = replace_client_file(file, text, secret=gate.has_secret)
        lines = [f"Connected {client.title}: {f'replaced {name} in' if was_there else f'put {name} into'} {path}"]
        lines += [f"The old file: {copy}"] if copy is not None else []
        lines.append(client.next_step.format(name=name))
        if not is_here:
            notes.append(f"{client.title} was not found on this machine")
        if file.path != path:
            notes.append(f"{path} is a link; the file that was written is {file.path}")
    else:
        lines = [f"{client.title} is already connected, nothing changed: {name} in {path}"]
    if gate.has_secret and file.path.stat().st_mode & 0o077:
        notes.append(f"the entry holds a secret, and other users of this machine may read the file: chmod 600 {path}")
    for line in lines:
        click.echo(printable(line), err=True)


def _files(client: KnownClient, name: str, other: Path | None = None, *, project: bool = False) -> list[Path]:
    """Returns the files that may get the entry. The first is the one to take: it exists, or otherwise its folder does.

    Raises click.UsageError, and ConfigError without a home folder.
    """
    if other is not None:
        return [other.absolute()]
    files = client.files_of_project(name, written=True) if project else client.user_files(name, written=True)
    if not files and project:
        raise click.UsageError(f"{client.title} has no file for a project; omit --project")
    if not files:
        raise ConfigError("The environment names no home folder (HOME); name the file with --path")
    return sorted(files, key=lambda file: (not file.is_file(), not file.parent.is_dir()))


def _is_here(client: KnownClient) -> bool:
    """Returns whether the client is on this machine."""
    files = client.user_files()
    folders = {file.parent for file in files} - {Path.home()}
    return bool(client.program and shutil.which(client.program)) or any(each.exists() for each in (*files, *folders))


_ROW = "{:<16}{:<11}{:<11}{}"


def _list_clients(name: str, *, as_json: bool) -> None:
    rows = [_state(client, name) for client in CLIENTS.values()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    click.echo(_ROW.format("CLIENT", "HERE", "CONNECTED", "FILE"))
    answers = {None: "unknown", True: "yes", False: "no"}
    for row in rows:
        here, file = "found" if row["found"] else "not found", shown_path(Path(row["path"]))
        click.echo(printable(_ROW.format(row["client"], here, answers[row["connected"]], file)))
    for row in filter(lambda row: row["problem"], rows):
        click.echo(printable(row["problem"]), err=True)
    click.echo("Next: wicketgate connect CLIENT prints an entry, and --write writes it.", err=True)


def _state(client: KnownClient, name: str) -> dict[str, Any]:
    path, problem, connected = _files(client, name)[0], None, None
    try:
        connected = find_entry(client, name, read_client_file(path).plain) is not None
    except (FormatError, ConfigError) as error:
        problem = f"{path} {error}" if isinstance(error, FormatError) else str(error)
    row = {"client": client.name, "title": client.title, "path": str(path), "found": _is_here(client)}
    return {**row, "connected": connected, "problem": problem}
