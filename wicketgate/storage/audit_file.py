"""Audit records in batches, and as lines of JSON or CSV in a file: each is written whole or not at all.

A full disk leaves no half line, and a file that was moved is created again (ACCESS-23, ACCESS-25, ACCESS-26).
"""

import asyncio
import csv
import fcntl
import io
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from wicketgate.daemon_threads import DaemonThreads, NoThreadLeft
from wicketgate.gateway.audit import AuditFailed, AuditRecord
from wicketgate.gateway.audited_call import AFTER_S

log = logging.getLogger("wicketgate.audit")

_MAX_BATCH = 1_000
_SILENT = "it does not answer"


class BatchWriter(Protocol):
    """Writes records where they are kept. Called in a thread, one call at a time."""

    def write(self, records: Sequence[AuditRecord]) -> str:
        """Keeps all of the records or none. Raises AuditFailed. Returns why there may be no room for those of further
        calls, empty if there is: then only calls under way are recorded."""
        ...

    def probe(self) -> None:
        """Raises AuditFailed if a record cannot be kept now."""
        ...

    def close(self) -> None: ...


class BatchedSink:
    """Implements AuditSink over a writer that blocks.

    While the writer fails, it is tried once every *pause_s* for all callers together. No record waits longer than
    *patience_s*, with those in front of it. A writer that takes longer is left alone: its records count as lost, and it
    gets no more until it returns. While *max_waiting* records wait, further ones are refused.
    """

    def __init__(
        self, writer: BatchWriter, *, pause_s: float = 1.0, patience_s: float = AFTER_S, max_waiting: int = 10_000
    ) -> None:
        self._writer = writer
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._max_waiting = max_waiting
        self._threads = DaemonThreads(1, "audit")
        self._waiting: list[tuple[AuditRecord, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._failed = False
        self._probing: asyncio.Task[None] | None = None
        self._probed = float("-inf")
        self._reason = ""

    async def write(self, record: AuditRecord) -> None:
        self._check_room()
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((record, kept))
        # One task writes; while it does, further records gather for its next batch.
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting())
        # Shielded, because the record goes with those of others even if its caller leaves.
        try:
            async with asyncio.timeout(self._patience_s):
                await asyncio.shield(kept)
        except TimeoutError:
            kept.cancel()  # it is not written any more, unless that has begun
            self._failed, self._reason = True, _SILENT
            raise AuditFailed(_SILENT) from None

    async def ready(self) -> None:
        self._check_room()
        if not self._failed:
            return
        # One probe at a time, and none within the pause after the last.
        if self._probing is None or self._probing.done():
            if asyncio.get_running_loop().time() < self._probed + self._pause_s:
                raise AuditFailed(self._reason)
            self._probing = asyncio.create_task(self._probe())
        await asyncio.shield(self._probing)
        if self._failed:
            raise AuditFailed(self._reason)

    async def aclose(self) -> None:
        for task in (self._writing, self._probing):
            if task is not None:
                await task
        await self._in_thread(self._writer.close)
        self._threads.close()

    def _check_room(self) -> None:
        if len(self._waiting) >= self._max_waiting:
            raise AuditFailed(f"{self._max_waiting} records wait to be written")

    async def _probe(self) -> None:
        async with self._turn:
            if self._failed:
                self._reason, _ = await self._in_thread(self._writer.probe)
                self._failed = self._reason != ""
                if not self._failed:
                    log.info("the audit log can be written again")
            self._probed = asyncio.get_running_loop().time()

    async def _write_waiting(self) -> None:
        while self._waiting:
            async with self._turn:
                batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
                batch = [(record, kept) for record, kept in batch if not kept.cancelled()]
                failure, short = await self._in_thread(partial(self._writer.write, [record for record, _ in batch]))
                if short and not self._failed:
                    log.error("the audit log refuses further calls: %s", short)
                self._reason = failure or short
                self._failed = self._reason != ""
            # Answer the callers that are still there.
            for _, kept in batch:
                if kept.done():
                    continue
                if not failure:
                    kept.set_result(None)
                else:
                    kept.set_exception(AuditFailed(failure))
                    kept.exception()  # marks it as retrieved, because a caller that has left never looks

    async def _in_thread(self, work: Callable[[], str | None]) -> tuple[str, str]:
        """Runs *work* in the thread. Returns the reason of a failure, empty without one, and its result."""
        try:
            async with asyncio.timeout(self._patience_s):
                return "", await self._threads.run(work) or ""
        except AuditFailed as error:
            return str(error) or "no reason given", ""
        except (TimeoutError, NoThreadLeft):
            return _SILENT, ""
        except Exception as error:  # callers wait for these records, and must not wait for ever
            log.exception("the audit log failed")
            return type(error).__name__, ""


# Further columns go to the end, for readers that count.
COLUMNS = (
    "timestamp", "operation", "actor", "correlation_id", "outcome", "tool_id", "server", "arguments_sha256",
    "transport", "protocol", "tool", "code", "cached", "duration_ms", "upstream_ms", "stages",
    "key_id", "source", "call_id", "phase", "approval", "detail", "flow", "gate",
    "program", "step", "text",
)  # fmt: skip

_MODE = 0o600
_LOOK_AGAIN_S = 0.001
_PROBE_BYTES = 4_096  # no record is longer, unless many plugins saw its call
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

    def write(self, records: Sequence[AuditRecord]) -> str:
        self._append(b"".join(map(self._line, records)))
        return ""

    def probe(self) -> None:
        """Writes a line and takes it back, because only that shows a full disk or a limit."""
        self._append(b"." * _PROBE_BYTES, keep=False)

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
    """Returns the values of a record by column; *stages* is a list of objects, *flow* an object."""
    return {column: getattr(record, column, None) for column in COLUMNS} | {
        "timestamp": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds"),
        "arguments_sha256": record.arguments,  # a digest, never the arguments themselves
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
    for column in ("stages", "flow"):
        values[column] = json.dumps(values[column], separators=(",", ":")) if values[column] else ""
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
