"""Explains a tool's arguments to a caller whose call was refused: their compact form, and an example.

In gateway mode no schema is ever shown (S0 §4). This is all that a model learns of one, so it is short on purpose.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from wicketgate.results.envelope import shorten
from wicketgate.schemas.foreign_schema import ForeignSchema

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
