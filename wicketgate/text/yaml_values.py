"""YAML as JSON values, read from the parser's events (YAML 1.2 core schema, which OpenAPI asks for).

PyYAML's C loader builds nodes by recursion in C: a hundred thousand open brackets end the process. Its events do not.
``on``, ``no`` and dates are text here; tags are not obeyed; ``<<`` merges as in YAML 1.1, since people write it.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

_MAX_DEPTH = 200
_MAX_EVENTS = 2_000_000
_PARSER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(r"[-+]?[0-9]{1,300}")
_OTHER_BASE = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,300}|[0-9]{1,300}(?:\.[0-9]{0,300})?)(?:[eE][-+]?[0-9]{1,5})?")
_WORDS: dict[str, Any] = {"": None, "~": None}
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

_NO_KEY = object()


class NotYaml(ValueError):
    """It cannot be read, or goes beyond the bounds."""


def read_yaml(text: str) -> Any:
    """The first document in *text*. Values that an alias repeats are shared. Raises NotYaml."""
    try:
        return _build(yaml.parse(text, Loader=_PARSER))
    except (yaml.YAMLError, UnicodeError):
        raise NotYaml("not YAML") from None


def _build(events: Iterator[Any]) -> Any:
    anchors: dict[str, Any] = {}
    # Each open collection: itself, the key that waits for its value, its anchor.
    stack: list[tuple[Any, list[Any], str | None]] = []
    for number, event in enumerate(events):
        if number > _MAX_EVENTS or len(stack) > _MAX_DEPTH:
            raise NotYaml("too large or too deep")
        match event:
            case yaml.MappingStartEvent():
                stack.append(({}, [_NO_KEY], event.anchor))
                continue
            case yaml.SequenceStartEvent():
                stack.append(([], [], event.anchor))
                continue
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                value, _, anchor = stack.pop()
            case yaml.ScalarEvent():
                value, anchor = _scalar(event), event.anchor
            case yaml.AliasEvent():
                # Known only when it is complete, so that nothing can hold itself.
                if event.anchor not in anchors:
                    raise NotYaml("an alias of nothing")
                value, anchor = anchors[event.anchor], None
            case _:
                continue
        if anchor is not None:
            anchors[anchor] = value
        if not stack:
            return value
        _put(stack[-1][0], stack[-1][1], value)
    return None


def _put(holder: Any, waiting: list[Any], value: Any) -> None:
    if isinstance(holder, list):
        holder.append(value)
    elif waiting[0] is _NO_KEY:
        if isinstance(value, dict | list):
            raise NotYaml("a key that is not a single value")
        waiting[0] = _key(value)
    else:
        key, waiting[0] = waiting[0], _NO_KEY
        if key == "<<" and isinstance(value, dict | list):
            for merged in value if isinstance(value, list) else [value]:
                if isinstance(merged, dict):
                    holder.update({name: each for name, each in merged.items() if name not in holder})
        else:
            holder[key] = value


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.style or event.tag == "tag:yaml.org,2002:str":
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
