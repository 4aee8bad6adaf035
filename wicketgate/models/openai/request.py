"""The body of a chat-completions request, from the loop's own messages, in the dialect of the server."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from wicketgate.models.provider import Kept, ModelTool
from wicketgate.models.tool_calls import accepted_id

_OPTIONAL = ("stream_options", "parallel_tool_calls")
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
_MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_NINE_CHARS = re.compile(r"[A-Za-z0-9]{9}")

DialectName = Literal["openai", "mistral", "groq", "compatible"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The demands of a server on a request; only those that break requests. Differences in answers need no dialect.

    *max_tokens_field* bounds the answer. *nine_char_ids*: call ids must be nine letters and digits. *one_system*:
    several system messages go out as one, because many chat templates allow no other. *echoes_thoughts*: the model's
    thoughts are sent back while its tools run; a server that wants them answers 400 without them.
    """

    max_tokens_field: str = "max_tokens"
    nine_char_ids: bool = False
    one_system: bool = True
    echoes_thoughts: bool = True


DIALECTS: dict[DialectName, Dialect] = {
    "openai": Dialect(max_tokens_field="max_completion_tokens", one_system=False),
    "mistral": Dialect(nine_char_ids=True, echoes_thoughts=False),
    "groq": Dialect(max_tokens_field="max_completion_tokens", echoes_thoughts=False),
    "compatible": Dialect(),
}

_HOSTS: tuple[tuple[str, DialectName], ...] = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", "openai"),
    ("mistral.ai", "mistral"),
    ("groq.com", "groq"),
)


def dialect_of(base_url: str) -> DialectName:
    """The dialect of the host in *base_url*; local servers and proxies are ``compatible``."""
    host = (urlsplit(base_url).hostname or "").lower()
    for known, name in _HOSTS:
        if host == known or host.endswith("." + known):
            return name
    return "compatible"


def chat_body(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[ModelTool],
    *,
    model: str,
    dialect: Dialect,
    origin: str,
    max_tokens: int | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a request. *extra* holds the operator's fields; those that the loop sets itself override them.

    The same conversation with more messages gives the same beginning, byte for byte: prompt caches depend on it.
    """
    # The operator's fields first, so that those of the loop replace them.
    body: dict[str, Any] = {**(extra or {}), "model": model}
    if max_tokens is not None:
        body[dialect.max_tokens_field] = max_tokens
    if tools:
        body["tools"] = written_tools(tools)
    if dialect.one_system:
        messages = _with_one_system(messages)
    body["messages"] = [_message(message, dialect, origin) for message in messages]
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def written_tools(tools: Sequence[ModelTool]) -> list[dict[str, Any]]:
    functions = ({"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools)
    return [{"type": "function", "function": function} for function in functions]


def optional_fields(body: Mapping[str, Any]) -> set[str]:
    """The fields of *body* and its messages that a server may not know, and that a request does not need."""
    found = {field for field in (*_OPTIONAL, *_MAX_TOKENS) if field in body}
    return found | {field for field in _THOUGHTS if any(field in message for message in body["messages"])}


def without_fields(body: Mapping[str, Any], refused: Set[str]) -> Mapping[str, Any]:
    """*body* for a server that refused those fields. The bound of the answer moves to its other name."""
    if not refused:
        return body
    # Fields of the body, the bound of the answer, and fields of the messages.
    left = {field: value for field, value in body.items() if field not in refused}
    for field, other in (_MAX_TOKENS, _MAX_TOKENS[::-1]):
        if field in body and field in refused and other not in refused:
            left[other] = body[field]
    if any(field in refused for field in _THOUGHTS):
        left["messages"] = [
            {field: value for field, value in message.items() if field not in refused or field not in _THOUGHTS}
            for message in body["messages"]
        ]
    return left


def _with_one_system(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    system = [message["content"] for message in messages if message["role"] == "system"]
    if not system or (len(system) == 1 and messages[0]["role"] == "system"):
        return messages
    merged = {"role": "system", "content": "\n\n".join(system)}
    return [merged, *(message for message in messages if message["role"] != "system")]


def _message(message: Mapping[str, Any], dialect: Dialect, origin: str) -> Mapping[str, Any]:
    kept = message.get("kept")
    if kept is None and not dialect.nine_char_ids:
        return message
    # Ids that the server accepts, then its own thoughts, if it takes them back.
    copy = {key: value for key, value in message.items() if key != "kept"}
    if dialect.nine_char_ids:
        if "tool_calls" in copy:
            copy["tool_calls"] = [{**call, "id": accepted_id(call["id"], _NINE_CHARS)} for call in copy["tool_calls"]]
        if "tool_call_id" in copy:
            copy["tool_call_id"] = accepted_id(copy["tool_call_id"], _NINE_CHARS)
    if isinstance(kept, Kept) and kept.origin == origin and dialect.echoes_thoughts:
        _restore(copy, kept.data)
    return copy


def _restore(message: dict[str, Any], kept: Mapping[str, Any]) -> None:
    """Restore the server's output beside text and calls, in its original fields."""
    for field, value in kept.items():
        if field != "extra_content":
            message[field] = value
    extras = kept.get("extra_content")
    if extras and len(extras) == len(message["tool_calls"]):
        message["tool_calls"] = [
            {**call, "extra_content": extra} if extra else call
            for call, extra in zip(message["tool_calls"], extras, strict=True)
        ]
