"""What the loop asks of a model and what it gets back, whoever the provider is.

Messages travel in the chat-completions shape, the prevailing one (S3 "Request"); a provider of another shape
translates at its edge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wicketgate.models.events import Finish, FinishReason, Kept, ModelEvent, TextDelta, ToolCall, Usage
from wicketgate.models.late_stream import Stream

__all__ = [
    "Finish",
    "FinishReason",
    "Kept",
    "Message",
    "ModelEvent",
    "ModelRequest",
    "ModelTool",
    "Provider",
    "TextDelta",
    "ToolCall",
    "Usage",
]

Message = Mapping[str, Any]
"""``{role, content, tool_calls?, tool_call_id?, kept?}``; ``tool_calls[].function.arguments`` is a JSON string.

``kept`` (a Kept) is never part of a request from outside; who sends messages on takes it out.
"""


@dataclass(frozen=True, slots=True)
class ModelTool:
    name: str
    description: str
    parameters: Mapping[str, Any]

    def definition(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    messages: Sequence[Message]
    tools: Sequence[ModelTool]
    correlation_id: str


class Provider(Protocol):
    async def aclose(self) -> None:
        """Give back what is held between turns: connections, most of all."""
        ...

    def stream(self, request: ModelRequest) -> Stream[Sequence[ModelEvent]]:
        """One model turn. Each item holds what one read from the wire produced, in order.

        Ends with exactly one Finish, last, or raises ProviderError or ContextOverflow: a stream that breaks off
        or says nothing is never a quiet end. Closing the stream aborts the request.
        """
        ...
