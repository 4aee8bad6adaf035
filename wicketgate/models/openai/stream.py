"""Reads a chat-completions answer from its bytes as they come (CHAT-32, CHAT-37).

One reader for OpenAI and the servers that are compatible with it more or less: fields may be null, missing or of
another type, the finish reason may be absent or wrong, and an error may arrive inside a 200.
"""

from collections.abc import Sequence

from wicketgate.errors import ContextOverflow, ProviderError
from wicketgate.models.failures import classify_error
from wicketgate.models.openai.chunk import Chunk, Delta, content_texts, decode_chunk
from wicketgate.models.provider import FinishReason, ModelEvent, TextDelta
from wicketgate.models.tool_calls import CallAssembly, unreadable_call
from wicketgate.models.turn_reading import TurnReading, encodable, has_halves, readable
from wicketgate.net.sse import SseEvent


class ChatStream(TurnReading):
    """Reads one turn of a chat-completions server."""

    def __init__(self, context_tokens: int, origin: str = "", max_tokens: int | None = None) -> None:
        super().__init__(context_tokens, origin, max_tokens)
        self._calls = CallAssembly()
        self._finish_reason = ""
        self._thoughts: list[str] = []
        self._thoughts_field = ""
        self._thought_details: list[object] = []

    @property
    def reasoning(self) -> str:
        return "".join(self._thoughts)

    def feed(self, data: bytes) -> Sequence[ModelEvent]:
        blocks = self._data_of_plain(data)
        if blocks is None:
            return super().feed(data)
        # Every token passes here. The result is that of the general way, for chunks that hold nothing but plain text.
        events: list[ModelEvent] = []
        try:
            for block in blocks:
                chunk = decode_chunk(block)
                text = chunk.plain_text() if chunk is not None else None
                if text is not None and not self._half_pair and text.isascii():
                    self._has_output = True
                    self.events_seen += 1
                    events.append(TextDelta(text))
                else:
                    self._read_event(SseEvent("", block), events)
                    if self.ended:
                        break
        except (ProviderError, ContextOverflow) as failure:
            self.failure = failure
        return events

    def only_text(self, data: bytes) -> str | None:
        block = self._sse.only_plain(data)
        # Behind a finish reason less is waited for.
        if block is None or self._half_pair or self.answered:
            return None
        chunk = decode_chunk(block)
        text = chunk.plain_text() if chunk is not None else None
        return None if text is None or has_halves(text) else text

    def _read_event(self, event: SseEvent, events: list[ModelEvent]) -> None:
        data = event.data
        if event.name == "ping":
            return
        if event.name == "error":
            self.events_seen += 1
            self._fail_or_end(readable(data), events)
            return
        chunk = decode_chunk(data)
        if chunk is None and not data.strip():
            return
        self.events_seen += 1
        if chunk is not None:
            self._read_chunk(chunk, data, events)
        elif data.strip() == b"[DONE]":
            self._end(events)
        else:
            raise self._failure(readable(data))

    def _read_last_event(self, event: SseEvent, events: list[ModelEvent]) -> None:
        # An unparseable tail is where the stream was cut; what came before decides.
        if event.data.strip() == b"[DONE]" or decode_chunk(event.data) is not None:
            self._read_event(event, events)

    def _read_body(self, body: bytes, events: list[ModelEvent]) -> None:
        chunk = decode_chunk(body)
        if chunk is None:
            raise self._failure(readable(body))
        # A body has whole messages in place of deltas; the rest is alike.
        for choice in chunk.choices or ():
            choice.delta = choice.message or choice.delta
        self._read_chunk(chunk, body, events)

    def _read_end(self, events: list[ModelEvent]) -> None:
        if not self._finish_reason:
            raise ProviderError("the provider's stream ended before the model finished")
        self._end(events)

    def _read_chunk(self, chunk: Chunk, data: bytes, events: list[ModelEvent]) -> None:
        if chunk.is_error():
            self._fail_or_end(readable(data), events)
            return
        # Usage of the whole answer, at the places where servers put it.
        if chunk.usage is not None:
            self._count_usage(chunk.usage.counts())
        if chunk.x_groq is not None:
            if chunk.x_groq.usage is not None:
                self._count_usage(chunk.x_groq.usage.counts())
            if chunk.x_groq.error:
                raise self._failure(chunk.x_groq.error)
        # The first choice; no other was requested.
        for choice in chunk.choices or ():
            if choice.index:
                continue
            if choice.usage is not None:
                self._count_usage(choice.usage.counts())
            if choice.delta is not None:
                self._read_delta(choice.delta, len(data), events)
            # An error or a finish reason comes after the text of the same chunk.
            if choice.error:
                self._fail_or_end(choice.error, events)
                return
            if choice.finish_reason:
                if choice.finish_reason.lower() in _FAILED_REASONS:
                    raise ProviderError(f"the provider gave up: finish reason {choice.finish_reason[:80]}")
                self._finish_reason = choice.finish_reason
                self.answered = True

    def _read_delta(self, delta: Delta, size: int, events: list[ModelEvent]) -> None:
        content = delta.content
        if content:
            for text in (content,) if isinstance(content, str) else content_texts(content):
                self._add_text(text, events)
        if delta.has_more():
            self._read_more(delta, size)

    def _read_more(self, delta: Delta, size: int) -> None:
        """Read everything that is not text."""
        # Thoughts, and the form in which the server wants them back.
        for thought in delta.thoughts():
            self._has_output = True
            self._thoughts.append(encodable(thought))
        self._thoughts_field = self._thoughts_field or delta.thoughts_field()
        if isinstance(delta.reasoning_details, list):
            self._thought_details += delta.reasoning_details
        if delta.refusal:
            # A refusal is output, although its words are not the model's text.
            self._has_output = True
        # Fragments of calls, held until the turn ends.
        self._count_held(size)
        for call in delta.tool_calls or ():
            function = call.function
            name, arguments = (function.name, function.arguments) if function else (None, None)
            self._calls.add(call.index, call.id, name, arguments, call.extra_content)

    def _fail_or_end(self, error: object, events: list[ModelEvent]) -> None:
        match classify_error(error):
            case "filtered":
                self._finish_reason = "content_filter"
                self._end(events)
            case "bad_call":
                # Groq: the model wrote a call that the server could not read. Its result will explain that.
                self._finish("tool_calls", [unreadable_call(error)], {}, events)
            case _:
                raise self._failure(error)

    def _end(self, events: list[ModelEvent]) -> None:
        reason = _REASONS.get(self._finish_reason.lower(), "stop")
        if not self._calls:
            self._check_output(reason)
        calls = self._calls.finished(cut=reason in ("length", "content_filter"))
        self._finish(reason, calls, self._to_send_again(), events)

    def _to_send_again(self) -> dict[str, object]:
        kept: dict[str, object] = {}
        if self._thoughts and self._thoughts_field:
            kept[self._thoughts_field] = self.reasoning
        if self._thought_details:
            kept["reasoning_details"] = self._thought_details
        if extras := self._calls.extras():
            kept["extra_content"] = extras
        return kept


_REASONS: dict[str, FinishReason] = {
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
"""Every other reason is a stop: servers have their own words for it (``eos``, ``end_turn``, ...)."""

_FAILED_REASONS = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})
