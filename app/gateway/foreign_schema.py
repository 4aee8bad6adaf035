"""Which foreign schemas can be validated against at all, and what in them is left unchecked (S0 §4.4, DESIGN §3).

Everything that the validator could reach is looked at once, when a schema is compiled: keyword shapes, size, depth,
references (inside the schema only, nothing is ever fetched) and patterns. What is accepted here cannot recurse
without end.
"""

import graphlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from referencing import Registry, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import (
    DRAFT4,
    DRAFT6,
    DRAFT7,
    DRAFT201909,
    DRAFT202012,
    Schema,
    SchemaRegistry,
    SchemaResource,
)

from app.errors import SchemaInvalid
from app.gateway.patterns import SafePattern, safe_pattern
from app.results.envelope import shorten

MAX_DEPTH = 100
MAX_VALUES = 10_000
# Judging a pattern takes up to a millisecond; the ones beyond are left unchecked.
_MAX_PATTERNS = 50
# More schemas than this on one and the same value, and `unevaluated*` costs too much to decide.
_MAX_IN_PLACE = 200

_DRAFTS = {
    "http://json-schema.org/draft-04/schema": DRAFT4,
    "http://json-schema.org/draft-06/schema": DRAFT6,
    "http://json-schema.org/draft-07/schema": DRAFT7,
    "https://json-schema.org/draft/2019-09/schema": DRAFT201909,
    "https://json-schema.org/draft/2020-12/schema": DRAFT202012,
}
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentSchemas"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True, slots=True)
class ForeignSchema:
    """A schema that is safe to validate against: our own copy, with no ``$schema`` inside.

    *unchecked* names, by schema path, what is not enforced. *patterns* holds every pattern that is, and *targets*, by
    the ``id`` of a schema with ``$ref``, the schema that it refers to.
    """

    root: dict[str, Any]
    draft: Specification[Schema]
    patterns: Mapping[str, SafePattern]
    targets: Mapping[int, Any]
    unchecked: tuple[str, ...]
    checks_unevaluated: bool


def read_schema(schema: object, *, path: str) -> ForeignSchema:
    """Check and copy *schema*; a few microseconds a value. Raises SchemaInvalid(path) with the first reason found."""
    try:
        root = _copy(schema, "$", [MAX_VALUES], 0)
        if not isinstance(root, dict):
            raise _Unusable("$", "is not an object")
        dialect = root.pop("$schema", None)
        draft = _DRAFTS.get(dialect.rstrip("#"), DRAFT202012) if isinstance(dialect, str) else DRAFT202012
        return _Walk(draft, root).read()
    except _Unusable as reason:
        raise SchemaInvalid(
            f"The tool's own schema cannot be used: {shorten(str(reason), 300)}. Nothing was sent to it.", path=path
        ) from None


class _Unusable(Exception):
    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where} {problem}")


def _copy(value: object, where: str, room: list[int], depth: int) -> Any:
    """A plain copy, so that nobody can change a compiled schema; bounded in depth and number of values."""
    room[0] -= 1
    if room[0] < 0:
        raise _Unusable("$", f"has more than {MAX_VALUES:,} values")
    if depth > MAX_DEPTH:
        raise _Unusable("$", f"is nested deeper than {MAX_DEPTH} levels")
    match value:
        case str() | bool() | int() | float() | None:
            return value
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise _Unusable(where, "has a key that is not a string")
            return {key: _copy(each, f"{where}.{key}", room, depth + 1) for key, each in value.items()}
        case Sequence():
            return [_copy(each, f"{where}[{index}]", room, depth + 1) for index, each in enumerate(value)]
        case _:
            raise _Unusable(where, "is not JSON")


@dataclass(frozen=True, slots=True)
class _Node:
    """A subschema, the place where it stands, and the resource whose names its references use."""

    where: str
    schema: dict[str, Any]
    resolver: Any


class _Walk:
    """Visits every subschema that can be reached through keywords or references, once."""

    def __init__(self, draft: Specification[Schema], root: dict[str, Any]) -> None:
        self._draft = draft
        self._root = root
        self._patterns: dict[str, SafePattern] = {}
        self._judged: set[str] = set()
        self._targets: dict[int, Any] = {}
        self._unchecked: list[str] = []
        self._in_place: dict[int, list[int]] = {}
        self._unevaluated: list[str] = []
        self._slow_property_patterns = False

    def read(self) -> ForeignSchema:
        try:
            registry: SchemaRegistry = Registry()
            resolver = registry.resolver_with_root(self._resource(self._root))
            self._visit(_Node("$", self._root, resolver))
        except (TypeError, ValueError, AttributeError, LookupError, RecursionError):
            # Raised by the resolver for identifiers and embedded schemas that only it understands to be malformed.
            raise _Unusable("$", "has identifiers that cannot be resolved") from None
        checks_unevaluated = not self._slow_property_patterns and self._most_in_place() <= _MAX_IN_PLACE
        if not checks_unevaluated:
            self._unchecked.extend(self._unevaluated)
        return ForeignSchema(
            self._root, self._draft, self._patterns, self._targets, tuple(self._unchecked), checks_unevaluated
        )

    def _visit(self, root: _Node) -> None:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if id(node.schema) in self._in_place:
                continue
            # The copy is ours: a dialect named inside would make the validator swap its class.
            node.schema.pop("$schema", None)
            self._check_shapes(node)
            for members in (node.schema.get("properties", {}), node.schema.get("patternProperties", {})):
                # The same to the engine, whose error for `false` does not say which member it is about.
                members.update({name: {"not": {}} for name, child in members.items() if child is False})
            self._note_patterns(node)
            followers = self._in_place.setdefault(id(node.schema), [])
            for keyword, where, child, resolver in (*_children(node), *self._referred(node)):
                if not isinstance(child, dict):
                    if not isinstance(child, bool):
                        raise _Unusable(where, "is not a schema")
                    continue
                if keyword in _IN_PLACE or keyword in _REFERENCES:
                    followers.append(id(child))
                within = resolver or node.resolver.in_subresource(self._resource(child))
                waiting.append(_Node(where, child, within))

    def _resource(self, schema: dict[str, Any]) -> SchemaResource:
        return self._draft.create_resource(schema)

    def _check_shapes(self, node: _Node) -> None:
        for keyword, value in node.schema.items():
            well_formed = _SHAPES.get(keyword)
            if well_formed is not None and not well_formed(value):
                shown = json.dumps(value, ensure_ascii=False)
                raise _Unusable(f"{node.where}.{keyword}", f"cannot be {shorten(shown, 60)}")
        if self._draft is DRAFT202012 and isinstance(node.schema.get("items"), list):
            raise _Unusable(f"{node.where}.items", "is a list, which 2020-12 calls prefixItems")
        if self._draft is not DRAFT4:
            for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
                if isinstance(node.schema.get(keyword), bool):
                    raise _Unusable(f"{node.where}.{keyword}", "is not a number")

    def _note_patterns(self, node: _Node) -> None:
        own = node.schema.get("pattern")
        if isinstance(own, str) and not self._is_safe(own):
            self._unchecked.append(f"{node.where}.pattern")
        for pattern in node.schema.get("patternProperties", ()):
            if not self._is_safe(pattern):
                self._unchecked.append(f"{node.where}.patternProperties")
            # The validator's own search for evaluated names runs patterns without our bounds.
            if pattern not in self._patterns or self._patterns[pattern].degree > 1:
                self._slow_property_patterns = True
        self._unevaluated.extend(
            f"{node.where}.{keyword}"
            for keyword in ("unevaluatedItems", "unevaluatedProperties")
            if keyword in node.schema
        )

    def _is_safe(self, pattern: str) -> bool:
        if pattern not in self._judged and len(self._judged) < _MAX_PATTERNS:
            self._judged.add(pattern)
            safe = safe_pattern(pattern)
            if safe is not None:
                self._patterns[pattern] = safe
        return pattern in self._patterns

    def _referred(self, node: _Node) -> Iterator[tuple[str, str, Any, Any]]:
        for keyword in _REFERENCES:
            reference = node.schema.get(keyword)
            if reference is None:
                continue
            try:
                resolved = node.resolver.lookup(reference)
            except Unresolvable:
                raise _Unusable(
                    f"{node.where}.{keyword}",
                    f"points to {shorten(reference, 100)!r}, which is not in the schema (nothing is fetched)",
                ) from None
            if keyword == "$ref":
                self._targets[id(node.schema)] = resolved.contents
            yield keyword, f"{node.where}.{keyword}", resolved.contents, resolved.resolver

    def _most_in_place(self) -> int:
        """The most subschemas that apply to one value. Raises when a schema applies to itself without end."""
        costs: dict[int, int] = {}
        try:
            for schema in graphlib.TopologicalSorter(self._in_place).static_order():
                costs[schema] = min(1 + sum(costs[each] for each in self._in_place[schema]), 1 << 30)
        except graphlib.CycleError:
            raise _Unusable("$", "refers to itself without end") from None
        return max(costs.values())


def _children(node: _Node) -> Iterator[tuple[str, str, Any, None]]:
    for keyword in _ONE:
        child = node.schema.get(keyword)
        if child is not None and not isinstance(child, list):
            yield keyword, f"{node.where}.{keyword}", child, None
    for keyword in _LISTS:
        children = node.schema.get(keyword)
        if isinstance(children, list):
            for index, child in enumerate(children):
                yield keyword, f"{node.where}.{keyword}[{index}]", child, None
    for keyword in _MAPS:
        for name, child in node.schema.get(keyword, {}).items():
            if not (keyword == "dependencies" and isinstance(child, list)):
                yield keyword, f"{node.where}.{keyword}.{name}", child, None


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    # JSON Schema counts 3.0 as an integer.
    return isinstance(value, int | float) and _is_number(value) and value == int(value) and value >= 0


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and _is_number(value) and value > 0


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_type(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_schemas(value: object) -> bool:
    return isinstance(value, list) and bool(value)


_SHAPES: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("$id", "$anchor", "$dynamicAnchor", "pattern", *_REFERENCES), _is_string),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _is_schemas),
    **dict.fromkeys(_MAPS, lambda value: isinstance(value, dict)),
    **dict.fromkeys(("maximum", "minimum"), _is_number),
    **dict.fromkeys(
        ("exclusiveMaximum", "exclusiveMinimum"), lambda value: _is_number(value) or isinstance(value, bool)
    ),
    **dict.fromkeys(
        (
            "maxContains",
            "maxItems",
            "maxLength",
            "maxProperties",
            "minContains",
            "minItems",
            "minLength",
            "minProperties",
        ),
        _is_count,
    ),
    "multipleOf": _is_positive,
    "enum": lambda value: isinstance(value, list),
    "required": _is_strings,
    "type": _is_type,
    "uniqueItems": lambda value: isinstance(value, bool),
    "dependentRequired": lambda value: isinstance(value, dict) and all(_is_strings(each) for each in value.values()),
}
