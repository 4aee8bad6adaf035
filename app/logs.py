"""Logs: one JSON object a line on stdout (S3 "Logging"), written by a thread so that a slow reader stalls nobody.

Keys: ``timestamp`` (UTC, ISO 8601), ``correlation_id``, ``component``, ``level``, ``message``, then what the caller
gave as ``extra={"fields": {...}}``, and ``exception`` where there is one. Never per text-delta. When nobody reads,
lines are dropped and counted; the service goes on, and stops when it is told to.
"""

import io
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

from wicketgate.text.correlation import correlation_id

_QUEUE_LINES = 10_000
_LAST_LINES_S = 1.0
_LINES_AT_ONCE = 100
_REST_S = 0.01

# Chatty, and their records hold payloads: only their failures are of interest.
_QUIET = ("mcp", "httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "sse_starlette", "asyncio", "uvicorn.access")
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


class _LineWriter(logging.Handler):
    """Formats in the caller, where the context is known; a thread of its own writes what has gathered, then rests a
    little. Waking it for each line would cost a request more than the line."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._dropped = 0
        self._finishing = threading.Event()
        # A daemon: a reader that never reads must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() >= _QUEUE_LINES:
            self._dropped += 1
            return
        try:
            self._lines.put(self.format(record))
        except Exception:
            self._dropped += 1  # a record that cannot be formatted must not fail its caller

    def finish(self) -> None:
        """Give the last lines a moment to go out."""
        self._finishing.set()
        self._lines.put(None)
        self._thread.join(_LAST_LINES_S)

    def _run(self) -> None:
        while True:
            lines = self._gathered()
            try:
                if lines and lines[0] is not None:
                    self._write("".join(f"{line}\n" for line in lines if line is not None))
                if self._dropped and self._lines.empty():
                    dropped, self._dropped = self._dropped, 0
                    record = logging.makeLogRecord(
                        {"name": "wicketgate.logs", "levelname": "WARNING", "msg": f"{dropped} log lines were dropped"}
                    )
                    self._write(self.format(record) + "\n")
            except OSError:
                pass  # the reader is gone for good; there is nobody left to tell
            if lines[-1] is None:
                return
            self._finishing.wait(_REST_S)

    def _gathered(self) -> list[str | None]:
        """Waits for one. Nothing is taken behind the end, None."""
        lines = [self._lines.get()]
        while lines[-1] is not None and len(lines) < _LINES_AT_ONCE and not self._lines.empty():
            lines.append(self._lines.get())
        return lines


@contextmanager
def json_logs(level: str, redact: Callable[[str], str], stream: TextIO | None = None) -> Iterator[None]:
    """Routes all logging through the JSON formatter while the context is open. At its end the last lines are written,
    and logging is as it was before."""
    handler = _LineWriter(_writer(stream or sys.stdout))
    handler.setFormatter(JsonFormatter(redact))
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
        handler.finish()


def set_log_level(level: str) -> None:
    logging.getLogger().setLevel(level.upper())


def _writer(stream: TextIO) -> Callable[[str], None]:
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
