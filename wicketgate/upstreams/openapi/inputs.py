"""Makes the parameters and the body of an operation the arguments of one tool (UP-29).

The properties of a JSON object or form stand beside the parameters if no name is used twice; otherwise the body is one
argument. A credential is never an argument: the operator configures it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import parse_qsl

from wicketgate.upstreams.openapi.bodies import BodyKind, RequestBody, choose_media_type, form_parts
from wicketgate.upstreams.openapi.document import Document, Unusable
from wicketgate.upstreams.openapi.parameters import STYLES, Parameter, Place, Style
from wicketgate.upstreams.openapi.schemas import ToolSchemas
from wicketgate.upstreams.openapi.security import Configured

_MAX_ARGUMENTS = 300
_MAX_DESCRIPTION = 1_000
# OpenAPI ignores the first three. The others belong to the connection or to the gateway.
_IGNORED_HEADERS = frozenset(
    {
        "accept", "authorization", "content-type", "accept-encoding", "connection", "content-length", "cookie",
        "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
_FLAT_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description", "examples"}
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The parameters and the body of an operation, and the tool's input schema."""

    parameters: tuple[Parameter, ...]
    body: RequestBody | None
    schema: dict[str, Any]


@dataclass(eq=False, repr=False)
class InputReader:
    """Reads one operation, once. *raw* is the operation, *shared* its path item."""

    _document: Document
    _path: str
    _shared: Mapping[str, Any]
    _raw: Mapping[str, Any]
    _configured: Configured
    _schemas: ToolSchemas

    def __post_init__(self) -> None:
        self._path_names = re.findall(r"\{([^{}]*)\}", self._path)
        self._reserved_headers = self._configured.headers | _IGNORED_HEADERS
        self._takes_cookies = "cookie" not in self._configured.headers
        # What is configured, and what the path says itself, is no more the caller's than a credential is.
        sent = frozenset(("query", name) for name in self._configured.query)
        written = parse_qsl(self._path.partition("?")[2], keep_blank_values=True)
        self._fixed = _secret_parameters(self._document) | sent | {("query", name) for name, _ in written}
        self._parameters: list[Parameter] = []
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []

    def read(self) -> Inputs:
        """Raises Unusable."""
        for (place, name), declared in self._declared().items():
            self._add(cast(Place, place), name, declared)
        body = self._body()
        if len(self._properties) > _MAX_ARGUMENTS:
            raise Unusable(f"it takes more than {_MAX_ARGUMENTS} arguments")
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = self._required
        schema["additionalProperties"] = False
        if definitions := self._schemas.definitions():
            schema["$defs"] = definitions
        return Inputs(tuple(map(self._with_others, self._parameters)), body, schema)

    def _with_others(self, parameter: Parameter) -> Parameter:
        """Returns *parameter* with the names that an exploded object must not set (UP-59)."""
        place = parameter.place
        declared = (other.name for other in self._parameters if other is not parameter and other.place == place)
        fixed = (name for where, name in self._fixed if where == place)
        return replace(parameter, others=frozenset((*declared, *fixed)))

    def _declared(self) -> dict[tuple[str, str], Mapping[str, Any]]:
        """Returns the parameters by place and name: those of the path, replaced by the operation's own, and a text for
        each name in the path that is not declared."""
        declared: dict[tuple[str, str], Mapping[str, Any]] = {}
        for holder in (self._shared, self._raw):
            listed = self._document.follow(holder.get("parameters", []))
            if not isinstance(listed, list):
                raise Unusable("its parameters are not a list")
            for each in listed:
                # One that cannot be understood makes the operation unusable: it might be required.
                parameter = self._document.resolve(each)
                place, name = parameter.get("in"), parameter.get("name")
                if not isinstance(name, str) or not name or not isinstance(place, str) or place not in STYLES:
                    raise Unusable("a parameter has no name, or no place that is known")
                if self._is_reserved(place, name) or (place, _normal_name(place, name)) in self._fixed:
                    continue
                declared[place, name] = parameter
        for name in self._path_names:
            declared.setdefault(("path", name), {"schema": {"type": "string"}})
        return declared

    def _is_reserved(self, place: str, name: str) -> bool:
        """Returns whether no caller may give it: the gateway sends it, it cannot be sent, or the path has no place."""
        match place:
            case "header":
                return name.lower() in self._reserved_headers or not _TOKEN.fullmatch(name)
            case "cookie":
                return not self._takes_cookies or not _TOKEN.fullmatch(name)
            case "path":
                return name not in self._path_names
            case _:
                return False

    def _add(self, place: Place, name: str, declared: Mapping[str, Any]) -> None:
        schema, as_json = self._schema_of(declared)
        # A name of its own among the arguments.
        argument = name if name not in self._properties else f"{place}_{name}"
        while argument in self._properties:
            argument += "_"
        # A parameter of the path is always required.
        if place == "path":
            self._required.append(argument)
            if schema.get("type") == "string" and "minLength" not in schema:
                schema["minLength"] = 1  # an empty segment would be a different path
        elif declared.get("required") is True:
            self._required.append(argument)
        if isinstance(text := declared.get("description"), str) and text.strip():
            schema["description"] = text.strip()[:_MAX_DESCRIPTION]
        if declared.get("deprecated") is True:
            schema["deprecated"] = True
        self._properties[argument] = schema
        # The way in which it is written.
        style = declared.get("style")
        known: Style = style if style in STYLES[place] else STYLES[place][0]
        explode = declared.get("explode")
        self._parameters.append(
            Parameter(
                argument,
                name,
                place,
                known,
                explode if isinstance(explode, bool) else known == "form",
                allow_reserved=declared.get("allowReserved") is True,
                as_json=as_json,
            )
        )

    def _schema_of(self, declared: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        content = self._document.follow(declared.get("content"))
        if isinstance(content, Mapping) and content:
            media = self._document.follow(next(iter(content.values())))
            return self._schemas.read(media.get("schema", {}) if isinstance(media, Mapping) else {}), True
        return self._schemas.read(declared.get("schema", {})), False

    def _body(self) -> RequestBody | None:
        if "requestBody" not in self._raw:
            return None
        declared = self._document.resolve(self._raw["requestBody"])
        content = self._document.follow(declared.get("content"))
        if not isinstance(content, Mapping) or not content:
            return None
        # The media type decides how the arguments are written, and so what they may be.
        content_type, kind, media = choose_media_type(content)
        media = self._document.resolve(media)
        required = declared.get("required") is True
        raw_schema = media.get("schema", {})
        parts = form_parts(self._document, media, kind) if kind in ("form", "multipart") else {}
        schema = self._body_schema(raw_schema, kind)
        # Files are given in base64. Properties become arguments if the body is a plain object.
        files = {name for name, part in parts.items() if part.is_file}
        flat = self._flat(schema, required) if kind in ("json", "form", "multipart") else None
        if flat is not None:
            properties, names = flat
            for name, member in properties.items():
                self._properties[name] = _as_base64(member) if name in files else member
            self._required += names
            return RequestBody(kind, content_type, required, flattened={name: name for name in properties}, parts=parts)
        if files and isinstance(schema.get("properties"), dict):
            members = schema["properties"]
            schema["properties"] = {n: _as_base64(m) if n in files else m for n, m in members.items()}
        # Otherwise the body is one argument.
        argument = "body"
        while argument in self._properties:
            argument = f"request_{argument}"
        if isinstance(text := declared.get("description"), str) and text.strip():
            schema.setdefault("description", text.strip()[:_MAX_DESCRIPTION])
        self._properties[argument] = schema
        if required:
            self._required.append(argument)
        return RequestBody(kind, content_type, required, argument=argument, parts=parts)

    def _body_schema(self, raw_schema: object, kind: BodyKind) -> dict[str, Any]:
        """Returns the schema of the body. The properties of a form are needed, so its reference is resolved."""
        if kind == "bytes":
            return {"type": "string", "contentEncoding": "base64", "description": "Binary data, in base64."}
        if kind == "text":
            return {"type": "string"}
        return self._schemas.read(self._document.resolve(raw_schema) if isinstance(raw_schema, Mapping) else raw_schema)

    def _flat(self, schema: dict[str, Any], required: bool) -> tuple[dict[str, Any], list[str]] | None:
        """Returns the properties and the required names of a plain object that can stand beside the parameters."""
        properties, names = schema.get("properties"), schema.get("required", [])
        if schema.get("type", "object") != "object" or not isinstance(properties, dict) or not properties:
            return None
        if not schema.keys() <= _FLAT_KEYWORDS or schema.get("additionalProperties", False) is not False:
            return None
        if properties.keys() & self._properties.keys() or not set(names) <= properties.keys():
            return None
        return None if names and not required else (properties, list(names))


def _secret_parameters(document: Document) -> frozenset[tuple[str, str]]:
    """Returns place and name of every API key among the document's security schemes."""
    found: set[tuple[str, str]] = set()
    for scheme in document.security_schemes().values():
        place, name = scheme.get("in"), scheme.get("name")
        if scheme.get("type") == "apiKey" and isinstance(place, str) and isinstance(name, str):
            found.add((place, _normal_name(place, name)))
    return frozenset(found)


def _normal_name(place: str, name: str) -> str:
    return name.lower() if place == "header" else name


def _as_base64(member: Any) -> Any:
    """Returns the schema of a file as the caller gives it."""
    text = {"type": "string", "contentEncoding": "base64"}
    description = member.get("description") if isinstance(member, dict) else None
    text["description"] = f"{description} (in base64)" if isinstance(description, str) else "A file, in base64."
    is_list = isinstance(member, dict) and member.get("type") == "array"
    return {"type": "array", "items": text} if is_list else text
