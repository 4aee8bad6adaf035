"""The body of an Anthropic Messages request, from the loop's own messages (chat-completions shape).

Roles must alternate, texts must not be blank, results of one turn stand in one user message before any text. What is
marked for the prompt cache (at most four places): the last tool, the system text, and the ends of the last two user
messages, so that a turn finds what the one before it wrote.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from wicketgate.models.call_ids import ANTHROPIC_ID, accepted_id
from wicketgate.models.events import Kept

Block = dict[str, Any]

_CACHE = {"type": "ephemeral"}
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_MAX_NAME_CHARS = 128
_NOTHING_SAID = "(nothing said)"


def messages_body(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    max_tokens: int,
    *,
    origin: str,
    extra: Mapping[str, Any] | None = None,
    paused: Sequence[Block] = (),
) -> dict[str, Any]:
    """*tools* are ``{name, description, parameters}``; *extra* is the operator's, and yields to what the loop needs.

    *paused* is what the assistant has said so far in a turn that is to go on. The same conversation with more messages
    gives the same beginning, byte for byte but for the marks, which are no part of what is cached.
    """
    body: dict[str, Any] = {**(extra or {}), "model": model, "max_tokens": max_tokens, "stream": True}
    if tools:
        body["tools"] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
            for tool in tools
        ]
        body["tools"][-1]["cache_control"] = _CACHE
    if system := "\n\n".join(
        message["content"] for message in messages if message["role"] == "system" and message["content"].strip()
    ):
        body["system"] = [{"type": "text", "text": system, "cache_control": _CACHE}]
    turns = _turns(messages, origin)
    _mark(turns)
    if paused:
        turns.append({"role": "assistant", "content": list(paused)})
    body["messages"] = turns
    return body


def _turns(messages: Sequence[Mapping[str, Any]], origin: str) -> list[dict[str, Any]]:
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
        result: Block = {"type": "tool_result", "tool_use_id": accepted_id(message["tool_call_id"], ANTHROPIC_ID)}
        return [{**result, "content": content} if content.strip() else result]
    calls = message.get("tool_calls") or ()
    kept = message.get("kept")
    if isinstance(kept, Kept) and kept.origin == origin and (said := _as_said(kept.data["content"], calls)):
        return said
    blocks = [_text(content)] if content.strip() else []
    return blocks + [_call(call) for call in calls]


def _as_said(blocks: Sequence[Block], calls: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The blocks as the model gave them, thoughts and signatures unchanged, under the ids that the results carry."""
    ids = iter(call["id"] for call in calls)
    if sum(block.get("type") == "tool_use" for block in blocks) != len(calls):
        return []
    return [
        {**block, "id": accepted_id(next(ids), ANTHROPIC_ID)} if block.get("type") == "tool_use" else block
        for block in blocks
    ]


def _text(text: str) -> Block:
    # The provider refuses a last message of the assistant that ends in white space, and needs it nowhere.
    return {"type": "text", "text": text.rstrip()}


def _call(call: Mapping[str, Any]) -> Block:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        arguments = {}
    return {
        "type": "tool_use",
        "id": accepted_id(call["id"], ANTHROPIC_ID),
        "name": _NOT_IN_A_NAME.sub("_", function["name"])[:_MAX_NAME_CHARS] or "tool",
        "input": arguments if isinstance(arguments, dict) else {},
    }


def _mark(turns: Sequence[dict[str, Any]]) -> None:
    asked = [turn for turn in turns if turn["role"] == "user"]
    for turn in asked[-2:]:
        turn["content"][-1] = {**turn["content"][-1], "cache_control": _CACHE}
