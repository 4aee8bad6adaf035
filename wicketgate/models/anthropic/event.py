"""What one event of an Anthropic Messages stream may look like.

Typed where the reader depends on it; unknown fields are skipped, unknown types passed over, as the provider asks.
"""

from typing import Any

import msgspec

from wicketgate.models.damaged_json import decode_damaged
from wicketgate.models.events import Usage, token_count


class MessageUsage(msgspec.Struct, gc=False):
    """Cumulative: a later report replaces an earlier one, field by field."""

    input_tokens: int | float | None = None
    output_tokens: int | float | None = None
    cache_creation_input_tokens: int | float | None = None
    cache_read_input_tokens: int | float | None = None

    def counts(self) -> Usage:
        """``input_tokens`` is only what no cache had a part in."""
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
    citation: Any = None
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


_decoder = msgspec.json.Decoder(MessageEvent)


def decode_event(data: bytes) -> MessageEvent | None:
    """None if *data* is no event. Bytes that are not UTF-8 and lone surrogates are read as far as they go."""
    try:
        return _decoder.decode(data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_damaged(data, MessageEvent)
