"""Makes up arguments that fit the input schema of a tool, the smallest that do, or one of each that it has."""

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator

_MAX_DEPTH = 6
_FORMATS = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "email": "ann@example.com",
    "uri": "https://example.com/a",
    "url": "https://example.com/a",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
    "byte": "YQ==",
    "base64": "YQ==",
}


class _None(Exception):
    """No value could be made up."""


def sample_arguments(schema: Mapping[str, Any], *, whole: bool) -> dict[str, Any] | None:
    """Arguments that *schema* accepts: the required ones, or all with *whole*. None where none could be made up."""
    properties = schema.get("properties", {})
    names = list(properties) if whole else schema.get("required", [])
    definitions = schema.get("$defs", {})
    made: dict[str, Any] = {}
    for name in names:
        try:
            made[name] = _value(properties[name], definitions, 0)
        except (_None, KeyError):
            if name in schema.get("required", []):
                return None
    return made if Draft202012Validator(schema).is_valid(made) else None


def _value(schema: Any, definitions: Mapping[str, Any], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise _None
    if not isinstance(schema, Mapping):
        return "a"
    if "$ref" in schema:
        return _value(definitions[schema["$ref"].rpartition("/")[2]], definitions, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return next((each for each in schema["enum"] if each is not None), None)
    for given in (*schema.get("examples", ()), *([schema["default"]] if "default" in schema else [])):
        if given is not None and Draft202012Validator({**schema, "$defs": definitions}).is_valid(given):
            return given
    for key in ("oneOf", "anyOf"):
        if schema.get(key):
            return _value({**{k: v for k, v in schema.items() if k != key}, **schema[key][0]}, definitions, depth + 1)
    if schema.get("allOf"):
        return _value(_merged(schema, definitions), definitions, depth + 1)
    return _of_type(schema, definitions, depth)


def _merged(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        while isinstance(part, Mapping) and "$ref" in part:
            part = definitions[part["$ref"].rpartition("/")[2]]
        if not isinstance(part, Mapping):
            continue
        properties = {**merged.get("properties", {}), **part.get("properties", {})}
        required = [*merged.get("required", []), *part.get("required", [])]
        merged = {**merged, **part, "properties": properties, "required": required}
    return merged


def _of_type(schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = next((each for each in kind if each != "null"), "null") if isinstance(kind, list) else kind
    match kind:
        case "object":
            properties = schema.get("properties", {})
            return {n: _value(properties.get(n, {}), definitions, depth + 1) for n in schema.get("required", [])}
        case "array":
            few = max(1 if depth == 0 else 0, schema.get("minItems", 0))
            return [_value(schema.get("items", {}), definitions, depth + 1) for _ in range(few)]
        case "integer" | "number":
            least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
            return least if "maximum" not in schema else min(least, schema["maximum"])
        case "boolean":
            return True
        case "null":
            return None
        case _:
            text = _FORMATS.get(schema.get("format", schema.get("contentEncoding", "")), "a")
            return text.ljust(schema.get("minLength", 0), "a")[: schema.get("maxLength", 1_000)]
