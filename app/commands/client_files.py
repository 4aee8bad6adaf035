"""The files of clients: read within bounds, and replaced completely or not at all (OPS-73, OPS-87)."""

import itertools
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wicketgate.config.settings_file import create_file
from wicketgate.errors import ConfigError

# The parser of TOML is far slower than that of JSON.
_MAX_MIB = {".toml": 1}
_MAX_MIB_OTHERWISE = 16
_MARK = "\ufeff"
_SUFFIX = ".before-wicketgate"


@dataclass(frozen=True, slots=True)
class ClientFile:
    """*path* is the file itself, behind any symlinks. *text* is None if it is not there."""

    path: Path
    text: str | None

    @property
    def plain(self) -> str:
        """The text without a byte order mark."""
        return (self.text or "").removeprefix(_MARK)


def read_text(path: Path) -> str:
    """Raises ConfigError. Also reads a pipe or a device, which have no size."""
    most = _MAX_MIB.get(path.suffix, _MAX_MIB_OTHERWISE)
    try:
        with path.open("rb") as file:
            content = file.read(most * 1024 * 1024 + 1)
        if len(content) > most * 1024 * 1024:
            raise ConfigError(f"{path} is larger than {most} MiB")
        return content.decode()
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None


def read_client_file(path: Path) -> ClientFile:
    """Reads a file that is to be replaced. Raises ConfigError."""
    real = Path(os.path.realpath(path))
    if not os.path.lexists(real):
        return ClientFile(real, None)
    if not real.is_file():
        raise ConfigError(f"Cannot read {path}: it is not a file")
    return ClientFile(real, read_text(real))


def replace_client_file(file: ClientFile, text: str, *, secret: bool) -> Path | None:
    """Writes *text* and returns the copy of the old file. Raises ConfigError; then nothing has changed.

    Keeps a byte order mark, the mode and the owner. A new file with a *secret* can be read by its owner only.
    """
    mark = _MARK if file.text and file.text.startswith(_MARK) else ""
    beside = file.path.with_name(f".{file.path.name}.wicketgate-{secrets.token_hex(6)}")
    copy = None
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if file.text is not None and not os.access(file.path, os.W_OK):
            raise ConfigError(f"Cannot write {file.path}: it is read-only")
        try:
            create_file(beside, mark + text, 0o600 if secret or file.text is not None else 0o644)
            if file.text is not None:
                _take_after(beside, file.path)
                copy = _keep(file.path, file.text)
            # The client may have written in the meantime; what it wrote is not thrown away.
            if read_client_file(file.path) != file:
                raise ConfigError(f"Another program has just changed {file.path}; run this command again")
            beside.replace(file.path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot write {file.path}: {error.strerror}") from None
    except UnicodeEncodeError:
        raise ConfigError(f"Cannot write {file.path}: a path in the entry is not valid text") from None
    return copy


def _keep(path: Path, text: str) -> Path:
    """Copies the file next to it. An earlier copy that differs stays, and the new one gets a number."""
    for number in itertools.count(1):
        copy = path.with_name(f"{path.name}{_SUFFIX}{'' if number == 1 else f'-{number}'}")
        with suppress(FileExistsError):
            create_file(copy, text, 0o600)
            _take_after(copy, path)
            return copy
        if copy.is_file() and not copy.is_symlink() and copy.read_bytes() == text.encode():
            return copy
    raise AssertionError


def _take_after(path: Path, model: Path) -> None:
    """Gives *path* the mode of *model*, and its owner if that is allowed."""
    status = model.stat()
    with suppress(PermissionError):
        os.chown(path, status.st_uid, status.st_gid)
    path.chmod(status.st_mode & 0o777)
