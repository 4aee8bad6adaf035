"""A file that audit lines are appended to: each whole or not at all, whatever happens to the disk or the file (G113 to
G115).
"""

import fcntl
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wicketgate.gateway.audit import AuditFailed, AuditRecord

_MODE = 0o600
_LOCKED_S = 5.0
_LOOK_AGAIN_S = 0.001


class AuditFile:
    """Implements BatchWriter. Several processes may append to one file; a file that was moved or removed, as log
    rotation does, is made anew.
    """

    def __init__(self, path: Path, line: Callable[[AuditRecord], bytes], header: bytes = b"") -> None:
        self._path = path
        self._line = line
        self._header = header
        self._fd = -1

    def write(self, records: Sequence[AuditRecord]) -> None:
        self._append(b"".join(map(self._line, records)))

    def probe(self) -> None:
        """Writes and takes back a line: only that shows a full disk or a limit."""
        self._append(b"." * 512, keep=False)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: bytes, *, keep: bool = True) -> None:
        try:
            self._open_current()
            self._lock()
            try:
                self._write_whole(data, keep)
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError as error:
            raise AuditFailed(error.strerror or type(error).__name__) from None

    def _lock(self) -> None:
        """Against other processes. Raises OSError when one of them keeps the file for long."""
        until = time.monotonic() + _LOCKED_S
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise OSError(0, "another process keeps it locked") from None
                time.sleep(_LOOK_AGAIN_S)

    def _write_whole(self, data: bytes, keep: bool) -> None:
        size = os.fstat(self._fd).st_size
        if size == 0:
            data = self._header + data
        elif os.pread(self._fd, 1, size - 1) != b"\n":
            data = b"\n" + data  # a power cut left half a line; the next one must not go on with it
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        finally:
            if written < len(data) or not keep:
                os.ftruncate(self._fd, size)

    def _open_current(self) -> None:
        if self._fd >= 0 and _same(self._fd, self._path):
            return
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, _MODE)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(0, "it is not a regular file, so a record could not be taken back if it was cut")
        self._fd = fd


def _same(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
