"""Makes a key for a service without configured keys: for one run, or kept in ``auth.key_file``.

A key for one run serves this machine only (ACCESS-5); one that is kept serves any caller (ACCESS-28).
"""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import ValidationError

from wicketgate.access.identity import HashedKey, Identity, hash_key
from wicketgate.config.settings import KeySettings
from wicketgate.errors import ConfigError

_ID = "local"
_PERMISSIONS = ("*",)
_MAX_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class LocalKey:
    """*secret* is empty if an earlier start made the key; only its hash is kept in *file*."""

    hashed: HashedKey
    secret: str
    file: Path | None = None


def new_key(key_id: str) -> tuple[str, str]:
    """Returns a new key and its hash."""
    key = f"wg_{key_id}_{secrets.token_urlsafe(32)}"
    return key, hash_key(key)


def local_key(file: Path | None) -> LocalKey:
    """Returns the key that *file* keeps, or makes one there and shows it on stderr. None makes one for this run.

    The entry in the file is as in ``auth.keys``. Raises ConfigError if the file cannot be made or read.
    """
    if file is None:
        secret, digest = new_key(_ID)
        return LocalKey(HashedKey(_ID, digest, Identity(_ID, _PERMISSIONS)), secret)
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
    return LocalKey(
        HashedKey(entry.id, entry.sha256, Identity(entry.actor, entry.permissions), entry.suspended), secret, file
    )


def _make(file: Path) -> str:
    """Returns the new key, or an empty text if the file exists. Of two first starts at once, one makes the key."""
    secret, digest = new_key(_ID)
    entry = {"id": _ID, "sha256": digest, "actor": _ID, "permissions": list(_PERMISSIONS)}
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return ""
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(entry) + "\n")
        stream.flush()
        os.fsync(descriptor)
    return secret


def _read(file: Path) -> KeySettings:
    with file.open("rb") as stream:
        content = stream.read(_MAX_BYTES)
    try:
        return KeySettings.model_validate_json(content)
    except ValidationError:
        raise ConfigError(
            f"auth.key_file: {file} does not hold a key. Delete it, and the next start makes one"
        ) from None
