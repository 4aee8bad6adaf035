"""Shortens a tool result that has to make room, to its handle and summary.

Results of the gateway's own tools keep what leads back to the whole; of any other only the beginning can be kept.
"""

import json
from collections.abc import Mapping
from typing import Any

_SUMMARY_CHARS = 160
_HEAD_CHARS = 240
_MAX_IDS = 20
_MAX_HANDLES = 2
# A name in a foreign result can be of any length; a part of one leads nowhere.
_MAX_NAME_CHARS = 400


def shrink(content: str) -> str:
    """A shorter form of a tool message's content, at most about 8,500 characters; *content* itself if there is none.

    An envelope keeps status, the beginning of its summary and its first handles; cards their ids; a view its handle,
    selector and total; an error its code and message. Any other text keeps its first 240 characters and says how
    much was cut. What was shrunk is not shrunk further. Never raises.
    """
    short = _of_ours(_parsed(content))
    if short is not None:
        shown = json.dumps(short, ensure_ascii=False, separators=(",", ":"))
    elif len(content) > 2 * _HEAD_CHARS:
        shown = f"{content[:_HEAD_CHARS]}… [{len(content) - _HEAD_CHARS:,} more characters left out to save room]"
    else:
        return content
    # A lone surrogate, escaped until now, must not become one that no provider takes.
    shown = shown.encode("utf-8", "replace").decode()
    return shown if len(shown) < len(content) else content


def _parsed(content: str) -> Any:
    if not content.startswith("{"):
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _of_ours(body: Any) -> dict[str, Any] | None:
    match body:
        case {"status": "ok" | "partial" | "error", "summary": str(), "artifacts": list()}:
            return _envelope(body)
        case {"cards": list(cards)}:
            return _cards(cards)
        case {"handle": str(handle), "selector": selector, "total": total} if len(handle) <= _MAX_NAME_CHARS:
            view = {"handle": handle, "selector": selector, "total": total}
            if len(json.dumps(view)) > 2 * _MAX_NAME_CHARS:
                view = {"handle": handle}
            return {**view, "note": "content left out to save room; tool_view shows it again, best in smaller parts"}
        case {"error": str(code), "message": str(message)} if len(code) <= _MAX_NAME_CHARS:
            return {"error": code, "message": _short(message)}
        case _:
            return None


def _envelope(body: Mapping[str, Any]) -> dict[str, Any]:
    short: dict[str, Any] = {"status": body["status"], "summary": _short(body["summary"])}
    if body.get("dry_run") is True:
        short["dry_run"] = True
    handles = [handle for ref in body["artifacts"] if (handle := _name(ref, "handle"))]
    short["artifacts"] = [{"handle": handle} for handle in handles[:_MAX_HANDLES]]
    if handles:
        short["note"] = "shortened to save room; tool_view shows the whole"
    return short


def _cards(cards: list[Any]) -> dict[str, Any]:
    ids = [card_id for card in cards if (card_id := _name(card, "id"))]
    short: dict[str, Any] = {"cards": [{"id": card_id} for card_id in ids[:_MAX_IDS]]}
    if len(ids) > _MAX_IDS:
        short["note"] = f"{len(ids) - _MAX_IDS} more cards left out to save room"
    return short


def _name(holder: Any, key: str) -> str | None:
    name = holder.get(key) if isinstance(holder, dict) else None
    return name if isinstance(name, str) and len(name) <= _MAX_NAME_CHARS else None


def _short(text: str) -> str:
    return text if len(text) <= _SUMMARY_CHARS else text[: _SUMMARY_CHARS - 1] + "…"
