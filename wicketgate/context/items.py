"""The items of a conversation: read from a session file, and made into chat messages (CHAT-84, LIB-13).

A session file has one JSON event a line. It is read whole, or refused with the line at fault (CHAT-84).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from wicketgate.errors import SessionFileError

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
    # The first result of each call; any other is a plain message.
    calls = {item.id for item in items if item.kind is ItemKind.tool_call}
    results: dict[str, ContextItem] = {}
    for item in items:
        if item.kind is ItemKind.tool_result and item.parent_id is not None and item.parent_id in calls:
            results.setdefault(item.parent_id, item)
    answers = {item.id for item in results.values()}

    # A step gathers calls until another item, or a call after an answer, ends it.
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
    for call in step:
        result = results[call.id]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text, "item_ids": (result.id,)})


def _name(call: ContextItem) -> str:
    named = call.metadata.get("tool")
    name = named if isinstance(named, str) else call.text.partition("(")[0]
    return _NOT_IN_A_NAME.sub("_", name.strip())[:_MAX_NAME_CHARS] or "tool"


def _arguments(call: ContextItem) -> str:
    for key in ("args", "arguments"):
        if isinstance(arguments := call.metadata.get(key), Mapping):
            return json.dumps(dict(arguments), ensure_ascii=False)
    return json.dumps({"call": call.text}, ensure_ascii=False)


_READ = frozenset({"id", "type", "text", "content", "parent_id"})


def load_mcp_session_jsonl(path: str | Path) -> list[ContextItem]:
    """Read a session file. Raises SessionFileError: it cannot be read, is not UTF-8, or a line is at fault."""
    try:
        with Path(path).open(encoding="utf-8-sig") as lines:
            return parse_session_jsonl(lines)
    except OSError as error:
        raise SessionFileError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SessionFileError("is not UTF-8 text") from None


def parse_session_jsonl(lines: Iterable[str]) -> list[ContextItem]:
    """The items in the order of the file. Blank lines are passed over; other keys become metadata.

    Each line has ``id``, ``type`` and ``text`` or ``content``; content that is not a string is kept as JSON text.
    Raises SessionFileError that names the line: not JSON, a key missing or of the wrong type, an unknown type, an id
    that was used before, or a ``parent_id`` that no earlier line has.
    """
    items: list[ContextItem] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = _item(json.loads(line))
        except json.JSONDecodeError:
            raise SessionFileError(f"line {number}: not JSON") from None
        except RecursionError:
            raise SessionFileError(f"line {number}: nested too deeply") from None
        except ValueError as fault:
            raise SessionFileError(f"line {number}: {fault}") from None
        if item.id in seen:
            raise SessionFileError(f"line {number}: the id {item.id!r} is used twice")
        if item.parent_id is not None and item.parent_id not in seen:
            raise SessionFileError(f"line {number}: no line before it has the id {item.parent_id!r}")
        seen.add(item.id)
        items.append(item)
    return items


def _item(event: Any) -> ContextItem:
    if not isinstance(event, dict):
        raise ValueError("an event must be an object")
    event_id, kind, parent = event.get("id"), event.get("type"), event.get("parent_id")
    if not isinstance(event_id, str) or not event_id:
        raise ValueError("id must be a string that is not empty")
    if not isinstance(kind, str) or kind not in ItemKind.__members__:
        raise ValueError(f"type must be one of {', '.join(ItemKind)}")
    if parent is not None and not isinstance(parent, str):
        raise ValueError("parent_id must be a string")
    text = event.get("text")
    if text is None:
        text = event.get("content")
    if text is None:
        raise ValueError("an event needs text or content")
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    return ContextItem(
        event_id, ItemKind(kind), text, parent, {key: value for key, value in event.items() if key not in _READ}
    )
