"""Marks of the processes that share an SQLite file: each locks one byte of a file next to it while it lives (EXEC-77).

The kernel releases the lock at the end of a process, however it ends. A mark needs no renewal and never lapses.
"""

import contextlib
import fcntl
import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ProcessMarks:
    """Never touches the SQLite file itself: closing a descriptor of it would release SQLite's own locks."""

    def __init__(self, sqlite_file: Path) -> None:
        self._path = sqlite_file.absolute().with_name(f"{sqlite_file.name}-marks")

    @contextmanager
    def held(self, id: str) -> Iterator[None]:
        """Marks the process *id* as alive within the block. Best effort: without the file, it counts as ended."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
                stack.callback(os.close, descriptor)
                _lock(descriptor, fcntl.F_WRLCK, id)
            yield

    def ended(self, id: str) -> bool:
        """Returns true if the process *id* holds no mark, false if it does or if that cannot be known."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError:
            return False
        try:
            _lock(descriptor, fcntl.F_RDLCK, id)
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)


def _lock(descriptor: int, kind: int, id: str) -> None:
    """Locks the byte of *id* for the open file, not for the process. Raises OSError if another one holds it."""
    at = int.from_bytes(hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()[:7])
    # struct flock of Linux: type, whence, start, length, pid.
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, at, 1, 0))
