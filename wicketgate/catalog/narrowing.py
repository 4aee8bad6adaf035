"""Whether a schema still accepts what an older one did (W-PINS: changes that can break callers).

What cannot be judged counts as narrower: a change that is told to be harmless must be.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from wicketgate.catalog.declared import canonical

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


def narrowing(old: object, new: object) -> tuple[str, ...]:
    """Why arguments that *old* accepted may be refused by *new*, at most ten reasons; none: they surely are not.

    Arguments that *old* did not name are not looked at: a new optional one breaks nobody. Raises ValueError when they
    are too large, or nested too deeply, to be compared.
    """
    return tuple(reason[:_MAX_REASON_CHARS] for reason in islice(_narrowing(old, new, "", _Work()), MAX_REASONS))


def without_words(schema: object, depth: int = 0) -> object:
    """*schema* without what only people and models read. Raises ValueError when it is nested too deeply."""
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
    """What one comparison may cost: alternatives within alternatives could be compared for hours."""

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
    """Every branch that there was must be accepted by one that there is."""
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
