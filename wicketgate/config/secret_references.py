"""Secrets from where they live: ``${file:PATH}``, ``${cmd:COMMAND}`` and ``${keyring:SERVICE/USER}`` (OPS-570).

No message has anything of a secret, or of what a command wrote.
"""

import shlex
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

from wicketgate.errors import ConfigError

_MOST_BYTES = 64 * 1024
_COMMAND_S = 10.0


def fetch_secret(reference: str) -> str:
    """Returns the secret without the line break at its end. Blocks. Raises ConfigError."""
    kind, _, where = reference.partition(":")
    try:
        data = {"file": _of_file, "cmd": _of_command, "keyring": _of_keyring}[kind](where.strip())
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"${{{reference}}} gives no UTF-8 text") from None
    if len(data) > _MOST_BYTES or "\0" in text:
        raise ConfigError(f"${{{reference}}} gives more than {_MOST_BYTES // 1024} KiB, or a NUL character")
    return text.removesuffix("\n").removesuffix("\r")


def _of_file(path: str) -> bytes:
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(_MOST_BYTES + 1)
    except (OSError, ValueError):
        raise ConfigError(f"there is no readable file {path}") from None


def _of_command(command: str) -> bytes:
    try:
        words = shlex.split(command)
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False)  # noqa: S603
    except (OSError, ValueError, IndexError):
        raise ConfigError(f"the command of ${{cmd:{command}}} cannot be run") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"${{cmd:{command}}} did not end within {_COMMAND_S:g} s") from None
    if ran.returncode:
        raise ConfigError(f"${{cmd:{command}}} ended with code {ran.returncode}; run it by hand to see why")
    return ran.stdout


def _of_keyring(place: str) -> bytes:
    service, _, user = place.rpartition("/")
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        raise ConfigError("${keyring:...} needs: pip install 'wicketgate[keyring]'") from None
    try:
        found = keyring.get_password(service, user)
    except Exception:  # each back end has errors of its own
        raise ConfigError(f"the keyring cannot be read for {place}") from None
    if found is None:
        raise ConfigError(f"the keyring has no password for {place}; write ${{keyring:SERVICE/USER}}")
    return str(found).encode("utf-8", "replace")
