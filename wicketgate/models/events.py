"""What a model's turn is made of, whichever provider's bytes it was read from (S3 "done", "tool-call")."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]

_MOST_TOKENS = 10**12


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several model calls, as the provider counted them.

    *prompt_tokens* is all that was read, from a cache or not; *cached_tokens* is the part that came from the provider's
    prompt cache, *cache_write_tokens* the part that was put there; *reasoning_tokens* is part of the completion.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def at_least(self, other: "Usage") -> "Usage":
        """The larger of each: servers that report along the way count upwards, and some send zeros at the end."""
        return Usage(
            max(self.prompt_tokens, other.prompt_tokens),
            max(self.completion_tokens, other.completion_tokens),
            max(self.cached_tokens, other.cached_tokens),
            max(self.cache_write_tokens, other.cache_write_tokens),
            max(self.reasoning_tokens, other.reasoning_tokens),
        )


def token_count(told: int | float | None) -> int:
    """What a provider told, if it can be a count of tokens; else 0. Servers have sent -1 and NaN."""
    return int(told) if told is not None and 0 <= told <= _MOST_TOKENS else 0


@dataclass(slots=True)
class TextDelta:
    """A piece of text. It goes out as it comes in, so it is an event of the stream too (``engine/events.py``)."""

    # Not frozen: there is one for every token, and freezing triples what it costs to make one.
    name: ClassVar = "text-delta"
    content: str

    def data(self) -> dict[str, Any]:
        return {"content": self.content}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call, assembled. *arguments* is None when the model's JSON was not an object; *raw* is its text."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What a model said beside text and calls and has to be given again, unchanged, while its tools run: thinking with
    its signatures. *origin* names provider and model: to any other it means nothing and is not sent. *text* is the part
    that takes room in the window."""

    origin: str
    data: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The model has ended its turn. *usage* is None when the provider never told."""

    reason: FinishReason
    usage: Usage | None
    kept: Kept | None = None


ModelEvent = TextDelta | ToolCall | Finish
