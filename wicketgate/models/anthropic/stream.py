"""Reads an answer of the Anthropic Messages API from its bytes as they come (CHAT-32, CHAT-37).

Blocks are numbered and may not be interleaved, but nothing here depends on that. An answer counts only with its
``message_stop``; usage is cumulative, so the last report counts. Of an event, the fields that the reader depends on are
typed; unknown fields are skipped and unknown types passed over, as the provider asks.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from wicketgate.errors import ContextOverflow, ProviderError
from wicketgate.models.failures import classify_error
from wicketgate.models.provider import FinishReason, ModelEvent, ToolCall, Usage, token_count
from wicketgate.models.tool_calls import parse_arguments
from wicketgate.models.turn_reading import TurnReading, encodable, readable, tolerant_decoder
from wicketgate.net.sse import SseEvent


class MessageUsage(msgspec.Struct, gc=False):
    """Cumulative: a later report replaces an earlier one, field by field."""

    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    cache_creation_input_tokens: int | float | None = None
    cache_read_input_tokens: int | float | None = None

    def counts(self) -> Usage:
        # ``input_tokens`` excludes all that the cache read or wrote.
        written, cached = token_count(self.cache_creation_input_tokens), token_count(self.cache_read_input_tokens)
        return Usage(
            prompt_tokens=token_count(self.input_tokens) + written + cached,
            completion_tokens=token_count(self.output_tokens),
            cached_tokens=cached,
            cache_write_tokens=written,
        )


class BlockDelta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class AnswerMessage(msgspec.Struct, gc=False):
    usage: MessageUsage | None = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None


class MessageEvent(msgspec.Struct, gc=False):
    type: str | None = None
    index: int = 0
    delta: BlockDelta | None = None
    content_block: dict[str, Any] | None = None
    message: AnswerMessage | str | None = None
    usage: MessageUsage | None = None
    error: Any = None
    content: list[dict[str, Any]] | None = None
    stop_reason: str | None = None


decode_event = tolerant_decoder(MessageEvent)
"""None if the data is no event."""


@dataclass(slots=True)
class _Block:
    """*start* is the block as it began; *pieces* are the additions to its text, thought or JSON."""

    start: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    signature: str = ""

    @property
    def type(self) -> str:
        return str(self.start.get("type", ""))

    def raw(self) -> str:
        return encodable("".join(self.pieces))

    def whole(self) -> dict[str, Any]:
        """The block as it would stand in an answer that was not streamed."""
        block = dict(self.start)
        if self.type in _TEXT_FIELDS:
            block[_TEXT_FIELDS[self.type]] = self.raw()
        elif self.pieces:
            # Broken JSON has been refused by then, and only an object may stand here.
            block["input"] = parse_arguments(self.raw(), cut=False) or {}
        if self.signature:
            block["signature"] = self.signature
        return block


_TEXT_FIELDS = {"text": "text", "thinking": "thinking"}
_THOUGHTS = ("thinking", "redacted_thinking")


class MessagesStream(TurnReading):
    """Reads one turn."""

    def __init__(self, context_tokens: int, origin: str = "", max_tokens: int | None = None) -> None:
        super().__init__(context_tokens, origin, max_tokens)
        self._blocks: dict[int, _Block] = {}
        self._stop_reason = ""

    @property
    def reasoning(self) -> str:
        return "".join(block.raw() for block in self._blocks.values() if block.type == "thinking")

    def content(self) -> list[dict[str, Any]]:
        """The blocks of the answer, as the next request has to send them for the model to continue."""
        blocks = (block.whole() for block in self._blocks.values())
        return [block for block in blocks if block.get("type") != "text" or block["text"].strip()]

    def _read_event(self, event: SseEvent, events: list[ModelEvent]) -> None:
        data = event.data
        if not data.strip() or event.name == "ping":
            return
        message = decode_event(data)
        if message is None:
            self.events_seen += 1
            raise self._failure(readable(data))
        if message.type == "ping":
            return
        self.events_seen += 1
        match message.type:
            case "content_block_delta" if message.delta is not None:
                self._read_delta(message.index, message.delta, len(data), events)
            case "content_block_start" if message.content_block is not None:
                self._begin_block(message.index, message.content_block, len(data), events)
            case "message_start" | "message_delta":
                self._read_message(message)
            case "message_stop":
                self._end(events)
            case "error" | None:
                self._fail_or_end(message.error or readable(data), events)
            # Other types may be added to the API; they are passed over.

    def _read_last_event(self, event: SseEvent, events: list[ModelEvent]) -> None:
        if decode_event(event.data) is not None:
            self._read_event(event, events)

    def _read_body(self, body: bytes, events: list[ModelEvent]) -> None:
        message = decode_event(body)
        if message is None or message.type != "message":
            return self._fail_or_end(readable(body), events)
        if message.usage is not None:
            self._count_usage(message.usage.counts())
        # Whole blocks in place of deltas; the rest is alike.
        for index, block in enumerate(message.content or ()):
            self._begin_block(index, block, 0, events)
        self._stop_reason = message.stop_reason or ""
        self._end(events)
        return None

    def _read_end(self, events: list[ModelEvent]) -> None:
        raise ProviderError("the provider's stream ended before the message was complete")

    def _read_message(self, message: MessageEvent) -> None:
        if message.message is not None and not isinstance(message.message, str) and message.message.usage is not None:
            self._count_usage(message.message.usage.counts())
        if message.usage is not None:
            self._count_usage(message.usage.counts())
        if message.delta is not None and message.delta.stop_reason:
            self._stop_reason = message.delta.stop_reason

    def _begin_block(self, index: int, start: dict[str, Any], size: int, events: list[ModelEvent]) -> None:
        block = self._blocks[index] = _Block(start)
        self._count_held(size)
        if block.type in _TEXT_FIELDS:
            self._add_piece(block, start.get(_TEXT_FIELDS[block.type]), events)
        elif block.type in _THOUGHTS:
            self._has_output = True

    def _read_delta(self, index: int, delta: BlockDelta, size: int, events: list[ModelEvent]) -> None:
        block = self._blocks.get(index)
        if block is None:
            # A server that leaves the beginning out means a text.
            block = self._blocks[index] = _Block({"type": "text"})
        match delta.type:
            case "text_delta":
                self._add_piece(block, delta.text, events)
            case "thinking_delta":
                self._count_held(size)
                self._add_piece(block, delta.thinking, events)
            case "input_json_delta":
                self._count_held(size)
                block.pieces.append(delta.partial_json or "")
            case "signature_delta":
                self._count_held(size)
                block.signature += delta.signature or ""

    def _add_piece(self, block: _Block, piece: object, events: list[ModelEvent]) -> None:
        if not piece or not isinstance(piece, str):
            return
        block.pieces.append(piece)
        if block.type == "text":
            self._add_text(piece, events)
        else:
            self._has_output = True

    def _fail_or_end(self, error: object, events: list[ModelEvent]) -> None:
        if classify_error(error) != "filtered":
            raise self._failure(error)
        self._stop_reason = "refusal"
        self._end(events)

    def _end(self, events: list[ModelEvent]) -> None:
        if self._stop_reason == "model_context_window_exceeded":
            raise ContextOverflow("the window was full before the model had finished")
        reason = _REASONS.get(self._stop_reason, "stop")
        calls = self._calls(cut=reason in ("length", "content_filter"))
        if not calls:
            self._check_output(reason)
        # Thoughts and their signatures have to be sent back with the results of the calls.
        has_thoughts = any(block.type in _THOUGHTS for block in self._blocks.values())
        self._finish(reason, calls, {"content": self.content()} if calls and has_thoughts else {}, events)

    def _calls(self, *, cut: bool) -> list[ToolCall]:
        found = []
        for position, block in enumerate(block for block in self._blocks.values() if block.type == "tool_use"):
            raw = block.raw()
            given = block.start.get("input")
            arguments = given if not raw and given and isinstance(given, dict) else parse_arguments(raw, cut=cut)
            call_id, name = block.start.get("id") or f"call_{position}", block.start.get("name") or ""
            found.append(ToolCall(str(call_id), str(name), arguments, raw))
        return found


_REASONS: dict[str, FinishReason] = {
    "max_tokens": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}
"""Every other reason is a stop: ``end_turn``, ``stop_sequence``, and those that the API may add."""
