"""The command ``wicketgate connect``: this gate in the list of servers of a desktop or editor client (OPS-70)."""

import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.clients import CLIENTS, Client, user_folders, written_files, written_project_files
from app.commands.connect_entry import (
    KEY_VARIABLE,
    Change,
    Entry,
    Reach,
    Start,
    find_entry,
    holds_only,
    make_entry,
    put_entry,
    render_entry,
    show_entry,
)
from app.commands.connect_file import read_client_file, replace_client_file
from app.commands.connect_gate import gate_to_reach, gate_to_start, holds_secret
from app.commands.connect_json import NotEditable
from app.commands.groups import NearChoice
from app.commands.options import with_config
from app.commands.output import printable, printable_text
from wicketgate.config.settings import FACES
from wicketgate.errors import ConfigError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_NEXT: Mapping[str, str] = {
    "claude-desktop": "Quit Claude Desktop completely and start it again.",
    "claude-code": "Start claude again; /mcp shows the server.",
    "cursor": 'In Cursor run "Developer: Reload Window"; Settings, MCP shows the server.',
    "vscode": 'In VS Code run "MCP: List Servers", choose {name}, then Start Server.',
    "windsurf": "In Windsurf open the MCP servers of Cascade and press Refresh.",
    "zed": "Zed reads the file at once; the settings of the Agent Panel show a green dot.",
    "cline": "In Cline open MCP Servers; restart the editor if the server is not there.",
    "continue": 'In your editor run "Developer: Reload Window"; Continue uses tools in agent mode only.',
    "codex": "Start codex again; /mcp shows the server.",
    "gemini": "Start gemini again, in a folder that it trusts; /mcp shows the server.",
    "opencode": "Start opencode again; opencode mcp list shows the server.",
}


@click.command()
@click.argument("client", required=False, type=NearChoice(list(CLIENTS)), metavar="[CLIENT]")
@click.option("--write", is_flag=True, help="Put the entry into the client's file. Without it: print the entry.")
@click.option("--url", help="Reach a running service at this URL. Without it: the client starts the gate by itself.")
@click.option(
    "--key",
    help=f"The key for --url, written into the file. Without it the entry refers to the variable {KEY_VARIABLE}, where "
    "the client can.",
)
@with_config
@click.option("--face", type=NearChoice(FACES), help="The face that the client sees, in place of --tools.")
@click.option(
    "--tools",
    type=NearChoice(["all", "search"]),
    help="all: every tool, if the client searches by itself; search: the face of /mcp. Without it: as CLIENT needs.",
)
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, and nothing else.")
def connect(
    client: str | None,
    write: bool,
    url: str | None,
    key: str | None,
    config: Path | None,
    face: str | None,
    tools: str | None,
    name: str,
    variables: tuple[str, ...],
    project: bool,
    other: Path | None,
    as_json: bool,
) -> None:
    """Connect a client to this gate: print the entry for its list of servers, or write it with --write.

    CLIENT is claude-desktop, claude-code, cursor, vscode, windsurf, zed, cline, continue, codex, gemini or opencode;
    without it the command shows which of them are on this machine. --write changes only this entry, keeps a copy of the
    file beside it, and does nothing if the entry is there already.
    """
    if _NAME.fullmatch(name) is None:
        raise click.UsageError("--name must be letters, digits, _ and -, at most 64, and begin with a letter")
    if client is None:
        given: dict[str, object] = {"--write": write, "--url": url, "--key": key, "--face": face, "--tools": tools}
        given |= {"--env": variables, "--path": other}
        if wrong := [option for option, value in given.items() if value]:
            raise click.UsageError(f"{wrong[0]} needs a CLIENT: one of {', '.join(CLIENTS)}")
        _list_clients(name, project, as_json=as_json)
        return
    chosen = CLIENTS[client]
    if url is None and key is not None:
        raise click.UsageError("--key needs --url: a gate that the client starts asks for no key")
    if url is not None and variables:
        raise click.UsageError("--env is for a gate that the client starts; a service at --url has its own environment")
    if face is not None and tools is not None:
        raise click.UsageError("give --face or --tools, not both")
    if project and other is not None:
        raise click.UsageError("give --project or --path, not both")
    target = _target(chosen, name, project, other)
    notes: list[str] = []
    every_tool = tools == "all" or (tools is None and face is None and chosen.searches)
    if url is None:
        face = "namespaced" if every_tool else face
        gate: Start | Reach = gate_to_start(chosen, config, face, variables, notes)
    else:
        gate = gate_to_reach(chosen, url, key, face, notes, every_tool=every_tool)
        if tools == "all" and not gate.url.endswith("?tools=all"):
            raise click.UsageError("--tools all needs a --url that ends with its host or with /mcp")
    entry = make_entry(chosen, name, gate)
    notes += _about_file(target, project, gate)
    hidden = Reach(gate.url, "<the key>") if isinstance(gate, Reach) and key is not None else gate
    shown = render_entry(chosen, name, make_entry(chosen, name, hidden))
    connection = _Connection(chosen, name, entry, target, notes, shown)
    connection.run(write=write, as_json=as_json, secret=holds_secret(gate))


@dataclass(frozen=True, slots=True)
class _Target:
    """The file that gets the entry. *others* are further files of the client that are there."""

    path: Path
    others: tuple[Path, ...]
    found: bool
    folder: Path


@dataclass(frozen=True, slots=True)
class _Connection:
    """*shown* is the text of the entry without the key that ``--key`` gives."""

    client: Client
    name: str
    entry: Entry
    target: _Target
    notes: list[str]
    shown: str

    def run(self, *, write: bool, as_json: bool, secret: bool) -> None:
        path, text = self.target.path, render_entry(self.client, self.name, self.entry)
        if not write:
            if as_json:
                self._print_json(text, changed=None, copy=None)
                return
            click.echo(f"{self.client.title} reads {printable(str(path))}. Put this in, or add --write:", err=True)
            click.echo(text, nl=False)
            self._print_notes()
            return
        file = read_client_file(path)
        before = file.text()
        try:
            change = put_entry(self.client, self.name, self.entry, before)
        except NotEditable as reason:
            if not as_json:
                click.echo(self.shown, nl=False)
            raise ConfigError(
                f"{path}: {reason}. Nothing was changed; the entry to put in by hand is on stdout"
            ) from None
        changed = change.text != before
        new_folder = changed and not path.parent.is_dir()
        copy = replace_client_file(file, change.text, secret=secret) if changed else None
        if changed and file.path != path.absolute():
            self.notes.append(f"{path} is a link; what was written is {file.path}")
        if secret and file.path.stat().st_mode & 0o077:
            self.notes.append(
                f"the entry holds a secret, and others on this machine may read the file: chmod 600 {path}"
            )
        if as_json:
            self._print_json(text, changed=changed, copy=copy)
            return
        self._report(change, changed=changed, copy=copy, new_folder=new_folder)

    def _report(self, change: Change, *, changed: bool, copy: Path | None, new_folder: bool) -> None:
        path = printable(str(self.target.path))
        if not changed:
            click.echo(f"{self.client.title} is already connected, nothing changed: {self.name} in {path}", err=True)
            self._print_notes()
            return
        if not self.target.found and change.before is None:
            click.echo(f"{self.client.title} was not found on this machine; its file is made all the same.", err=True)
        if new_folder:
            click.echo(f"Made the folder {printable(str(self.target.path.parent))}", err=True)
        if change.before is None:
            click.echo(f"Connected {self.client.title}: put {self.name} into {path}", err=True)
        else:
            click.echo(f"Connected {self.client.title}: replaced {self.name} in {path}. Before it was:", err=True)
            click.echo(printable_text(show_entry(change.before)), err=True)
        if change.kept:
            click.echo(f"Kept of the old entry: {printable(', '.join(change.kept))}", err=True)
        if copy is not None:
            click.echo(f"The file as it was: {printable(str(copy))}", err=True)
        self._print_notes()
        click.echo(_NEXT[self.client.name].format(name=self.name), err=True)

    def _print_notes(self) -> None:
        for note in self.notes:
            click.echo(f"Note: {printable(note)}", err=True)

    def _print_json(self, text: str, *, changed: bool | None, copy: Path | None) -> None:
        answer = {
            "client": self.client.name,
            "path": str(self.target.path),
            "name": self.name,
            "entry": self.entry.settings,
            "text": text,
            "changed": changed,
            "copy": None if copy is None else str(copy),
            "notes": list(self.notes),
        }
        click.echo(json.dumps(answer, indent=2))


def _target(client: Client, name: str, project: bool, other: Path | None) -> _Target:
    """Raises click.UsageError."""
    if other is not None:
        return _Target(other.absolute(), (), True, other.parent)
    if project:
        files = [Path.cwd() / file for file in written_project_files(client, name)]
        if not files:
            raise click.UsageError(f"{client.title} has no file for a project; leave out --project")
        folders: tuple[Path, ...] = (Path.cwd(),)
    else:
        files = list(_user(written_files, client, name))
        folders = _user(user_folders, client)
    path = _first(files)
    others = tuple(file for file in files if file != path and file.is_file())
    here = bool(client.program and shutil.which(client.program)) or _is_here(files, folders, _ours(name))
    return _Target(path, others, here, folders[0])


def _first(files: Sequence[Path]) -> Path:
    """The first that is there, otherwise the first whose folder is."""
    there = next((file for file in files if file.is_file()), None)
    return there or next((file for file in files if file.parent.is_dir()), files[0])


def _is_here(files: Sequence[Path], folders: Sequence[Path], ours: Collection[Path]) -> bool:
    """Returns true if a file or a folder is there that is not only of our making."""
    return any(file.is_file() and file not in ours for file in files) or any(
        folder.is_dir() and not _is_ours(folder, ours) for folder in folders
    )


def _is_ours(folder: Path, ours: Collection[Path]) -> bool:
    return any(file.is_relative_to(folder) for file in ours) and all(
        path in ours for path in folder.rglob("*") if not path.is_dir()
    )


def _ours(name: str) -> frozenset[Path]:
    """Returns the files of clients in which nothing stands but our entry *name*."""
    found: set[Path] = set()
    for client in CLIENTS.values():
        for file in _user(written_files, client, name):
            with suppress(ConfigError):
                if file.is_file() and holds_only(client, name, read_client_file(file).text()):
                    found.add(file)
    return frozenset(found)


def _user(find: Any, client: Client, *name: str) -> tuple[Path, ...]:
    try:
        found: tuple[Path, ...] = find(client, *name, sys.platform, os.environ)
    except KeyError:
        raise ConfigError("The environment names no home folder (HOME); name the file with --path") from None
    return found


def _about_file(target: _Target, project: bool, gate: Start | Reach) -> Iterator[str]:
    if project and holds_secret(gate):
        yield "the entry holds a secret, and files of projects are often shared: keep this one out of git"
    elif project and isinstance(gate, Start):
        yield "the entry names paths of this machine; others who share the project need their own"
    yield from (f"{other} is there too; --path names it" for other in target.others)


def _list_clients(name: str, project: bool, *, as_json: bool) -> None:
    rows = [_state(client, name, project) for client in CLIENTS.values()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    from app.commands.console import console, table

    out = console()
    cells = [
        (row["client"], "found" if row["found"] else "not found", _SAYS[row["connected"]], _from_home(row["path"]))
        for row in rows
    ]
    if out.is_terminal:
        room = out.width - _BESIDE_FILE
        cells = [(*state, _shortened(path, room)) for *state, path in cells]
    else:
        out.width = _BESIDE_FILE + max(len(path) for *_, path in cells)
    out.print(table(("client", "here", "connected", "file"), cells))
    for row in rows:
        if row["problem"]:
            click.echo(printable(f"{row['path']}: {row['problem']}"), err=True)
    click.echo("Next: wicketgate connect CLIENT, and with --write it is written.", err=True)


_SAYS: Mapping[bool | None, str] = {True: "yes", False: "no", None: "unknown"}


_BESIDE_FILE = 43
"""Columns of the other cells, and of the space between them."""


def _shortened(path: str, room: int) -> str:
    """Returns *path* without its first folders if it is longer than *room*; its name stays whole."""
    while len(path) > room and (rest := path.removeprefix("…/").partition("/")[2]):
        path = f"…/{rest}"
    return path


def _from_home(path: str | None) -> str:
    home = os.environ.get("HOME", "").rstrip("/")
    return "-" if path is None else f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def _state(client: Client, name: str, project: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"client": client.name, "title": client.title}
    if project and not written_project_files(client, name):
        return {**row, "path": None, "found": False, "connected": False, "problem": None}
    target = _target(client, name, project, None)
    problem, connected = None, None
    try:
        connected = find_entry(client, name, read_client_file(target.path).text()) is not None
    except NotEditable as reason:
        problem = str(reason)
    except ConfigError as error:
        problem = str(error)
    return {**row, "path": str(target.path), "found": target.found, "connected": connected, "problem": problem}
