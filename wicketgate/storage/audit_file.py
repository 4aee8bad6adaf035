"""Audit records as lines of JSON or CSV in a file: each is written whole or not at all.

A full disk leaves no half line, and a file that was moved is created again (gatekit G107, G112 to G115).
"""

import csv
import fcntl
import io
import json
import os
import stat
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wicketgate.gateway.audit import AuditFailed, AuditRecord

COLUMNS = (
    "timestamp", "operation", "actor", "correlation_id", "outcome", "tool_id", "server", "arguments_sha256",
    "transport", "protocol", "tool", "code", "cached", "duration_ms", "upstream_ms", "stages",
)  # fmt: skip

_MODE = 0o600
_LOOK_AGAIN_S = 0.001
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class AuditFile:
    """Implements BatchWriter. Several processes may append to one file.

    A file that was moved or removed, as by log rotation, is created again.
    """

    def __init__(
        self, path: Path, line: Callable[[AuditRecord], bytes], header: bytes = b"", *, patience_s: float = 5.0
    ) -> None:
        self._path = path
        self._line = line
        self._header = header
        self._patience_s = patience_s
        self._fd = -1

    def write(self, records: Sequence[AuditRecord]) -> None:
        self._append(b"".join(map(self._line, records)))

    def probe(self) -> None:
        """Writes a line and takes it back, because only that shows a full disk or a limit."""
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
        """Locks the file against other processes. Raises OSError if one of them keeps it locked for *patience_s*."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise OSError(0, "another process keeps it locked") from None
                time.sleep(_LOOK_AGAIN_S)

    def _write_whole(self, data: bytes, keep: bool) -> None:
        # A new file begins with the header.
        size = os.fstat(self._fd).st_size
        if size == 0:
            data = self._header + data
        elif os.pread(self._fd, 1, size - 1) != b"\n":
            data = b"\n" + data  # a power cut left half a line, which must stay a line of its own
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        finally:
            # A part of a line is taken back.
            if written < len(data) or not keep:
                os.ftruncate(self._fd, size)

    def _open_current(self) -> None:
        # Log rotation moves the file away; then a new one is opened.
        if self._fd >= 0 and _is_open_at(self._fd, self._path):
            return
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, _MODE)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(0, "it is not a regular file, so a record could not be taken back if it was cut")
        self._fd = fd


def _is_open_at(fd: int, path: Path) -> bool:
    """Returns true if *path* still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def fields(record: AuditRecord) -> dict[str, Any]:
    """Returns the values of a record by column; *stages* is a list of objects."""
    return {
        "timestamp": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds"),
        "operation": record.operation,
        "actor": record.actor,
        "correlation_id": record.correlation_id,
        "outcome": record.outcome,
        "tool_id": record.tool_id,
        "server": record.server,
        "arguments_sha256": record.arguments,  # never the arguments themselves
        "transport": record.transport,
        "protocol": record.protocol,
        "tool": record.tool,
        "code": record.code,
        "cached": record.cached,
        "duration_ms": record.duration_ms,
        "upstream_ms": record.upstream_ms,
        "stages": [
            {
                "plugin": stage.handler,
                "phase": stage.phase,
                "outcome": stage.outcome,
                "note": stage.note,
                "ms": round(stage.seconds * 1_000, 3),
            }
            for stage in record.stages
        ],
    }


def json_line(record: AuditRecord) -> bytes:
    """Writes ASCII, so that a name that a client chose cannot break the line."""
    return json.dumps(fields(record), separators=(",", ":")).encode("ascii") + b"\n"


def csv_header() -> bytes:
    return _csv(COLUMNS)


def csv_line(record: AuditRecord) -> bytes:
    values = fields(record)
    values["stages"] = json.dumps(values["stages"], separators=(",", ":")) if values["stages"] else ""
    return _csv([_csv_value(values[column]) for column in COLUMNS])


def _csv(values: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _csv_value(value: object) -> object:
    """Puts a quote before a text that a spreadsheet would run as a formula, and writes line ends as blanks."""
    if not isinstance(value, str):
        return value
    begins = value if value[:1] in _FORMULA else value.lstrip()
    quoted = f"'{value}" if begins.startswith(_FORMULA) else value
    return " ".join(quoted.splitlines()) if quoted else quoted
