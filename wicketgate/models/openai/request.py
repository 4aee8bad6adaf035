"""The body of a chat-completions request, from the loop's own messages, in the dialect of the server."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from wicketgate.models.call_ids import MISTRAL_ID, accepted_id
from wicketgate.models.events import Kept
from wicketgate.models.openai.dialect import Dialect

_OPTIONAL = ("stream_options", "parallel_tool_calls")
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")
_MAX_TOKENS = ("max_tokens", "max_completion_tokens")


def chat_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    dialect: Dialect,
    *,
    origin: str,
    max_tokens: int | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """*tools* are ``{name, description, parameters}``; *extra* is the operator's, and yields to what the loop needs.

    The same conversation with more messages gives the same beginning, byte for byte: prompt caches depend on it.
    """
    body: dict[str, Any] = {**(extra or {}), "model": model}
    if max_tokens is not None:
        body[dialect.max_tokens_field] = max_tokens
    if tools:
        body["tools"] = [{"type": "function", "function": tool} for tool in tools]
    body["messages"] = _messages(messages, dialect, origin)
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def optional_fields(body: Mapping[str, Any]) -> set[str]:
    """The fields of *body* and its messages that a server may not know, and that a request can do without."""
    found = {field for field in (*_OPTIONAL, *_MAX_TOKENS) if field in body}
    return found | {field for field in _THOUGHTS if any(field in message for message in body["messages"])}


def without(body: Mapping[str, Any], refused: Set[str]) -> Mapping[str, Any]:
    """*body* as a server takes it that refused those fields; the bound of the answer has two names."""
    if not refused:
        return body
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


def _messages(messages: Sequence[Mapping[str, Any]], dialect: Dialect, origin: str) -> list[Mapping[str, Any]]:
    if dialect.one_system:
        messages = _with_one_system(messages)
    return [_message(message, dialect, origin) for message in messages]


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
    copy = {key: value for key, value in message.items() if key != "kept"}
    if dialect.nine_char_ids:
        if "tool_calls" in copy:
            copy["tool_calls"] = [{**call, "id": accepted_id(call["id"], MISTRAL_ID)} for call in copy["tool_calls"]]
        if "tool_call_id" in copy:
            copy["tool_call_id"] = accepted_id(copy["tool_call_id"], MISTRAL_ID)
    if isinstance(kept, Kept) and kept.origin == origin and dialect.echoes_thoughts:
        _put_back(copy, kept.data)
    return copy


def _put_back(message: dict[str, Any], kept: Mapping[str, Any]) -> None:
    """What the server said beside text and calls, in the places where it said it."""
    for field, value in kept.items():
        if field != "extra_content":
            message[field] = value
    extras = kept.get("extra_content")
    if extras and len(extras) == len(message["tool_calls"]):
        message["tool_calls"] = [
            {**call, "extra_content": extra} if extra else call
            for call, extra in zip(message["tool_calls"], extras, strict=True)
        ]
