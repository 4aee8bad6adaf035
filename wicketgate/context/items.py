"""The items of a conversation, and the chat messages that they make (S1 "load_mcp_session_jsonl")."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# What chat-completions providers take as the name of a function.
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARS = 64


class ItemKind(StrEnum):
    """The kind of an item. The value is the ``type`` of a session file."""

    system = "system"
    user_turn = "user_turn"
    agent_msg = "agent_msg"
    tool_call = "tool_call"
    tool_result = "tool_result"


@dataclass(frozen=True, slots=True)
class ContextItem:
    """*parent_id* is the item that this one answers: a call's user turn, a result's call."""

    id: str
    kind: ItemKind
    text: str
    parent_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


_ROLES = {ItemKind.system: "system", ItemKind.user_turn: "user"}


def messages_from_items(items: Sequence[ContextItem]) -> list[dict[str, Any]]:
    """Chat-completions messages, in the order of *items*; every call is answered, every tool message answers one.

    Each has one key more, ``item_ids``: the ids of the items that it is made of.

    Calls in a row, and an agent message just before them, become one assistant message; their results follow it, in
    the order of the calls. A call's id is its item's; its name is metadata ``tool`` or what its text has before ``(``,
    in the characters that providers take; its arguments are metadata ``args`` or ``arguments`` if that is an object,
    otherwise ``{"call": text}``. A call without a result, and a result without a call of its own, become plain
    messages of the assistant: nothing is lost and no provider refuses the history.
    """
    calls = {item.id for item in items if item.kind is ItemKind.tool_call}
    results: dict[str, ContextItem] = {}
    for item in items:
        if item.kind is ItemKind.tool_result and item.parent_id is not None and item.parent_id in calls:
            results.setdefault(item.parent_id, item)
    answers = {item.id for item in results.values()}

    messages: list[dict[str, Any]] = []
    step: list[ContextItem] = []
    answered = False
    for item in items:
        if item.id in answers:
            answered = True
            continue
        called = item.kind is ItemKind.tool_call and item.id in results
        if answered or not called:
            _add_step(messages, step, results)
            step, answered = [], False
        if called:
            step.append(item)
        else:
            messages.append({"role": _ROLES.get(item.kind, "assistant"), "content": item.text, "item_ids": (item.id,)})
    _add_step(messages, step, results)
    return messages


def _add_step(messages: list[dict[str, Any]], step: Sequence[ContextItem], results: Mapping[str, ContextItem]) -> None:
    if not step:
        return
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": "", "item_ids": ()})
    messages[-1]["item_ids"] += tuple(call.id for call in step)
    messages[-1]["tool_calls"] = [
        {"id": call.id, "type": "function", "function": {"name": _name(call), "arguments": _arguments(call)}}
        for call in step
    ]
    messages.extend(_answer(call, results[call.id]) for call in step)


def _answer(call: ContextItem, result: ContextItem) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": result.text, "item_ids": (result.id,)}


def _name(call: ContextItem) -> str:
    named = call.metadata.get("tool")
    name = named if isinstance(named, str) else call.text.partition("(")[0]
    return _NOT_IN_A_NAME.sub("_", name.strip())[:_MAX_NAME_CHARS] or "tool"


def _arguments(call: ContextItem) -> str:
    for key in ("args", "arguments"):
        if isinstance(arguments := call.metadata.get(key), Mapping):
            return json.dumps(dict(arguments), ensure_ascii=False)
    return json.dumps({"call": call.text}, ensure_ascii=False)
