"""Marks of the processes that share an SQLite file: each locks one byte of a file next to it while it lives (EXEC-77).

The kernel releases the lock at the end of a process, however it ends. A mark needs no renewal and never lapses. The id
of a process names the file that holds its mark: another file at the same path says nothing of it (EXEC-110).
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import struct
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("wicketgate.storage")


class ProcessMarks:
    """Never touches the SQLite file itself: closing a descriptor of it would release SQLite's own locks."""

    def __init__(self, sqlite_file: Path) -> None:
        self._path = sqlite_file.absolute().with_name(f"{sqlite_file.name}-marks")
        self._descriptor, self.ending = -1, f"-{0:08x}"
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            weakref.finalize(self, os.close, self._descriptor)
            _lock(self._descriptor, fcntl.F_RDLCK, "")  # not every file system has locks
            self.ending = _ending(self._descriptor)
        except OSError as error:
            log.warning("%s (%s): others cannot know when this process ends", self._path.name, error.strerror)

    @contextmanager
    def held(self, id: str) -> Iterator[None]:
        """Marks the process *id*, which ends with *ending*, as alive within the block. Best effort."""
        self._set(fcntl.F_WRLCK, id)
        try:
            yield
        finally:
            self._set(fcntl.F_UNLCK, id)

    def ended(self, id: str) -> bool:
        """Returns true if the process *id* holds no mark, false if it does or if that cannot be known."""
        with contextlib.suppress(OSError), self._path.open("rb", buffering=0) as file:
            if not _MARKED.search(id) or id.endswith(_ending(file.fileno())):
                _lock(file.fileno(), fcntl.F_RDLCK, id)
                return True
        return False

    def _set(self, kind: int, id: str) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                _lock(self._descriptor, kind, id)


_MARKED = re.compile("-[0-9a-f]{8}$")


def _ending(descriptor: int) -> str:
    """The ending of the ids whose marks are in the open file. No other file has its number while a process holds it."""
    return f"-{os.fstat(descriptor).st_ino & 0xFFFFFFFF:08x}"


def _lock(descriptor: int, kind: int, id: str) -> None:
    """Locks the byte of *id* for the open file, not for the process. Raises OSError if another one holds it."""
    at = int.from_bytes(hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()[:7])
    # struct flock of Linux: type, whence, start, length, pid.
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, at, 1, 0))
