"""Server-sent events, cut out of a provider's byte stream (WHATWG HTML §9.2, as far as a single answer needs it).

``id`` and ``retry`` serve reconnection: the decoder keeps the last of each for streams that can be resumed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wicketgate.errors import ProviderError

MAX_LINE_BYTES = 1 << 20
MAX_EVENT_BYTES = 4 << 20

_JOINED_BYTES = 16 << 10
"""A line's beginning up to this size is joined with what comes next at every read; a longer one only when it ends."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(slots=True)
class SseEvent:
    """*name* is empty when the stream named none; *data* is the data lines joined by LF, undecoded."""

    # Not frozen: there is one for every token, and freezing triples what it costs to make one.

    name: str
    data: bytes


class SseDecoder:
    """Incremental: the events do not depend on where the bytes were cut. Lines may end in LF, CR or CRLF.

    A line or an event over its bound is a ProviderError: what is held in memory is never more than the two bounds.
    """

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._max_event_bytes = max_event_bytes
        self._partial: list[bytes] = []
        self._partial_bytes = 0
        self._at_start = True
        self._after_cr = False
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self.last_id = ""
        """The id of the last event that had one."""
        self.retry_ms: int | None = None
        """The server's wish for the pause before a reconnection."""

    @property
    def open_bytes(self) -> int:
        """The size of the event that is not complete yet."""
        return self._partial_bytes + self._data_bytes

    def feed(self, data: bytes) -> Iterable[SseEvent]:
        """The events that *data* completed, in order; to be read to the end before the next call."""
        blocks = self.data_of_plain(data)
        return self._lines(data) if blocks is None else [SseEvent("", block) for block in blocks]

    def data_of_plain(self, data: bytes) -> list[bytes] | None:
        """The same, as what nearly every read of a model's stream is: events of one data line each, without a name.

        None, and nothing is taken, where anything else is among them: then ``feed`` it.
        """
        # 13 is CR: bytes looked for in bytes take nine times as long.
        if 13 in data or self._after_cr or self._at_start or self._data or self._name:
            return None
        if self._partial:
            if self._partial_bytes > _JOINED_BYTES:
                return None
            data = b"".join((*self._partial, data))
        size = len(data)
        if size > self._max_line_bytes or not data.startswith(b"data: "):
            return None
        if not self._partial and data.find(b"\n") == size - 2 and data.endswith(b"\n\n"):
            return [data[6:-2]]  # one event, whole, as each read brings while the model thinks longer than we do
        whole = data.rfind(b"\n\n") + 2
        if whole < 2:
            return None
        blocks = data[6 : whole - 2].split(b"\n\ndata: ")
        if data.count(b"\n") != 2 * len(blocks):
            return None  # some line is of another kind
        if whole != size or self._partial:
            rest = data[whole:]
            self._partial = [rest] if rest else []
            self._partial_bytes = len(rest)
        return blocks

    def only_plain(self, data: bytes) -> bytes | None:
        """The data of the one event that *data* is, if it is whole, of one line and without a name, and nothing came
        before it that is still open; None for all else. Takes nothing: the event has to be fed, or to be done with."""
        if (
            data.find(b"\n") != len(data) - 2
            or not data.startswith(b"data: ")
            or not data.endswith(b"\n\n")
            or 13 in data  # CR: bytes looked for in bytes take nine times as long
            or self._partial
            or self._data
            or self._name
            or self._after_cr
            or self._at_start
            or len(data) > self._max_line_bytes
        ):
            return None
        return data[6:-2]

    def _lines(self, data: bytes) -> Iterator[SseEvent]:
        # Whole lines, the first one joined with its beginning.
        lines = self._with_lf_only(data).split(b"\n")
        rest = lines.pop()
        if lines:
            if self._partial:
                lines[0] = b"".join((*self._partial, lines[0]))
                self._partial.clear()
                self._partial_bytes = 0
            if self._at_start:
                self._at_start = False
                lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
            # A blank line ends an event; one without data is none.
            for line in lines:
                if line:
                    self._take(line)
                else:
                    if self._data:
                        yield SseEvent(self._name, b"\n".join(self._data))
                        self._data = []
                        self._data_bytes = 0
                    self._name = ""
        if rest:
            # Kept in pieces: joining at every read would make a long line quadratic.
            self._partial.append(rest)
            self._partial_bytes += len(rest)
            if self._partial_bytes > self._max_line_bytes:
                raise ProviderError(f"a line of the provider's stream is over {self._max_line_bytes} bytes")

    def close(self) -> Iterable[SseEvent]:
        """The event that the stream ended in, if any: several servers leave out the last blank line."""
        return self._lines(b"\n\n")

    def _with_lf_only(self, data: bytes) -> bytes:
        if self._after_cr and data:
            # The CR has already ended its line; its LF may come one read later.
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _take(self, line: bytes) -> None:
        if len(line) > self._max_line_bytes:
            raise ProviderError(f"a line of the provider's stream is over {self._max_line_bytes} bytes")
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(value) + 1
            if self._data_bytes > self._max_event_bytes:
                raise ProviderError(f"an event of the provider's stream is over {self._max_event_bytes} bytes")
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self.last_id = value.removeprefix(b" ").decode(errors="replace")
        elif field == b"retry" and (digits := value.removeprefix(b" ")).isdigit() and len(digits) < 10:
            self.retry_ms = int(digits)
