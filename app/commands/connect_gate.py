"""The gate of an entry in a client's file: started by the client, or reached at a URL (OPS-71, OPS-74).

A client that was not started from a shell has neither its variables nor its PATH. The entry gets what would be missing
there, or a note names it.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from app.clients import KnownClient
from app.commands.connect_entry import KEY_VARIABLE, ReachedGate, StartedGate
from wicketgate.config.settings import Settings
from wicketgate.config.settings.base import is_web_url
from wicketgate.config.settings_file import load_settings
from wicketgate.errors import ConfigError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OVERRIDE = re.compile(r"WICKETGATE_[A-Z0-9_]*[A-Z0-9]__[A-Z0-9_]+")

# Where programs that were not started from a shell look for commands.
_DESKTOP_PATH = {"darwin": "/usr/bin:/bin:/usr/sbin:/sbin", "linux": "/usr/local/bin:/usr/bin:/bin"}


def gate_to_start(
    client: KnownClient, config: Path | None, face: str | None, variables: Sequence[str], notes: list[str]
) -> StartedGate:
    """Adds to *notes* the remarks for the person. Raises ConfigError and click.UsageError."""
    if config is None or not config.is_file():
        named = "./wicketgate.yaml" if config is None else str(config)
        raise ConfigError(
            f"No configuration to start the gate with: {named} does not exist. wicketgate init writes one, --config "
            "names another, and --url connects to a running service"
        )
    env: dict[str, str] = {}
    for variable in variables:
        if _VARIABLE.fullmatch(variable) is None or variable not in os.environ:
            raise click.UsageError(f"--env {variable}: no variable of this name is set here")
        env[variable] = os.environ[variable]
    words = [*_own_command(notes), "mcp", "--config", str(config.absolute())]
    if face is not None:
        words += ["--face", face]
    watched = _Watched(os.environ)
    try:
        settings = load_settings(config, watched)
    except ConfigError as error:
        notes.append(f"the configuration has faults: {'; '.join(str(error).splitlines())}")
    else:
        if paths := list(_relative(settings)):
            words += ["--cwd", str(Path.cwd())]
            notes.append(f"--cwd is in the entry, because the configuration names paths from here: {', '.join(paths)}")
        if not client.in_terminal:
            _add_path(env, settings, notes)
    overrides = sorted(variable for variable in os.environ if _OVERRIDE.fullmatch(variable))
    needed = [variable for variable in (*watched.needed, *overrides) if variable not in env]
    notes += _about_variables(client, needed)
    return StartedGate(tuple(words), env, tuple(needed))


class _Watched(dict[str, str]):
    """The environment. *needed* collects the variables that were read without a default, set here or not."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self.needed: list[str] = []

    def get(self, key: str, default: Any = None, /) -> Any:
        if key.startswith("WICKETGATE_"):  # our own, not one of the file
            return super().get(key, default)
        if default is None and key not in self.needed:
            self.needed.append(key)
        # A note names a variable that is not set. It must not hide the other notes.
        return super().get(key, "unset" if default is None else default)


def _about_variables(client: KnownClient, needed: Sequence[str]) -> Iterator[str]:
    for variable in needed:
        copies = f"--env {variable} copies its value into the entry"
        if variable not in os.environ:
            yield f"the configuration reads ${{{variable}}}, which is not set here"
        elif client.hands_on:
            yield f"{client.title} hands {variable} on to the gate, from its own environment"
        elif client.in_terminal:
            continue
        elif _OVERRIDE.fullmatch(variable):
            yield f"{variable} overrides the configuration here, but not in {client.title}; {copies}"
        else:
            yield (
                f"the configuration reads ${{{variable}}}, which {client.title} does not have if it is not started "
                f"from a shell; {copies}"
            )


def _add_path(env: dict[str, str], settings: Settings, notes: list[str]) -> None:
    """Adds PATH if a program of the desktop would not find all commands of upstreams that are looked up on it."""
    usual, own = _DESKTOP_PATH.get(sys.platform), str(Path(sys.executable).parent)
    if usual is None or "PATH" in env:
        return
    here = os.pathsep.join([os.environ.get("PATH", os.defpath), own])
    there = os.pathsep.join([usual, own])
    folders: dict[str, str] = {}
    for upstream in settings.upstreams:
        command = upstream.command[0] if upstream.enabled and upstream.command else ""
        if not command or re.search(r"[/\\]", command) or "PATH" in upstream.env:
            continue
        found = shutil.which(command, path=here)
        if found is not None and shutil.which(command, path=there) is None:
            folders.setdefault(str(Path(found).parent), command)
    if folders:
        env["PATH"] = os.pathsep.join([*folders, usual])
        found_there = ", ".join(f"{command} is in {folder}" for folder, command in folders.items())
        notes.append(
            f"PATH is in the entry, because a program of the desktop would not find all commands: {found_there}"
        )


def _relative(settings: Settings) -> Iterator[str]:
    """The paths that the configuration names from the working directory."""
    for upstream in settings.upstreams:
        if not upstream.enabled:
            continue
        if (
            upstream.openapi
            and not re.match(r"https?://", upstream.openapi)
            and not Path(upstream.openapi).is_absolute()
        ):
            yield upstream.openapi
        if upstream.cwd is not None and not Path(upstream.cwd).is_absolute():
            yield upstream.cwd
        if upstream.command and upstream.cwd is None:
            yield from (word for word in upstream.command if _is_path_from_here(word))
        module = upstream.python.partition(":")[0].partition(".")[0]
        if module and upstream.cwd is None and (Path(module).is_dir() or Path(f"{module}.py").is_file()):
            yield module
    database = settings.storage.sqlite_file
    files = (settings.pins.file, settings.browse.words_file, settings.network.ca_file, database and str(database))
    yield from (file for file in files if file and not Path(file).is_absolute())


def _is_path_from_here(word: str) -> bool:
    try:
        return bool(re.search(r"[/\\.]", word)) and not Path(word).is_absolute() and Path(word).exists()
    except (OSError, ValueError):
        return False


def _own_command(notes: list[str]) -> list[str]:
    """The console script, by its absolute path: a client has no idea of our virtual environment."""
    started = Path(sys.argv[0]).absolute()
    script = Path(sys.executable).with_name("wicketgate.exe" if sys.platform == "win32" else "wicketgate")
    own = next((path for path in (started, script) if path.stem == "wicketgate" and path.is_file()), None)
    if own is None:
        return [sys.executable, "-m", "wicketgate"]
    if "archive-v0" in Path(os.path.realpath(own)).parts:
        notes.append(
            "this program runs from the cache of uvx, which may be emptied: uv tool install wicketgate keeps it"
        )
    return [str(own)]


def gate_to_reach(
    client: KnownClient, url: str, key: str | None, face: str | None, notes: list[str], *, every_tool: bool
) -> ReachedGate:
    """Adds to *notes* the remarks for the person. *every_tool* asks ``/mcp`` for all tools; a URL that names another
    path has chosen its face already. Raises click.UsageError."""
    if not client.url:
        raise click.UsageError(
            f"the file of {client.title} accepts only programs to start, and ignores URLs; omit --url"
        )
    parts = urlsplit(url) if is_web_url(url) else None
    if parts is None or parts.username or parts.password or parts.query or parts.fragment:
        raise click.UsageError("--url must be like http://127.0.0.1:8080, without a user, a query or a fragment")
    path = parts.path.rstrip("/") or "/mcp"
    if face is not None:
        if not path.endswith("/mcp"):
            raise click.UsageError("--face needs a --url that ends with its host or with /mcp")
        path += f"/{face}"
    elif every_tool and path.endswith("/mcp"):
        path += "?tools=all"
    if key is None and not client.reference:
        raise click.UsageError(
            f"{client.title} cannot refer to a variable in its file: give the key itself, for example "
            f'--key "${KEY_VARIABLE}"; the key is in the file then'
        )
    if key is not None and (not key.isascii() or not key.isprintable() or not key or " " in key):
        raise click.UsageError("--key must be a key: letters, digits and signs without spaces")
    if key is None and client.name == "continue":
        notes.append(f"put the line {KEY_VARIABLE}=... into ~/.continue/.env")
    elif key is None and client.name == "vscode":
        notes.append("VS Code asks for the key once, and keeps it")
    elif key is None:
        notes.append(f"set {KEY_VARIABLE} in the environment that {client.title} is started with")
    return ReachedGate(f"{parts.scheme}://{parts.netloc}{path}", key)


def holds_secret(gate: StartedGate | ReachedGate) -> bool:
    return gate.key is not None if isinstance(gate, ReachedGate) else bool(gate.env.keys() - {"PATH"})
