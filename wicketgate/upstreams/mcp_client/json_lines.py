"""How a child's output is cut into lines: in linear time, holding one bounded line at most (gatekit G74)."""

from collections.abc import Callable

MAX_LINE_BYTES = 64 * 1024 * 1024
_SHOWN = 512


class LineReader:
    """Incremental: the lines do not depend on where the bytes were cut.

    A line of more than *max_bytes* is passed over: *too_long* gets its first and last bytes, by which it may be known.
    """

    def __init__(self, too_long: Callable[[bytes, bytes], None], max_bytes: int = MAX_LINE_BYTES) -> None:
        self._too_long = too_long
        self._max_bytes = max_bytes
        self._open = bytearray()
        self._head: bytes | None = None
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes | bytearray]:
        """The lines that *data* completed, in order, without their ends; blank ones are left out."""
        if b"\n" not in data:
            self._keep(data)
            return []
        lines: list[bytes | bytearray] = [*data.split(b"\n")]
        rest = lines.pop()
        if self._open or self._head is not None:
            lines[0] = self._closed(lines[0])
        if rest:
            self._keep(rest)
        return [line for line in lines if line and not line.isspace()]

    def _closed(self, end: bytes | bytearray) -> bytearray:
        """The open line with its *end*; empty if it was too long."""
        self._keep(end)
        line, self._open = self._open, bytearray()
        if self._head is not None:
            self._too_long(self._head, self._tail)
            self._head, self._tail = None, b""
        return line

    def _keep(self, piece: bytes | bytearray) -> None:
        if self._head is not None:
            self._tail = (self._tail + piece)[-_SHOWN:]
            return
        self._open += piece
        if len(self._open) > self._max_bytes:
            self._head, self._tail = bytes(self._open[:_SHOWN]), bytes(self._open[-_SHOWN:])
            self._open = bytearray()
