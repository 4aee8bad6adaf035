"""What the loop asks of a model and what it gets back, whoever the provider is.

Messages travel in the chat-completions shape, the prevailing one (S3 "Request"); a provider of another shape
translates at its edge.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Message = Mapping[str, Any]
"""``{role, content, tool_calls?, tool_call_id?}``; ``tool_calls[].function.arguments`` is a JSON string."""

FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]


@dataclass(frozen=True, slots=True)
class ModelTool:
    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    messages: Sequence[Message]
    tools: Sequence[ModelTool]
    correlation_id: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.prompt_tokens + other.prompt_tokens, self.completion_tokens + other.completion_tokens)


@dataclass(frozen=True, slots=True)
class TextDelta:
    content: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call, assembled. *arguments* is None when the model's JSON was not an object; *raw* is its text."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The model has ended its turn. *usage* is None when the provider never told."""

    reason: FinishReason
    usage: Usage | None


ModelEvent = TextDelta | ToolCall | Finish


class Provider(Protocol):
    async def aclose(self) -> None:
        """Give back what is held between turns: connections, most of all."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """One model turn. Each item holds what one read from the wire produced, in order.

        Ends with exactly one Finish, last, or raises ProviderError or ContextOverflow: a stream that breaks off
        or says nothing is never a quiet end. Closing the generator aborts the request.
        """
        ...
