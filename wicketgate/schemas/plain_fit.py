"""Arguments that plainly fit a plain schema, told without jsonschema (EXEC-60).

Most calls are right, and most schemas say no more than names and types. For those a test is made once, when the schema
is compiled; it takes a microsecond a call, where jsonschema takes tens. It only ever says yes: what it does not know
well enough, jsonschema decides, and explains.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from referencing.jsonschema import DRAFT4

from wicketgate.schemas.foreign_schema import ForeignSchema

Fits = Callable[[Any], bool]
"""True only if the value is JSON that a request can carry and that the schema accepts."""

MOST_ITEMS = 50
"""Of an array; longer ones, and those within others, are left to jsonschema, which counts its work."""
_MOST_CHARS = 10_000
_MOST_DEPTH = 5
# With the items of each array still fewer values than a call may have.
_MOST_TESTS = 500
_SAYS_NOTHING = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "format"}
)
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


class _NotPlain(Exception):
    """The schema says something that is not told here."""


def plain_fit(schema: ForeignSchema) -> Fits | None:
    """Returns the test of arguments, or None for a schema that is not plain. Arguments are an object, whatever else
    the schema allows, so it must say so itself."""
    if schema.draft is DRAFT4 or schema.unchecked or schema.root.get("type") != "object":
        return None
    try:
        return _Making().of(schema.root, 0, can_hold_arrays=True)
    except _NotPlain:
        return None


class _Making:
    def __init__(self) -> None:
        self._left = _MOST_TESTS

    def of(self, schema: Any, depth: int, *, can_hold_arrays: bool) -> Fits:
        self._left -= 1
        if not isinstance(schema, dict) or depth > _MOST_DEPTH or self._left < 0:
            raise _NotPlain
        said = {key: value for key, value in schema.items() if key not in _SAYS_NOTHING}
        if said.keys() == {"anyOf"}:
            return _any_of([self.of(each, depth + 1, can_hold_arrays=can_hold_arrays) for each in said["anyOf"]])
        if "enum" in said and said.keys() <= {"enum", "type"}:
            return _one_of(said["enum"], said.pop("type", "string"))
        kinds = said.pop("type", None)
        if isinstance(kinds, list):
            of = partial(self.of, depth=depth + 1, can_hold_arrays=can_hold_arrays)
            return _any_of([of({**said, "type": kind}) for kind in kinds])
        match kinds:
            case "object":
                return self._object(said, depth, can_hold_arrays)
            case "array" if can_hold_arrays:
                return self._array(said, depth)
            case "string":
                return _string(said)
            case "integer" | "number":
                return _number(said, (int,) if kinds == "integer" else (int, float))
            case "boolean" if not said:
                return lambda value: value is True or value is False
            case "null" if not said:
                return lambda value: value is None
        raise _NotPlain

    def _object(self, said: dict[str, Any], depth: int, can_hold_arrays: bool) -> Fits:
        if not said.keys() <= {"properties", "required", "additionalProperties"}:
            raise _NotPlain
        # A member without a test is never sure: one of no plain schema, and one that is not named here.
        tests: dict[str, Fits] = {}
        for name, each in said.get("properties", {}).items():
            with suppress(_NotPlain):
                tests[name] = self.of(each, depth + 1, can_hold_arrays=can_hold_arrays)
        required = tuple(said.get("required", ()))

        def fits(value: Any) -> bool:
            if type(value) is not dict:
                return False
            for name in required:
                if name not in value:
                    return False
            for name, member in value.items():
                test = tests.get(name)
                if test is None or not test(member):
                    return False
            return True

        return fits

    def _array(self, said: dict[str, Any], depth: int) -> Fits:
        if said.keys() != {"items"}:
            raise _NotPlain
        test = self.of(said["items"], depth + 1, can_hold_arrays=False)
        return lambda value: type(value) is list and len(value) <= MOST_ITEMS and all(map(test, value))


def _string(said: Mapping[str, Any]) -> Fits:
    if not said.keys() <= {"minLength", "maxLength"}:
        raise _NotPlain
    least, most = said.get("minLength", 0), min(said.get("maxLength", _MOST_CHARS), _MOST_CHARS)
    return lambda value: type(value) is str and least <= len(value) <= most and can_be_sent(value)


def _number(said: Mapping[str, Any], kinds: tuple[type, ...]) -> Fits:
    if not said.keys() <= set(_BOUNDS):
        raise _NotPlain
    # Not by comparing with infinity: an integer may be too large for a float.
    least, most, above, below = (said.get(bound) for bound in _BOUNDS)
    if not said:
        return lambda value: type(value) in kinds and (type(value) is int or math.isfinite(value))

    def fits(value: Any) -> bool:
        if type(value) not in kinds or (type(value) is float and not math.isfinite(value)):
            return False
        return (
            (least is None or value >= least)
            and (most is None or value <= most)
            and (above is None or value > above)
            and (below is None or value < below)
        )

    return fits


def _one_of(values: list[Any], kind: str) -> Fits:
    # Other values than texts are equal in ways of their own: 1 is 1.0, and true is not 1.
    if kind != "string" or not all(type(value) is str for value in values):
        raise _NotPlain
    known = frozenset(filter(can_be_sent, values))
    return lambda value: type(value) is str and value in known


def _any_of(tests: list[Fits]) -> Fits:
    return lambda value: any(test(value) for test in tests)


def can_be_sent(text: str) -> bool:
    """False for half a surrogate pair: sending it would break the connection that all calls share."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
