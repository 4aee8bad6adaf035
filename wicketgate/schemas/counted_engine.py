"""Bounds the work that jsonschema does for one check (EXEC-8: a hostile schema cannot hold the event loop).

Every keyword is counted, and charged by the size of the values it looks at. Patterns have a budget of their own. A
keyword is replaced where jsonschema's implementation is quadratic, has no bound, or does not name the member at fault.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jsonschema import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry, Specification
from referencing.jsonschema import Schema, SchemaRegistry, lookup_recursive_ref

from wicketgate.schemas.foreign_schema import DRAFTS, REFERENCES, ForeignSchema

_ENGINES = {draft: validator_for({"$schema": uri}) for uri, draft in DRAFTS.items()}

# The pattern budget of one check, in nanoseconds at the worst. A text beyond it is left unchecked.
_PATTERN_WORK = 40_000_000
_SMALL_INTEGER = 1 << 60
# Assumed for a schema that only a dynamic reference leads to.
_FEW_IN_PLACE = 10

# Keywords that are costly for deep values, not only for wide ones.
_DEEP = frozenset({"const", "enum", "uniqueItems", "dependencies", "dependentRequired"})
_UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})
# Keywords that may refuse because a schema inside them fits. An unchecked pattern must not count as fitting there.
_NEEDS_CERTAINTY = frozenset({"not", "oneOf", "if", "contains"}) | _UNEVALUATED

_Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


class TooMuchWork(Exception):
    """The check has used up its steps."""


class CountedEngine:
    """jsonschema's validator of one schema. It fetches nothing, because its registry has no retriever."""

    def __init__(self, schema: ForeignSchema) -> None:
        registry: SchemaRegistry = Registry()
        self._schema = schema
        # jsonschema builds a resolver of its own unless it is given one. Its own knows less and searches more.
        self._validator = _validator_class(schema.draft)(schema.root, registry=registry, _resolver=schema.resolver)

    def errors(self, instance: object, steps: int, limit: int) -> list[ValidationError]:
        """Returns the first *limit* errors in the schema's order.

        Raises TooMuchWork after *steps*, RecursionError for deep values, and any exception of jsonschema for a schema
        that cannot be applied.
        """
        token = _budget.set(_Budget(self._schema, steps))
        try:
            return list(itertools.islice(self._validator.iter_errors(instance), limit))
        finally:
            _budget.reset(token)


@dataclass(slots=True)
class _Budget:
    """The work that one check may still do. *is_undecided*: a text was left unchecked, and so counts as fitting."""

    schema: ForeignSchema
    steps_left: int
    pattern_work_left: int = _PATTERN_WORK
    is_undecided: bool = False

    def spend(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise TooMuchWork

    def search(self, pattern: str, text: str) -> bool | None:
        """Returns None when the pattern may not be run on this text."""
        compiled = self.schema.patterns.get(pattern)
        found = None
        if compiled is not None and (work := compiled.work(text)) <= self.pattern_work_left:
            found = compiled.search(text)
            self.pattern_work_left -= work if found is not None else 0
        self.is_undecided |= found is None
        return found


_budget: ContextVar[_Budget] = ContextVar("validation_budget")


@functools.cache
def _validator_class(draft: Specification[Schema]) -> Any:
    """Returns jsonschema's class for *draft* with every keyword counted and some replaced."""
    base = _ENGINES[draft]
    own: dict[str, _Keyword] = {
        "additionalProperties": _additional_properties,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "required": _required,
        "unevaluatedProperties": _unevaluated_properties,
        "uniqueItems": _unique_items,
    }
    counted = {name: _counted(name, own.get(name) or keyword) for name, keyword in base.VALIDATORS.items()}
    return extend(base, counted)  # type: ignore[no-untyped-call]


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        budget = _budget.get()
        # Charge before the keyword runs. Each member can be one more schema to enter.
        budget.spend(1 + (_width(value) + _width(instance)) // 2)
        if name in _DEEP:
            budget.spend((_weight(value) + _weight(instance)) // 8)
        elif name in REFERENCES:
            # As several keywords: by its parts, or by the resources on the dynamic scope.
            parts = value.count("/") // 4 if name == "$ref" else sum(1 for _ in validator._resolver.dynamic_scope())
            budget.spend(3 + parts)
        elif name in _UNEVALUATED:
            if not budget.schema.checks_unevaluated:
                budget.is_undecided = True
                return
            # The search for evaluated members visits all schemas in place again, and looks up indexes.
            in_place, width = budget.schema.in_place.get(id(schema), _FEW_IN_PLACE), _width(instance)
            indexes = width * width // 500 if isinstance(instance, list) else 0
            budget.spend(20 + in_place * (4 + width // 8) + indexes)
        errors = keyword(validator, value, instance, schema) or ()
        if name in _NEEDS_CERTAINTY:
            errors = _certain(errors, budget)
        for error in errors:
            # jsonschema has just written the whole value into its message, which is not used.
            budget.spend(1 + _weight(instance) // 8)
            yield error

    return counted


def _certain(errors: Iterable[ValidationError], budget: _Budget) -> list[ValidationError]:
    """Returns the errors; none if a text was left unchecked on the way to them."""
    before, budget.is_undecided = budget.is_undecided, False
    found = list(errors)
    undecided = budget.is_undecided
    budget.is_undecided = before or undecided
    return [] if undecided else found


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        known = schema.get("properties", {})
        for name in instance:
            if name not in known and not _fits_a_pattern(name, schema):
                yield from _surplus_member(validator, value, instance, name)


def _unevaluated_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # jsonschema's own search runs patterns with `re`, which reads them differently and has no bound.
    if validator.is_type(instance, "object"):
        evaluated = _evaluated_names(validator, instance, {**schema, "unevaluatedProperties": None})
        for name in instance:
            if name not in evaluated:
                yield from _surplus_member(validator, value, instance, name)


def _surplus_member(validator: Any, value: Any, instance: Any, name: str) -> Iterator[ValidationError]:
    """Applies the schema *value* to a member that nothing but it describes."""
    if value is False:
        yield ValidationError("is not an argument here", path=[name])
    elif value is not True:
        yield from validator.descend(instance[name], value, path=name)


def _evaluated_names(validator: Any, instance: Any, schema: Any) -> set[str]:
    """Returns the names in *instance*, which fits *schema*, that *schema* describes (JSON Schema 2020-12 §11.3)."""
    if not isinstance(schema, dict):
        return set()
    if "additionalProperties" in schema or schema.get("unevaluatedProperties") is not None:
        return set(instance)
    known = schema.get("properties", {})
    _budget.get().spend(1 + len(instance) * (1 + len(schema.get("patternProperties", ()))) // 4)
    names = {name for name in instance if name in known or _fits_a_pattern(name, schema)}
    for applied in _applied_in_place(validator, instance, schema):
        names |= _evaluated_names(applied, instance, applied.schema)
    return names


def _applied_in_place(validator: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Yields a validator for each schema that *schema* applies to *instance* itself and that can evaluate names.

    Those of which one failure already fails *schema* are not checked again.
    """
    draft = _budget.get().schema.draft

    def inside(subschema: Any) -> Any:
        return validator.evolve(
            schema=subschema, _resolver=validator._resolver.in_subresource(draft.create_resource(subschema))
        )

    # Schemas that always apply: what a reference leads to, allOf, and those of names that are there.
    for keyword in REFERENCES:
        if keyword in schema and keyword in validator.VALIDATORS:
            resolver = validator._resolver
            recursive = keyword == "$recursiveRef"
            found = lookup_recursive_ref(resolver) if recursive else resolver.lookup(schema[keyword])
            yield validator.evolve(schema=found.contents, _resolver=found.resolver)
    yield from map(inside, schema.get("allOf", ()))
    for name, subschema in schema.get("dependentSchemas", {}).items():
        if name in instance:
            yield inside(subschema)
    # Forms and branches apply only if they fit, which has to be checked again.
    for subschema in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if (applied := inside(subschema)).is_valid(instance):
            yield applied
    if "if" in schema:
        condition = inside(schema["if"])
        holds = condition.is_valid(instance)
        if holds:
            yield condition
        if (branch := "then" if holds else "else") in schema:
            yield inside(schema[branch])


def _fits_a_pattern(name: str, schema: Any) -> bool:
    # A pattern that may not be run could match. The name then counts as known.
    return any(_budget.get().search(pattern, name) is not False for pattern in schema.get("patternProperties", ()))


def _pattern(validator: Any, value: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and _budget.get().search(value, instance) is False:
        yield ValidationError(f"must match {value}")


def _pattern_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in value.items():
        for name, member in instance.items():
            if _budget.get().search(pattern, name):
                yield from validator.descend(member, subschema, path=name, schema_path=pattern)


def _required(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for name in value:
            if name not in instance:
                yield ValidationError("is required and missing", path=[name])


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # jsonschema compares each item with each other one when they cannot be sorted.
    if value and validator.is_type(instance, "array") and len({_canonical(each) for each in instance}) < len(instance):
        yield ValidationError("must not hold the same value twice")


def _canonical(value: Any) -> Any:
    """Returns equal keys exactly for values that JSON Schema calls equal: 1 is 1.0, but true is not 1."""
    match value:
        case bool():
            return ("boolean", value)
        case list():
            return ("array", tuple(_canonical(each) for each in value))
        case dict():
            return ("object", frozenset((key, _canonical(each)) for key, each in value.items()))
        case float() if value.is_integer():
            return _canonical(int(value))
        case int() if abs(value) >= _SMALL_INTEGER:
            # Python hashes a number modulo 2**61 - 1, so a sender could choose large ones with the same hash.
            return ("integer", hex(value))
        case _:
            return value


def _weight(value: Any) -> int:
    """Returns the number of values in *value*, which is bounded already; long strings count for more."""
    if isinstance(value, str):
        return 1 + len(value) // 64
    if isinstance(value, dict):
        return 1 + sum(map(_weight, value.values()))
    return 1 + sum(map(_weight, value)) if isinstance(value, list) else 1


def _width(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0
