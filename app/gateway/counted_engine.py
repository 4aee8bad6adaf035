"""How jsonschema is kept from working without end (DESIGN §3: a hostile schema cannot hold the event loop).

Every keyword is counted, and charged by the size of what it looks at. Patterns run only where their cost is known, and
keywords whose own implementation is quadratic, unbounded or silent about names are replaced.
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

from app.gateway.foreign_schema import ForeignSchema
from app.gateway.refusal import near

_ENGINES = {
    DRAFT4: Draft4Validator,
    DRAFT6: Draft6Validator,
    DRAFT7: Draft7Validator,
    DRAFT201909: Draft201909Validator,
    DRAFT202012: Draft202012Validator,
}


class TooMuch(Exception):
    """The steps allowed are used up."""


class CountedEngine:
    """jsonschema's validator of one schema. Nothing is fetched: its registry knows no way to."""

    def __init__(self, schema: ForeignSchema) -> None:
        registry: SchemaRegistry = Registry()
        self._schema = schema
        self._validator = _validator_class(schema.draft)(schema.root, registry=registry)

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
    is_undecided: bool = False
    """Something was passed over unchecked, and so counts as fitting."""

    def spend(self, steps: int) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            raise TooMuch

    def search(self, pattern: str, text: str) -> bool | None:
        """None when the pattern may not be run on this text."""
        safe = self.schema.patterns.get(pattern)
        found = None
        if safe is not None:
            # A step of a pattern takes some nanoseconds.
            self.spend(safe.steps(text) // 500)
            found = safe.search(text)
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
    deep = name in ("const", "enum", "uniqueItems")
    unevaluated = name in ("unevaluatedItems", "unevaluatedProperties")
    # Following a reference costs as much as several keywords.
    base = 4 if name in ("$ref", "$dynamicRef", "$recursiveRef") else 1

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work = _work.get()
        work.spend(base + (_width(value) + _width(instance)) // 4)
        if deep:
            work.spend((_weight(value) + _weight(instance)) // 8)
        if unevaluated:
            if not work.schema.checks_unevaluated:
                work.is_undecided = True
                return
            work.spend(20)
        errors = keyword(validator, value, instance, schema) or ()
        if name in _NEEDS_CERTAINTY:
            errors = _certain(errors, work)
        for error in errors:
            # The engine has just written the whole value into its message, which we do not use.
            work.spend(_weight(instance) // 8)
            yield error

    return counted


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
            unused = [each for each in known if each not in instance]
            yield ValidationError("is not an argument here" + near(name, unused, "did you mean"), path=[name])


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
    known = schema.get("properties", {})
    for name in value:
        if name not in instance:
            unknown = [each for each in itertools.islice(instance, 50) if each not in known]
            yield ValidationError("is required and missing" + near(name, unknown, "given as"), path=[name])


def _unique_items(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # The engine compares each with each when they cannot be sorted.
    if value and validator.is_type(instance, "array") and len({_canonical(each) for each in instance}) < len(instance):
        yield ValidationError("must not hold the same value twice")


def _canonical(value: Any) -> Any:
    """Equal exactly for values that JSON Schema calls equal: 1 is 1.0, but true is not 1."""
    match value:
        case bool():
            return ("boolean", value)
        case list():
            return ("array", tuple(_canonical(each) for each in value))
        case dict():
            return ("object", frozenset((key, _canonical(each)) for key, each in value.items()))
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
