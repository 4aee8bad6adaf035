"""What an answer of the Anthropic Messages API says, read from its bytes as they come (S3 "Mid-Stream Errors", "done").

Blocks are numbered and may not be interleaved, but nothing here depends on that. An answer counts only with its
``message_stop``; usage is cumulative, so the last report is the one that counts.
"""

from dataclasses import dataclass, field
from typing import Any

from wicketgate.errors import ContextOverflow, ProviderError
from wicketgate.models.anthropic.event import BlockDelta, MessageEvent, decode_event
from wicketgate.models.events import Finish, FinishReason, ModelEvent, ToolCall
from wicketgate.models.failures import classify_error
from wicketgate.models.openai.chunk import encodable
from wicketgate.models.tool_calls import parse_arguments
from wicketgate.models.turn_reading import TurnReading, readable
from wicketgate.net.sse import SseEvent


@dataclass(slots=True)
class _Block:
    """*start* is the block as it began; *pieces* what was added to its text, thought or JSON."""

    start: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    signature: str = ""
    citations: list[Any] = field(default_factory=list)

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
        if self.citations:
            block["citations"] = self.citations
        return block


_TEXT_FIELDS = {"text": "text", "thinking": "thinking"}
_THOUGHTS = ("thinking", "redacted_thinking")


class MessagesStream(TurnReading):
    """Reads one turn. *paused* tells of a turn that the provider wants to go on with, when sent back as it is."""

    def __init__(self, context_tokens: int, origin: str = "") -> None:
        super().__init__(context_tokens, origin)
        self._blocks: dict[int, _Block] = {}
        self._stop_reason = ""
        self.paused = False

    @property
    def answered(self) -> bool:
        return self.ended

    @property
    def reasoning(self) -> str:
        return "".join(block.raw() for block in self._blocks.values() if block.type == "thinking")

    def content(self) -> list[dict[str, Any]]:
        """The blocks of the answer, as a message of the assistant has to hold them to go on from there."""
        blocks = (block.whole() for block in self._blocks.values())
        return [block for block in blocks if block.get("type") != "text" or block["text"].strip()]

    def _take(self, event: SseEvent, events: list[ModelEvent]) -> None:
        data = event.data
        if not data.strip() or event.name == "ping":
            return
        message = decode_event(data)
        if message is None:
            self.heard += 1
            raise self._failure(readable(data))
        if message.type == "ping":
            return
        self.heard += 1
        match message.type:
            case "content_block_delta" if message.delta is not None:
                self._take_delta(message.index, message.delta, len(data), events)
            case "content_block_start" if message.content_block is not None:
                self._start(message.index, message.content_block, len(data), events)
            case "message_start" | "message_delta":
                self._take_message(message)
            case "message_stop":
                self._end(events)
            case "error" | None:
                self._fail_or_filter(message.error or readable(data), events)
            # Every other type is one that may come to be.

    def _take_last(self, event: SseEvent, events: list[ModelEvent]) -> None:
        if decode_event(event.data) is not None:
            self._take(event, events)

    def _take_body(self, body: bytes, events: list[ModelEvent]) -> None:
        message = decode_event(body)
        if message is None or message.type != "message":
            return self._fail_or_filter(readable(body), events)
        if message.usage is not None:
            self._count(message.usage.counts())
        for index, block in enumerate(message.content or ()):
            self._start(index, block, 0, events)
        self._stop_reason = message.stop_reason or ""
        self._end(events)
        return None

    def _take_end(self, events: list[ModelEvent]) -> None:
        raise ProviderError("the provider's stream broke off before the message was over")

    def _take_message(self, message: MessageEvent) -> None:
        if message.message is not None and not isinstance(message.message, str) and message.message.usage is not None:
            self._count(message.message.usage.counts())
        if message.usage is not None:
            self._count(message.usage.counts())
        if message.delta is not None and message.delta.stop_reason:
            self._stop_reason = message.delta.stop_reason

    def _start(self, index: int, start: dict[str, Any], size: int, events: list[ModelEvent]) -> None:
        block = self._blocks[index] = _Block(start)
        self._hold(size)
        if block.type in _TEXT_FIELDS:
            self._add(block, start.get(_TEXT_FIELDS[block.type]), events)
        elif block.type in _THOUGHTS:
            self._spoke = True

    def _take_delta(self, index: int, delta: BlockDelta, size: int, events: list[ModelEvent]) -> None:
        block = self._blocks.get(index)
        if block is None:
            # A server that leaves the beginning out means a text.
            block = self._blocks[index] = _Block({"type": "text"})
        match delta.type:
            case "text_delta":
                self._add(block, delta.text, events)
            case "thinking_delta":
                self._hold(size)
                self._add(block, delta.thinking, events)
            case "input_json_delta":
                self._hold(size)
                block.pieces.append(delta.partial_json or "")
            case "signature_delta":
                self._hold(size)
                block.signature += delta.signature or ""
            case "citations_delta":
                self._hold(size)
                block.citations.append(delta.citation)

    def _add(self, block: _Block, piece: object, events: list[ModelEvent]) -> None:
        if not piece or not isinstance(piece, str):
            return
        block.pieces.append(piece)
        if block.type == "text":
            self._say(piece, events)
        else:
            self._spoke = True

    def _fail_or_filter(self, error: object, events: list[ModelEvent]) -> None:
        if classify_error(error) != "filtered":
            raise self._failure(error)
        self._stop_reason = "refusal"
        self._end(events)

    def _end(self, events: list[ModelEvent]) -> None:
        if self._stop_reason == "model_context_window_exceeded":
            raise ContextOverflow("the window was full before the model had finished")
        reason = _REASONS.get(self._stop_reason, "stop")
        calls = self._calls(cut=reason in ("length", "content_filter"))
        self.paused = self._stop_reason == "pause_turn" and not calls and bool(self._blocks)
        if not calls and not self.paused:
            self._check_silence(reason)
        self._say_rest(events)
        events.extend(calls)
        if reason == "stop" and calls:
            reason = "tool_calls"
        elif reason == "tool_calls" and not calls:
            reason = "stop"
        has_thoughts = any(block.type in _THOUGHTS for block in self._blocks.values())
        kept = self._kept({"content": self.content()}) if calls and has_thoughts else None
        events.append(Finish(reason, self._usage, kept))
        self.ended = True

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
"""Everything else is a stop: ``end_turn``, ``stop_sequence``, and what may come to be."""
