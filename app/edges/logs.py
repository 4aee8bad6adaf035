"""Logs: one JSON object a line on stdout (S3 "Logging"), written by a thread so that a slow reader stalls nobody.

Keys: ``timestamp`` (UTC, ISO 8601), ``correlation_id``, ``component``, ``level``, ``message``, then what the caller
gave as ``extra={"fields": {...}}``, and ``exception`` where there is one. Never per text-delta.
"""

import json
import logging
import logging.handlers
import queue
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

from app.wire.correlation import correlation_id

_QUEUE_LINES = 10_000

# Chatty, and their records hold payloads: only their failures are of interest.
_QUIET = ("mcp", "httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "sse_starlette", "asyncio", "uvicorn.access")


class JsonFormatter(logging.Formatter):
    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "correlation_id": correlation_id.get(),
            "component": record.name.removeprefix("wicketgate."),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Redacted as JSON text: a secret is masked wherever it hides, also in a key or a traceback.
        return self._redact(json.dumps(line, default=str))


class _LineQueue(logging.handlers.QueueHandler):
    """Formats in the caller, where the context is known, and hands the finished line over."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        record.msg = self.format(record)
        record.args = record.exc_info = record.exc_text = record.stack_info = None
        return record


@contextmanager
def json_logs(level: str, redact: Callable[[str], str], stream: TextIO | None = None) -> Iterator[None]:
    """Route all logging through the JSON formatter while the context is open; the last lines are written at its end."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_QUEUE_LINES)
    handler = _LineQueue(lines)
    handler.setFormatter(JsonFormatter(redact))
    listener = logging.handlers.QueueListener(lines, logging.StreamHandler(stream or sys.stdout))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    listener.start()
    try:
        yield
    finally:
        root.handlers[:] = []
        listener.stop()
