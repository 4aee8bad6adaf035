"""Turns the bytes of a model's answer into events, in every dialect (CHAT-37).

A stream that breaks off or is empty is never accepted as an answer.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from wicketgate.errors import ContextOverflow, ProviderError
from wicketgate.models.failures import classify_error, failure
from wicketgate.models.provider import Finish, FinishReason, Kept, ModelEvent, TextDelta, ToolCall, Usage
from wicketgate.net.sse import BYTE_ORDER_MARK, SseDecoder, SseEvent

T = TypeVar("T")

MAX_BODY_BYTES = 8 << 20
"""Bound of an answer that came as one JSON body."""

MAX_HELD_BYTES = 32 << 20
"""Bound of what is held of one turn besides its text, counted as streamed: calls and thinking."""


class TurnReading(ABC):
    """Reads one turn: bytes in, events out. Calls come whole and with the Finish, which is last.

    An answer is a stream of events or one JSON body. The first byte decides, because content types are not to be
    trusted: llama.cpp answers with JSON when asked for a stream.
    Nothing is raised: output before a failure counts, so the events come first and ``failure`` is set beside them.
    *context_tokens* is the model's window: some servers answer an overlong prompt with an empty stream. *origin* names
    provider and model in what has to be sent again. *max_tokens* is the bound of the answer that was asked for.
    """

    def __init__(self, context_tokens: int, origin: str = "", max_tokens: int | None = None) -> None:
        self._context_tokens = context_tokens
        self._max_tokens = max_tokens
        self._origin = origin
        self._sse = SseDecoder()
        self._head = b""
        self._body: bytearray | None = None
        self._split: Callable[[bytes], Iterable[SseEvent]] = self._split_first
        """Returns the events that the bytes completed; read them to the end before the next call."""
        self._data_of_plain: Callable[[bytes], list[bytes] | None] = lambda data: None
        """See SseDecoder."""
        self._held_bytes = 0
        self._half_pair = ""
        self._has_output = False
        self._usage: Usage | None = None
        self.events_seen = 0
        """Count of the events that the server has sent; keep-alives are none."""
        self.answered = False
        """True once the model has finished, so that a connection lost from here on loses nothing."""
        self.ended = False
        """True once the Finish is out: nothing more is to be read."""
        self.failure: ProviderError | ContextOverflow | None = None
        """Set as soon as it is known; its argument holds the server's words. Nothing more is to be read."""

    @property
    @abstractmethod
    def reasoning(self) -> str:
        """The model's thoughts so far, if the server shows them. They have no place among the contract's events."""

    def feed(self, data: bytes) -> Sequence[ModelEvent]:
        """The events that *data* completed, however the bytes were cut."""
        events: list[ModelEvent] = []
        try:
            for event in self._split(data):
                self._read_event(event, events)
                if self.ended:
                    break
        except (ProviderError, ContextOverflow) as failure:
            self.failure = failure
        if self._body is not None:
            self.events_seen += 1
        return events

    def only_text(self, data: bytes) -> str | None:
        """The text of *data*, if it is one event that holds nothing else; None for all else, or if the dialect does not
        look. Takes nothing: *data* has to be fed, or to be counted as ``passed``."""
        return None

    def passed(self) -> None:
        """Count the event of which ``only_text`` has given the text, which has gone its way."""
        self._has_output = True
        self.events_seen += 1

    def close(self) -> Sequence[ModelEvent]:
        """The events known only at the end of the connection. An answer that is not whole is a failure."""
        events: list[ModelEvent] = []
        # A whole body, or the last event of the stream; then the end itself counts.
        try:
            if self._body is not None:
                self._read_body(bytes(self._body), events)
            elif not self.ended:
                for event in self._sse.close():
                    self._read_last_event(event, events)
            if not self.ended:
                self._read_end(events)
        except (ProviderError, ContextOverflow) as failure:
            self.failure = failure
        return events

    def _split_first(self, data: bytes) -> Iterable[SseEvent]:
        data = self._head + data
        if len(data) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(data):
            self._head = data
            return ()
        data = data.removeprefix(BYTE_ORDER_MARK).lstrip()
        self._head = b""
        if not data:
            return ()
        # From here on nothing stands between the reader and the decoder that it needs.
        if data[:1] in (b"{", b"["):
            self._body = bytearray()
            self._split = self._keep_body
        else:
            self._split, self._data_of_plain = self._sse.feed, self._sse.data_of_plain
        return self._split(data)

    def _keep_body(self, data: bytes) -> Iterable[SseEvent]:
        assert self._body is not None
        self._body += data
        if len(self._body) > MAX_BODY_BYTES:
            raise ProviderError(f"the provider's answer is over {MAX_BODY_BYTES} bytes")
        return ()

    @abstractmethod
    def _read_event(self, event: SseEvent, events: list[ModelEvent]) -> None:
        """Read one event of the stream."""

    @abstractmethod
    def _read_last_event(self, event: SseEvent, events: list[ModelEvent]) -> None:
        """Read an event that the end of the stream completed; the stream may have been cut in it."""

    @abstractmethod
    def _read_body(self, body: bytes, events: list[ModelEvent]) -> None:
        """Read an answer that came as one JSON body."""

    @abstractmethod
    def _read_end(self, events: list[ModelEvent]) -> None:
        """End the turn with the connection, or raise ProviderError."""

    def _add_text(self, text: str, events: list[ModelEvent]) -> None:
        self._has_output = True
        if self._half_pair or not text.isascii():
            text = self._half_pair + text
            # Servers that cut by UTF-16 units leave half an emoji at the end of one delta.
            self._half_pair = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
            text = encodable(text.removesuffix(self._half_pair) if self._half_pair else text)
        if text:
            events.append(TextDelta(text))

    def _count_held(self, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > MAX_HELD_BYTES:
            raise ProviderError(f"the model's tool calls and thoughts are over {MAX_HELD_BYTES} bytes")

    def _count_usage(self, usage: Usage | None) -> None:
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage.maximum(usage)

    def _failure(self, error: object) -> ProviderError | ContextOverflow:
        words = error if isinstance(error, str) else json.dumps(error)
        return failure(classify_error(error), f"the provider reported in its stream: {words}")

    def _check_output(self, reason: FinishReason) -> None:
        """Raise for a turn without any output.

        LM Studio answers an overlong prompt with a good stream of nothing; others stop at once for length.
        """
        if self._has_output or reason == "content_filter":
            return
        if self._usage is not None and self._usage.prompt_tokens >= self._context_tokens:
            raise ContextOverflow(f"silence after {self._usage.prompt_tokens} prompt tokens")
        if reason != "length":
            raise ProviderError("the provider's stream ended without any output")

    def _finish(
        self, reason: FinishReason, calls: Sequence[ToolCall], kept: dict[str, object], events: list[ModelEvent]
    ) -> None:
        """End the turn with *calls* and the Finish. Whether there are calls decides, not the server's reason."""
        if self._half_pair:
            events.append(TextDelta("\ufffd"))
        events.extend(calls)
        if reason in ("stop", "tool_calls"):
            reason = "length" if self._hides_a_cut(calls) else "tool_calls" if calls else "stop"
        sent_again = Kept(self._origin, kept, self.reasoning) if calls and kept else None
        most_tokens = self._max_tokens if reason == "length" else None
        events.append(Finish(reason, self._usage, sent_again, most_tokens))
        self.answered = self.ended = True

    def _hides_a_cut(self, calls: Sequence[ToolCall]) -> bool:
        """True for a turn that was cut off in its last call, by its count of tokens, whatever the server's reason."""
        if not calls or calls[-1].arguments is not None or self._usage is None or self._max_tokens is None:
            return False
        return self._usage.completion_tokens >= self._max_tokens


def tolerant_decoder(kind: type[T]) -> Callable[[bytes], T | None]:
    """A decoder of JSON as *kind*; it returns None for anything else.

    Bytes that are not UTF-8 and lone surrogates, which only the slow decoder reads, are read as far as they go.
    """
    decode_exactly = msgspec.json.Decoder(kind).decode

    def decode(data: bytes) -> T | None:
        try:
            return decode_exactly(data)
        except msgspec.ValidationError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        try:
            return msgspec.convert(json.loads(data.decode(errors="replace")), kind)
        except (ValueError, RecursionError):
            return None

    return decode


def readable(data: bytes) -> object:
    """The JSON in *data*, or its text. Damaged JSON is neither: the model's words in it must not be taken for ours."""
    text = data.decode(errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return "unreadable JSON" if text.lstrip()[:1] in ("{", "[") else text


def has_halves(text: str) -> bool:
    """True if there are surrogates in *text*, single or in pairs."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def encodable(text: str) -> str:
    """*text* with surrogate pairs joined and lone halves replaced, so that it can be sent on."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
