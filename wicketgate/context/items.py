"""One event of a conversation, as the context is built from (S1 "load_mcp_session_jsonl")."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ItemKind(StrEnum):
    """What an item is. The value is the ``type`` of a session file."""

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
