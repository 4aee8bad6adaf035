"""What becomes of a child's stderr: read at any rate, since a full pipe would stop the child, and logged, bounded
(gatekit G77)."""

import logging
from collections import deque

log = logging.getLogger("wicketgate.upstream")

_LINE = 1_000
_KEPT = 20


class StderrLog:
    """Every line at debug level, cut to a bounded length; the last few once more when it is asked to tell."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last_lines: deque[str] = deque(maxlen=_KEPT)
        self._open = bytearray()

    def feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._open += line[: _LINE - len(self._open)]
            self._emit()
        self._open += rest[: _LINE - len(self._open)]

    def tell(self) -> None:
        self._emit()
        for line in self._last_lines:
            log.warning("%s wrote before it ended: %s", self._name, line)

    def _emit(self) -> None:
        line = self._open.decode("utf-8", "replace").strip()
        self._open.clear()
        if line:
            self._last_lines.append(line)
            log.debug("%s stderr: %s", self._name, line)
