"""Which foreign schemas can be validated against at all, and what in them is left unchecked (S0 §4.4, DESIGN §3).

Everything that the validator could reach is looked at once, when a schema is compiled: keyword shapes, size, depth,
references (inside the schema, or to its dialect's own meta-schema; nothing is ever fetched) and patterns. What is
accepted here cannot recurse without end.
"""

import functools
import graphlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jsonschema_specifications import REGISTRY as META_SCHEMAS  # type: ignore[import-untyped]
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

from wicketgate.errors import SchemaInvalid
from wicketgate.results.envelope import shorten
from wicketgate.schemas.patterns import Pattern, compile_pattern

MAX_DEPTH = 100
MAX_VALUES = 10_000
# Compiling a pattern takes up to five milliseconds; the ones beyond are left unchecked.
_MAX_PATTERNS = 20
# Resolving costs by the length of names, and identifiers add up on the way down.
_MAX_REFERENCE_CHARS = 2_000
_MAX_IDENTIFIERS = 500
_MAX_POINTER_PARTS = 15_000
_MAX_TOLD = 20
# Patterns that jsonschema may run itself, with `re`: a text, possibly at the beginning. It means the same there.
_PLAIN_PATTERN = re.compile(r"\^?[\w /@:~-]*", re.ASCII)
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
    # Never applied, but names inside it can be referred to.
    "contentSchema",
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
    the ``id`` of a schema with ``$ref``, the schema that it refers to. *in_place* is, by the ``id`` of a schema, how
    many schemas apply to the same value because of it, itself included. *resolver* has gathered every name already;
    jsonschema's own would search the whole schema again at each reference.
    """

    root: dict[str, Any]
    draft: Specification[Schema]
    resolver: Any
    patterns: Mapping[str, Pattern]
    targets: Mapping[int, Any]
    in_place: Mapping[int, int]
    unchecked: tuple[str, ...]
    checks_unevaluated: bool


def read_schema(schema: object, *, path: str) -> ForeignSchema:
    """Check and copy *schema*; a few microseconds a value. Raises SchemaInvalid(path) with the first reason found."""
    try:
        draft = _draft(schema)
        return _Walk(draft, _Copy(draft).of(schema)).read()
    except _Unusable as reason:
        raise SchemaInvalid(
            f"The tool's own schema cannot be used: {shorten(str(reason), 300)}. Nothing was sent to it.", path=path
        ) from None


def _draft(schema: object) -> Specification[Schema]:
    dialect = schema.get("$schema") if isinstance(schema, Mapping) else None
    return _DRAFTS.get(dialect.rstrip("#"), DRAFT202012) if isinstance(dialect, str) else DRAFT202012


_Place = tuple[Any, ...]
"""Where a subschema stands: ``(place above, *steps)``, written out only when it is told."""

_ROOT: _Place = ()


class _Unusable(Exception):
    def __init__(self, where: _Place, problem: str) -> None:
        super().__init__(f"{_told(where)} {problem}")


def _told(where: _Place) -> str:
    steps: list[str] = []
    while where:
        where, *last = where
        steps.append("".join(f"[{each}]" if isinstance(each, int) else f".{shorten(each, 64)}" for each in last))
    return "$" + "".join(reversed(steps))


def _id_keyword(draft: Specification[Schema]) -> str:
    return "id" if draft is DRAFT4 else "$id"


class _Copy:
    """A plain copy, so that nobody can change a compiled schema; bounded in depth and number of values."""

    def __init__(self, draft: Specification[Schema]) -> None:
        self._room = MAX_VALUES
        self._id_keyword = _id_keyword(draft)
        self._identifiers = _MAX_IDENTIFIERS

    def of(self, schema: object) -> dict[str, Any]:
        root = self._copy(schema, _ROOT, 0)
        if not isinstance(root, dict):
            raise _Unusable(_ROOT, "is not an object")
        return root

    def _copy(self, value: object, where: _Place, depth: int) -> Any:
        self._room -= 1
        if self._room < 0:
            raise _Unusable(_ROOT, f"has more than {MAX_VALUES:,} values")
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if depth > MAX_DEPTH:
            raise _Unusable(_ROOT, f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                raise _Unusable(where, "has a key that is not a string")
            self._identifiers -= isinstance(value.get(self._id_keyword), str)
            if self._identifiers < 0:
                raise _Unusable(_ROOT, f"has more than {_MAX_IDENTIFIERS} identifiers")
            return {key: self._copy(each, (where, key), depth + 1) for key, each in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
            return [self._copy(each, (where, index), depth + 1) for index, each in enumerate(value)]
        raise _Unusable(where, "is not JSON")


@functools.cache
def _meta_schemas(draft: Specification[Schema]) -> SchemaRegistry:
    """The meta-schema of *draft* and its parts, which jsonschema brings along; copies, to be read like any other."""
    found: SchemaRegistry = Registry()
    for uri, resource in META_SCHEMAS.items():
        if isinstance(resource.contents, Mapping) and _draft(resource.contents) is draft:
            own = _Copy(draft).of(resource.contents)
            own.pop("$schema", None)
            found = found.with_resource(uri, draft.create_resource(own))
    return found.crawl()


class _Node(NamedTuple):
    """A subschema, the place where it stands, and the resource whose names its references use."""

    where: _Place
    schema: dict[str, Any]
    resolver: Any


class _Walk:
    """Visits every subschema that can be reached through keywords or references, once."""

    def __init__(self, draft: Specification[Schema], root: dict[str, Any]) -> None:
        self._draft = draft
        self._root = root
        self._patterns: dict[str, Pattern] = {}
        self._judged: set[str] = set()
        self._targets: dict[int, Any] = {}
        self._resolved: dict[tuple[int, str], tuple[Any, Any, Any]] = {}
        self._pointer_parts = 0
        self._unchecked: list[_Place] = []
        self._in_place: dict[int, list[int]] = {}
        self._unevaluated: list[_Place] = []
        self._foreign_property_patterns = False

    def read(self) -> ForeignSchema:
        try:
            resolver = self._root_resolver()
            self._visit(_Node(_ROOT, self._root, resolver))
        except (TypeError, ValueError, AttributeError, LookupError, RecursionError):
            # Raised by the resolver for identifiers and embedded schemas that only it understands to be malformed.
            raise _Unusable(_ROOT, "has identifiers that cannot be resolved") from None
        in_place = self._count_in_place()
        checks_unevaluated = not self._foreign_property_patterns and max(in_place.values()) <= _MAX_IN_PLACE
        if not checks_unevaluated:
            self._unchecked.extend(self._unevaluated)
        return ForeignSchema(
            root=self._root,
            draft=self._draft,
            resolver=resolver,
            patterns=self._patterns,
            targets=self._targets,
            in_place=in_place,
            unchecked=self._told_unchecked(),
            checks_unevaluated=checks_unevaluated,
        )

    def _told_unchecked(self) -> tuple[str, ...]:
        names = [_told(where) for where in self._unchecked[:_MAX_TOLD]]
        if rest := self._unchecked[_MAX_TOLD:]:
            names.append(f"… and {len(rest):,} more")
        return tuple(names)

    def _root_resolver(self) -> Any:
        root = self._resource(self._root)
        uri = root.id() or ""
        return _meta_schemas(self._draft).with_resource(uri, root).crawl().resolver(uri)

    def _visit(self, root: _Node) -> None:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if id(node.schema) in self._in_place:
                continue
            # The copy is ours: a dialect named inside would make the validator swap its class.
            node.schema.pop("$schema", None)
            followers = self._in_place.setdefault(id(node.schema), [])
            if not node.schema:
                continue
            self._check_shapes(node)
            for members in (node.schema.get("properties", {}), node.schema.get("patternProperties", {})):
                # The same to the engine, whose error for `false` does not say which member it is about.
                members.update({name: {"not": {}} for name, child in members.items() if child is False})
            self._note_patterns(node)
            for keyword, where, child, resolver in (*_children(node), *self._referred(node)):
                if not isinstance(child, dict):
                    if not isinstance(child, bool):
                        raise _Unusable(where, "is not a schema")
                    continue
                if keyword in _IN_PLACE or keyword in _REFERENCES:
                    followers.append(id(child))
                if resolver is None:
                    named = _id_keyword(self._draft) in child
                    resolver = node.resolver.in_subresource(self._resource(child)) if named else node.resolver
                waiting.append(_Node(where, child, resolver))

    def _resource(self, schema: dict[str, Any]) -> SchemaResource:
        return self._draft.create_resource(schema)

    def _check_shapes(self, node: _Node) -> None:
        for keyword, value in node.schema.items():
            well_formed = _SHAPES.get(keyword)
            if well_formed is not None and not well_formed(value):
                shown = json.dumps(value, ensure_ascii=False)
                raise _Unusable((node.where, keyword), f"cannot be {shorten(shown, 60)}")
        if self._draft is DRAFT202012 and isinstance(node.schema.get("items"), list):
            raise _Unusable((node.where, "items"), "is a list, which 2020-12 calls prefixItems")
        if self._draft is not DRAFT4:
            for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
                if isinstance(node.schema.get(keyword), bool):
                    raise _Unusable((node.where, keyword), "is not a number")

    def _note_patterns(self, node: _Node) -> None:
        own = node.schema.get("pattern")
        if isinstance(own, str) and not self._is_checked(own):
            self._unchecked.append((node.where, "pattern"))
        for pattern in node.schema.get("patternProperties", ()):
            if not self._is_checked(pattern):
                self._unchecked.append((node.where, "patternProperties"))
            # The validator's own search for evaluated names runs patterns with `re`, by its meaning and without bounds.
            if not (pattern in self._patterns and _PLAIN_PATTERN.fullmatch(pattern)):
                self._foreign_property_patterns = True
        self._unevaluated.extend(
            (node.where, keyword) for keyword in ("unevaluatedItems", "unevaluatedProperties") if keyword in node.schema
        )

    def _is_checked(self, pattern: str) -> bool:
        if pattern not in self._judged and len(self._judged) < _MAX_PATTERNS:
            self._judged.add(pattern)
            compiled = compile_pattern(pattern)
            if compiled is not None:
                self._patterns[pattern] = compiled
        return pattern in self._patterns

    def _referred(self, node: _Node) -> Iterator[tuple[str, _Place, Any, Any]]:
        for keyword in _REFERENCES:
            reference = node.schema.get(keyword)
            if reference is None:
                continue
            where = (node.where, keyword)
            contents, resolver = self._lookup(node.resolver, reference, where)
            if keyword == "$ref":
                self._targets[id(node.schema)] = contents
            # The target is named by where it is, not by the way: ways can be very long.
            yield keyword, (_ROOT, *reference.removeprefix("#/").split("/")), contents, resolver

    def _lookup(self, resolver: Any, reference: str, where: _Place) -> tuple[Any, Any]:
        known = self._resolved.get((id(resolver), reference))
        if known is None:
            self._pointer_parts += reference.count("/")
            if self._pointer_parts > _MAX_POINTER_PARTS:
                raise _Unusable(_ROOT, "has too many long references")
            try:
                found = resolver.lookup(reference)
            except Unresolvable:
                shown = repr(shorten(reference, 100))
                raise _Unusable(where, f"points to {shown}, which is not in the schema (nothing is fetched)") from None
            # The resolver is kept too, so that its id stays its own.
            known = self._resolved[id(resolver), reference] = (found.contents, found.resolver, resolver)
        return known[:2]

    def _count_in_place(self) -> dict[int, int]:
        """How many subschemas apply to one value. Raises when a schema applies to itself without end."""
        costs = dict.fromkeys(self._in_place, 1)
        # Most schemas have none above or below them on the same value.
        chained = {schema: followers for schema, followers in self._in_place.items() if followers}
        try:
            for schema in graphlib.TopologicalSorter(
                {schema: [each for each in followers if each in chained] for schema, followers in chained.items()}
            ).static_order():
                costs[schema] = min(1 + sum(costs[each] for each in chained[schema]), 1 << 30)
        except graphlib.CycleError:
            raise _Unusable(_ROOT, "refers to itself without end") from None
        return costs


def _children(node: _Node) -> Iterator[tuple[str, _Place, Any, None]]:
    # Over what is there: most schemas have few keywords.
    for keyword, value in node.schema.items():
        if keyword in _LISTS and isinstance(value, list):
            for index, child in enumerate(value):
                yield keyword, (node.where, keyword, index), child, None
        elif keyword in _ONE and value is not None:
            # Older drafts have lists for `items` and `additionalItems` only.
            if not isinstance(value, list):
                yield keyword, (node.where, keyword), value, None
        elif keyword in _MAPS:
            for name, child in value.items():
                if not (keyword == "dependencies" and isinstance(child, list)):
                    yield keyword, (node.where, keyword, name), child, None


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    # JSON Schema counts 3.0 as an integer.
    return isinstance(value, int | float) and _is_number(value) and value == int(value) and value >= 0


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_REFERENCE_CHARS


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
    **dict.fromkeys(("$id", "$anchor", "$dynamicAnchor", *_REFERENCES), _is_reference),
    "pattern": _is_string,
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
