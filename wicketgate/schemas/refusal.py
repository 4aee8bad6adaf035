"""What is wrong with an argument, and where, in our words (S0 §3.4 "human-readable").

jsonschema's own messages repeat the whole value; these are short and say what would be right.
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


def told(errors: Iterable[ValidationError]) -> list[dict[str, str]]:
    """``[{path: "$.a[0]", message}]``, each at most 200 characters. Names are compared for some milliseconds in all."""
    near = _Near()
    return [
        {"path": told_path(error.absolute_path), "message": shorten(_message(error, near), MESSAGE_CHARS)}
        for error in errors
    ]


def told_path(steps: Iterable[str | int]) -> str:
    """``$.a[0]``; names that are not plain are quoted. At most 200 characters."""
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if _IDENTIFIER.fullmatch(step) else f"[{_quoted(step)}]"
    return shorten(path, MESSAGE_CHARS)


class _Near:
    """Finds the name that was meant, for one refusal: comparing two costs up to 50 µs, so only so many are."""

    def __init__(self) -> None:
        self._room = 200

    def note(self, name: object, candidates: Iterable[object], words: str) -> str:
        """``; <words> "<candidate>"?`` on the candidate most like *name*, or nothing."""
        if not isinstance(name, str) or len(name) > 40:
            return ""
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


def _message(error: ValidationError, near: _Near) -> str:
    """In our words; the engine's own repeat the whole value."""
    keyword, value = str(error.validator), cast(Any, error.validator_value)
    match keyword:
        case "pattern" | "uniqueItems":
            return error.message
        case "required":
            known, given = _names(error)
            return error.message + near.note(_name(error), (each for each in given if each not in known), "given as")
        case "additionalProperties" if value is False:
            known, given = _names(error)
            unused = (each for each in known if each not in given)
            return error.message + near.note(_name(error), unused, "did you mean")
        case "type":
            allowed = value if isinstance(value, str) else " or ".join(value)
            return f"must be {allowed} (got {json_type(error.instance)})"
        case "enum":
            allowed = shorten("must be one of " + ", ".join(_quoted(each) for each in value[:20]), 140)
            if not isinstance(error.instance, str):
                return allowed
            return allowed + near.note(error.instance, value, "did you mean")
        case "anyOf" | "oneOf":
            return _no_form(error, near)
        case "dependentRequired" | "dependencies":
            return "needs other arguments that are missing"
        case "None" | "not" if not value:
            return "is not allowed here"
        case _:
            form = _MESSAGES.get(keyword)
            return form.format(_quoted(value)) if form else f"does not satisfy {shorten(keyword, 40)}"


def _names(error: ValidationError) -> tuple[Collection[str], Collection[str]]:
    """The names that the schema has at the error's place, and those that were given there."""
    return cast(Any, error.schema).get("properties", {}), cast(Any, error.instance)


def _name(error: ValidationError) -> object:
    return error.path[-1] if error.path else None


def _no_form(error: ValidationError, near: _Near) -> str:
    forms: dict[Any, str] = {}
    for cause in itertools.islice(error.context or (), _MAX_CAUSES):
        place = told_path(cause.path).removeprefix("$").lstrip(".")
        # The schema `false` has no path of its own in the engine's errors.
        form = cause.schema_path[0] if cause.schema_path else None
        if form not in forms:
            forms[form] = f"{place} {_message(cause, near)}".strip()
        if len(forms) == _MAX_FORMS:
            break
    if not forms:
        return "fits more than one of the allowed forms"
    return "fits none of the allowed forms: " + "; ".join(dict.fromkeys(forms.values()))


def _quoted(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), 60)
