"""The command ``wicketgate connect``: this gate in the list of servers of a desktop or editor client (OPS-70)."""

import codecs
import itertools
import json
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.clients import CLIENTS, KnownClient, user_folders, written_files, written_project_files
from app.commands.client_formats import FormatError
from app.commands.connect_entry import (
    KEY_VARIABLE,
    ClientEntry,
    ReachedGate,
    StartedGate,
    find_entry,
    make_entry,
    put_entry,
    render_entry,
)
from app.commands.connect_gate import gate_to_reach, gate_to_start, holds_secret
from app.commands.groups import NearChoice
from app.commands.options import with_config, with_json
from app.commands.output import printable
from wicketgate.config.settings import FACES
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
    needs_client |= {"--env": variables, "--path": other}
    given = [option for option, value in needs_client.items() if value]
    wrong = {
        "--name must be letters, digits, _ and -, at most 64, and begin with a letter": not _NAME.fullmatch(name),
        f"{''.join(given[:1])} needs a CLIENT: one of {', '.join(CLIENTS)}": given and client is None,
        "--key needs --url: a gate that the client starts asks for no key": key is not None and url is None,
        "--env is for a gate that the client starts; a service at --url has its own environment": url and variables,
        "give --face or --tools, not both": face and tools,
        "give --project or --path, not both": project and other,
    }
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise click.UsageError(reason)
    if client is None:
        _list_clients(name, project, as_json=as_json)
        return
    chosen = CLIENTS[client]
    target = _target(chosen, name, project, other)
    notes: list[str] = []
    every_tool = tools == "all" or (tools is None and face is None and chosen.searches)
    gate: StartedGate | ReachedGate
    if url is None:
        gate = gate_to_start(chosen, config, "namespaced" if every_tool else face, variables, notes)
    else:
        gate = gate_to_reach(chosen, url, key, face, notes, every_tool=every_tool)
        if tools == "all" and not gate.url.endswith("?tools=all"):
            raise click.UsageError("--tools all needs a --url that ends with its host or with /mcp")
    notes += _about_file(target, project, gate)
    hidden = ReachedGate(gate.url, "<the key>") if isinstance(gate, ReachedGate) and key is not None else gate
    shown = render_entry(chosen, name, make_entry(chosen, name, hidden))
    connection = _Connection(chosen, name, make_entry(chosen, name, gate), target, notes, shown)
    connection.run(write=write, as_json=as_json, secret=holds_secret(gate))


@dataclass(frozen=True, slots=True)
class _Target:
    """The file that gets the entry. *others* are further files of the client that exist; *found* is true if the client
    is on this machine."""

    path: Path
    others: tuple[Path, ...] = ()
    found: bool = True


@dataclass(frozen=True, slots=True)
class _Connection:
    """*shown* is the text of the entry without the key that ``--key`` gives."""

    client: KnownClient
    name: str
    entry: ClientEntry
    target: _Target
    notes: list[str]
    shown: str

    def run(self, *, write: bool, as_json: bool, secret: bool) -> None:
        path, changed, copy = self.target.path, None, None
        lines = [f"{self.client.title} reads {path}. Put this into it, or add --write:"]
        if write:
            changed, copy, lines = self._write(path, secret=secret, as_json=as_json)
        text = render_entry(self.client, self.name, self.entry)
        if as_json:
            copied = None if copy is None else str(copy)
            answer: dict[str, Any] = {
                "client": self.client.name,
                "path": str(path),
                "name": self.name,
                "entry": self.entry.settings,
            }
            answer |= {"text": text, "changed": changed, "copy": copied, "notes": self.notes}
            click.echo(json.dumps(answer, indent=2))
            return
        for line in lines:
            click.echo(printable(line), err=True)
        if not write:
            click.echo(text, nl=False)
        for note in self.notes:
            click.echo(f"Note: {printable(note)}", err=True)
        if changed:
            click.echo(self.client.next_step.format(name=self.name), err=True)

    def _write(self, path: Path, *, secret: bool, as_json: bool) -> tuple[bool, Path | None, list[str]]:
        """Returns whether the file was changed, the copy of the old one, and the lines of the report."""
        file = read_client_file(path)
        before = file.text()
        try:
            change = put_entry(self.client, self.name, self.entry, before)
        except FormatError as reason:
            if not as_json:
                click.echo(self.shown, nl=False)
            raise ConfigError(f"{path} {reason}. Nothing was changed; insert the entry from stdout by hand") from None
        if changed := change.text != before:
            lines = [] if path.parent.is_dir() else [f"Made the folder {path.parent}"]
            copy = replace_client_file(file, change.text, secret=secret)
            if not self.target.found and not change.was_there:
                lines.insert(0, f"{self.client.title} was not found on this machine; its file was made anyway.")
            done = "replaced {} in" if change.was_there else "put {} into"
            lines.append(f"Connected {self.client.title}: {done.format(self.name)} {path}")
            lines += [f"Kept of the old entry: {', '.join(change.kept)}"] if change.kept else []
            lines += [f"The old file: {copy}"] if copy is not None else []
        else:
            lines, copy = [f"{self.client.title} is already connected, nothing changed: {self.name} in {path}"], None
        if changed and file.path != path.absolute():
            self.notes.append(f"{path} is a link; the file that was written is {file.path}")
        if secret and file.path.stat().st_mode & 0o077:
            self.notes.append(
                f"the entry holds a secret, and other users of this machine may read the file: chmod 600 {path}"
            )
        return changed, copy, lines


def _target(client: KnownClient, name: str, project: bool, other: Path | None) -> _Target:
    """Raises click.UsageError."""
    if other is not None:
        return _Target(other.absolute())
    if project:
        files: Sequence[Path] = [Path.cwd() / file for file in written_project_files(client, name)]
        if not files:
            raise click.UsageError(f"{client.title} has no file for a project; omit --project")
        return _Target(*_first(files))
    files = written_files(client, name, sys.platform, os.environ)
    on_path = bool(client.program and shutil.which(client.program))
    folders = user_folders(client, sys.platform, os.environ)
    here = on_path or any(each.exists() for each in (*files, *folders))
    return _Target(*_first(files), here)


def _first(files: Sequence[Path]) -> tuple[Path, tuple[Path, ...]]:
    """Returns the first file that exists, otherwise the first whose folder does; and the others that exist."""
    there = next((file for file in files if file.is_file()), None)
    path = there or next((file for file in files if file.parent.is_dir()), files[0])
    return path, tuple(file for file in files if file != path and file.is_file())


def _about_file(target: _Target, project: bool, gate: StartedGate | ReachedGate) -> Iterator[str]:
    if project and holds_secret(gate):
        yield "the entry holds a secret, and files of projects are often shared: keep this one out of git"
    elif project and isinstance(gate, StartedGate):
        yield "the entry names paths of this machine; others who share the project need their own"
    yield from (f"{other} exists too; --path {other} uses it" for other in target.others)


def _list_clients(name: str, project: bool, *, as_json: bool) -> None:
    rows = [_state(client, name, project) for client in CLIENTS.values()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    click.echo(_ROW.format("CLIENT", "HERE", "CONNECTED", "FILE"))
    for row in rows:
        here, connected = "found" if row["found"] else "not found", row["connected"]
        answer = "unknown" if connected is None else "yes" if connected else "no"
        click.echo(printable(_ROW.format(row["client"], here, answer, _from_home(row["path"]))))
    for row in rows:
        if row["problem"]:
            click.echo(printable(row["problem"]), err=True)
    click.echo("Next: wicketgate connect CLIENT prints an entry, and --write writes it.", err=True)


_ROW = "{:<16}{:<11}{:<11}{}"


def _from_home(path: str | None) -> str:
    home = os.environ.get("HOME", "").rstrip("/")
    return "-" if path is None else f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def _state(client: KnownClient, name: str, project: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"client": client.name, "title": client.title}
    if project and not written_project_files(client, name):
        return {**row, "path": None, "found": False, "connected": False, "problem": None}
    target = _target(client, name, project, None)
    problem, connected = None, None
    try:
        connected = find_entry(client, name, read_client_file(target.path).text()) is not None
    except FormatError as reason:
        problem = f"{target.path} {reason}"
    except ConfigError as error:
        problem = str(error)
    return {**row, "path": str(target.path), "found": target.found, "connected": connected, "problem": problem}


# The client's file: replaced completely or not at all, with a copy of the old one (OPS-73).

_MAX_BYTES = 16 * 1024 * 1024
_SUFFIX = ".before-wicketgate"


@dataclass(frozen=True, slots=True)
class ClientFile:
    """*path* is the file itself, behind any symlinks. *data* is None if it is not there."""

    path: Path
    data: bytes | None

    def text(self) -> str:
        """The text without a byte order mark, empty if there is no file. Raises ConfigError."""
        try:
            return (self.data or b"").removeprefix(codecs.BOM_UTF8).decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{self.path} is not UTF-8 text; nothing was changed") from None


def read_client_file(path: Path) -> ClientFile:
    """Raises ConfigError."""
    real = Path(os.path.realpath(path))
    try:
        status = real.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"Cannot read {path}: it is not a file")
        if status.st_size > _MAX_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_BYTES // 1024 // 1024} MiB")
        return ClientFile(real, real.read_bytes())
    except FileNotFoundError:
        return ClientFile(real, None)
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from None


def replace_client_file(file: ClientFile, text: str, *, secret: bool) -> Path | None:
    """Writes *text* and returns the copy of the old file. Raises ConfigError; then nothing has changed.

    Keeps a byte order mark, the mode and the owner. A new file with a *secret* can be read by its owner only.
    """
    mark = codecs.BOM_UTF8 if (file.data or b"").startswith(codecs.BOM_UTF8) else b""
    beside = file.path.with_name(f".{file.path.name}.wicketgate-{secrets.token_hex(6)}")
    try:
        content = mark + text.encode()
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if file.data is not None and not os.access(file.path, os.W_OK):
            raise ConfigError(f"Cannot write {file.path}: it is read-only")
        try:
            _create(beside, content, 0o600 if secret or file.data is not None else 0o644)
            copy = None
            if file.data is not None:
                _take_after(beside, file.path)
                copy = _keep(file)
            # The client may have written in the meantime; what it wrote is not thrown away.
            if read_client_file(file.path).data != file.data:
                raise ConfigError(f"Another program has just changed {file.path}; run this command again")
            beside.replace(file.path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot write {file.path}: {error.strerror}") from None
    except UnicodeEncodeError:
        raise ConfigError(f"Cannot write {file.path}: a path in the entry is not valid text") from None
    return copy


def _keep(file: ClientFile) -> Path:
    """Copies the file next to it. An earlier copy that differs stays, and the new one gets a number."""
    assert file.data is not None
    for number in itertools.count(1):
        copy = file.path.with_name(f"{file.path.name}{_SUFFIX}{'' if number == 1 else f'-{number}'}")
        try:
            _create(copy, file.data, 0o600)
        except FileExistsError:
            if copy.is_file() and not copy.is_symlink() and copy.read_bytes() == file.data:
                return copy
            continue
        _take_after(copy, file.path)
        return copy
    raise AssertionError


def _create(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _take_after(path: Path, model: Path) -> None:
    """Gives *path* the mode of *model*, and its owner if that is allowed."""
    status = model.stat()
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(path, status.st_uid, status.st_gid)
    path.chmod(status.st_mode & 0o777)
