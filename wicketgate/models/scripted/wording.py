"""Results in words, for the answers of the script: the fields of a JSON object as sentences and lines, and no more."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

MOST_LINES = 10
_MOST_LEVELS = 3
_CLOCK = re.compile(r"\d{4}-\d{2}-\d{2}T(\d{2}:\d{2})")


def in_words(text: str) -> str:
    """Returns a JSON object or list as words; any other text as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, Mapping) and value:
        return _time(value) or _object(value)
    if isinstance(value, list) and value:
        return _object({"entries": value})
    return text


def _time(value: Mapping[str, Any]) -> str:
    """The answer of a clock; empty if it is none."""
    zone, moment, day = (value.get(key) for key in ("timezone", "datetime", "day_of_week"))
    clock = _CLOCK.match(moment) if isinstance(moment, str) else None
    if clock is None or not isinstance(zone, str) or not isinstance(day, str):
        return ""
    return f"It is {clock[1]} on {day} in {zone} ({moment})."


def _object(value: Mapping[str, Any]) -> str:
    plain = {key: each for key, each in value.items() if not isinstance(each, Mapping | list)}
    lists = [each for each in value.values() if isinstance(each, list)]
    # A total of more than are shown is said with the list, so that two counts do not contradict each other.
    total = plain.get("total")
    of = 0
    if len(lists) == 1 and isinstance(total, int) and total > min(len(lists[0]), MOST_LINES) > 0:
        of = plain.pop("total")
    parts = [f"{_fields(plain)}."] if plain else []
    for key, each in value.items():
        if isinstance(each, Mapping | list):
            parts.append(_lines(key, each, of if isinstance(each, list) else 0))
    return "\n".join(parts)


def _lines(key: str, value: Mapping[str, Any] | Sequence[Any], of: int = 0) -> str:
    """*of* is the number that there are in all, if that is known and *value* may be a part of them."""
    if isinstance(value, Mapping):
        lines = [f"- {_name(name)}: {_phrase(each, 1)}" for name, each in value.items()]
    else:
        lines = [f"- {_fields(each) if isinstance(each, Mapping) else _phrase(each, 1)}" for each in value]
    if not lines:
        return f"{_name(key)}: none."
    shown = lines[:MOST_LINES]
    if of:
        head = f"{_name(key)}, {len(shown)} of {of}:"
    elif len(shown) < len(lines):
        head = f"{_name(key)}, the first {len(shown)} of {len(lines)}:"
    else:
        head = f"{_name(key)}:"
    return "\n".join([head, *shown])


def _fields(value: Mapping[str, Any], level: int = 1) -> str:
    return ", ".join(f"{_name(key)} {_phrase(each, level)}" for key, each in value.items())


def _phrase(value: Any, level: int) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ("", [], {}):
        return "none"
    if level >= _MOST_LEVELS and isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"({_fields(value, level + 1)})"
    if isinstance(value, list):
        return f"({', '.join(_phrase(each, level + 1) for each in value)})"
    return str(value)


def _name(key: str) -> str:
    return key.replace("_", " ") if not any(char.isdigit() for char in key) else key
