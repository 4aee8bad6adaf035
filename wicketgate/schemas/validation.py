"""Checks arguments against a tool's schema, and explains a refusal to the caller (EXEC-1, EXEC-3)."""

import itertools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import msgspec
from referencing.exceptions import Unresolvable

from wicketgate.errors import ArgsInvalid, SchemaInvalid
from wicketgate.schemas.counted_engine import CountedEngine, TooMuchWork
from wicketgate.schemas.foreign_schema import ForeignSchema, read_schema
from wicketgate.schemas.messages import Expected, describe_errors, json_type
from wicketgate.schemas.plain_fit import can_be_sent, plain_fit
from wicketgate.schemas.repairs import Repair, repair

log = logging.getLogger("wicketgate.validation")

MAX_ERRORS = 20
MAX_ARGS_DEPTH = 64
MAX_ARGS_VALUES = 50_000
# A step is one keyword on one value and takes 2 to 10 µs. Ordinary schemas take fewer than ten a value.
_STEPS = 3_000
_STEPS_A_VALUE = 20
_EXAMPLE_STEPS = 1_000
# With so many values the worst of schemas takes some 15 ms. Ordinary calls have fewer than 20 values.
_BULKY_VALUES = 200
# jsonschema raises these for a schema that is well formed and yet impossible to apply.
_ENGINE_FAILURES = (ArithmeticError, TypeError, ValueError, AttributeError, LookupError, Unresolvable)


def is_bulky_json(value: object) -> bool:
    """Returns whether *value* is so large that a thread should compile or check it. Visits at most 200 values."""
    waiting = [value]
    room = _BULKY_VALUES
    while waiting and room >= 0:
        match waiting.pop():
            case str() as text:
                room -= 1 + len(text) // 1_000
            case Mapping() as members:
                room -= 1
                waiting.extend(itertools.islice(members.values(), room + 1))
            case list() as items:
                room -= 1
                waiting.extend(itertools.islice(items, room + 1))
            case _:
                room -= 1
    return room < 0


class Admitted(msgspec.Struct, frozen=True):
    """Arguments that may be sent. *notes* go into the provenance: ``arg_repairs`` and ``unchecked``, if any."""

    args: Mapping[str, Any]
    notes: Mapping[str, Any]


_NO_NOTES: Mapping[str, Any] = MappingProxyType({})


class Validator:
    """One tool's schema, compiled. *unchecked* names, by schema path, what is not enforced."""

    def __init__(self, schema: ForeignSchema) -> None:
        self.unchecked = schema.unchecked
        self._schema = schema
        self._engine = CountedEngine(schema)
        self._plainly_fits = plain_fit(schema)

    @cached_property
    def expected(self) -> Expected:
        return Expected(self._schema)

    def check(self, args: object, *, path: str) -> Mapping[str, Any]:
        """Returns *args* if they fit. *path* is the tool's id, for the error.

        Raises ArgsInvalid with ``{errors: [{path, message}], expected, example?}``: all errors in the schema's order,
        at most 20, and an example only if it is valid itself. Raises SchemaInvalid when the schema cannot be applied.
        Takes microseconds for ordinary calls and some 40 µs a value at the very most. Check arguments that are
        ``is_bulky_json`` in a thread.
        """
        try:
            # The size decides how many steps the check may take.
            size = _measure(args)
            if not isinstance(args, Mapping):
                raise _NotChecked(f"must be an object (got {json_type(args)})")
            errors = self._engine.errors(args, _STEPS + _STEPS_A_VALUE * size, MAX_ERRORS + 1)
        except _NotChecked as reason:
            # Such arguments are not read again, not even for an example.
            raise self._invalid([_whole(str(reason))], None, set(), path) from None
        except TooMuchWork:
            problem = "takes too much work to check against this tool's schema; send less at a time"
            raise self._invalid([_whole(problem)], args, set(), path) from None
        except RecursionError:
            raise self._invalid([_whole("is nested too deeply to be checked")], args, set(), path) from None
        except _ENGINE_FAILURES:
            log.exception("the schema of %s cannot be applied", path)
            raise SchemaInvalid("The tool's own schema cannot be applied. Nothing was sent to it.", path=path) from None
        # The arguments at fault are filled in again in the example.
        if errors:
            wrong = {str(error.absolute_path[0]) for error in errors if error.absolute_path}
            raise self._invalid(describe_errors(errors), args, wrong, path)
        return args

    def repair(self, args: object, *, tolerant: bool = True) -> tuple[object, list[Repair]]:
        """Returns *args* repaired as far as nothing is lost, and the list of repairs (see ``repairs``)."""
        return repair(args, self._schema, tolerant=tolerant)

    def admit_plain(self, args: object) -> Admitted | None:
        """Returns *args* if they plainly fit, which takes a microsecond; None says nothing about them (EXEC-60)."""
        # Asked of the type first: a test of an abstract class costs as much as all the rest.
        if self._plainly_fits is None or not (type(args) is dict or isinstance(args, Mapping)):
            return None
        if not self._plainly_fits(args):
            return None
        return Admitted(args, _NO_NOTES)

    def admit(self, args: object, *, path: str, tolerant: bool) -> Admitted:
        """Checks *args*, repaired if needed; text is repaired only for a *tolerant* upstream. Raises as ``check``."""
        repairs: list[Repair] = []
        if tolerant:
            args, repairs = self.repair(args)
        try:
            checked = self.check(args, path=path)
        except ArgsInvalid:
            # Only what does not fit is repaired, so the calls that fit cost nothing more.
            args, repairs = (args, []) if tolerant else self.repair(args, tolerant=False)
            if not repairs:
                raise
            checked = self.check(args, path=path)
        notes: dict[str, Any] = {}
        if repairs:
            notes["arg_repairs"] = repairs
        if self.unchecked:
            notes["unchecked"] = list(self.unchecked)
        return Admitted(checked, notes)

    def _invalid(self, errors: Sequence[Mapping[str, str]], args: object, wrong: set[str], path: str) -> ArgsInvalid:
        details: dict[str, Any] = {"errors": list(errors[:MAX_ERRORS]), "expected": self.expected.arguments}
        example = self.expected.example(args, wrong)
        if example is not None and self._is_valid(example):
            details["example"] = example
        message = f"The arguments do not fit. {errors[0]['path']}: {errors[0]['message']}"
        if len(errors) > 1:
            count = f"more than {MAX_ERRORS}" if len(errors) > MAX_ERRORS else str(len(errors))
            message += f" ({count} errors in all, see details)"
        return ArgsInvalid(message, path=path, details=details)

    def _is_valid(self, example: Mapping[str, Any]) -> bool:
        try:
            # A text that UTF-8 cannot carry could not be sent. It raises ValueError here.
            json.dumps(example, ensure_ascii=False).encode()
            return not self._engine.errors(example, _EXAMPLE_STEPS + _STEPS_A_VALUE * _measure(example), 1)
        except (_NotChecked, TooMuchWork, RecursionError, *_ENGINE_FAILURES):
            return False


def compile_schema(schema: object, *, path: str) -> Validator:
    """Compile a tool's input schema; keep the result. Raises SchemaInvalid(path) when it cannot be used."""
    return Validator(read_schema(schema, path=path))


class _NotChecked(Exception):
    """The arguments cannot be checked at all. The text says why and may be shown."""


def _measure(args: object) -> int:
    """Returns the number of values in *args*. Raises _NotChecked if they are too deep, too many, or not JSON."""
    count = 0
    # Level by level, because recursion would fail on deep arguments.
    level: list[Any] = [args]
    for _ in range(MAX_ARGS_DEPTH):
        count += len(level)
        if count > MAX_ARGS_VALUES:
            raise _NotChecked(f"must not hold more than {MAX_ARGS_VALUES:,} values")
        below: list[Any] = []
        for value in level:
            # Texts are checked for what UTF-8 cannot carry; collections are measured on the next level.
            match value:
                case str():
                    _refuse_lone_surrogates(value)
                case bool() | int() | None:
                    pass
                case dict():
                    for key in value:
                        if not isinstance(key, str):
                            raise _NotChecked("must have strings as keys")
                        _refuse_lone_surrogates(key)
                    below.extend(value.values())
                case list():
                    below.extend(value)
                case float() if math.isfinite(value):
                    pass
                case _:
                    raise _NotChecked("must be JSON")
        if not below:
            return count
        level = below
    raise _NotChecked(f"must not be nested deeper than {MAX_ARGS_DEPTH} levels")


def _refuse_lone_surrogates(text: str) -> None:
    if not can_be_sent(text):
        raise _NotChecked("must be Unicode text: half a surrogate pair stands alone")


def _whole(problem: str) -> dict[str, str]:
    return {"path": "$", "message": problem}
