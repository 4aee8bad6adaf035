"""The body of an Anthropic Messages request, from the loop's own messages (chat-completions shape).

Roles must alternate, texts must not be blank, results of one turn stand in one user message before any text. Marks for
the prompt cache (four at most): the last tool, the system text, and the ends of the last two user messages, so that a
turn finds the cache entry of the turn before it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from wicketgate.models.provider import Kept, ModelTool
from wicketgate.models.tool_calls import accepted_id
from wicketgate.results.bulk import read_object

Block = dict[str, Any]

_CACHE = {"type": "ephemeral"}
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARS = 128
_NOTHING_SAID = "(nothing said)"


def messages_body(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[ModelTool],
    *,
    model: str,
    max_tokens: int,
    origin: str,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a request. *extra* holds the operator's fields; those that the loop sets itself override them.

    The same conversation with more messages gives the same beginning, byte for byte but for the marks, which are not
    cached.
    """
    # Tools and system text, each with its mark at the end.
    body: dict[str, Any] = {**(extra or {}), "model": model, "max_tokens": max_tokens, "stream": True}
    if tools:
        body["tools"] = written_tools(tools)
        body["tools"][-1]["cache_control"] = _CACHE
    if system := "\n\n".join(
        message["content"] for message in messages if message["role"] == "system" and message["content"].strip()
    ):
        body["system"] = [{"type": "text", "text": system, "cache_control": _CACHE}]
    # The conversation, with marks at the ends of the last two user messages.
    body["messages"] = turns = _turns(messages, origin)
    for turn in [turn for turn in turns if turn["role"] == "user"][-2:]:
        turn["content"][-1] = {**turn["content"][-1], "cache_control": _CACHE}
    return body


def written_tools(tools: Sequence[ModelTool]) -> list[dict[str, Any]]:
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]


def _turns(messages: Sequence[Mapping[str, Any]], origin: str) -> list[dict[str, Any]]:
    """The messages with alternating roles, beginning with the user's."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message, origin)
        if not turns and role == "assistant" and blocks:
            turns.append({"role": "user", "content": [_text(_NOTHING_SAID)]})
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns or [{"role": "user", "content": [_text(_NOTHING_SAID)]}]


def _blocks(message: Mapping[str, Any], origin: str) -> list[Block]:
    content: str = message["content"]
    if message["role"] == "tool":
        result: Block = {"type": "tool_result", "tool_use_id": accepted_id(message["tool_call_id"], _CALL_ID)}
        return [{**result, "content": content} if content.strip() else result]
    calls = message.get("tool_calls") or ()
    kept = message.get("kept")
    if isinstance(kept, Kept) and kept.origin == origin and (original := _original_blocks(kept.data["content"], calls)):
        return original
    blocks = [_text(content)] if content.strip() else []
    return blocks + [_call(call) for call in calls]


def _original_blocks(blocks: Sequence[Block], calls: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The blocks as the model sent them, thoughts and signatures unchanged, under the ids of the results.

    Empty if they do not match *calls*.
    """
    ids = iter(call["id"] for call in calls)
    if sum(block.get("type") == "tool_use" for block in blocks) != len(calls):
        return []
    return [
        {**block, "id": accepted_id(next(ids), _CALL_ID)} if block.get("type") == "tool_use" else block
        for block in blocks
    ]


def _text(text: str) -> Block:
    # The provider refuses a last message of the assistant that ends in white space, and needs it nowhere.
    return {"type": "text", "text": text.rstrip()}


def _call(call: Mapping[str, Any]) -> Block:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": accepted_id(call["id"], _CALL_ID),
        "name": _NOT_IN_A_NAME.sub("_", function["name"])[:_MAX_NAME_CHARS] or "tool",
        "input": read_object(function["arguments"]) or {},
    }
