"""The five events of the stream and their bytes on the wire (CHAT-25, CHAT-26)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar, Literal

from wicketgate.gateway.options import TokenCost
from wicketgate.gateway.spending import UNIT
from wicketgate.models.provider import TextDelta, Usage

DoneReason = Literal[
    "stop", "length", "content_filter", "max_iterations", "approval_required", "connect_required", "cancelled"
]


@dataclass(frozen=True, slots=True)
class ToolCallEvent:
    """A tool call by the model. *arguments* is always an object, ``{}`` if the model's text was not one."""

    name: ClassVar = "tool-call"
    id: str
    tool: str
    arguments: Mapping[str, Any]

    def data(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.tool, "arguments": self.arguments}


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """*shown* is what the model is given in place of *output*; empty for the same (CHAT-96)."""

    name: ClassVar = "tool-result"
    id: str
    output: str
    shown: str = ""

    def data(self) -> dict[str, Any]:
        return {"id": self.id, "output": self.output}


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """A failure that goes back to the model, which decides how to go on (CHAT-45). *shown* as in ToolOutput."""

    name: ClassVar = "tool-result"
    id: str
    error: str
    shown: str = ""

    def data(self) -> dict[str, Any]:
        return {"id": self.id, "error": self.error}


@dataclass(frozen=True, slots=True)
class Done:
    """The end. *usage* sums every model call of the stream; 0/0 if the provider never reported it.

    Streams that ran tools also report estimates of the tokens that the meta-tools gave the model, and of those that it
    would have been given without a gateway (``usage.tool_tokens``, ``usage.naive_tool_tokens``). With *priced*,
    ``usage.cost`` is the cost of model and tools in the currency of the prices.
    """

    name: ClassVar = "done"
    finish_reason: DoneReason
    usage: Usage
    cost: TokenCost = field(default_factory=TokenCost)
    priced: bool = False

    def data(self) -> dict[str, Any]:
        usage: dict[str, float] = {
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
        }
        if self.cost.shown:
            usage |= {"tool_tokens": self.cost.shown, "naive_tool_tokens": self.cost.naive}
        if self.priced:
            usage["cost"] = (self.usage.cost + self.cost.price) / UNIT
        return {"finish_reason": self.finish_reason, "usage": usage}


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The other end. Code and message come from an EngineError class, nothing else."""

    name: ClassVar = "error"
    code: str
    message: str

    def data(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message}


ToolResult = ToolOutput | ToolFailure
Event = TextDelta | ToolCallEvent | ToolResult | Done | ErrorEvent


_TEXT_HEAD = b'event: text-delta\ndata: {"content":"'
_TEXT_END = b'"}\n\n'


# ``json.dumps`` would make an encoder for each event.
_json: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def encode(event: Event) -> bytes:
    """One server-sent event. Pure ASCII: a lone surrogate or U+2028 in model output must not break the stream.

    Raises ValueError for arguments that JSON cannot express, which only a provider in Python can give.
    """
    if isinstance(event, TextDelta):  # nearly all of them
        return encode_text(event.content)
    data = _json(event.data())
    return f"event: {event.name}\ndata: {data}\n\n".encode()


def encode_text(content: str) -> bytes:
    """The TextDelta with *content*, encoded."""
    return b'event: text-delta\ndata: {"content":%b}\n\n' % encode_basestring_ascii(content).encode()


def join_texts(first: bytes, second: bytes) -> bytes | None:
    """Two encoded text-deltas joined into one; None if either is a different event."""
    if first.startswith(_TEXT_HEAD) and second.startswith(_TEXT_HEAD):
        return first[: -len(_TEXT_END)] + second[len(_TEXT_HEAD) :]
    return None


def text_for_model(result: ToolResult) -> str:
    return result.shown or (result.output if isinstance(result, ToolOutput) else result.error)


def is_end(encoded: bytes) -> bool:
    """True if the encoded event is the last of its stream."""
    return encoded.startswith((b"event: done\n", b"event: error\n"))
