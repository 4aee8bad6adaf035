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

from app.clients import KEY_VARIABLE, KnownClient
from app.commands.connect_entry import ReachedGate, StartedGate
from wicketgate.config.settings import Settings
from wicketgate.config.settings.base import is_web_url
from wicketgate.config.settings_file import load_settings
from wicketgate.errors import ConfigError

_OVERRIDE = re.compile(r"WICKETGATE_[A-Z0-9_]*[A-Z0-9]__[A-Z0-9_]+")
# Where programs that were not started from a shell look for commands.
_DESKTOP_PATH = "/usr/bin:/bin:/usr/sbin:/sbin" if sys.platform == "darwin" else "/usr/local/bin:/usr/bin:/bin"


def gate_to_start(
    client: KnownClient, config: Path | None, face: str | None, variables: Sequence[str], notes: list[str]
) -> StartedGate:
    """Adds to *notes* the remarks for the person. Raises ConfigError and click.UsageError."""
    if config is None or not config.is_file():
        raise ConfigError(
            f"No configuration to start the gate with: {config or './wicketgate.yaml'} does not exist. wicketgate init "
            "writes one, --config names another, and --url connects to a running service"
        )
    if unset := [variable for variable in variables if variable not in os.environ]:
        raise click.UsageError(f"--env {unset[0]}: no variable of this name is set here")
    env = {variable: os.environ[variable] for variable in variables}
    words = [*_own_command(notes), "mcp", "--config", str(config.absolute())]
    words += ["--face", face] if face is not None else []
    watched = _Watched(os.environ)
    try:
        settings = load_settings(config, watched)
    except ConfigError as error:
        notes.append(f"the configuration has faults: {'; '.join(str(error).splitlines())}")
    else:
        if paths := _relative(settings):
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
        if variable not in os.environ:
            yield f"the configuration reads ${{{variable}}}, which is not set here"
        elif not client.in_terminal:
            yield (
                f"the gate reads {variable}, which {client.title} does not have if it is not started from a shell; "
                f"--env {variable} copies its value into the entry"
            )


def _add_path(env: dict[str, str], settings: Settings, notes: list[str]) -> None:
    """Adds PATH if a program of the desktop would not find all commands of upstreams that are looked up on it."""
    if "PATH" in env:
        return
    folders: dict[str, str] = {}
    there = os.pathsep.join([_DESKTOP_PATH, str(Path(sys.executable).parent)])
    for upstream in settings.upstreams:
        command = upstream.command[0] if upstream.enabled and upstream.command else ""
        found = shutil.which(command) if command and "/" not in command and "PATH" not in upstream.env else None
        if found is not None and shutil.which(command, path=there) is None:
            folders.setdefault(str(Path(found).parent), command)
    if folders:
        env["PATH"] = os.pathsep.join([*folders, _DESKTOP_PATH])
        found_there = ", ".join(f"{command} is in {folder}" for folder, command in folders.items())
        notes.append(
            f"PATH is in the entry, because a program of the desktop would not find all commands: {found_there}"
        )


def _relative(settings: Settings) -> list[str]:
    """The paths that the configuration names from the working directory."""
    files: list[Path | str | None] = [settings.pins.file, settings.browse.words_file, settings.network.ca_file]
    files.append(settings.storage.sqlite_file)
    for upstream in filter(lambda each: each.enabled, settings.upstreams):
        files += [upstream.cwd, None if "://" in upstream.openapi else upstream.openapi]
        if upstream.cwd is None:
            module = re.split("[:.]", upstream.python)[0]
            files += [word for word in (*upstream.command, module, f"{module}.py") if os.path.lexists(word)]
    return [str(file) for file in files if file and not Path(file).is_absolute()]


def _own_command(notes: list[str]) -> list[str]:
    """The console script, by its absolute path: a client has no idea of our virtual environment."""
    places = (Path(sys.argv[0]).absolute(), Path(sys.executable).with_name("wicketgate"))
    own = next((path for path in places if path.name == "wicketgate" and path.is_file()), None)
    if own is None:
        return [sys.executable, "-m", "wicketgate"]
    if "archive-v0" in own.resolve().parts:
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
            raise click.UsageError("--face and --gate need a --url that ends with its host or with /mcp")
        path += f"/{face}"
    elif every_tool and path.endswith("/mcp"):
        path += "?tools=all"
    if key is None:
        if not client.reference:
            raise click.UsageError(
                f"{client.title} cannot refer to a variable in its file: give the key itself, for example "
                f'--key "${KEY_VARIABLE}"; the key is in the file then'
            )
        notes.append(client.key_note.format(title=client.title))
    elif not re.fullmatch("[!-~]+", key):
        raise click.UsageError("--key must be a key: letters, digits and signs without spaces")
    return ReachedGate(f"{parts.scheme}://{parts.netloc}{path}", key)
