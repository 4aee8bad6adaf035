"""Replaces a file that belongs to another program: whole or not at all, with a copy of what was there (OPS-73)."""

import codecs
import itertools
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wicketgate.errors import ConfigError

_MAX_BYTES = 16 * 1024 * 1024
_LEFT_AFTER_S = 60
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
    """Writes *text*, and returns the copy of what was there. Raises ConfigError, and then nothing has changed.

    A byte order mark, the mode and the owner stay. A new file with a *secret* is for its owner alone.
    """
    mark = codecs.BOM_UTF8 if (file.data or b"").startswith(codecs.BOM_UTF8) else b""
    beside = file.path.with_name(f".{file.path.name}.wicketgate-{secrets.token_hex(6)}")
    try:
        content = mark + text.encode()
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if file.data is not None and not os.access(file.path, os.W_OK):
            raise ConfigError(f"Cannot write {file.path}: it is read-only")
        _remove_left(file.path)
        try:
            _create(beside, content, 0o600 if secret or file.data is not None else 0o644)
            copy = None
            if file.data is not None:
                _take_after(beside, file.path)
                copy = _keep(file)
            # The client may have written meanwhile; what it wrote is not thrown away.
            if read_client_file(file.path).data != file.data:
                raise ConfigError(f"{file.path} was changed by another program meanwhile; run this again")
            beside.replace(file.path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot write {file.path}: {error.strerror}") from None
    except UnicodeEncodeError:
        raise ConfigError(f"Cannot write {file.path}: a path in the entry is not valid text") from None
    return copy


def _remove_left(path: Path) -> None:
    """Removes what a run that was killed left beside *path*. A young file may be that of another run."""
    ours = re.compile(re.escape(f".{path.name}.wicketgate-") + "[0-9a-f]{12}")
    with suppress(OSError):
        for each in os.scandir(path.parent):
            if ours.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                with suppress(OSError):
                    if each.stat(follow_symlinks=False).st_mtime < time.time() - _LEFT_AFTER_S:
                        Path(each.path).unlink()


def _keep(file: ClientFile) -> Path:
    """Keeps a copy beside the file. A copy that is there and differs stays, and the new one gets a number."""
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
    """Gives *path* the mode of *model*, and its owner where that is allowed."""
    status = model.stat()
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(path, status.st_uid, status.st_gid)
    path.chmod(status.st_mode & 0o777)
