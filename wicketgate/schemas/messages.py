"""Describes what is wrong with an argument, and where (S0 §3.4 "human-readable").

jsonschema's own messages repeat the whole value. These are short and say what would be right.
"""

import difflib
import itertools
import json
import re
from collections.abc import Collection, Iterable
from typing import Any, cast

from jsonschema import ValidationError

from wicketgate.results.envelope import shorten

MESSAGE_CHARS = 200
_MAX_CAUSES = 100
_MAX_FORMS = 5
_MAX_COMPARED = 200
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,63}")

_MESSAGES = {
    "const": "must be {}",
    "exclusiveMaximum": "must be less than {}",
    "exclusiveMinimum": "must be more than {}",
    "maxItems": "must not have more than {} items",
    "maxLength": "must not have more than {} characters",
    "maxProperties": "must not have more than {} members",
    "maximum": "must be at most {}",
    "minItems": "must have at least {} items",
    "minLength": "must have at least {} characters",
    "minProperties": "must have at least {} members",
    "minimum": "must be at least {}",
    "multipleOf": "must be a multiple of {}",
}


def describe_errors(errors: Iterable[ValidationError]) -> list[dict[str, str]]:
    """Returns ``[{path: "$.a[0]", message}]``, each text at most 200 characters.

    Comparing names with those that may have been meant takes a few milliseconds for all errors together.
    """
    names = _SimilarNames()
    return [
        {"path": json_path(error.absolute_path), "message": shorten(_message(error, names), MESSAGE_CHARS)}
        for error in errors
    ]


def json_path(steps: Iterable[str | int]) -> str:
    """Returns ``$.a[0]``, at most 200 characters. Names that are not plain are quoted."""
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if _IDENTIFIER.fullmatch(step) else f"[{_quoted(step)}]"
    return shorten(path, MESSAGE_CHARS)


class _SimilarNames:
    """Finds the name that was meant. Comparing two takes up to 50 µs, so one refusal compares a limited number."""

    def __init__(self) -> None:
        self._room = _MAX_COMPARED

    def hint(self, name: object, candidates: Iterable[object], words: str) -> str:
        """Returns ``; <words> "<candidate>"?`` with the candidate most like *name*, or nothing."""
        if not isinstance(name, str) or len(name) > 40:
            return ""
        # The lengths first: they rule out most pairs at no cost.
        alike = (
            each
            for each in itertools.islice(candidates, 1_000)
            if isinstance(each, str) and abs(len(each) - len(name)) <= 4
        )
        compared = list(itertools.islice(alike, min(self._room, 30)))
        self._room -= len(compared)
        found = difflib.get_close_matches(name, compared, n=1)
        return f"; {words} {_quoted(found[0])}?" if found else ""


def json_type(value: object) -> str:
    """Returns the name that JSON Schema has for the type of *value*."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


def _message(error: ValidationError, names: _SimilarNames) -> str:
    keyword, value = str(error.validator), cast(Any, error.validator_value)
    match keyword:
        case "pattern" | "uniqueItems":
            return error.message
        # Names that are missing or surplus: the schema's and the caller's may differ by a typing error.
        case "required":
            known, given = _names(error)
            return error.message + names.hint(_name(error), (each for each in given if each not in known), "given as")
        case "additionalProperties" | "unevaluatedProperties" if value is False:
            known, given = _names(error)
            unused = (each for each in known if each not in given)
            return error.message + names.hint(_name(error), unused, "did you mean")
        # Values of another type, or none of those listed.
        case "type":
            allowed = value if isinstance(value, str) else " or ".join(value)
            return f"must be {allowed} (got {json_type(error.instance)})"
        case "enum":
            allowed = shorten("must be one of " + ", ".join(_quoted(each) for each in value[:20]), 140)
            if not isinstance(error.instance, str):
                return allowed
            return allowed + names.hint(error.instance, value, "did you mean")
        case "anyOf" | "oneOf":
            return _no_form(error, names)
        case "dependentRequired" | "dependencies":
            return "needs other arguments that are missing"
        case "None" | "not" if not value:
            return "is not allowed here"
        case _:
            form = _MESSAGES.get(keyword)
            return form.format(_quoted(value)) if form else f"does not satisfy {shorten(keyword, 40)}"


def _names(error: ValidationError) -> tuple[Collection[str], Collection[str]]:
    """Returns the names that the schema has at the error's place, and those that were given there."""
    return cast(Any, error.schema).get("properties", {}), cast(Any, error.instance)


def _name(error: ValidationError) -> object:
    return error.path[-1] if error.path else None


def _no_form(error: ValidationError, names: _SimilarNames) -> str:
    """Describes the first error of each form of a union."""
    forms: dict[Any, str] = {}
    for cause in itertools.islice(error.context or (), _MAX_CAUSES):
        place = json_path(cause.path).removeprefix("$").lstrip(".")
        # jsonschema's errors have no path for the schema `false`.
        form = cause.schema_path[0] if cause.schema_path else None
        if form not in forms:
            forms[form] = f"{place} {_message(cause, names)}".strip()
        if len(forms) == _MAX_FORMS:
            break
    if not forms:
        return "fits more than one of the allowed forms"
    return "fits none of the allowed forms: " + "; ".join(dict.fromkeys(forms.values()))


def _quoted(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), 60)
