"""Compares a tool's definition with the one that was accepted, and judges whether the change can break callers.

A digest covers everything that a model or a caller relies on. A change that cannot be judged counts as breaking, so a
change that is called harmless is harmless.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

_OF_OFFERS = ("uri", "uriTemplate", "mimeType", "arguments", "frontmatter", "resources")
"""The fields of prompts, resources, templates and skills by which they are used."""
_ACTED_ON = ("ui", "ui/resourceUri", "openai/outputTemplate")
"""The keys of ``_meta`` that clients act on (ACCESS-81): the page of MCP Apps that a tool shows, what that page may do,
and who may use the tool."""
_COVERED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", *_OF_OFFERS)

MAX_LINES = 40
MAX_LINE_CHARS = 160
_MAX_LEAVES = 20_000
_BEFORE_THE_DIFFERENCE = 40

Impact = Literal["breaking", "compatible"]

_NO_CONSTRAINT = frozenset(
    {"title", "description", "examples", "$comment", "default", "deprecated", "readOnly", "writeOnly"}
)
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_NOT_SCHEMAS = frozenset({"enum", "const", "required", "dependentRequired"})
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """*impact*: ``breaking`` if it may break callers. *lines*: ``- path: value`` and ``+ path: value``, bounded, ASCII
    only."""

    impact: Impact
    lines: tuple[str, ...]


def compare_definitions(old: Mapping[str, Any], new: Mapping[str, Any]) -> DefinitionChange:
    """Compares the covered parts of two definitions of one tool, in linear time."""
    old, new = declared(old), declared(new)
    try:
        serves = _serves_as_before(old, new)
    except ValueError:  # nested too deeply to be compared
        serves = False
    return DefinitionChange("compatible" if serves else "breaking", _lines(old, new))


def _serves_as_before(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    kept = all(_same(old.get(key), new.get(key)) for key in _OF_OFFERS)
    output_kept = "outputSchema" not in old or _same(old["outputSchema"], new.get("outputSchema"))
    return (
        kept
        and output_kept
        and old.get("_meta") == new.get("_meta")
        and accepts_as_before(old.get("inputSchema", {}), new.get("inputSchema", {}))
    )


def accepts_as_before(old: object, new: object) -> bool:
    """Returns true if *new* surely accepts all arguments that *old* accepted. Raises ValueError for schemas that are
    nested too deeply.

    Arguments that *old* did not name are not compared: a new optional one breaks no caller.
    """
    return _accepts(_constraints(old), _constraints(new))


def _accepts(old: object, new: object) -> bool:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new is True or canonical(old) == canonical(new)
    # A schema accepts what each of its keywords accepts. All but these five have to stay as they are.
    return all(
        _WIDENED[key](old.get(key), new.get(key)) if key in _WIDENED else _equal(old, new, key)
        for key in old.keys() | new.keys()
    )


def _equal(old: Mapping[str, Any], new: Mapping[str, Any], key: str) -> bool:
    return key in old and key in new and canonical(old[key]) == canonical(new[key])


def _arguments_kept(old: object, new: object) -> bool:
    before, now = old or {}, new or {}
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return False
    return all(name in now and _accepts(schema, now[name]) for name, schema in before.items())


def _values_kept(old: object, new: object) -> bool:
    if new is None:
        return True
    return isinstance(old, list) and isinstance(new, list) and set(map(canonical, old)) <= set(map(canonical, new))


def _types_kept(old: object, new: object) -> bool:
    if new is None:
        return True
    before, now = _names(old), _names(new)
    return bool(before) and before <= (now | {"integer"} if "number" in now else now)


def _names(value: object) -> frozenset[str]:
    names = [value] if isinstance(value, str) else value
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


_WIDENED: Mapping[str, Callable[[object, object], bool]] = {
    "properties": _arguments_kept,
    "items": _accepts,
    "enum": _values_kept,
    "type": _types_kept,
    "required": lambda old, new: _names(new) <= _names(old),
}
"""The keywords that may differ and yet accept what they accepted."""


def _constraints(schema: object, depth: int = 0) -> object:
    """Returns *schema* without the keywords that constrain nothing. Raises ValueError."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(schema, list):
        return [_constraints(item, depth + 1) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, object] = {}
    for key, value in schema.items():
        if key in _NO_CONSTRAINT:
            continue
        if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
            kept[key] = {name: _constraints(inner, depth + 2) for name, inner in value.items()}
        else:
            kept[key] = value if key in _NOT_SCHEMAS else _constraints(value, depth + 1)
    return kept


def _same(old: object, new: object) -> bool:
    return canonical(_constraints(old)) == canonical(_constraints(new))


def _lines(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    before, now = dict(_leaves(old)), dict(_leaves(new))
    lines: list[str] = []
    differing = [path for path in sorted(before.keys() | now.keys()) if before.get(path) != now.get(path)]
    for path in differing:
        was, is_ = before.get(path), now.get(path)
        start = _first_difference(was or "", is_ or "") if was is not None and is_ is not None else 0
        for sign, text in (("-", was), ("+", is_)):
            if text is not None:
                lines.append(_line(sign, path, text, start))
        if len(lines) >= MAX_LINES and path is not differing[-1]:
            lines.append(f"... and {len(differing) - differing.index(path) - 1} more places")
            break
    return tuple(lines)


def _leaves(value: object) -> Iterator[tuple[str, str]]:
    """Yields every value that is not a container, by its path, as JSON that makes hidden characters visible."""
    waiting: list[tuple[str, object]] = [("", value)]
    for _ in range(_MAX_LEAVES):
        if not waiting:
            return
        path, item = waiting.pop()
        if isinstance(item, Mapping) and item:
            waiting += [(f"{path}.{key}" if path else str(key), inner) for key, inner in item.items()]
        elif isinstance(item, list) and item and not all(isinstance(inner, str | int | float) for inner in item):
            waiting += [(f"{path}[{index}]", inner) for index, inner in enumerate(item)]
        else:
            yield path, canonical(item)


def _line(sign: str, path: str, text: str, start: int) -> str:
    shown_path = canonical(path[: MAX_LINE_CHARS // 2])[1:-1]
    skipped = max(0, start - _BEFORE_THE_DIFFERENCE) if len(text) > MAX_LINE_CHARS - len(shown_path) else 0
    room = MAX_LINE_CHARS - len(shown_path)
    shown = ("..." if skipped else "") + text[skipped : skipped + room]
    return f"{sign} {shown_path}: {shown}{'...' if len(text) > skipped + room else ''}"


def _first_difference(one: str, other: str) -> int:
    """Returns the first position that differs; by halving, because Python compares slices fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def declared(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the covered part; a field that is null counts as absent."""
    covered = {key: value for key in _COVERED if (value := definition.get(key)) is not None}
    meta = definition.get("_meta")
    if isinstance(meta, Mapping) and (acted_on := {key: meta[key] for key in _ACTED_ON if meta.get(key) is not None}):
        covered["_meta"] = acted_on
    return covered


def canonical(value: object) -> str:
    """JSON in one spelling: keys in order, no spaces, ASCII only. Raises ValueError when it is not JSON, or nested
    without end."""
    try:
        return compact_json(value)
    except (TypeError, RecursionError):
        raise ValueError("not JSON") from None


compact_json: Callable[[object], str] = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""The same spelling, with the errors of ``json.dumps``."""


def digest_or_nothing(definition: Mapping[str, Any]) -> str:
    """As ``definition_digest``; empty for a definition that is not JSON."""
    try:
        return definition_digest(definition)
    except ValueError:
        return ""


def definition_digest(definition: Mapping[str, Any], whole: str | None = None) -> str:
    """SHA-256 of the covered part, as 64 hex digits. Raises ValueError.

    *whole*: that of the whole definition as ``compact_json``, if it is known. It is taken where all fields are covered,
    as those of most definitions are.
    """
    covered = declared(definition)
    if whole is not None and len(covered) == len(definition):
        meta = covered.get("_meta")
        if meta is None or len(meta) == len(definition["_meta"]):
            return whole
    return hashlib.sha256(canonical(covered).encode("ascii")).hexdigest()
