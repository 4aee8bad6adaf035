"""How the bytes of a model's answer become events, in every dialect (S3 "Mid-Stream Errors").

What is never accepted as an answer is a stream that breaks off or says nothing.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

from wicketgate.errors import ContextOverflow, ProviderError
from wicketgate.models.answer_bytes import AnswerDecoder
from wicketgate.models.events import FinishReason, Kept, ModelEvent, TextDelta, Usage
from wicketgate.models.failures import classify_error, failure
from wicketgate.models.openai.chunk import encodable
from wicketgate.net.sse import SseEvent

MAX_HELD_BYTES = 32 << 20
"""Bound of what is held of one turn besides its text, counted as streamed: calls and thinking."""


class TurnReading(ABC):
    """Bytes in, events out; calls come whole and with the Finish, which is last.

    Nothing is raised: what was said before a failure counts, so the events come first and ``failure`` beside them.
    *context_tokens* is the model's window: some servers answer an overlong prompt with silence. *origin* names provider
    and model in what has to be sent again.
    """

    def __init__(self, context_tokens: int, origin: str = "") -> None:
        self._context_tokens = context_tokens
        self._origin = origin
        self._bytes = AnswerDecoder()
        self._held_bytes = 0
        self._half_pair = ""
        self._spoke = False
        self._usage: Usage | None = None
        self.heard = 0
        """How many events the server has sent; keep-alives are none."""
        self.ended = False
        """Whether the Finish is out: nothing more is to be read."""
        self.failure: ProviderError | ContextOverflow | None = None
        """Set as soon as the bytes tell; its argument holds the server's words. Nothing more is to be read."""

    @property
    @abstractmethod
    def answered(self) -> bool:
        """Whether the model has finished, so that a connection lost from here on loses nothing."""

    @property
    @abstractmethod
    def reasoning(self) -> str:
        """What the model thought so far, where the server shows it. It has no place among the contract's events."""

    def feed(self, data: bytes) -> Sequence[ModelEvent]:
        """The events that *data* completed, however the bytes were cut."""
        events: list[ModelEvent] = []
        try:
            for event in self._bytes.feed(data):
                self._take(event, events)
                if self.ended:
                    break
        except (ProviderError, ContextOverflow) as failure:
            self.failure = failure
        if self._bytes.is_body:
            self.heard += 1
        return events

    def close(self) -> Sequence[ModelEvent]:
        """The events known only now that the connection is at its end. An answer that is not whole is a failure."""
        events: list[ModelEvent] = []
        try:
            if self._bytes.is_body:
                self._take_body(self._bytes.body(), events)
            elif not self.ended:
                for event in self._bytes.close():
                    self._take_last(event, events)
            if not self.ended:
                self._take_end(events)
        except (ProviderError, ContextOverflow) as failure:
            self.failure = failure
        return events

    @abstractmethod
    def _take(self, event: SseEvent, events: list[ModelEvent]) -> None:
        """One event of the stream."""

    @abstractmethod
    def _take_last(self, event: SseEvent, events: list[ModelEvent]) -> None:
        """An event that the end of the stream completed; it may be where the stream was cut."""

    @abstractmethod
    def _take_body(self, body: bytes, events: list[ModelEvent]) -> None:
        """An answer that came as one JSON body."""

    @abstractmethod
    def _take_end(self, events: list[ModelEvent]) -> None:
        """The connection is at its end, and the turn is not yet."""

    @abstractmethod
    def _end(self, events: list[ModelEvent]) -> None:
        """The turn is complete."""

    def _say(self, text: str, events: list[ModelEvent]) -> None:
        self._spoke = True
        if self._half_pair or not text.isascii():
            text = self._half_pair + text
            # Servers that cut by UTF-16 units leave half an emoji at the end of one delta.
            self._half_pair = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
            text = encodable(text.removesuffix(self._half_pair) if self._half_pair else text)
        if text:
            events.append(TextDelta(text))

    def _say_rest(self, events: list[ModelEvent]) -> None:
        if self._half_pair:
            events.append(TextDelta("\ufffd"))

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > MAX_HELD_BYTES:
            raise ProviderError(f"the model's tool calls and thoughts are over {MAX_HELD_BYTES} bytes")

    def _count(self, usage: Usage | None) -> None:
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage.at_least(usage)

    def _kept(self, data: dict[str, object]) -> Kept | None:
        return Kept(self._origin, data, self.reasoning) if data else None

    def _failure(self, error: object) -> ProviderError | ContextOverflow:
        words = error if isinstance(error, str) else json.dumps(error)
        return failure(classify_error(error), f"the provider reported in its stream: {words}")

    def _check_silence(self, reason: FinishReason) -> None:
        """LM Studio answers an overlong prompt with a good stream of nothing; others stop at once for length."""
        if self._spoke or reason == "content_filter":
            return
        if self._usage is not None and self._usage.prompt_tokens >= self._context_tokens:
            raise ContextOverflow(f"silence after {self._usage.prompt_tokens} prompt tokens")
        if reason != "length":
            raise ProviderError("the provider's stream ended with nothing said")


def readable(data: bytes) -> object:
    """The JSON in *data*, or its text. Damaged JSON is neither: the model's words in it must not be taken for ours."""
    text = data.decode(errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return "unreadable JSON" if text.lstrip()[:1] in ("{", "[") else text
