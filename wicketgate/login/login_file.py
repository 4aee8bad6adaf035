"""Logins in files of one's own machine: one sealed file for each tool server, and the key beside them.

The files can be read by their owner only. Without the key, or under another one, a login is as if it were not there.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import TypeAdapter, ValidationError

from wicketgate.login.client import Login
from wicketgate.login.failures import IssuerAway

_LOGIN = TypeAdapter(Login)
_NONCE_BYTES = 12
_KEY_BYTES = 32
_LOCK_AGAIN_S = 0.1


def login_folder(environ: Mapping[str, str]) -> Path:
    """The place of this user's logins: below ``XDG_STATE_HOME``, or ``~/.local/state``."""
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return Path(state) / "wicketgate" / "logins"


class LoginFile:
    """Implements LoginKeep for the server *name* at *server_url*, in *folder*. A login that was made for another URL is
    not found: a name may come to mean another server."""

    def __init__(self, folder: Path, name: str, server_url: str) -> None:
        self._folder = folder
        self._bound_to = f"wicketgate login 1\0{name}\0{server_url}".encode()
        self._path = folder / f"{name}-{sha256(self._bound_to).hexdigest()[:12]}.login"

    async def read(self) -> Login | None:
        return await asyncio.to_thread(self._read)

    async def write(self, login: Login | None) -> None:
        await asyncio.to_thread(self._write, login)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        lock = await asyncio.to_thread(self._lock)
        try:
            # Tried again and again, because a thread that waits for a lock outlives the task that wanted it.
            while not _locked(lock):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(_LOCK_AGAIN_S)
            yield
        finally:
            os.close(lock)

    def _read(self) -> Login | None:
        try:
            sealed, key = self._path.read_bytes(), self._key()
            opened = AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._bound_to)
            return _LOGIN.validate_json(opened)
        except FileNotFoundError:
            return None
        except (InvalidTag, ValidationError, ValueError):
            return None
        except OSError as error:
            raise IssuerAway(f"the login in {self._path} cannot be read: {error.strerror}") from None

    def _write(self, login: Login | None) -> None:
        try:
            if login is None:
                self._path.unlink(missing_ok=True)
                return
            nonce = os.urandom(_NONCE_BYTES)
            sealed = nonce + AESGCM(self._key()).encrypt(nonce, _LOGIN.dump_json(login), self._bound_to)
            _write_private(self._path, sealed)
        except OSError as error:
            raise IssuerAway(f"the login cannot be kept in {self._path}: {error.strerror}") from None

    def _key(self) -> bytes:
        path = self._folder / "key"
        self._make_folder()
        with suppress(FileExistsError):
            # Made whole beside it, so that no other process reads half a key.
            own = self._folder / f"key.{os.getpid()}.{os.urandom(4).hex()}"
            if not path.exists():
                _write_private(own, os.urandom(_KEY_BYTES))
                try:
                    os.link(own, path)
                finally:
                    own.unlink()
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise ValueError("the key of the logins is not whole")
        return key

    def _lock(self) -> int:
        """The descriptor of a lock, not taken yet, which ends when it is closed, or with the process."""
        try:
            self._make_folder()
            return os.open(self._folder / f"{self._path.stem}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise IssuerAway(f"logins cannot be kept in {self._folder}: {error.strerror}") from None

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_private(path: Path, data: bytes) -> None:
    """Put *data* in the place of the file at once, and on the disk: a refresh token that is lost ends a login."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
