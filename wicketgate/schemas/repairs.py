"""Repairs arguments before they are checked (EXEC-9, EXEC-80).

Models send null for an optional argument that they leave out. It is omitted if its schema does not take null. If the
operator wants it, text is repaired too: models write ``"42"`` for 42, and an object as JSON text. A text is repaired
only where the schema wants another type than a string, and the text denotes exactly one value of that type. So nothing
is ever guessed or lost.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7

from wicketgate.schemas.foreign_schema import ForeignSchema
from wicketgate.schemas.messages import json_path

Repair = dict[str, str]
"""``{"path": "$.a[0]", "rule": "str_to_integer"}``"""
_Path = tuple[str | int, ...]

_MAX_TEXT_CHARS = 1_000_000
_MAX_DEPTH = 64
_MAX_VALUES = 50_000
_MAX_REPAIRS = 100
# Schemas visited, each once for all values that it applies to; half a microsecond each.
_MAX_WORK = 20_000
_MAX_HOPS = 8
_MAX_PIECES = 16
_BOM = "\ufeff"
# Numbers as JSON writes them. Longer ones would not come back digit for digit.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "false": False}
# These drafts ignore what stands beside a reference.
_LONE_REFERENCES = (DRAFT4, DRAFT6, DRAFT7)


def repair(args: object, schema: ForeignSchema, *, tolerant: bool = True) -> tuple[object, list[Repair]]:
    """Returns *args* repaired, and the list of repairs; *args* itself without any. Never raises.

    Rules: ``omit_null`` for an optional property; if *tolerant*, also ``strip_bom`` and ``json_to_object`` or
    ``json_to_array`` for JSON text (the whole of *args* included), ``str_to_integer``, ``str_to_number``,
    ``str_to_boolean``. A value is left alone where the schema declares no type, where it takes strings, and under a
    name that the schema does not know. Linear in *args*, at most 100 repairs.
    """
    return _Repairer(schema, tolerant).repair(args)


class _Repairer:
    def __init__(self, schema: ForeignSchema, tolerant: bool) -> None:
        self._schema = schema
        self._tolerant = tolerant
        self._repairs: list[Repair] = []
        self._values = _MAX_VALUES
        self._work = _MAX_WORK
        self._known_pieces: dict[tuple[str | None, tuple[int, ...]], list[Mapping[str, Any]]] = {}
        self._known_types: dict[tuple[int, ...], frozenset[str]] = {}

    def repair(self, args: object) -> tuple[object, list[Repair]]:
        whole = args
        if isinstance(args, str):
            # Arguments are an object, whatever type the schema has at its root.
            whole = self._from_json(args, frozenset({"object"}), ())
        repaired = self._value(whole, [self._schema.root], (), 0) if isinstance(whole, Mapping) else whole
        return (repaired, self._repairs) if self._repairs else (args, [])

    def _value(self, value: object, places: list[Any], path: _Path, depth: int) -> object:
        """Returns *value* repaired, or itself. *places* are the schemas that all apply to it."""
        self._values -= 1
        if depth > _MAX_DEPTH or self._values < 0 or len(self._repairs) >= _MAX_REPAIRS:
            return value
        if isinstance(value, str) and self._tolerant:
            wanted = self._wanted(places)
            value = self._from_text(value, wanted, path) if wanted else value
        if isinstance(value, Mapping):
            pieces = self._pieces(places, "object")
            changes = self._changes(value.items(), _member_places, pieces, path, depth)
            omitted = {name for name, member in value.items() if member is None and self._omits(pieces, name, path)}
            if changes or omitted:
                return {name: changes.get(name, member) for name, member in value.items() if name not in omitted}
            return value
        if isinstance(value, list):
            changes = self._changes(enumerate(value), _item_places, self._pieces(places, "array"), path, depth)
            return [changes.get(index, item) for index, item in enumerate(value)] if changes else value
        return value

    def _changes(
        self,
        members: Iterable[tuple[Any, object]],
        places_of: Callable[[list[Mapping[str, Any]], Any], Iterator[Any]],
        pieces: list[Mapping[str, Any]],
        path: _Path,
        depth: int,
    ) -> dict[Any, Any]:
        """Returns the members that are repaired, by name or index."""
        changes: dict[Any, Any] = {}
        for key, member in members:
            # Only a text can be repaired, or a value that may hold one.
            if not isinstance(member, str | Mapping | list) or not isinstance(key, str | int):
                continue
            if places := list(places_of(pieces, key)):
                repaired = self._value(member, places, (*path, key), depth + 1)
                if repaired is not member:
                    changes[key] = repaired
        return changes

    def _omits(self, pieces: list[Mapping[str, Any]], name: Any, path: _Path) -> bool:
        """Returns whether the null under *name* is omitted: an optional property whose schema surely refuses null."""
        places = [piece["properties"][name] for piece in pieces if name in piece.get("properties", {})]
        if not places or len(self._repairs) >= _MAX_REPAIRS or any(name in each.get("required", ()) for each in pieces):
            return False
        kinds = [self._types_alone(piece) for piece in self._pieces(places, "null")]
        if all(types is None or "null" in types for types in kinds):
            return False
        self._repairs.append({"path": json_path((*path, name)), "rule": "omit_null"})
        return True

    def _from_text(self, text: str, wanted: frozenset[str], path: _Path) -> object:
        """Returns the one value of a wanted type that *text* denotes, or *text*."""
        plain = text.removeprefix(_BOM)
        if "boolean" in wanted and plain in _BOOLEANS:
            return self._note(_BOOLEANS[plain], "str_to_boolean", text, path)
        if "integer" in wanted and _INTEGER.fullmatch(plain):
            return self._note(int(plain), "str_to_integer", text, path)
        if "number" in wanted and _NUMBER.fullmatch(plain):
            whole = _INTEGER.fullmatch(plain) is not None
            number = int(plain) if whole else float(plain)
            # Equal digit for digit, and not only near it.
            if math.isfinite(number) and (whole or Decimal(plain) == Decimal(repr(number))):
                return self._note(number, "str_to_number", text, path)
        if "object" in wanted or "array" in wanted:
            return self._from_json(text, wanted, path)
        return text

    def _from_json(self, text: str, wanted: frozenset[str], path: _Path) -> object:
        plain = text.removeprefix(_BOM)
        start = plain[:100].lstrip(" \t\r\n")[:1]
        kind = {"{": "object", "[": "array"}.get(start)
        if kind not in wanted or len(plain) > _MAX_TEXT_CHARS:
            return text
        try:
            value = json.loads(plain, parse_constant=_reject, object_pairs_hook=_unique_names, parse_float=_finite)
        except (ValueError, RecursionError):
            return text
        return self._note(value, f"json_to_{kind}", text, path)

    def _note(self, value: object, rule: str, text: str, path: _Path) -> object:
        where = json_path(path)
        if text.startswith(_BOM):
            self._repairs.append({"path": where, "rule": "strip_bom"})
        self._repairs.append({"path": where, "rule": rule})
        return value

    def _pieces(self, places: list[Any], kind: str | None) -> list[Mapping[str, Any]]:
        """Returns every schema that certainly applies; none when the work is used up.

        These are *places*, the schemas that they refer to or combine, and that form of a union which is the only one
        for a value of this *kind*.
        """
        key = (kind, tuple(map(id, places)))
        found = self._known_pieces.get(key)
        if found is None:
            found = self._known_pieces[key] = self._find_pieces(places, kind)
        return found if self._work >= 0 else []

    def _find_pieces(self, places: list[Any], kind: str | None) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        waiting = [(place, _MAX_HOPS) for place in places]
        while waiting and len(found) < _MAX_PIECES:
            place, hops = waiting.pop()
            self._work -= 1
            if not isinstance(place, Mapping) or not hops:
                continue
            # The schema that it refers to.
            target = self._schema.targets.get(id(place))
            if target is not None:
                waiting.append((target, hops - 1))
                if self._schema.draft in _LONE_REFERENCES:
                    continue
            # Itself and the schemas that it combines.
            found.append(place)
            waiting.extend((each, hops - 1) for each in place.get("allOf", [])[:_MAX_PIECES])
            # The only form of a union that a value of this kind can have.
            forms = _forms(place)
            if kind is not None and forms:
                possible = [form for form in forms if (types := self._types([form])) is None or kind in types]
                if len(possible) == 1:
                    waiting.append((possible[0], hops - 1))
        return found

    def _wanted(self, places: list[Any]) -> frozenset[str]:
        """Returns the types that are allowed here; none if a string may be allowed too."""
        key = tuple(map(id, places))
        if key not in self._known_types:
            wanted = self._types(places) or frozenset()
            self._known_types[key] = frozenset() if "string" in wanted else wanted
        return self._known_types[key]

    def _types(self, places: list[Any]) -> frozenset[str] | None:
        """Returns the types that *places* and the schemas they refer to allow together; None if none is declared."""
        declared = [types for types in map(self._types_alone, self._pieces(places, None)) if types is not None]
        return frozenset.intersection(*declared) if declared else None

    def _types_alone(self, schema: Mapping[str, Any]) -> frozenset[str] | None:
        self._work -= 1 + len(schema.get("enum", ())) // 10
        values = [schema["const"]] if "const" in schema else schema.get("enum", ())
        if any(isinstance(value, str) for value in values):
            return frozenset({"string", "null"} if None in values else {"string"})
        if (declared := _plain_types(schema)) is not None:
            return declared
        # `integer or null`, as Python's models write it. Every form must declare its type.
        self._work -= len(_forms(schema))
        targets = self._schema.targets
        each = [_plain_types(targets.get(id(form), form)) for form in _forms(schema)]
        return frozenset().union(*(types or () for types in each)) if each and None not in each else None


def _forms(schema: Mapping[str, Any]) -> list[Any]:
    """Returns the forms of a union; none when they are too many."""
    forms = schema.get("anyOf") or schema.get("oneOf") or []
    return forms if len(forms) <= _MAX_PIECES else []


def _plain_types(schema: object) -> frozenset[str] | None:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return None if kind is None else frozenset([kind] if isinstance(kind, str) else kind)


def _member_places(pieces: list[Mapping[str, Any]], name: str) -> Iterator[Any]:
    for piece in pieces:
        if name in piece.get("properties", {}):
            yield piece["properties"][name]
        elif "patternProperties" not in piece and isinstance(piece.get("additionalProperties"), Mapping):
            yield piece["additionalProperties"]


def _item_places(pieces: list[Mapping[str, Any]], index: int) -> Iterator[Any]:
    for piece in pieces:
        items = piece.get("items")
        first = items if isinstance(items, list) else piece.get("prefixItems", [])
        if index < len(first):
            yield first[index]
        elif isinstance(items, Mapping):
            yield items


def _reject(name: str) -> object:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        # One of them would be lost.
        raise ValueError("the same name twice")
    return made
