"""Session files: one JSON event a line, read whole or refused with the line at fault (S1 "Session JSONL format")."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wicketgate.context.items import ContextItem, ItemKind
from wicketgate.errors import SessionFileError

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
