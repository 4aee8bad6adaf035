"""Translates the schemas of OpenAPI 3.0 and 3.1 into one JSON Schema 2020-12 for a tool (UP-28).

Shared and recursive schemas go under ``$defs``. Each is translated once, however many tools refer to it. A part that
would make a tool's schema too large is replaced by a schema that accepts anything.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from wicketgate.upstreams.openapi.document import Document, Unusable

Direction = Literal["request", "response"]

_MAX_SIZE = 4_000
"""Values of one schema by itself; 40 characters of text count as one more. The validator takes 10,000 values."""
_MAX_DEPTH = 50
_MAX_BRANCHES = 200
_ONE = (
    "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_SAME_VALUE = ("allOf", "anyOf", "else", "if", "oneOf", "then")
_NAMED = ("dependentSchemas", "patternProperties")
_COPIED = (
    "const", "contentEncoding", "contentMediaType", "default", "dependentRequired", "deprecated", "enum", "examples",
    "format", "maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength",
    "minProperties", "multipleOf", "pattern", "uniqueItems",
)  # fmt: skip
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_LIMITS = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
_TEXTS = (("title", 200), ("description", 2_000))


@dataclass(frozen=True, slots=True)
class _Translated:
    """A translated schema, the references in it, and its size."""

    schema: Any
    references: tuple[str, ...]
    size: int


class SchemaReader:
    """Translates the schemas of one document in one direction.

    Properties that only the other direction has (``readOnly`` in requests, ``writeOnly`` in responses) are left out.
    """

    def __init__(self, document: Document, direction: Direction) -> None:
        self.document = document
        self._unwanted = "readOnly" if direction == "request" else "writeOnly"
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._shared: dict[str, _Translated] = {}
        self.unwanted: dict[int, frozenset[str]] = {}

    def read(self, schema: object) -> _Translated:
        """Raises Unusable when a reference leads to nothing, or outside the document."""
        translation = _Translation(self, self._unwanted)
        return _Translated(translation.read(schema, 0), tuple(translation.references), translation.size)

    def shared(self, reference: str) -> _Translated:
        """Reads the schema at *reference*; translated once. Raises Unusable."""
        if reference not in self._shared:
            self._shared[reference] = self.read(self.document.at(reference))
        return self._shared[reference]

    def name(self, reference: str) -> str:
        """Returns the schema's name under ``$defs``, the same in every tool."""
        if reference not in self._names:
            base = re.sub(r"[^A-Za-z0-9_.-]+", "_", reference.rpartition("/")[2])[:60] or "schema"
            name, number = base, 1
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._taken.add(name)
            self._names[reference] = name
        return self._names[reference]


class ToolSchemas:
    """The schemas of one tool: ``read`` each, then take the ``definitions`` of all that they refer to.

    *room* is the size that they may have together. *size* is the size so far; *whole* is false once something was left
    out.
    """

    def __init__(self, reader: SchemaReader, room: int) -> None:
        self._reader = reader
        self._room = room
        self._waiting: dict[str, None] = {}
        self.size = 0
        self.whole = True

    def read(self, schema: object) -> dict[str, Any]:
        """Returns a schema that the caller may change. Raises Unusable."""
        read = self._take(self._reader.read(schema))
        return dict(read) if isinstance(read, dict) else {} if read else {"not": {}}

    def definitions(self) -> dict[str, Any]:
        """Returns ``$defs``, once everything has been read. Without room a schema accepts anything. Raises Unusable."""
        found: dict[str, Any] = {}
        while waiting := [reference for reference in self._waiting if self._reader.name(reference) not in found]:
            for reference in waiting:
                name = self._reader.name(reference)
                read = self._reader.shared(reference)
                if self.size + read.size > self._room:
                    self.whole = False
                    found[name] = {}
                else:
                    found[name] = self._take(read)
        return found

    def _take(self, read: _Translated) -> Any:
        self.size += read.size
        self._waiting |= dict.fromkeys(read.references)
        return read.schema


class _Translation:
    """The translation of one schema."""

    def __init__(self, reader: SchemaReader, unwanted: str) -> None:
        self._reader = reader
        self._document = reader.document
        self._unwanted = unwanted
        self.references: dict[str, None] = {}
        self.size = 0

    def read(self, schema: object, depth: int, unwanted: frozenset[str] = frozenset()) -> dict[str, Any] | bool:
        """*unwanted* are the properties of the other direction that the schema has by the one around it."""
        self.size += 1
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping) or self.size > _MAX_SIZE or depth > _MAX_DEPTH:
            return {}
        if isinstance(reference := schema.get("$ref"), str):
            return self._reference(reference, schema, depth, unwanted)
        # Type, texts, keywords that mean the same everywhere, limits, and schemas inside.
        read: dict[str, Any] = {}
        self._read_type(schema, read)
        for key, most in _TEXTS:
            if isinstance(text := schema.get(key), str):
                read[key] = text[:most]
                self.size += _size(read[key])
        for key in _COPIED:
            if key in schema:
                read[key] = schema[key]
                self.size += _size(schema[key])
        self._read_limits(schema, read)
        self._read_parts(schema, read, depth, unwanted)
        if "example" in schema and "examples" not in read:
            read["examples"] = [schema["example"]]
            self.size += _size(schema["example"])
        if self._document.dialect_30 and schema.get("nullable") is True:
            return _or_null(read)
        return read

    def _reference(
        self, reference: str, schema: Mapping[str, Any], depth: int, unwanted: frozenset[str]
    ) -> dict[str, Any]:
        self._document.resolve(schema)  # raises for a chain of references without end
        self.references[reference] = None
        read: dict[str, Any] = {"$ref": f"#/$defs/{self._reader.name(reference)}"}
        if self._document.dialect_30:
            return read  # 3.0 ignores what stands beside a reference
        beside = self.read({key: value for key, value in schema.items() if key != "$ref"}, depth + 1, unwanted)
        return read | beside if isinstance(beside, dict) else read

    def _read_type(self, schema: Mapping[str, Any], read: dict[str, Any]) -> None:
        match schema.get("type"):
            case str() as kind if kind in _TYPES:
                read["type"] = kind
            case "file":
                read["type"] = "string"
            case list() as kinds:
                if known := [kind for kind in kinds if isinstance(kind, str) and kind in _TYPES]:
                    read["type"] = known

    def _read_limits(self, schema: Mapping[str, Any], read: dict[str, Any]) -> None:
        for limit, exclusive in _LIMITS:
            if limit in schema:
                read[limit] = schema[limit]
            match schema.get(exclusive):
                case True if limit in read:  # 3.0: the limit itself is excluded
                    read[exclusive] = read.pop(limit)
                case bool():
                    pass
                case int() | float() as number:
                    read[exclusive] = number

    def _read_parts(
        self, schema: Mapping[str, Any], read: dict[str, Any], depth: int, unwanted: frozenset[str]
    ) -> None:
        if "properties" in schema or "allOf" in schema:
            unwanted = unwanted.union(self._unwanted_names(schema))
        for key in _ONE:
            if key in schema:
                read[key] = self.read(schema[key], depth + 1, unwanted if key in _SAME_VALUE else frozenset())
        for key in _MANY:
            if isinstance(parts := schema.get(key), list) and parts:
                same = unwanted if key in _SAME_VALUE else frozenset[str]()
                read[key] = [self.read(part, depth + 1, same) for part in parts]
        for key in _NAMED:
            if isinstance(named := schema.get(key), dict):
                read[key] = {name: self.read(part, depth + 1) for name, part in named.items()}
        # Properties of the other direction are left out, and are not required.
        if isinstance(properties := self._document.follow(schema.get("properties")), dict):
            read["properties"] = {
                name: self.read(part, depth + 1) for name, part in properties.items() if not self._is_unwanted(part)
            }
        if isinstance(required := schema.get("required"), list):
            names = [name for name in required if isinstance(name, str) and name not in unwanted]
            if names:
                read["required"] = list(dict.fromkeys(names))

    def _unwanted_names(self, schema: Mapping[str, Any]) -> set[str]:
        """Returns the properties of the other direction that *schema* has, in itself or by ``allOf``."""
        found: set[str] = set()
        for branch in self._branches(schema):
            with suppress(Unusable):  # reported when the branch itself is read
                properties = self._document.follow(branch.get("properties"))
                if isinstance(properties, Mapping):
                    found |= self._marked(properties)
        return found

    def _marked(self, properties: Mapping[str, Any]) -> frozenset[str]:
        """Read once, however many schemas are made of *properties*: a document could make that very many."""
        if id(properties) not in self._reader.unwanted:
            marked = frozenset(name for name, part in properties.items() if self._is_unwanted(part))
            self._reader.unwanted[id(properties)] = marked
        return self._reader.unwanted[id(properties)]

    def _is_unwanted(self, part: object) -> bool:
        """Returns whether the mark of the other direction stands in *part*, behind a reference or in an ``allOf``."""
        return any(
            branch.get(self._unwanted) is True and not (self._document.dialect_30 and "$ref" in branch)
            for branch in self._branches(part)
        )

    def _branches(self, schema: object) -> Iterator[Mapping[str, Any]]:
        """Yields *schema*, the one that it refers to, and those of its ``allOf``; bounded."""
        waiting = [schema]
        for _ in range(_MAX_BRANCHES):
            if not waiting:
                return
            branch = waiting.pop()
            if isinstance(branch, Mapping):
                yield branch
                with suppress(Unusable):  # reported when the schema itself is read
                    if isinstance(branch.get("$ref"), str):
                        waiting.append(self._document.resolve(branch))
                    elif isinstance(branches := branch.get("allOf"), list):
                        waiting += branches


def _or_null(read: dict[str, Any]) -> dict[str, Any]:
    kind = read.get("type")
    if isinstance(kind, str) and not any(key in read for key in (*_MANY, "const", "not")):
        values = read.get("enum")
        if isinstance(values, list) and None not in values:
            read["enum"] = [*values, None]
        return read | {"type": [kind, "null"]}
    if any(key in read for key in ("allOf", "anyOf", "oneOf", "enum", "const")):
        return {"anyOf": [read, {"type": "null"}]}
    return read


def _size(value: object) -> int:
    match value:
        case Mapping():
            return 1 + sum(map(_size, value.values()))
        case list():
            return 1 + sum(map(_size, value))
        case str():
            return 1 + len(value) // 40
        case _:
            return 1
