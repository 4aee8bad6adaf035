"""The signature of a tool for programs: what it takes and gives, in one line of at most ``MAX_TOKENS`` (EXEC-144)."""

import json
from collections.abc import Mapping
from typing import Any

from wicketgate.catalog.selectable import SelectableItem

MAX_TOKENS = 60
_CHARS = MAX_TOKENS * 4
_DEPTH = 2
_MOST_ENUM = 5
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_UNKNOWN = "?"
_EXAMPLES = {"string": "", "integer": 0, "number": 0.0, "boolean": True, "array": [], "object": {}}


def signature(item: SelectableItem, seen: str = "") -> str:
    """Returns ``id(page: int) -> {rows: [{id: int}]}``. *seen* is the shape of an earlier result, for a tool without an
    output schema. Nested levels are left out until it fits."""
    given = _given(item)
    for depth in range(_DEPTH, -1, -1):
        gives = _UNKNOWN if given is None else _shape(given, depth + 1)
        if given is None or "{}" in gives:
            gives = seen or (f"{gives}; look at one result first" if given is None else gives)
        line = f"{item.id.partition('@')[0].partition('#')[0]}({_parameters(item.args_schema, depth)}) -> {gives}"
        if len(line) <= _CHARS:
            return line
    return f"{line[: _CHARS - 1]}…"


def shape_of(value: Any, depth: int = _DEPTH + 1) -> str:
    """Returns the shape of a *value* of JSON, in the words of a signature; it holds no text of the value but names of
    members."""
    if isinstance(value, Mapping):
        return _members({str(key): shape_of(each, depth - 1) for key, each in value.items()}) if depth else "{…}"
    if isinstance(value, list):
        return f"[{shape_of(value[0], depth - 1) if value and depth else ''}]"
    return "None" if value is None else type(value).__name__


def example_of(item: SelectableItem) -> Any:
    """Returns a value that *item* could give to a program; None without an output schema."""
    return _example(_given(item) or {}, _DEPTH + 1)


def _example(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or not depth:
        return None
    if isinstance(values := schema.get("enum"), list) and values:
        return values[0]
    if isinstance(properties := schema.get("properties"), Mapping):
        return {name: _example(each, depth - 1) for name, each in properties.items()}
    return _EXAMPLES.get(str(schema.get("type")))


def _given(item: SelectableItem) -> Any:
    """The schema of a result as programs get it."""
    schema = item.output_schema
    if schema is None or list(schema.get("properties") or ()) != ["result"]:
        return schema
    return schema["properties"]["result"]


def _parameters(schema: Mapping[str, Any], depth: int) -> str:
    properties, required = schema.get("properties"), schema.get("required") or ()
    if not isinstance(properties, Mapping):
        return "" if schema.get("type") == "object" else "..."
    ordered = sorted(properties, key=lambda name: name not in required)
    return ", ".join(f"{name}{'' if name in required else '?'}: {_shape(properties[name], depth)}" for name in ordered)


def _shape(schema: Any, depth: int) -> str:
    if not isinstance(schema, Mapping):
        return _UNKNOWN
    if isinstance(values := schema.get("enum"), list) and len(values) <= _MOST_ENUM:
        return "|".join(json.dumps(each, ensure_ascii=False) for each in values)
    if isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
        return "|".join(dict.fromkeys(_shape(each, depth) for each in choices))
    kind = schema.get("type")
    if isinstance(kind, list):
        return "|".join(_shape({**schema, "type": each}, depth) for each in kind)
    if kind == "array":
        return f"[{_shape(schema.get('items'), depth - 1) if depth else ''}]"
    properties = schema.get("properties")
    if kind == "object" or properties:
        if not isinstance(properties, Mapping) or not depth:
            return "{…}" if properties else "{}"
        return _members({name: _shape(each, depth - 1) for name, each in properties.items()})
    return _TYPES.get(str(kind), _UNKNOWN)


def _members(shapes: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{name}: {shape}' for name, shape in shapes.items())}}}"
