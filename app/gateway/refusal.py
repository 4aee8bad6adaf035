"""What is wrong with an argument, and where, in our words (S0 §3.4 "human-readable").

jsonschema's own messages repeat the whole value; these are short and say what would be right.
"""

import difflib
import itertools
import json
import re
from collections.abc import Iterable
from typing import Any, cast

from jsonschema import ValidationError

from app.results.envelope import shorten

MESSAGE_CHARS = 200
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


def told(error: ValidationError) -> dict[str, str]:
    """``{path: "$.a[0]", message}``, each at most 200 characters."""
    return {"path": _path(error.absolute_path), "message": shorten(_message(error), MESSAGE_CHARS)}


def near(name: str, candidates: Iterable[str], words: str) -> str:
    """A note on the candidate most like *name*, if one is; only few are compared, as each costs some 50 µs."""
    alike = (each for each in candidates if len(name) <= 40 and abs(len(each) - len(name)) <= 4)
    found = difflib.get_close_matches(name, list(itertools.islice(alike, 30)), n=1)
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


def _path(steps: Iterable[str | int]) -> str:
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if _IDENTIFIER.fullmatch(step) else f"[{_quoted(step)}]"
    return shorten(path, MESSAGE_CHARS)


def _message(error: ValidationError) -> str:
    """In our words; the engine's own repeat the whole value."""
    keyword, value = str(error.validator), cast(Any, error.validator_value)
    match keyword:
        case "required" | "pattern" | "uniqueItems":
            return error.message
        case "additionalProperties" if value is False:
            return error.message
        case "type":
            allowed = value if isinstance(value, str) else " or ".join(value)
            return f"must be {allowed} (got {json_type(error.instance)})"
        case "enum":
            allowed = shorten("must be one of " + ", ".join(_quoted(each) for each in value[:20]), 140)
            if not isinstance(error.instance, str):
                return allowed
            return allowed + near(error.instance, (each for each in value if isinstance(each, str)), "did you mean")
        case "anyOf" | "oneOf":
            return _no_form(error)
        case "dependentRequired" | "dependencies":
            return "needs other arguments that are missing"
        case "None" | "not" if not value:
            return "is not allowed here"
        case _:
            form = _MESSAGES.get(keyword)
            return form.format(_quoted(value)) if form else f"does not satisfy {shorten(keyword, 40)}"


def _no_form(error: ValidationError) -> str:
    forms: dict[Any, str] = {}
    for cause in error.context or ():
        place = _path(cause.path).removeprefix("$").lstrip(".")
        # The schema `false` has no path of its own in the engine's errors.
        form = cause.schema_path[0] if cause.schema_path else None
        if form not in forms:
            forms[form] = f"{place} {_message(cause)}".strip()
    if not forms:
        return "fits more than one of the allowed forms"
    return "fits none of the allowed forms: " + "; ".join(dict.fromkeys(itertools.islice(forms.values(), 5)))


def _quoted(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), 60)
