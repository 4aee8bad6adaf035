"""Decides which foreign schemas can be validated against, and what in them is left unchecked (EXEC-7, EXEC-8).

Everything that the validator could reach is visited once, when a schema is compiled: keyword shapes, size, depth,
references and patterns. A reference leads inside the schema, or to the meta-schema of its dialect; nothing is ever
fetched. A schema that is accepted here cannot recurse without end.
"""

import functools
import graphlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jsonschema_specifications import REGISTRY as META_SCHEMAS  # type: ignore[import-untyped]
from referencing import Registry, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012, Schema, SchemaRegistry

from wicketgate.errors import SchemaInvalid
from wicketgate.results.envelope import shorten
from wicketgate.schemas.patterns import Pattern, compile_pattern

MAX_DEPTH = 100
MAX_VALUES = 10_000
# Compiling a pattern takes up to five milliseconds. The ones beyond are left unchecked.
_MAX_PATTERNS = 20
# Resolving a name takes time by its length, and identifiers add up on the way down.
_MAX_REFERENCE_CHARS = 2_000
_MAX_IDENTIFIERS = 500
_MAX_POINTER_PARTS = 15_000
_MAX_REPORTED = 20
# More schemas than this on one and the same value, and `unevaluated*` costs too much to decide.
_MAX_IN_PLACE = 200

DRAFTS = {
    "http://json-schema.org/draft-04/schema": DRAFT4,
    "http://json-schema.org/draft-06/schema": DRAFT6,
    "http://json-schema.org/draft-07/schema": DRAFT7,
    "https://json-schema.org/draft/2019-09/schema": DRAFT201909,
    "https://json-schema.org/draft/2020-12/schema": DRAFT202012,
}
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# `contentSchema` is never applied, but names inside it can be referred to.
_ONE = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
# A schema under one of these applies to the same value as the schema that holds it.
_IN_PLACE = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentSchemas", *REFERENCES}
)


@dataclass(frozen=True, slots=True)
class ForeignSchema:
    """A schema that is safe to validate against: our own copy, with no ``$schema`` inside.

    *unchecked* names, by schema path, what is not enforced. *patterns* holds every pattern that is. *targets* is, by
    the ``id`` of a schema with ``$ref``, the schema that it refers to. *in_place* is, by the ``id`` of a schema, how
    many schemas apply to the same value because of it, itself included. *resolver* knows every name already;
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
    return DRAFTS.get(dialect.rstrip("#"), DRAFT202012) if isinstance(dialect, str) else DRAFT202012


_Place = tuple[Any, ...]
"""The position of a subschema, ``(place above, *steps)``. It becomes text only when it is reported."""

_ROOT: _Place = ()


class _Unusable(Exception):
    def __init__(self, where: _Place, problem: str) -> None:
        super().__init__(f"{_schema_path(where)} {problem}")


def _schema_path(where: _Place) -> str:
    steps: list[str] = []
    while where:
        where, *last = where
        steps.append("".join(f"[{each}]" if isinstance(each, int) else f".{shorten(each, 64)}" for each in last))
    return "$" + "".join(reversed(steps))


def _id_keyword(draft: Specification[Schema]) -> str:
    return "id" if draft is DRAFT4 else "$id"


class _Copy:
    """Makes a plain copy that no caller can change, bounded in depth and number of values."""

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
    """Returns the meta-schema of *draft* and its parts, as jsonschema ships them, copied like any other schema."""
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
        # By its text, each pattern that was tried; None if it cannot be run.
        self._patterns: dict[str, Pattern | None] = {}
        self._targets: dict[int, Any] = {}
        self._resolved: dict[tuple[int, str], tuple[Any, Any, Any]] = {}
        self._pointer_parts = 0
        self._unchecked: list[_Place] = []
        self._in_place: dict[int, list[int]] = {}
        self._unevaluated: list[_Place] = []

    def read(self) -> ForeignSchema:
        try:
            root = self._draft.create_resource(self._root)
            uri = root.id() or ""
            resolver = _meta_schemas(self._draft).with_resource(uri, root).crawl().resolver(uri)
            self._visit(_Node(_ROOT, self._root, resolver))
        except (TypeError, ValueError, AttributeError, LookupError, RecursionError):
            # The resolver raises these for identifiers and embedded schemas that only it finds to be malformed.
            raise _Unusable(_ROOT, "has identifiers that cannot be resolved") from None
        in_place = self._count_in_place()
        checks_unevaluated = max(in_place.values()) <= _MAX_IN_PLACE
        if not checks_unevaluated:
            self._unchecked.extend(self._unevaluated)
        return ForeignSchema(
            root=self._root,
            draft=self._draft,
            resolver=resolver,
            patterns={text: pattern for text, pattern in self._patterns.items() if pattern is not None},
            targets=self._targets,
            in_place=in_place,
            unchecked=self._unchecked_paths(),
            checks_unevaluated=checks_unevaluated,
        )

    def _unchecked_paths(self) -> tuple[str, ...]:
        paths = [_schema_path(where) for where in self._unchecked[:_MAX_REPORTED]]
        if rest := self._unchecked[_MAX_REPORTED:]:
            paths.append(f"… and {len(rest):,} more")
        return tuple(paths)

    def _visit(self, root: _Node) -> None:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if id(node.schema) in self._in_place:
                continue
            # The copy is ours. A dialect named inside would make the validator swap its class.
            node.schema.pop("$schema", None)
            followers = self._in_place.setdefault(id(node.schema), [])
            if not node.schema:
                continue
            self._check_shapes(node)
            # jsonschema's error for the member schema `false` does not say which member it is about.
            for members in (node.schema.get("properties", {}), node.schema.get("patternProperties", {})):
                members.update({name: {"not": {}} for name, child in members.items() if child is False})
            self._note_unchecked(node)
            # Queue what the schema leads to, each with the resolver that its references use.
            for keyword, where, child, resolver in (*_children(node), *self._referred(node)):
                if not isinstance(child, dict):
                    if not isinstance(child, bool):
                        raise _Unusable(where, "is not a schema")
                    continue
                if keyword in _IN_PLACE:
                    followers.append(id(child))
                if resolver is None:
                    resolver = node.resolver
                    if _id_keyword(self._draft) in child:
                        resolver = resolver.in_subresource(self._draft.create_resource(child))
                waiting.append(_Node(where, child, resolver))

    def _check_shapes(self, node: _Node) -> None:
        for keyword, value in node.schema.items():
            well_formed = _SHAPES.get(keyword)
            if well_formed is not None and not well_formed(value):
                shown = json.dumps(value, ensure_ascii=False)
                raise _Unusable((node.where, keyword), f"cannot be {shorten(shown, 60)}")
        # Two keywords have another shape in another draft.
        if self._draft is DRAFT202012 and isinstance(node.schema.get("items"), list):
            raise _Unusable((node.where, "items"), "is a list, which 2020-12 calls prefixItems")
        if self._draft is not DRAFT4:
            for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
                if isinstance(node.schema.get(keyword), bool):
                    raise _Unusable((node.where, keyword), "is not a number")

    def _note_unchecked(self, node: _Node) -> None:
        own = node.schema.get("pattern")
        if isinstance(own, str) and not self._is_checked(own):
            self._unchecked.append((node.where, "pattern"))
        for pattern in node.schema.get("patternProperties", ()):
            if not self._is_checked(pattern):
                self._unchecked.append((node.where, "patternProperties"))
        self._unevaluated.extend(
            (node.where, keyword) for keyword in ("unevaluatedItems", "unevaluatedProperties") if keyword in node.schema
        )

    def _is_checked(self, pattern: str) -> bool:
        if pattern not in self._patterns and len(self._patterns) < _MAX_PATTERNS:
            self._patterns[pattern] = compile_pattern(pattern)
        return self._patterns.get(pattern) is not None

    def _referred(self, node: _Node) -> Iterator[tuple[str, _Place, Any, Any]]:
        for keyword in REFERENCES:
            reference = node.schema.get(keyword)
            if reference is None:
                continue
            contents, resolver = self._lookup(node.resolver, reference, (node.where, keyword))
            if keyword == "$ref":
                self._targets[id(node.schema)] = contents
            # The target is named by its position and not by the way to it: ways can be very long.
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
            # The resolver is kept too, so that no other object gets its id.
            known = self._resolved[id(resolver), reference] = (found.contents, found.resolver, resolver)
        return known[:2]

    def _count_in_place(self) -> dict[int, int]:
        """Counts the subschemas that apply to one value. Raises when a schema applies to itself without end."""
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
    # Over the keywords that are there: most schemas have few.
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
    # isfinite() fails for integers that are too large for a float.
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    # JSON Schema counts 3.0 as an integer.
    return isinstance(value, int | float) and _is_number(value) and value == int(value) and value >= 0


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_REFERENCE_CHARS


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_type(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    types = ("array", "boolean", "integer", "null", "number", "object", "string")
    return bool(names) and all(name in types for name in names)


_COUNTS = (
    "maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties",
)  # fmt: skip
_SHAPES: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("$id", "$anchor", "$dynamicAnchor", *REFERENCES), _is_reference),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), lambda value: isinstance(value, list) and bool(value)),
    **dict.fromkeys(_MAPS, lambda value: isinstance(value, dict)),
    **dict.fromkeys(("maximum", "minimum"), _is_number),
    **dict.fromkeys(
        ("exclusiveMaximum", "exclusiveMinimum"), lambda value: _is_number(value) or isinstance(value, bool)
    ),
    **dict.fromkeys(_COUNTS, _is_count),
    "dependentRequired": lambda value: isinstance(value, dict) and all(_is_strings(each) for each in value.values()),
    "enum": lambda value: isinstance(value, list),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "pattern": lambda value: isinstance(value, str),
    "required": _is_strings,
    "type": _is_type,
    "uniqueItems": lambda value: isinstance(value, bool),
}
