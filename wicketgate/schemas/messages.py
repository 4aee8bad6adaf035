"""Explains a refusal of arguments: each error in words, the compact form of what is expected, and an example.

The input may be a foreign schema, so every text here is bounded. In gateway mode no schema is ever shown (EXEC-3). This
is all that a model learns of one, so it is short on purpose.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from types import NoneType
from typing import Any, cast

from jsonschema import ValidationError

from wicketgate.catalog.card import one_line
from wicketgate.results.envelope import shorten
from wicketgate.schemas.foreign_schema import ForeignSchema

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

_TYPES: Mapping[type, str] = {
    NoneType: "null", bool: "boolean", str: "string", int: "integer", float: "number", list: "array",
}  # fmt: skip


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
            each for each in islice(candidates, 1_000) if isinstance(each, str) and abs(len(each) - len(name)) <= 4
        )
        compared = list(islice(alike, min(self._room, 30)))
        self._room -= len(compared)
        found = difflib.get_close_matches(name, compared, n=1)
        return f"; {words} {_quoted(found[0])}?" if found else ""


def json_type(value: object) -> str:
    """Returns the name that JSON Schema has for the type of *value*."""
    return _TYPES.get(type(value), "object")


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
    for cause in islice(error.context or (), _MAX_CAUSES):
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
    return shorten(_json(value), 60)


MAX_ARGUMENTS = 24
_SHAPE_CHARS = 120
_VALUE_CHARS = 80
# Descriptions are most of the text. They share this room, so more arguments have shorter ones.
_DESCRIPTION_CHARS = 400
# A schema can combine very many others. These bounds are far above any that people write.
_MAX_HOPS = 8
_MAX_PIECES = 16
_MAX_SHAPE_DEPTH = 3
_MAX_EXAMPLE_DEPTH = 4
_MAX_EXAMPLE_VALUES = 60

_FORMAT_EXAMPLES = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T09:30:00Z",
    "email": "name@example.org",
    "ipv4": "192.0.2.1",
    "time": "09:30:00Z",
    "uri": "https://example.org/",
    "url": "https://example.org/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


class Expected:
    """The arguments that a tool expects. Made at the first refusal and kept."""

    def __init__(self, schema: ForeignSchema) -> None:
        self._targets = schema.targets
        self._members, self._required = self._object(schema.root)
        self.arguments = self._arguments()
        """``{name: "string, required: description"}``, required ones first; at most 24, then the names of the rest."""

    def calls(self, name: str) -> Iterator[str]:
        """Yields the call of tool *name* as one line, ``name(owner, labels?: array of string)``: the fullest form
        first, then with fewer optional arguments, then without types. A type of ``string`` is not written.

        Yields nothing if there are no arguments, or a required one whose name is not plain.
        """
        required = [key for key in self._members if key in self._required]
        if not self._members or len(required) > MAX_ARGUMENTS or not all(map(_IDENTIFIER.fullmatch, required)):
            return
        plain = (key for key in self._members if key not in self._required and _IDENTIFIER.fullmatch(key))
        parts = [key + self._call_shape(key) for key in required]
        optional = [f"{key}?{self._call_shape(key)}" for key in islice(plain, MAX_ARGUMENTS)]
        for names in (*([*parts, *optional[:most]] for most in range(len(optional), -1, -1)), required):
            yield f"{name}({', '.join([*names, *(['…'] if len(names) < len(self._members) else [])])})"

    def _call_shape(self, key: str) -> str:
        shape = one_line(self._shape(self._merged(self._members[key]), 0))
        return "" if shape == "string" else f": {shape}"

    def example(self, args: object, wrong: Collection[str]) -> dict[str, Any] | None:
        """Returns every required or *wrong* argument filled in, and the caller's other *args* that are known and short.

        Returns None when it would not be short. It may be invalid: the caller checks it.
        """
        given = args if isinstance(args, Mapping) else {}
        example: dict[str, Any] = {}
        room = [_MAX_EXAMPLE_VALUES]
        for name, member in self._members.items():
            if name in given and name not in wrong and _is_short(given[name]):
                example[name] = given[name]
            elif name in self._required or name in wrong:
                example[name] = self._example(member, name, 0, room)
        return example if room[0] >= 0 else None

    def _arguments(self) -> dict[str, str]:
        names = sorted(self._members, key=lambda name: name not in self._required)
        shown = names[:MAX_ARGUMENTS]
        room = min(max(_DESCRIPTION_CHARS // max(len(shown), 1), 24), 80)
        arguments = {}
        for name in shown:
            # Type, whether it is required, its default, and as much of its description as there is room for.
            member = self._merged(self._members[name])
            line = self._shape(member, 0) + (", required" if name in self._required else "")
            if "default" in member:
                line += f", default {_short_json(member['default'])}"
            description = member.get("description") or member.get("title")
            if isinstance(description, str) and description.strip():
                line += f": {shorten(' '.join(description[:1_000].split()), room)}"
            arguments[shorten(name, _VALUE_CHARS)] = line
        if len(names) > len(shown):
            rest = names[MAX_ARGUMENTS:]
            arguments["…"] = f"{len(rest)} more: {shorten(', '.join(rest[:20]), 200)}"
        return arguments

    def _object(self, schema: Any) -> tuple[dict[str, Any], set[str]]:
        """Returns properties and required names, also those of ``$ref`` and ``allOf``."""
        members: dict[str, Any] = {}
        required: set[str] = set()
        for piece in islice(self._pieces(schema, _MAX_HOPS), _MAX_PIECES):
            members.update(piece.get("properties", {}))
            required.update(piece.get("required", []))
        members.update({name: {} for name in sorted(required) if name not in members})
        return members, required

    def _merged(self, schema: Any) -> Mapping[str, Any]:
        """Returns one mapping for the pieces of *schema*; the nearer keyword wins."""
        merged: dict[str, Any] = {}
        for piece in islice(self._pieces(schema, _MAX_HOPS), _MAX_PIECES):
            merged = {**piece, **merged}
        return merged

    def _pieces(self, schema: Any, hops: int) -> Iterator[Mapping[str, Any]]:
        if not isinstance(schema, Mapping) or not hops:
            return
        yield schema
        if id(schema) in self._targets:
            yield from self._pieces(self._targets[id(schema)], hops - 1)
        for each in schema.get("allOf", []):
            yield from self._pieces(each, hops - 1)

    def _shape(self, member: Mapping[str, Any], depth: int) -> str:
        if "const" in member:
            return _short_json(member["const"])
        if isinstance(values := member.get("enum"), list):
            return shorten("|".join(_short_json(value) for value in values[:20]), _SHAPE_CHARS)
        kind = member.get("type")
        branches = member.get("anyOf") or member.get("oneOf")
        if depth < _MAX_SHAPE_DEPTH:
            if branches:
                shapes = [self._shape(self._merged(branch), depth + 1) for branch in branches[:6]]
                return shorten("|".join(dict.fromkeys(shapes)), _SHAPE_CHARS)
            if kind == "array" and isinstance(member.get("items"), Mapping):
                inner = self._shape(self._merged(member["items"]), depth + 1)
                return "array" if inner == "any" else shorten(f"array of {inner}", _SHAPE_CHARS)
            if kind == "object":
                return self._object_shape(member, depth)
        if isinstance(kind, list):
            return "|".join(kind)
        return f"{kind}{_limits(member)}" if isinstance(kind, str) else "any"

    def _object_shape(self, member: Mapping[str, Any], depth: int) -> str:
        members, required = self._object(member)
        if not members:
            return "object"
        fields = [
            f"{shorten(name, 40)}{'' if name in required else '?'}: {self._shape(self._merged(each), depth + 1)}"
            for name, each in islice(members.items(), 8)
        ]
        return shorten("{" + ", ".join(fields) + ("}" if len(members) <= 8 else ", …}"), _SHAPE_CHARS)

    def _example(self, schema: Any, name: str, depth: int, room: list[int]) -> Any:
        room[0] -= 1
        if room[0] < 0:
            return None
        member = self._merged(schema)
        # A value that the schema itself offers.
        for keyword in ("const", "default"):
            if keyword in member:
                return member[keyword]
        for keyword in ("enum", "examples"):
            if isinstance(values := member.get(keyword), list) and values:
                return values[0]
        # Otherwise one of its first form, or of its first type.
        branches = member.get("anyOf") or member.get("oneOf")
        if branches and depth < _MAX_EXAMPLE_DEPTH:
            return self._example(branches[0], name, depth + 1, room)
        kind = member.get("type")
        match kind[0] if isinstance(kind, list) else kind:
            case "integer" | "number":
                return _number(member)
            case "boolean":
                return True
            case "null":
                return None
            case "array":
                deep = depth >= _MAX_EXAMPLE_DEPTH or not member.get("items")
                return [] if deep else [self._example(member["items"], name, depth + 1, room)]
            case "object":
                members, required = self._object(member)
                inside = [each for each in members if each in required] if depth < _MAX_EXAMPLE_DEPTH else []
                return {each: self._example(members[each], each, depth + 1, room) for each in inside[:MAX_ARGUMENTS]}
            case _:
                return _text(member, name)


def _limits(member: Mapping[str, Any]) -> str:
    if isinstance(pattern := member.get("pattern"), str):
        return f" matching {shorten(pattern, 60)}"
    if isinstance(name := member.get("format"), str):
        return f" ({shorten(name, 20)})"
    low, high = member.get("minimum"), member.get("maximum")
    if low is None and high is None:
        return ""
    return f" {'' if low is None else low}..{'' if high is None else high}"


def _number(member: Mapping[str, Any]) -> Any:
    low, high = member.get("minimum"), member.get("maximum")
    above = member.get("exclusiveMinimum")
    for value in (1, low, high, None if above is None else above + 1):
        if value is not None and (low is None or value >= low) and (high is None or value <= high):
            return value
    return 1


def _text(member: Mapping[str, Any], name: str) -> str:
    text = _FORMAT_EXAMPLES.get(str(member.get("format")), f"<{shorten(name, 40)}>")
    least, most = member.get("minLength", 0), member.get("maxLength", _VALUE_CHARS)
    return text.ljust(int(min(least, _VALUE_CHARS)), "x")[: int(min(most, _VALUE_CHARS))]


def _is_short(value: object) -> bool:
    if isinstance(value, str | Mapping | list):
        # The length first, because a large value is not written out only to be measured.
        return len(value) <= _VALUE_CHARS and len(_json(value)) <= _VALUE_CHARS
    return True


def _short_json(value: object) -> str:
    return shorten(_json(value), 40)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
