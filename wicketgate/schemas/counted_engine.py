"""How jsonschema is kept from working without end (DESIGN §3: a hostile schema cannot hold the event loop).

Every keyword is counted, and charged by the size of what it looks at. Patterns have a budget of their own, and keywords
whose own implementation is quadratic, unbounded or silent about names are replaced.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    ValidationError,
)
from jsonschema.validators import extend
from referencing import Registry, Specification
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012, Schema, SchemaRegistry

from wicketgate.schemas.foreign_schema import ForeignSchema

_ENGINES = {
    DRAFT4: Draft4Validator,
    DRAFT6: Draft6Validator,
    DRAFT7: Draft7Validator,
    DRAFT201909: Draft201909Validator,
    DRAFT202012: Draft202012Validator,
}


# What the patterns of one check may cost, in about nanoseconds at the worst. What is beyond is left unchecked.
_PATTERN_WORK = 40_000_000


class TooMuch(Exception):
    """The steps allowed are used up."""


class CountedEngine:
    """jsonschema's validator of one schema. Nothing is fetched: its registry knows no way to."""

    def __init__(self, schema: ForeignSchema) -> None:
        registry: SchemaRegistry = Registry()
        self._schema = schema
        # With a resolver of its own it never builds one, which would know less and search more.
        self._validator = _validator_class(schema.draft)(schema.root, registry=registry, _resolver=schema.resolver)

    def errors(self, instance: object, steps: int, limit: int) -> list[ValidationError]:
        """The first *limit* errors, in the schema's order. Raises TooMuch after *steps*, RecursionError when deep, and
        whatever jsonschema raises for a schema that cannot be applied."""
        token = _work.set(_Work(self._schema, steps))
        try:
            return list(itertools.islice(self._validator.iter_errors(instance), limit))
        finally:
            _work.reset(token)


@dataclass(slots=True)
class _Work:
    """What one check may still spend, and what its keywords need beside the schema."""

    schema: ForeignSchema
    steps_left: int
    pattern_work_left: int = _PATTERN_WORK
    is_undecided: bool = False
    """Something was passed over unchecked, and so counts as fitting."""

    def spend(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise TooMuch

    def search(self, pattern: str, text: str) -> bool | None:
        """None when the pattern may not be run on this text."""
        compiled = self.schema.patterns.get(pattern)
        found = None
        if compiled is not None and (work := compiled.work(text)) <= self.pattern_work_left:
            found = compiled.search(text)
            self.pattern_work_left -= work if found is not None else 0
        self.is_undecided |= found is None
        return found


# These can refuse because something inside them fits; then fitting must be known, not assumed.
_NEEDS_CERTAINTY = frozenset({"not", "oneOf", "if", "contains"})

_work: ContextVar[_Work] = ContextVar("validation_work")

_Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


@functools.cache
def _validator_class(draft: Specification[Schema]) -> Any:
    """jsonschema's class for *draft*, with every keyword counted and those replaced that are too slow or too brief."""
    base = _ENGINES[draft]
    own: dict[str, _Keyword] = {
        "additionalProperties": _additional_properties,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "required": _required,
        "uniqueItems": _unique_items,
    }
    counted = {name: _counted(name, own.get(name) or keyword) for name, keyword in base.VALIDATORS.items()}
    return extend(base, counted)  # type: ignore[no-untyped-call]


def _counted(name: str, keyword: _Keyword) -> _Keyword:
    deep = name in ("const", "enum", "uniqueItems", "dependencies", "dependentRequired")
    unevaluated = name in ("unevaluatedItems", "unevaluatedProperties")
    refers = name in ("$ref", "$dynamicRef", "$recursiveRef")

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work = _work.get()
        # Each member can be one more schema to enter.
        work.spend(1 + (_width(value) + _width(instance)) // 2)
        if deep:
            work.spend((_weight(value) + _weight(instance)) // 8)
        if refers:
            work.spend(_reference_steps(validator, name, value))
        if unevaluated:
            if not work.schema.checks_unevaluated:
                work.is_undecided = True
                return
            work.spend(_unevaluated_steps(work.schema.in_place.get(id(schema), _FEW), instance))
        errors = keyword(validator, value, instance, schema) or ()
        if name in _NEEDS_CERTAINTY:
            errors = _certain(errors, work)
        for error in errors:
            # The engine has just written the whole value into its message, which we do not use.
            work.spend(1 + _weight(instance) // 8)
            yield error

    return counted


# For a schema that only a dynamic reference leads to.
_FEW = 10


def _reference_steps(validator: Any, name: str, reference: str) -> int:
    """Following a reference costs as much as several keywords: by its parts, or by the resources come through."""
    if name == "$ref":
        return 3 + reference.count("/") // 4
    return 3 + sum(1 for _ in validator._resolver.dynamic_scope())


def _unevaluated_steps(in_place: int, instance: Any) -> int:
    """Everything that applies in place is gone through again, and indexes are looked up in a list."""
    width = _width(instance)
    return 20 + in_place * (4 + width // 8) + (width * width // 500 if isinstance(instance, list) else 0)


def _certain(errors: Iterable[ValidationError], work: _Work) -> list[ValidationError]:
    """The errors, unless something was passed over on the way to them."""
    before, work.is_undecided = work.is_undecided, False
    found = list(errors)
    undecided = work.is_undecided
    work.is_undecided = before or undecided
    return [] if undecided else found


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    for name in instance:
        # A pattern that may not be run could match: then the name counts as known.
        if name in known or any(_work.get().search(pattern, name) is not False for pattern in patterns):
            continue
        if isinstance(value, dict):
            yield from validator.descend(instance[name], value, path=name)
        elif value is False:
            yield ValidationError("is not an argument here", path=[name])


def _pattern(validator: Any, value: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and _work.get().search(value, instance) is False:
        yield ValidationError(f"must match {value}")


def _pattern_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in value.items():
        for name, member in instance.items():
            if _work.get().search(pattern, name):
                yield from validator.descend(member, subschema, path=name, schema_path=pattern)


def _required(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for name in value:
        if name not in instance:
            yield ValidationError("is required and missing", path=[name])


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # The engine compares each with each when they cannot be sorted.
    if value and validator.is_type(instance, "array") and len({_canonical(each) for each in instance}) < len(instance):
        yield ValidationError("must not hold the same value twice")


_SMALL = 1 << 60


def _canonical(value: Any) -> Any:
    """Equal exactly for values that JSON Schema calls equal: 1 is 1.0, but true is not 1."""
    match value:
        case bool():
            return ("boolean", value)
        case list():
            return ("array", tuple(_canonical(each) for each in value))
        case dict():
            return ("object", frozenset((key, _canonical(each)) for key, each in value.items()))
        case float() if value.is_integer():
            return _canonical(int(value))
        case int() if abs(value) >= _SMALL:
            # Python's hash of a number is the number itself up to this, and from here on whatever a sender wants.
            return ("integer", hex(value))
        case _:
            return value


def _weight(value: Any) -> int:
    """The number of values in *value*, long strings counting for more; *value* is bounded already."""
    if isinstance(value, str):
        return 1 + len(value) // 64
    if isinstance(value, dict):
        return 1 + sum(map(_weight, value.values()))
    return 1 + sum(map(_weight, value)) if isinstance(value, list) else 1


def _width(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0
