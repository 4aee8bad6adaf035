"""Makes a key for a service without configured keys: for one run, or kept in ``auth.key_file``.

A key for one run serves this machine only (ACCESS-5); one that is kept serves any caller (ACCESS-28).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import click
from pydantic import ValidationError

from app.console.sign_in import SignIn
from wicketgate.access.identity import HashedKey, Identity
from wicketgate.config.settings import KeySettings
from wicketgate.config.settings_file import create_file
from wicketgate.errors import ConfigError
from wicketgate.storage.keys import new_key

_ID = "local"
_PERMISSIONS = ("*",)
_MAX_BYTES = 4_096
_WAIT_S = 1.0
_LOOK_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True)
class LocalKey:
    """*secret* is empty if an earlier start made the key; only its hash is kept in *file*. *sign_in* is there if this
    start made it."""

    hashed: HashedKey
    secret: str
    file: Path | None = None
    sign_in: SignIn | None = None


def local_key(file: Path | None) -> LocalKey:
    """Returns the key that *file* keeps, or makes one there and shows it on stderr. None makes one for this run.

    The entry in the file is as in ``auth.keys``. Raises ConfigError if the file cannot be made or read.
    """
    if file is None:
        secret, digest = new_key(_ID)
        hashed = HashedKey(_ID, digest, Identity(_ID, _PERMISSIONS))
        return LocalKey(hashed, secret, sign_in=SignIn(secret))
    try:
        secret = _make(file)
        entry = _read(file)
    except OSError as error:
        raise ConfigError(f"auth.key_file: {file} cannot be made or read: {error.strerror}") from None
    if secret:
        # Shown before the greeting: if this start fails, the next one has only the hash.
        try:
            click.echo(f"Key, made at this first start and shown only now: {secret}", err=True)
        except (OSError, ValueError):
            file.unlink()  # without the shown key the file would lock every caller out
            raise ConfigError("auth.key_file: the new key cannot be shown, since stderr is closed") from None
    return LocalKey(entry.hashed(), secret, file, SignIn(secret) if secret else None)


def _make(file: Path) -> str:
    """Returns the new key, or an empty text if the file exists. Of several first starts at once, one makes the key."""
    # A file that is there may lie in a folder that cannot be written to.
    if file.exists():
        return ""
    secret, digest = new_key(_ID)
    entry = {"id": _ID, "sha256": digest, "actor": _ID, "permissions": list(_PERMISSIONS)}
    try:
        create_file(file, json.dumps(entry) + "\n", 0o600)
    except FileExistsError:
        return ""
    return secret


def _read(file: Path) -> KeySettings:
    # The start that makes the key may still be writing it.
    until = monotonic() + _WAIT_S
    while not (content := _content(file)) and monotonic() < until:
        sleep(_LOOK_AGAIN_S)
    try:
        return KeySettings.model_validate_json(content)
    except ValidationError:
        raise ConfigError(
            f"auth.key_file: {file} does not hold a key. Delete it, and the next start makes one"
        ) from None


def _content(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(_MAX_BYTES)
