"""The shapes of one chunk of a chat-completions stream, over all compatible servers.

Fields are typed if the reader depends on them, ``Any`` if servers differ; unknown fields are skipped. The structs are
mutable and unknown to the garbage collector, because they live for one chunk only.
"""

from typing import Any

import msgspec

from wicketgate.models.provider import Usage, token_count
from wicketgate.models.turn_reading import tolerant_decoder


class UsageDetails(msgspec.Struct, gc=False):
    cached_tokens: int | float | None = None
    reasoning_tokens: int | float | None = None


class ChunkUsage(msgspec.Struct, gc=False):
    prompt_tokens: int | float | None = None
    completion_tokens: int | float | None = None
    prompt_tokens_details: UsageDetails | None = None
    completion_tokens_details: UsageDetails | None = None
    prompt_cache_hit_tokens: int | float | None = None  # DeepSeek

    def counts(self) -> Usage | None:
        """The counts; None if there are none."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        prompt, completion = self.prompt_tokens_details, self.completion_tokens_details
        cached = (prompt.cached_tokens if prompt else None) or self.prompt_cache_hit_tokens
        return Usage(
            prompt_tokens=token_count(self.prompt_tokens),
            completion_tokens=token_count(self.completion_tokens),
            cached_tokens=token_count(cached),
            reasoning_tokens=token_count(completion.reasoning_tokens if completion else None),
        )


class CallFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: Any = None


class CallFragment(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: CallFunction | None = None
    extra_content: Any = None


class Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    tool_calls: list[CallFragment] | None = None

    def has_more(self) -> bool:
        """True if there is anything besides text."""
        return bool(
            self.tool_calls
            or self.reasoning_content
            or self.reasoning
            or self.refusal
            or self.reasoning_details
            or isinstance(self.content, list)
        )

    def thoughts_field(self) -> str:
        """The field of its own in which this server writes thoughts; empty if there is none."""
        return "reasoning_content" if self.reasoning_content else "reasoning" if self.reasoning else ""

    def thoughts(self) -> list[str]:
        """DeepSeek and Ollama name the field differently, vLLM fills both; Mistral sends parts of the content."""
        thought = self.reasoning_content or self.reasoning
        found = [thought] if thought and isinstance(thought, str) else []
        if isinstance(self.content, list):
            for part in self.content:
                found += content_texts(part.get("thinking")) if isinstance(part, dict) else ()
        return found


class Choice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    error: Any = None
    usage: ChunkUsage | None = None


class GroqExtra(msgspec.Struct, gc=False):
    usage: ChunkUsage | None = None
    error: Any = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: ChunkUsage | None = None
    error: Any = None
    error_type: Any = None
    error_message: Any = None
    object: Any = None
    x_groq: GroqExtra | None = None

    def plain_text(self) -> str | None:
        """The text of a chunk that holds nothing else, as nearly every one does; None for any other."""
        # Every token passes here, so no other method is called.
        choices = self.choices
        if choices is None or len(choices) != 1 or self.usage is not None or self.x_groq is not None:
            return None
        choice = choices[0]
        delta = choice.delta
        if (
            delta is None
            or delta.tool_calls
            or delta.reasoning_content
            or delta.reasoning
            or delta.reasoning_details
            or delta.refusal
            or choice.finish_reason
            or choice.index
            or choice.usage is not None
            or choice.error
            or self.error
            or self.error_type
            or self.error_message
            or self.object == "error"
        ):
            return None
        content = delta.content
        return content if isinstance(content, str) and content else None

    def is_error(self) -> bool:
        return bool(self.error or self.error_type or self.error_message or self.object == "error")


decode_chunk = tolerant_decoder(Chunk)
"""None if the data is not a chunk."""


def content_texts(parts: Any) -> list[str]:
    """A text, or the texts of a list of ``{type: text, text}``."""
    if isinstance(parts, str):
        return [parts]
    if not isinstance(parts, list):
        return []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return [text for text in texts if text and isinstance(text, str)]
