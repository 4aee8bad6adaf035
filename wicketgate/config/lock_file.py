"""Reads and writes ``wicketgate.lock``: the accepted definitions of tools, in JSON that people can review
(ACCESS-22)."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wicketgate.catalog.definition_change import digest_or_nothing
from wicketgate.catalog.pins import Pin, PinPolicy, Pins
from wicketgate.config.settings import PinSettings
from wicketgate.config.settings_file import unshared
from wicketgate.errors import ConfigError

_VERSION = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")


def pin_policy(settings: PinSettings) -> PinPolicy:
    """Raises ConfigError if the file is missing, or is not as ``wicketgate lock`` writes it."""
    pins = None if settings.file is None else read_lock(Path(settings.file))
    return PinPolicy(pins, settings.new_tools == "quarantine", settings.suspicious == "quarantine")


def read_lock(path: Path) -> Pins:
    """Raises ConfigError that says what to do."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"Invalid configuration: pins.file: there is no {path}. "
            f"Make it with: wicketgate lock --config FILE --lock {path}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the lock file {path}: {type(error).__name__}") from None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"The lock file {path} is not JSON (perhaps an unfinished merge)") from None
    match content:
        case {"version": 1, "upstreams": dict(upstreams)}:
            return {server: _read_pins(path, server, tools) for server, tools in upstreams.items()}
        case {"version": int(version)} if version != _VERSION:
            raise ConfigError(f"The lock file {path} has version {version}; this program knows {_VERSION}")
        case _:
            raise ConfigError(f"The lock file {path} was not written by wicketgate lock")


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Held from reading the file to writing it, by one of all processes of the host at a time: an acceptance is not
    undone by another that read before it. Raises ConfigError."""
    # That of the folder: the file itself is replaced.
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"Cannot read the folder of the lock file {path}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    except OSError as error:
        raise ConfigError(f"Cannot change the lock file {path}: {error.strerror}") from None
    finally:
        os.close(folder)


def write_lock(path: Path, pins: Pins) -> None:
    """Replaces the file by a complete new one, or leaves it as it is. Raises ConfigError."""
    replace_file(path, lock_text(pins), "lock file")


def replace_file(path: Path, text: str, what: str) -> None:
    """Replaces the file, or leaves it unchanged. Raises ConfigError that calls it *what*."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "w", encoding="utf-8", opener=unshared) as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"Cannot write the {what} {path}: {error.strerror}") from None


def lock_text(pins: Pins) -> str:
    """Returns one text for the same pins: one value a line, in order, and ASCII, so that nothing can hide in it."""
    upstreams = {
        server: {
            name: {
                "sha256": pin.sha256,
                **({"trusted": True} if pin.trusted else {}),
                "definition": pin.definition,
            }
            for name, pin in tools.items()
        }
        for server, tools in pins.items()
    }
    return json.dumps({"version": _VERSION, "upstreams": upstreams}, indent=1, sort_keys=True) + "\n"


def _read_pins(path: Path, server: str, tools: object) -> dict[str, Pin]:
    if not isinstance(tools, dict):
        raise ConfigError(f"The lock file {path} was not written by wicketgate lock: {server}")
    return {name: _read_pin(path, f"{server}:{name}", entry) for name, entry in tools.items()}


def _read_pin(path: Path, tool: str, entry: object) -> Pin:
    match entry:
        case {"sha256": str(sha256), "definition": dict(definition), **rest} if _SHA256.fullmatch(sha256):
            if digest_or_nothing(definition) != sha256:
                raise ConfigError(
                    f"The lock file {path}: the definition of {tool} is not the one that was accepted. "
                    "Take the file from version control again, or remove it and run: wicketgate lock"
                )
            return Pin(sha256, definition, trusted=rest.get("trusted") is True)
        case _:
            raise ConfigError(f"The lock file {path} was not written by wicketgate lock: {tool}")
