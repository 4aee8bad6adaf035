"""Gives every request its correlation id and one log line with the client's address (OPS-14,
ACCESS-31).

The id is that of ``X-Correlation-ID`` if it is well formed, otherwise a new one. The engine's route replaces it with
``metadata.correlation_id`` after reading the body; the response header and the log line show the replaced one.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.types import Scope

from wicketgate.log_text import HEADER, correlation_id, is_correlation_id

log = logging.getLogger("wicketgate.http")

_PATH_CHARS = 256
_HEADER = HEADER.lower().encode()


def write_by_logging(log: logging.Logger, message: str, fields: Mapping[str, object]) -> None:
    log.info("%s", message, extra={"fields": fields})


@dataclass(eq=False, repr=False)
class AccessLog:
    """*measure* gets path, status (0 for no answer) and the seconds until the answer began; *write* each line."""

    _new_id: Callable[[], str]
    _measure: Callable[[str, int, float], None] = lambda *_: None
    _write: Callable[[logging.Logger, str, Mapping[str, object]], None] = write_by_logging

    def begin(self, scope: Scope) -> float:
        """Puts the current id into ``scope["state"]["correlation_id"]``. Returns the time, for ``end``. The context is
        that of the request's own task."""
        sent = _sent(scope) or self._new_id()
        scope.setdefault("state", {})["correlation_id"] = sent
        correlation_id.set(sent)
        return time.monotonic()

    def end(self, scope: Scope, started: float, status: int, answered: float) -> None:
        """*answered*: when the answer began; *status* is 0 if it did not."""
        correlation_id.set(scope["state"]["correlation_id"])
        client = scope.get("client")
        took_s = time.monotonic() - started
        path = scope["path"]
        self._measure(path, status, answered - started if status else took_s)
        fields = {"status": status, "duration_ms": round(took_s * 1000, 1), "client": client[0] if client else ""}
        self._write(log, f"{scope['method']} {path[:_PATH_CHARS]} {status or 'no response'}", fields)


def id_header(scope: Scope) -> tuple[bytes, bytes]:
    return _HEADER, scope["state"]["correlation_id"].encode()


def _sent(scope: Scope) -> str:
    """The id that came with the request; empty if there is none, or the first is not well formed."""
    for key, value in scope["headers"]:
        if key == _HEADER:
            sent: str = value.strip().decode("latin-1")
            return sent if is_correlation_id(sent) else ""
    return ""
