"""Whether an answer is a stream of events or one JSON body, told by its first byte: content types are not to be
trusted (llama.cpp answers with JSON what was asked for as a stream)."""

from collections.abc import Callable, Iterable

from wicketgate.errors import ProviderError
from wicketgate.net.sse import BYTE_ORDER_MARK, SseDecoder, SseEvent

MAX_BODY_BYTES = 8 << 20
"""Bound of an answer that came as one JSON body."""


class AnswerDecoder:
    """``feed`` gives the events that the bytes completed; what is a body is kept until ``close``.

    Bounded: ProviderError where a line, an event or the body is over its limit.
    """

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._head = b""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self.is_body = False
        self.data_of_plain: Callable[[bytes], list[bytes] | None] = lambda data: None
        """See SseDecoder."""
        self.feed: Callable[[bytes], Iterable[SseEvent]] = self._first
        """To be read to the end before the next call."""

    def close(self) -> Iterable[SseEvent]:
        """The event that the stream ended in, if any."""
        return () if self.is_body else self._sse.close()

    def body(self) -> bytes:
        return b"".join(self._body)

    def _first(self, data: bytes) -> Iterable[SseEvent]:
        data = self._head + data
        if len(data) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(data):
            self._head = data
            return ()
        data = data.removeprefix(BYTE_ORDER_MARK).lstrip()
        self._head = b""
        if not data:
            return ()
        self.is_body = data[:1] in (b"{", b"[")
        # From here on nothing stands between the reader and the decoder that it needs.
        self.feed = self._keep if self.is_body else self._sse.feed
        if not self.is_body:
            self.data_of_plain = self._sse.data_of_plain
        return self.feed(data)

    def _keep(self, data: bytes) -> Iterable[SseEvent]:
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > MAX_BODY_BYTES:
            raise ProviderError(f"the provider's answer is over {MAX_BODY_BYTES} bytes")
        return ()
