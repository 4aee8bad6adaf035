"""The folder with the sockets of the workers of one service: made, kept while they live, cleared after a kill."""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wicketgate.errors import ConfigError

log = logging.getLogger("wicketgate.workers")

_PREFIX = "wicketgate-"
_LOCK = "in-use"
"""Locked by the supervisor, and by each worker after it, while one of them lives."""
_LONGEST_PARENT = 80
"""In characters: the path of a Unix socket has about a hundred bytes."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """Gives a folder that only this user may open, and removes it at the end (OPS-199).

    Folders that a killed supervisor has left beside it are removed first (OPS-337). Raises ConfigError if none can be
    made.
    """
    parent = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    if len(parent) > _LONGEST_PARENT or not os.access(parent, os.W_OK):
        parent = "/tmp"  # noqa: S108  # the folder in it is made for this user alone
    _clear(Path(parent))
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # The name comes after the lock: a file of this name that nobody has locked was left by the dead.
        kept = (folder / f"{_LOCK}.new").open("wb")
        fcntl.flock(kept, fcntl.LOCK_EX)
        Path(kept.name).rename(folder / _LOCK)
    except OSError as error:
        raise ConfigError(f"--workers: no folder for sockets can be made in {parent}: {error.strerror}") from None
    try:
        with kept:
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        if _left_behind(folder):
            log.info("removed %s, left by workers that were killed", folder)
            shutil.rmtree(folder, ignore_errors=True)


def _left_behind(folder: Path) -> bool:
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            return False
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # no such file, not ours to read, or in use
        return False
    return True
