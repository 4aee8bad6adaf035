"""Logs: one JSON object a line on stdout (S3 "Logging"), written by a thread so that a slow reader stalls nobody.

Keys: ``timestamp`` (UTC, ISO 8601), ``correlation_id``, ``component``, ``level``, ``message``, then what the caller
gave as ``extra={"fields": {...}}``, and ``exception`` where there is one. Never per text-delta. When nobody reads,
lines are dropped and counted; the service goes on, and stops when it is told to.
"""

import io
import json
import logging
import logging.handlers
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

from wicketgate.text.correlation import correlation_id

_QUEUE_LINES = 10_000
_LAST_LINES_S = 1.0
_LINES_AT_ONCE = 100
_REST_S = 0.01

# Chatty, and their records hold payloads: only their failures are of interest.
_QUIET = ("mcp", "httpx", "httpx2", "httpcore", "httpcore2", "sse_starlette", "asyncio", "uvicorn.access")
# They log what servers wrote, with tracebacks; our own transport says what matters of it.
_SILENT = ("mcp.client.stdio",)


class JsonFormatter(logging.Formatter):
    """Masks with *redact* what the caller wrote, never the frame of the line."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "correlation_id": correlation_id.get(),
            "component": record.name.removeprefix("wicketgate."),
            "level": record.levelname.lower(),
            "message": self._redact(record.getMessage()),
        }
        for key, value in getattr(record, "fields", {}).items():
            line[key] = self._redact(value) if isinstance(value, str) else value
        if record.exc_info:
            line["exception"] = self._redact(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class _Lines(logging.handlers.QueueHandler):
    """Formats in the caller, where the context is known. When the queue is full, or a record cannot be formatted, the
    line is counted and lost, and its caller goes on."""

    def __init__(self, lines: "queue.SimpleQueue[Any]") -> None:
        super().__init__(lines)
        self._lines = lines
        self._dropped = 0

    def prepare(self, record: logging.LogRecord) -> str:
        return self.format(record)

    def enqueue(self, record: Any) -> None:
        if self._lines.qsize() >= _QUEUE_LINES:
            self._dropped += 1
        else:
            self._lines.put(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # the library's name
        self._dropped += 1

    def take_dropped(self) -> str | None:
        """Returns the line that says how many were lost since the last one; None if none were."""
        if not self._dropped:
            return None
        dropped, self._dropped = self._dropped, 0
        return self.format(
            logging.makeLogRecord(
                {"name": "wicketgate.logs", "levelname": "WARNING", "msg": f"{dropped} log lines were dropped"}
            )
        )


class _Writer(logging.handlers.QueueListener):
    """Writes what has gathered, then rests a little: waking for each line would cost a request more than the line.

    Its thread is a daemon, and ``stop`` waits for a moment only: a reader that never reads must not keep the process
    from ending.
    """

    def __init__(self, lines: "queue.SimpleQueue[Any]", handler: _Lines, write: Callable[[str], None]) -> None:
        super().__init__(lines)
        self._lines = lines
        self._handler = handler
        self._write = write
        self._finishing = threading.Event()
        self._ended = threading.Event()

    def dequeue(self, block: bool) -> Any:
        line = self._lines.get(block)
        if not isinstance(line, str):
            self._write_all([])
            self._ended.set()
        return line

    def handle(self, record: Any) -> None:
        batch = [record]
        while len(batch) < _LINES_AT_ONCE and not self._lines.empty():
            line = self._lines.get()
            if not isinstance(line, str):
                # The end is for the thread's own loop to find.
                self.enqueue_sentinel()
                break
            batch.append(line)
        self._write_all(batch)
        self._finishing.wait(_REST_S)

    def stop(self) -> None:
        """Gives the last lines a moment to go out."""
        self._finishing.set()
        self.enqueue_sentinel()
        self._ended.wait(_LAST_LINES_S)

    def _write_all(self, lines: list[str]) -> None:
        # Losses are reported once there is room again.
        if self._lines.qsize() <= 1 and (dropped := self._handler.take_dropped()):
            lines = [*lines, dropped]
        try:
            if lines:
                self._write("".join(f"{line}\n" for line in lines))
        except OSError:
            pass  # the reader is gone for good


@contextmanager
def json_logs(level: str, redact: Callable[[str], str], stream: TextIO | None = None) -> Iterator[None]:
    """Routes all logging through the JSON formatter while the context is open. At its end the last lines are written,
    and logging is as it was before."""
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    handler = _Lines(lines)
    handler.setFormatter(JsonFormatter(redact))
    writer = _Writer(lines, handler, _write_to(stream or sys.stdout))
    writer.start()
    root = logging.getLogger()
    quiet = {logging.getLogger(name): logging.ERROR for name in _QUIET}
    quiet |= {logging.getLogger(name): logging.CRITICAL for name in _SILENT}
    # What is to be put back.
    handlers, levels = root.handlers[:], {logger: logger.level for logger in (root, *quiet)}
    flags = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    # What a line does not hold need not be found out for it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root.handlers[:] = [handler]
    set_log_level(level)
    for logger, least in quiet.items():
        logger.setLevel(least)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for logger, before in levels.items():
            logger.setLevel(before)
        logging.logThreads, logging.logProcesses, logging.logMultiprocessing = flags
        writer.stop()


def set_log_level(level: str) -> None:
    logging.getLogger().setLevel(level.upper())


def _write_to(stream: TextIO) -> Callable[[str], None]:
    """Past the stream's buffer where there is a file below it: a thread that hangs in a buffered write holds a lock
    that the interpreter wants at its end."""
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:

        def write_text(text: str) -> None:
            stream.write(text)

        return write_text

    def write(text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(descriptor, data) :]

    return write
