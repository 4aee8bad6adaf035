"""Reads an OpenAPI document as plain JSON values, bounded; follows its references and finds its server (UP-32).

Versions 3.0, 3.1 and 3.2 are read, each from one file: references are followed within it only (UP-90).
"""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from wicketgate.net import origin
from wicketgate.yaml_text import NotYaml, read_yaml

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
_MAX_YAML_BYTES = 12 * 1024 * 1024
_MAX_VALUES = 2_000_000
_MAX_DEPTH = 200
_MAX_HOPS = 32

_VERSION = re.compile(r"3\.([012])(\.|$)")


class DocumentRefused(Exception):
    """The whole document cannot be used. The text says why and may be shown."""


class Unusable(Exception):
    """One piece of a document cannot be used. The text says why, for the log."""


@dataclass(frozen=True, slots=True)
class Document:
    """*root* holds only JSON values with string keys. *dialect_30*: schemas are those of OpenAPI 3.0."""

    root: Mapping[str, Any]
    dialect_30: bool

    def resolve(self, value: object) -> Mapping[str, Any]:
        """Returns *value*, or the object at the end of its ``$ref``. Raises Unusable."""
        found = self.follow(value)
        if not isinstance(found, Mapping):
            raise Unusable("something that is not an object stands where one is needed")
        return found

    def follow(self, value: object) -> Any:
        """Returns *value*, or whatever stands at the end of its ``$ref``. Raises Unusable."""
        for _ in range(_MAX_HOPS):
            reference = value.get("$ref") if isinstance(value, Mapping) else None
            if not isinstance(reference, str):
                return value
            value = self.at(reference)
        raise Unusable("references lead on to other references without end")

    def at(self, reference: str) -> Any:
        """Returns the value at ``#/components/schemas/Pet``. Raises Unusable."""
        path, _, pointer = reference.partition("#")
        if path and ":" not in path:
            # Many files, each with a moment of its own, would be no one document.
            raise Unusable(f"{path[:200]}: it is another file, which is not read: bundle it first (redocly bundle)")
        if path or not pointer.startswith("/"):
            raise Unusable("a reference leads out of the document, or is not a path in it; it is not followed")
        value: Any = self.root
        for part in pointer[1:].split("/"):
            # Percent-encoding first, then the two escapes of JSON Pointer.
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            match value:
                case dict() if key in value:
                    value = value[key]
                case list() if key.isascii() and key.isdigit() and len(key) < 7 and int(key) < len(value):
                    value = value[int(key)]
                case _:
                    raise Unusable("a reference leads to nothing")
        return value

    def security_schemes(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns those that can be read, by name."""
        found: dict[str, Mapping[str, Any]] = {}
        try:
            components = self.follow(self.root.get("components"))
            schemes = self.follow(components.get("securitySchemes")) if isinstance(components, Mapping) else None
        except Unusable:
            return found
        for name, scheme in schemes.items() if isinstance(schemes, Mapping) else ():
            with suppress(Unusable):
                found[name] = self.resolve(scheme)
        return found


def read_document(data: bytes) -> Document:
    """Read JSON or YAML. Takes seconds for the largest document, so call it in a thread. Raises DocumentRefused."""
    root = _plain(data)
    if not isinstance(root, dict):
        raise DocumentRefused("this is no OpenAPI document (no paths)" if root is not None else "the document is empty")
    # The version decides the dialect of the schemas.
    version = root.get("openapi")
    if "swagger" in root:
        raise DocumentRefused("the document is Swagger 2.0; convert it to OpenAPI 3 first")
    # YAML reads an unquoted 3.1 as a number.
    known = _VERSION.match(str(version)) if isinstance(version, str | float) else None
    if known is None:
        raise DocumentRefused("the document does not say 'openapi: 3.0', '3.1' or '3.2'")
    document = Document(root, known.group(1) == "0")
    try:
        paths = document.follow(root.get("paths", {}))
    except Unusable as reason:
        raise DocumentRefused(f"the document's paths cannot be read: {reason}") from None
    if not isinstance(paths, dict):
        raise DocumentRefused("the document's paths are not an object")
    root["paths"] = paths
    return document


def _plain(data: bytes) -> Any:
    """Returns JSON values with string keys. Raises DocumentRefused."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise DocumentRefused(f"the document is larger than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DocumentRefused("the document is not UTF-8 text") from None
    try:
        return _Copy().of(_parsed(text), 0)
    except RecursionError:
        raise DocumentRefused("the document is nested too deeply") from None


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] == "{":
        try:
            return json.loads(text)
        except ValueError:
            pass  # YAML may begin with a brace too
    if len(text) > _MAX_YAML_BYTES:
        raise DocumentRefused(f"YAML documents may have {_MAX_YAML_BYTES:,} bytes; give it as JSON")
    try:
        return read_yaml(text)
    except NotYaml as error:
        raise DocumentRefused(f"the document is neither JSON nor YAML: {error}") from None


class _Copy:
    """Copies JSON values only, bounded, because aliases of YAML can repeat a little very often."""

    def __init__(self) -> None:
        self._left = _MAX_VALUES

    def of(self, value: object, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise DocumentRefused(f"the document holds more than {_MAX_VALUES:,} values")
        if depth > _MAX_DEPTH:
            raise DocumentRefused("the document is nested too deeply")
        match value:
            case dict():
                return {str(key): self.of(member, depth + 1) for key, member in value.items()}
            case list():
                return [self.of(item, depth + 1) for item in value]
            case str() | bool() | int() | None:
                return value
            case float() if math.isfinite(value):
                return value
            case _:
                return None  # NaN, which JSON cannot write


def server_url(document: Document, document_url: str) -> str:
    """Returns the URL of the first server, its variables at their defaults. *document_url* is empty for a file.

    Raises DocumentRefused. A document that came over the network may name only its own origin, because the operator's
    headers and credentials are sent to the server.
    """
    servers = document.root.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {"url": "/"}
    url = first.get("url") if isinstance(first, Mapping) else None
    if not isinstance(url, str):
        raise DocumentRefused("the document's first server has no url; set base_url")
    variables = first.get("variables")
    values = variables if isinstance(variables, Mapping) else {}

    def default(match: re.Match[str]) -> str:
        variable = values.get(match.group(1))
        value = variable.get("default") if isinstance(variable, Mapping) else None
        return str(value) if isinstance(value, str | int | float) else match.group(0)

    # Variables take their defaults. A relative URL starts from the document's own.
    joined = urljoin(document_url, re.sub(r"\{([^{}]*)\}", default, url).strip())
    if not is_base_url(joined):
        raise DocumentRefused("the document names no http or https server; set base_url")
    if document_url and origin(joined) != origin(document_url):
        raise DocumentRefused("the document names a server on another host than its own; set base_url to allow one")
    return joined


def is_base_url(url: str) -> bool:
    """Returns whether paths can be appended: http or https, a host, and neither query, fragment nor credentials."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    if "{" in url or not url.isascii() or not url.isprintable() or " " in url:
        return False
    dots = any(part in (".", "..") for part in parts.path.split("/"))
    return usable and not (parts.query or parts.fragment or parts.username or parts.password or dots)
