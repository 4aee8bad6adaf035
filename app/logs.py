"""Logs: one JSON object a line on stdout (OPS-13). A thread writes them, so that a slow reader stalls no request.

Keys: ``timestamp`` (UTC, ISO 8601), ``correlation_id``, ``component``, ``level``, ``message``, then those of the
caller's ``extra={"fields": {...}}``, and ``exception`` where there is one. No line for each text-delta. While the lines
have no reader they are dropped and counted; the service goes on, and can be stopped.
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

from wicketgate.log_text import correlation_id

_QUEUE_LINES = 10_000
_LAST_LINES_S = 1.0
_LINES_AT_ONCE = 100
_REST_S = 0.01

# They log a lot, with payloads: only their errors are kept.
_QUIET = ("mcp", "httpx", "httpx2", "httpcore", "httpcore2", "sse_starlette", "asyncio", "uvicorn.access")
# It logs the output of servers, with tracebacks; our own transport logs what matters of it.
_SILENT = ("mcp.client.stdio",)


class JsonFormatter(logging.Formatter):
    """Masks secrets with *redact* in the caller's texts, not in the other keys."""

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


class _LogQueue(logging.handlers.QueueHandler):
    """Formats in the calling thread, where the context is known.

    A line is dropped and counted if the queue is full or it cannot be formatted. The caller goes on.
    """

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
        """Returns a line with the number of lines dropped since the last one; None if there are none."""
        if not self._dropped:
            return None
        dropped, self._dropped = self._dropped, 0
        return self.format(
            logging.makeLogRecord(
                {"name": "wicketgate.logs", "levelname": "WARNING", "msg": f"{dropped} log lines were dropped"}
            )
        )


class _LogWriter(logging.handlers.QueueListener):
    """Writes the queued lines together, then pauses: a wake-up for each line would cost a request more than the line.

    Its thread is a daemon, and ``stop`` waits only briefly, so that a reader that never reads cannot keep the process
    from ending.
    """

    def __init__(self, lines: "queue.SimpleQueue[Any]", handler: _LogQueue, write: Callable[[str], None]) -> None:
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
                # The end of the queue: put back for the thread's own loop.
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
        # Dropped lines are reported once there is room again.
        if self._lines.qsize() <= 1 and (dropped := self._handler.take_dropped()):
            lines = [*lines, dropped]
        try:
            if lines:
                self._write("".join(f"{line}\n" for line in lines))
        except OSError:
            pass  # the reader is gone for good


@contextmanager
def json_logs(level: str, redact: Callable[[str], str], stream: TextIO | None = None) -> Iterator[None]:
    """Routes all logging through the JSON formatter while the context is open.

    At its end the last lines are written, and logging is as it was before.
    """
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    handler = _LogQueue(lines)
    handler.setFormatter(JsonFormatter(redact))
    writer = _LogWriter(lines, handler, _write_to(stream or sys.stdout))
    writer.start()
    root = logging.getLogger()
    quiet = {logging.getLogger(name): logging.ERROR for name in _QUIET}
    quiet |= {logging.getLogger(name): logging.CRITICAL for name in _SILENT}
    # Keep what is to be restored.
    handlers, levels = root.handlers[:], {logger: logger.level for logger in (root, *quiet)}
    flags = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    # Skip the look-up of details that no line holds.
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
    """Returns a function that writes past the stream's buffer, if there is a file below it.

    A thread that hangs in a buffered write holds a lock that the interpreter needs at its exit.
    """
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
