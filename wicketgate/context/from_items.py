"""A session file's items as the messages of a chat, so that ``build`` can take them (S1 "End-to-end example")."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from wicketgate.context.items import ContextItem, ItemKind

# What chat-completions providers take as the name of a function.
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARS = 64

_ROLES = {ItemKind.system: "system", ItemKind.user_turn: "user"}


def messages_from_items(items: Sequence[ContextItem]) -> list[dict[str, Any]]:
    """Chat-completions messages, in the order of *items*; every call is answered, every tool message answers one.

    Calls in a row, and an agent message just before them, become one assistant message; their results follow it, in
    the order of the calls. A call's id is its item's; its name is metadata ``tool`` or what its text has before ``(``,
    in the characters that providers take; its arguments are metadata ``args`` or ``arguments`` if that is an object,
    else ``{"call": text}``. A call without a result, and a result without a call of its own, become plain messages of
    the assistant: nothing is lost and no provider refuses the history.
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
            messages.append({"role": _ROLES.get(item.kind, "assistant"), "content": item.text})
    _add_step(messages, step, results)
    return messages


def _add_step(messages: list[dict[str, Any]], step: Sequence[ContextItem], results: Mapping[str, ContextItem]) -> None:
    if not step:
        return
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    messages[-1]["tool_calls"] = [
        {"id": call.id, "type": "function", "function": {"name": _name(call), "arguments": _arguments(call)}}
        for call in step
    ]
    messages.extend({"role": "tool", "tool_call_id": call.id, "content": results[call.id].text} for call in step)


def _name(call: ContextItem) -> str:
    named = call.metadata.get("tool")
    name = named if isinstance(named, str) else call.text.partition("(")[0]
    return _NOT_IN_A_NAME.sub("_", name.strip())[:_MAX_NAME_CHARS] or "tool"


def _arguments(call: ContextItem) -> str:
    for key in ("args", "arguments"):
        if isinstance(arguments := call.metadata.get(key), Mapping):
            return json.dumps(dict(arguments), ensure_ascii=False)
    return json.dumps({"call": call.text}, ensure_ascii=False)
