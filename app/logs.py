"""Logs: one JSON object a line on stdout (OPS-13), or one line of text for people (OPS-96). A thread writes them, so
that a slow reader stalls no request.

Keys of the JSON: ``timestamp`` (UTC, ISO 8601), ``correlation_id``, ``component``, ``level``, ``message``, then those
of the caller's ``extra={"fields": {...}}``, and ``exception`` where there is one. No line for each text-delta. While
the lines have no reader they are dropped and counted; the service goes on, and can be stopped.

The codes of colours for people are made once, by click; a table or a layout engine would cost each line a hundred times
as much.
"""

import io
import json
import logging
import logging.handlers
import os
import queue
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from time import gmtime, localtime, strftime, time
from typing import Any, Literal, TextIO

import click

from app.printable import printable, printable_text
from wicketgate.log_text import correlation_id

_SHORT_ID_CHARS = 12
_INDENT = "    "
_LEVEL_STYLES: dict[str, dict[str, Any]] = {
    "debug": {"dim": True},
    "info": {"fg": "green"},
    "warning": {"fg": "yellow"},
    "error": {"fg": "red"},
    "critical": {"fg": "red", "bold": True},
}
_WIDTH = max(map(len, _LEVEL_STYLES)) - 1  # critical is seldom

LogFormat = Literal["auto", "text", "json"]

_QUEUE_LINES = 10_000
_LAST_LINES_S = 1.0
_LINES_AT_ONCE = 100
_REST_S = 0.01

# They log a lot, with payloads: only their errors are kept.
_QUIET = ("mcp", "httpx", "httpx2", "httpcore", "httpcore2", "sse_starlette", "asyncio", "uvicorn.access")
# It logs the output of servers, with tracebacks; our own transport logs what matters of it.
_SILENT = ("mcp.client.stdio",)

_NO_FIELDS: Mapping[str, object] = {}
_encode = json.JSONEncoder(default=str).encode  # ``json.dumps`` would make an encoder for each value
_quoted = json.encoder.encode_basestring_ascii


def is_coloured(stream: TextIO) -> bool:
    """Returns true for a terminal, unless NO_COLOR is set or the terminal knows no colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class TextFormatter(logging.Formatter):
    """Masks secrets with *redact* in the caller's texts, and escapes whatever is not printable."""

    def __init__(self, redact: Callable[[str], str], *, coloured: bool) -> None:
        super().__init__()
        self._redact = redact
        style = click.style if coloured else _plain
        self._dim = style("{}", dim=True).format
        self._levels = {level: style(f"{level:<{_WIDTH}}", **how) for level, how in _LEVEL_STYLES.items()}

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        line = self._line(record.created, record.name, record.levelname.lower(), record.getMessage(), fields)
        if record.exc_info:
            trouble = printable_text(self._redact(self.formatException(record.exc_info)))
            line = "\n".join([line, *(_INDENT + each for each in trouble.split("\n"))])
        return line

    def info(self, name: str, message: str, fields: Mapping[str, object]) -> str:
        """Returns the line that a record of the logger *name* would give now, without one."""
        return self._line(time(), name, "info", message, fields)

    def _line(self, created: float, name: str, level: str, message: str, fields: Mapping[str, object] | None) -> str:
        parts = [
            self._dim(strftime("%H:%M:%S", localtime(created))),
            self._levels.get(level, level),
            self._dim(printable(name.removeprefix("wicketgate."))),
            printable(self._redact(message)),
        ]
        if fields:
            parts.append(self._dim(" ".join([f"{key}={self._value(value)}" for key, value in fields.items()])))
        if (trace := correlation_id.get()) != "-":
            parts.append(self._dim(trace[:_SHORT_ID_CHARS]))
        return " ".join(parts)

    def _value(self, value: object) -> str:
        if isinstance(value, int | float):
            return str(value)
        text = self._redact(value if isinstance(value, str) else json.dumps(value, default=str))
        if isinstance(value, str) and (not text or not _NEEDS_QUOTES.isdisjoint(text)):
            text = json.dumps(text, ensure_ascii=False)
        return printable(text)


_NEEDS_QUOTES = frozenset(' "=')


def _plain(text: str, **how: object) -> str:
    return text


def _json(value: object) -> str:
    if type(value) is int or (type(value) is float and isfinite(value)):
        return repr(value)
    return _encode(value)


class JsonFormatter(logging.Formatter):
    """Masks secrets with *redact* in the caller's texts, not in the other keys."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact
        self._time = (-1, "")
        self._sources: dict[tuple[str, str], str] = {}

    def format(self, record: logging.LogRecord) -> str:
        line = self._line(
            record.created, record.name, record.levelname, record.getMessage(), getattr(record, "fields", _NO_FIELDS)
        )
        if record.exc_info:
            line += f', "exception": {_quoted(self._redact(self.formatException(record.exc_info)))}'
        return line + "}"

    def info(self, name: str, message: str, fields: Mapping[str, object]) -> str:
        """Returns the line that a record of the logger *name* would give now, without one."""
        return self._line(time(), name, "INFO", message, fields) + "}"

    def _line(self, created: float, name: str, level: str, message: str, fields: Mapping[str, object]) -> str:
        second, micro = divmod(round(created * 1e6), 1_000_000)
        known, shown = self._time
        if known != second:
            shown = strftime("%Y-%m-%dT%H:%M:%S", gmtime(second))
            self._time = second, shown
        # By hand: an encoder for the whole line costs three times as much, and there is one for each request.
        source = self._sources.get((name, level)) or self._source(name, level)
        line = (
            f'{{"timestamp": "{shown}.{micro // 1000:03}+00:00", "correlation_id": {_quoted(correlation_id.get())}, '
            f'{source}, "message": {_quoted(self._redact(message))}'
        )
        for key, value in fields.items():
            line += f", {_quoted(key)}: {_quoted(self._redact(value)) if isinstance(value, str) else _json(value)}"
        return line

    def _source(self, name: str, level: str) -> str:
        """The keys that lines of one logger and level have in common: both are few."""
        made = self._sources[name, level] = (
            f'"component": {_quoted(name.removeprefix("wicketgate."))}, "level": {_quoted(level.lower())}'
        )
        return made


class _LogQueue(logging.handlers.QueueHandler):
    """Formats in the calling thread, where the context is known.

    A line is dropped and counted if the queue is full or it cannot be formatted. The caller goes on.
    """

    def __init__(self, lines: "queue.SimpleQueue[Any]", lines_of: JsonFormatter | TextFormatter) -> None:
        super().__init__(lines)
        self.formatter = lines_of
        self._lines = lines
        self._lines_of = lines_of
        self._dropped = 0

    def info(self, name: str, message: str, fields: Mapping[str, object]) -> None:
        self.enqueue(self._lines_of.info(name, message, fields))

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the library's lock and steps: the queue takes lines of any thread.
        if self.filters and not self.filter(record):
            return False
        try:
            self.enqueue(self.format(record))
        except Exception:
            self.handleError(record)
        return True

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


class Log:
    """The log while it is open, for texts that have to stand in order with its lines. *in_terminal*: people read it,
    as text."""

    def __init__(self, handler: _LogQueue, *, in_terminal: bool) -> None:
        self._handler = handler
        self.in_terminal = in_terminal

    def say(self, text: str) -> None:
        """Write *text* as it is, after the lines so far."""
        self._handler.enqueue(text)


def write_info(log: logging.Logger, message: str, fields: Mapping[str, object]) -> None:
    """Writes a line for each request as ``log.info`` does: past it, where it would only come to our handler."""
    root = logging.root
    handlers = root.handlers
    if len(handlers) == 1 and isinstance(handler := handlers[0], _LogQueue) and not (handler.filters or log.filters):
        above: logging.Logger | None = log
        while above is not root:
            if above is None or above.handlers or not above.propagate:
                break
            above = above.parent
        else:
            if log.isEnabledFor(logging.INFO):
                handler.info(log.name, message, fields)
            return
    log.info("%s", message, extra={"fields": fields})


def _library() -> Any:
    """The library, for a switch of it that its types do not name."""
    return logging


@contextmanager
def service_logs(
    level: str, redact: Callable[[str], str], stream: TextIO | None = None, *, log_format: LogFormat = "json"
) -> Iterator[Log]:
    """Routes all logging to *stream*, by default stdout, while the context is open. ``auto`` is text in a terminal and
    JSON elsewhere.

    At its end the last lines are written, and logging is as it was before.
    """
    stream = stream or sys.stdout
    is_text = log_format == "text" or (log_format == "auto" and stream.isatty())
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    handler = _LogQueue(
        lines, TextFormatter(redact, coloured=is_coloured(stream)) if is_text else JsonFormatter(redact)
    )
    writer = _LogWriter(lines, handler, _write_to(stream))
    writer.start()
    root = logging.getLogger()
    quiet = {logging.getLogger(name): logging.ERROR for name in _QUIET}
    quiet |= {logging.getLogger(name): logging.CRITICAL for name in _SILENT}
    # Keep what is to be restored.
    handlers, levels = root.handlers[:], {logger: logger.level for logger in (root, *quiet)}
    flags = logging.logThreads, logging.logProcesses, logging.logMultiprocessing, _library()._srcfile
    # Skip the look-up of details that no line holds: of the place in the code too (the library's own advice).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    _library()._srcfile = None
    root.handlers[:] = [handler]
    set_log_level(level)
    for logger, least in quiet.items():
        logger.setLevel(least)
    try:
        yield Log(handler, in_terminal=is_text and stream.isatty())
    finally:
        root.handlers[:] = handlers
        for logger, before in levels.items():
            logger.setLevel(before)
        logging.logThreads, logging.logProcesses, logging.logMultiprocessing, _library()._srcfile = flags
        writer.stop()


@contextmanager
def plain_logs(level: str, redact: Callable[[str], str], log_format: LogFormat) -> Iterator[None]:
    """Writes the log as ``service_logs`` does, but without a thread: for a process that is forked from, and says
    little."""
    is_text = log_format == "text" or (log_format == "auto" and sys.stdout.isatty())
    handler = logging.StreamHandler(sys.stdout)
    formatter = TextFormatter(redact, coloured=is_coloured(sys.stdout)) if is_text else JsonFormatter(redact)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    root.handlers[:] = [handler]
    set_log_level(level)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)


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

    is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)

    def write(text: str) -> None:
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(descriptor, data[: _whole_lines(data)] if is_pipe else data) :]

    return write


def _whole_lines(data: bytes) -> int:
    """Returns how many bytes of *data* to write at once to a pipe that other processes may write to as well: whole
    lines, as many as the system keeps together. A line that is longer goes by itself."""
    end = data.rfind(b"\n", 0, select.PIPE_BUF) + 1
    return end or data.find(b"\n") + 1 or len(data)
