"""Compares a tool's definition with the one that was accepted, and judges whether the change can break callers.

A digest covers everything that a model or a caller relies on. A change that cannot be judged counts as breaking, so a
change that is called harmless is harmless.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
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

Impact = Literal["breaking", "compatible", "words"]
"""``breaking``: it can break callers; ``words``: nothing but descriptions differ, which is what misleads models."""

MAX_REASONS = 10

WORDS = frozenset({"title", "description", "examples", "$comment"})
"""Keywords that only people and models read."""

_NO_CONSTRAINT = WORDS | {"default", "deprecated", "readOnly", "writeOnly"}
_FLOORS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_CEILINGS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_JUDGED = frozenset({"type", "enum", "const", "required", "properties", "additionalProperties", "items", "anyOf"})
_DEFINITIONS = ("$defs", "definitions")
# Without one of these, more is accepted.
_ONLY_NARROW = frozenset({"pattern", "format", "uniqueItems", "multipleOf", "allOf", "oneOf", "not", "propertyNames"})
# Where one of these looks at it, a subschema that accepts more can make the whole accept less.
_INVERTING = ('"not":', '"if":', '"oneOf":', '"contains":', '"dependentSchemas":', '"unevaluated')
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_NOT_SCHEMAS = frozenset({"enum", "const", "default", "required", "dependentRequired"})
_MAX_DEPTH = 200
_MAX_REASON_CHARS = 200
_MAX_CHARS_COMPARED = 5_000_000


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """*reasons* why it can break callers. *lines*: ``- path: value`` and ``+ path: value``, bounded, ASCII only."""

    impact: Impact
    reasons: tuple[str, ...]
    lines: tuple[str, ...]


def compare_definitions(old: Mapping[str, Any], new: Mapping[str, Any]) -> DefinitionChange:
    """Compares the covered parts of two definitions of one tool. Linear in the definitions, but for ``anyOf``."""
    old, new = declared(old), declared(new)
    try:
        reasons = narrowing(old.get("inputSchema", {}), new.get("inputSchema", {}))
        if "outputSchema" in old and not _same_output(old, new):
            reasons += ("the result: its schema changed",)
        if old.get("_meta") != new.get("_meta"):
            reasons += ("_meta: what clients show or who may use it changed",)
        reasons += tuple(f"{key}: changed" for key in _OF_OFFERS if not same_but_for_words(old.get(key), new.get(key)))
        impact: Impact = "breaking" if reasons else "words" if _only_words(old, new) else "compatible"
    except ValueError:
        impact, reasons = "breaking", ("too large, or nested too deeply, to be compared",)
    return DefinitionChange(impact, reasons, _lines(old, new))


def _same_output(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "outputSchema" in new and same_but_for_words(old["outputSchema"], new["outputSchema"])


def _only_words(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    rest = (old.keys() | new.keys()) - WORDS
    return all(key in old and key in new and same_but_for_words(old[key], new[key]) for key in rest)


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


def compact_json(value: object) -> str:
    """The same spelling, with the errors of ``json.dumps``."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


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


def narrowing(old: object, new: object) -> tuple[str, ...]:
    """Returns at most ten reasons why *new* may refuse arguments that *old* accepted; none if it surely does not.

    Arguments that *old* did not name are not compared: a new optional one breaks no caller. Raises ValueError when
    they are too large, or nested too deeply, to be compared.
    """
    return tuple(reason[:_MAX_REASON_CHARS] for reason in islice(_narrowing(old, new, "", _Work()), MAX_REASONS))


def without_words(schema: object, depth: int = 0) -> object:
    """Returns *schema* without the keywords that only people and models read. Raises ValueError."""
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(schema, list):
        return [without_words(item, depth + 1) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, object] = {}
    for key, value in schema.items():
        if key in WORDS:
            continue
        if key in _NAMED_SCHEMAS and isinstance(value, Mapping):
            kept[key] = {name: without_words(inner, depth + 2) for name, inner in value.items()}
        else:
            kept[key] = value if key in _NOT_SCHEMAS else without_words(value, depth + 1)
    return kept


def same_but_for_words(old: object, new: object) -> bool:
    return canonical(without_words(old)) == canonical(without_words(new))


class _Work:
    """The cost that one comparison may have: alternatives within alternatives could be compared for hours."""

    def __init__(self) -> None:
        self._chars_left = _MAX_CHARS_COMPARED

    def differ(self, old: object, new: object) -> bool:
        before, now = canonical(without_words(old)), canonical(without_words(new))
        self._chars_left -= len(before) + len(now)
        if self._chars_left < 0:
            raise ValueError("too large to be compared")
        return before != now


def _narrowing(old: object, new: object, path: str, work: _Work) -> Iterator[str]:
    if not work.differ(old, new):
        return
    here = path or "the arguments"
    if new is True or old is False:
        return
    if new is False:
        yield f"{here}: nothing is accepted any more"
        return
    old = {} if old is True else old
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        yield f"{here}: not a schema"
        return
    # Each keyword that can narrow, then the schemas inside, then what cannot be judged.
    yield from _types(old, new, here)
    yield from _values(old, new, here)
    yield from _bounds(old, new, here)
    yield from _members(old, new, path, work)
    if "items" in new:
        yield from _narrowing(old.get("items", True), new["items"], f"{path}[]", work)
    if "anyOf" in new:
        yield from _choices(old, new, here, work)
    yield from _definitions(old, new, path, work)
    yield from _unjudged(old, new, here)


def _types(old: Mapping[str, Any], new: Mapping[str, Any], here: str) -> Iterator[str]:
    if "type" not in new:
        return
    before, now = _type_names(old.get("type")), _type_names(new["type"])
    if before is None or now is None or not before <= (now | {"integer"} if "number" in now else now):
        was = "anything" if "type" not in old else canonical(old["type"])
        yield f"{here}: takes {canonical(new['type'])} now, was {was}"


def _type_names(value: object) -> frozenset[str] | None:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return frozenset(names)


def _values(old: Mapping[str, Any], new: Mapping[str, Any], here: str) -> Iterator[str]:
    for keyword in ("enum", "const"):
        if keyword not in new:
            continue
        before, now = _allowed(old), {canonical(value) for value in _listed(new, keyword)}
        if before is None:
            yield f"{here}: only certain values are accepted now"
        elif gone := sorted(before - now):
            yield f"{here}: no longer accepts {', '.join(gone[:5])}"


def _allowed(schema: Mapping[str, Any]) -> set[str] | None:
    for keyword in ("const", "enum"):
        if keyword in schema:
            return {canonical(value) for value in _listed(schema, keyword)}
    return None


def _listed(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    value = schema[keyword]
    return value if keyword == "enum" and isinstance(value, list) else [value]


def _bounds(old: Mapping[str, Any], new: Mapping[str, Any], here: str) -> Iterator[str]:
    for keywords, sign in ((_FLOORS, 1), (_CEILINGS, -1)):
        for keyword in keywords:
            if keyword not in new or canonical(old.get(keyword)) == canonical(new[keyword]):
                continue
            before, now = _number(old.get(keyword)), _number(new[keyword])
            if before is None or now is None or sign * now > sign * before:
                was = f", was {canonical(old[keyword])}" if keyword in old else ""
                yield f"{here}: {keyword} is {canonical(new[keyword])} now{was}"


def _number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _members(old: Mapping[str, Any], new: Mapping[str, Any], path: str, work: _Work) -> Iterator[str]:
    before, now = _mapping(old.get("properties")), _mapping(new.get("properties"))
    for name in sorted(before.keys() - now.keys()):
        yield f"{_at(path, name)}: is gone, or has another name"
    for name in sorted(_names(new.get("required")) - _names(old.get("required"))):
        yield f"{_at(path, name)}: is required now"
    for name in sorted(before.keys() & now.keys()):
        yield from _narrowing(before[name], now[name], _at(path, name), work)
    if "additionalProperties" in new:
        others = old.get("additionalProperties", True)
        yield from _narrowing(others, new["additionalProperties"], _at(path, "*"), work)


def _choices(old: Mapping[str, Any], new: Mapping[str, Any], here: str, work: _Work) -> Iterator[str]:
    """Every branch of *old* must be accepted by one of *new*."""
    now = new["anyOf"] if isinstance(new["anyOf"], list) else []
    before = old["anyOf"] if isinstance(old.get("anyOf"), list) else [{k: v for k, v in old.items() if k != "anyOf"}]
    for branch in before:
        if not any(next(_narrowing(branch, other, here, work), None) is None for other in now):
            yield f"{here}: an alternative is gone"
            return


def _definitions(old: Mapping[str, Any], new: Mapping[str, Any], path: str, work: _Work) -> Iterator[str]:
    for keyword in _DEFINITIONS:
        before, now = _mapping(old.get(keyword)), _mapping(new.get(keyword))
        if same_but_for_words({"$defs": before}, {"$defs": {name: now.get(name) for name in before}}):
            continue
        if any(sign in canonical(new) for sign in _INVERTING):
            yield f"{keyword}: changed, where it cannot be judged"
            return
        for name in sorted(before):
            if name not in now:
                yield f"{keyword}.{name}: is gone"
            else:
                yield from _narrowing(before[name], now[name], f"{keyword}.{name}", work)


def _unjudged(old: Mapping[str, Any], new: Mapping[str, Any], here: str) -> Iterator[str]:
    judged = _NO_CONSTRAINT | _JUDGED | {*_FLOORS, *_CEILINGS, *_DEFINITIONS}
    for keyword in sorted((old.keys() | new.keys()) - judged):
        if keyword not in new and keyword in _ONLY_NARROW:
            continue
        both = keyword in old and keyword in new
        if not (both and same_but_for_words({keyword: old[keyword]}, {keyword: new[keyword]})):
            yield f"{here}: {keyword} changed"


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: object) -> frozenset[str]:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else frozenset()
