"""What a chat-completions answer says, read from its bytes as they come (S3 "Mid-Stream Errors", "done").

One reader for OpenAI and the servers that are compatible with it more or less: fields may be null, missing or of
another type, the finish reason may be absent or wrong, and an error may arrive inside a 200. What is never accepted
as an answer is a stream that breaks off or says nothing.
"""

import json
from dataclasses import dataclass
from typing import Literal

from app.errors import ContextOverflow, ProviderError
from app.wire.openai_chunk import Chunk, ChunkUsage, Delta, decode_chunk, encodable
from app.wire.provider_failure import classify_error
from app.wire.sse import BYTE_ORDER_MARK, SseDecoder, SseEvent
from app.wire.tool_calls import AssembledCall, CallAssembly

TurnReason = Literal["stop", "length", "content_filter", "tool_calls"]

MAX_CALL_BYTES = 32 << 20
"""Bound of what is held of one turn's tool calls, counted as streamed."""

MAX_BODY_BYTES = 8 << 20
"""Bound of an answer that came as one JSON body."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the model's thinking, from servers that show it."""

    content: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The turn is complete. *usage* is (prompt tokens, completion tokens); None when the server never told."""

    reason: TurnReason
    usage: tuple[int, int] | None


ChatEvent = str | Reasoning | AssembledCall | TurnEnd
"""A plain ``str`` is a piece of the answer's text, by far the most frequent."""


class ChatStream:
    """Bytes in, events out; calls come whole and with the TurnEnd, which is last.

    Nothing is raised: what was said before a failure counts, so the events come first and ``failure`` beside them.
    *context_tokens* is the model's window: some servers answer an overlong prompt with silence.
    """

    def __init__(self, context_tokens: int) -> None:
        self._context_tokens = context_tokens
        self._sse = SseDecoder()
        self._head: bytes | None = b""
        self._body: list[bytes] | None = None
        self._body_bytes = 0
        self._calls = CallAssembly()
        self._call_bytes = 0
        self._half_pair = ""
        self._spoke = False
        self._finish_reason = ""
        self._usage: tuple[int, int] | None = None
        self.started = False
        """Whether the server has said anything but comments."""
        self.ended = False
        """Whether the TurnEnd is out: nothing more is to be read."""
        self.failure: ProviderError | ContextOverflow | None = None
        """Set as soon as the bytes tell; its argument holds the server's words. Nothing more is to be read."""

    @property
    def answered(self) -> bool:
        """Whether the model has finished, so that a connection lost from here on loses nothing."""
        return bool(self._finish_reason) or self.ended

    def feed(self, data: bytes) -> list[ChatEvent]:
        """The events that *data* completed, however the bytes were cut."""
        events: list[ChatEvent] = []
        try:
            self._feed(data, events)
        except (ProviderError, ContextOverflow) as failure:
            self.failure = failure
        return events

    def close(self) -> list[ChatEvent]:
        """The events known only now that the connection is at its end. An answer that is not whole is a failure."""
        events: list[ChatEvent] = []
        try:
            self._close(events)
        except (ProviderError, ContextOverflow) as failure:
            self.failure = failure
        return events

    def _feed(self, data: bytes, events: list[ChatEvent]) -> None:
        if self._head is not None:
            data = self._sniffed(data)
        if self._body is not None:
            self._keep_body(data)
            return
        for event in self._sse.feed(data):
            if self.ended:
                return
            self._take(event, events)

    def _close(self, events: list[ChatEvent]) -> None:
        if self._body is not None:
            self._take_body(b"".join(self._body), events)
        elif not self.ended:
            for event in self._sse.close():
                # An unparseable tail is where the stream was cut; what came before decides.
                if event.data.strip() == b"[DONE]" or decode_chunk(event.data) is not None:
                    self._take(event, events)
        if self.ended:
            return
        if not self._finish_reason:
            raise ProviderError("the provider's stream broke off before the model finished")
        self._end(events)

    def _sniffed(self, data: bytes) -> bytes:
        """Tell one JSON body from a stream by its first byte: content types are not to be trusted (llama.cpp)."""
        assert self._head is not None
        data = self._head + data
        if len(data) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(data):
            self._head = data
            return b""
        data = data.removeprefix(BYTE_ORDER_MARK).lstrip()
        self._head = None if data else b""
        if data[:1] in (b"{", b"["):
            self._body = []
            self.started = True
        return data

    def _keep_body(self, data: bytes) -> None:
        assert self._body is not None
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > MAX_BODY_BYTES:
            raise ProviderError(f"the provider's answer is over {MAX_BODY_BYTES} bytes")

    def _take(self, event: SseEvent, events: list[ChatEvent]) -> None:
        self.started = True
        data = event.data
        if data.strip() == b"[DONE]":
            self._end(events)
            return
        if event.name == "error":
            self._fail_or_filter(_readable(data), events)
            return
        if event.name == "ping" or not data.strip():
            return
        chunk = decode_chunk(data)
        if chunk is None:
            raise self._failure(_readable(data))
        self._take_chunk(chunk, data, events)

    def _take_body(self, body: bytes, events: list[ChatEvent]) -> None:
        chunk = decode_chunk(body)
        if chunk is None:
            raise self._failure(_readable(body))
        for choice in chunk.choices or ():
            choice.delta = choice.message or choice.delta
        self._take_chunk(chunk, body, events)

    def _take_chunk(self, chunk: Chunk, data: bytes, events: list[ChatEvent]) -> None:
        if chunk.is_error():
            self._fail_or_filter(_readable(data), events)
            return
        if chunk.usage is not None:
            self._count(chunk.usage)
        if chunk.x_groq is not None:
            if chunk.x_groq.usage is not None:
                self._count(chunk.x_groq.usage)
            if chunk.x_groq.error:
                raise self._failure(chunk.x_groq.error)
        for choice in chunk.choices or ():
            if choice.index:
                continue
            if choice.usage is not None:
                self._count(choice.usage)
            if choice.delta is not None:
                self._take_delta(choice.delta, len(data), events)
            if choice.error:
                self._fail_or_filter(choice.error, events)
                return
            if choice.finish_reason:
                if choice.finish_reason.lower() in _FAILED_REASONS:
                    raise ProviderError(f"the provider gave up: finish reason {choice.finish_reason[:80]}")
                self._finish_reason = choice.finish_reason

    def _take_delta(self, delta: Delta, size: int, events: list[ChatEvent]) -> None:
        for thought in delta.thoughts():
            self._spoke = True
            events.append(Reasoning(encodable(thought)))
        for text in delta.texts():
            self._say(text, events)
        if delta.refusal:
            # A refusal is an answer, in words that are not the model's text.
            self._spoke = True
        if delta.tool_calls:
            self._call_bytes += size
            if self._call_bytes > MAX_CALL_BYTES:
                raise ProviderError(f"the model's tool calls are over {MAX_CALL_BYTES} bytes")
            for call in delta.tool_calls:
                function = call.function
                name, arguments = (function.name, function.arguments) if function else (None, None)
                self._calls.add(call.index, call.id, name, arguments)

    def _say(self, text: str, events: list[ChatEvent]) -> None:
        self._spoke = True
        if self._half_pair or not text.isascii():
            text = self._half_pair + text
            # Servers that cut by UTF-16 units leave half an emoji at the end of one delta.
            self._half_pair = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
            text = encodable(text.removesuffix(self._half_pair) if self._half_pair else text)
        if text:
            events.append(text)

    def _count(self, usage: ChunkUsage) -> None:
        if usage.prompt_tokens is None and usage.completion_tokens is None:
            return
        # Servers that report along the way count upwards; some send zeros at the end.
        prompt, completion = self._usage or (0, 0)
        self._usage = (
            max(prompt, int(usage.prompt_tokens or 0)),
            max(completion, int(usage.completion_tokens or 0)),
        )

    def _fail_or_filter(self, error: object, events: list[ChatEvent]) -> None:
        if classify_error(error) != "filtered":
            raise self._failure(error)
        self._finish_reason = "content_filter"
        self._end(events)

    def _failure(self, error: object) -> ProviderError | ContextOverflow:
        words = error if isinstance(error, str) else json.dumps(error)
        raised = ContextOverflow if classify_error(error) == "overflow" else ProviderError
        return raised(f"the provider reported in its stream: {words}")

    def _end(self, events: list[ChatEvent]) -> None:
        reason = _REASONS.get(self._finish_reason.lower(), "stop")
        if not self._spoke and not self._calls:
            self._check_silence(reason)
        if self._half_pair:
            events.append("\ufffd")
        calls = self._calls.finished(cut=reason in ("length", "content_filter"))
        events.extend(calls)
        if reason == "stop" and calls:
            reason = "tool_calls"
        elif reason == "tool_calls" and not calls:
            reason = "stop"
        events.append(TurnEnd(reason, self._usage))
        self.ended = True

    def _check_silence(self, reason: TurnReason) -> None:
        """LM Studio answers an overlong prompt with a good stream of nothing; others stop at once for length."""
        if reason == "content_filter":
            return
        if self._usage is not None and self._usage[0] >= self._context_tokens:
            raise ContextOverflow(f"silence after {self._usage[0]} prompt tokens")
        if reason != "length":
            raise ProviderError("the provider's stream ended with nothing said")


_REASONS: dict[str, TurnReason] = {
    "length": "length",
    "model_length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
"""Everything else is a stop: servers have their own words for it (``eos``, ``end_turn``, ...)."""

_FAILED_REASONS = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})


def _readable(data: bytes) -> object:
    """The JSON in *data*, or its text. Damaged JSON is neither: the model's words in it must not be taken for ours."""
    text = data.decode(errors="replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return "unreadable JSON" if text.lstrip()[:1] in ("{", "[") else text
