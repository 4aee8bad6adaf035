"""The body of an operation: its media type, its parts, and how arguments are written as it (OpenAPI "Request Body
Object")."""

import hashlib
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote_plus

from wicketgate.upstreams.openapi.document import Document, Unusable
from wicketgate.upstreams.openapi.parameters import Parameter, query_pairs, text_of, write_json

BodyKind = Literal["json", "form", "multipart", "text", "bytes"]

_ORDER: tuple[BodyKind, ...] = ("json", "form", "multipart", "text", "bytes")


STREAMS = frozenset(
    {
        "text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl",
        "application/x-jsonlines", "application/json-seq", "multipart/x-mixed-replace",
    }
)  # fmt: skip
"""Media types of answers that need not end."""


class BodyRefused(ValueError):
    """The arguments cannot be written as this body. The text may be shown."""


@dataclass(frozen=True, slots=True)
class Part:
    """One property of a form. *is_file*: it is given in base64 and sent as bytes."""

    is_file: bool = False
    content_type: str = ""
    style: Parameter | None = None


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The body that an operation takes. *argument* holds it whole. If it is empty, the properties are arguments of
    their own, and *flattened* gives the property by argument."""

    kind: BodyKind
    content_type: str
    required: bool
    argument: str = ""
    flattened: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)


def choose_media_type(content: Mapping[str, Any]) -> tuple[str, BodyKind, Mapping[str, Any]]:
    """Returns the best media type that an operation takes: JSON before forms before text. Raises Unusable if none."""
    found: dict[BodyKind, tuple[str, Mapping[str, Any]]] = {}
    for media_type, media in content.items():
        if isinstance(media, Mapping) and _is_printable(media_type):
            found.setdefault(_kind(media_type), (media_type, media))
    for kind in _ORDER:
        if kind in found:
            media_type, media = found[kind]
            return _sent_type(kind, media_type), kind, media
    raise Unusable("its body has no content type")


def base_type(media_type: str) -> str:
    """Returns ``application/json`` of ``Application/JSON; charset=utf-8``."""
    return media_type.partition(";")[0].strip().lower()


def is_json_type(media_type: str) -> bool:
    base = base_type(media_type)
    return base in ("application/json", "text/json") or base.endswith("+json")


def is_text_type(media_type: str) -> bool:
    base = base_type(media_type)
    return (
        base.startswith("text/")
        or base in ("application/xml", "application/yaml", "application/x-yaml", "application/javascript")
        or base.endswith(("+xml", "+yaml"))
    )


def form_parts(document: Document, media: Mapping[str, Any], kind: BodyKind) -> dict[str, Part]:
    """Returns the parts of a form by property. Raises Unusable."""
    declared = document.follow(document.resolve(media.get("schema", {})).get("properties"))
    properties = declared if isinstance(declared, Mapping) else {}
    encodings = media.get("encoding")
    parts: dict[str, Part] = {}
    for name, schema in properties.items():
        encoding = encodings.get(name) if isinstance(encodings, Mapping) else None
        encoding = encoding if isinstance(encoding, Mapping) else {}
        content_type = encoding.get("contentType")
        parts[name] = Part(
            is_file=kind == "multipart" and is_file(document, schema),
            content_type=content_type if isinstance(content_type, str) and _is_printable(content_type) else "",
            style=_form_style(name, encoding, properties) if kind == "form" else None,
        )
    return parts


def is_file(document: Document, schema: object) -> bool:
    """Returns whether a property is binary data, or a list of such."""
    schema = document.resolve(schema) if isinstance(schema, Mapping) else {}
    if schema.get("type") == "array":
        items = schema.get("items")
        return isinstance(items, Mapping) and items.get("type") != "array" and is_file(document, items)
    raw_media = "contentMediaType" in schema and "contentEncoding" not in schema
    return schema.get("format") == "binary" or schema.get("type") == "file" or raw_media


def write_body(body: RequestBody, arguments: Mapping[str, Any]) -> tuple[bytes, str] | None:
    """Returns the bytes and their content type; None when the call has no body. Raises BodyRefused."""
    # The whole body is one argument, or its properties are.
    if body.argument:
        if body.argument not in arguments:
            return None
        value = arguments[body.argument]
    else:
        value = {name: arguments[argument] for argument, name in body.flattened.items() if argument in arguments}
        if not value and not body.required:
            return None
    match body.kind:
        case "json":
            return write_json(value).encode(), body.content_type
        case "form" | "multipart" if not isinstance(value, Mapping):
            raise BodyRefused("a form is an object")
        case "form":
            return _form(value, body.parts), body.content_type
        case "multipart":
            return _multipart(value, body.parts)
        case "text":
            return text_of(value).encode(), body.content_type
        case "bytes":
            return _bytes(value), body.content_type


def _kind(media_type: str) -> BodyKind:
    base = base_type(media_type)
    if is_json_type(base) or base in ("*/*", "application/*"):
        return "json"
    if base == "application/x-www-form-urlencoded":
        return "form"
    if base == "multipart/form-data":
        return "multipart"
    return "text" if is_text_type(base) else "bytes"


def _sent_type(kind: BodyKind, media_type: str) -> str:
    if "*" not in media_type:
        return media_type
    return {"json": "application/json", "text": "text/plain"}.get(kind, "application/octet-stream")


def _form_style(name: str, encoding: Mapping[str, Any], properties: Mapping[str, Any]) -> Parameter | None:
    """Returns None where an object is written as JSON, which is the default (OpenAPI "Encoding Object")."""
    style = encoding.get("style")
    explode = encoding.get("explode")
    if style not in ("form", "spaceDelimited", "pipeDelimited", "deepObject"):
        return None
    explodes = explode if isinstance(explode, bool) else style == "form"
    return Parameter(name, name, "query", style, explodes, others=frozenset(properties) - {name})


def _form(value: Mapping[str, object], parts: Mapping[str, Part]) -> bytes:
    pieces: list[str] = []
    for name, member in value.items():
        part = parts.get(name, Part())
        if part.style is not None:
            pieces += query_pairs(part.style, member)
        else:
            members = member if isinstance(member, list) else [member]
            pieces += [f"{quote_plus(name)}={quote_plus(text_of(each))}" for each in members]
    return "&".join(pieces).encode()


def _multipart(value: Mapping[str, object], parts: Mapping[str, Part]) -> tuple[bytes, str]:
    pieces: list[tuple[bytes, bytes]] = []
    for name, member in value.items():
        part = parts.get(name, Part())
        members = member if isinstance(member, list) else [member]
        pieces += [_multipart_piece(name, each, part) for each in members]
    # A boundary made from the content: no argument can contain it, and the same call has the same bytes.
    digest = hashlib.sha256()
    for head, data in pieces:
        digest.update(head + data)
    boundary = b"wicketgate-" + digest.hexdigest()[:40].encode()
    out = b"".join(b"--" + boundary + b"\r\n" + head + b"\r\n" + data + b"\r\n" for head, data in pieces)
    return out + b"--" + boundary + b"--\r\n", f"multipart/form-data; boundary={boundary.decode()}"


def _multipart_piece(name: str, value: object, part: Part) -> tuple[bytes, bytes]:
    # The type is the one that the document declares, if any, or the one that the value suggests.
    quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    disposition = f'Content-Disposition: form-data; name="{quoted}"'
    if part.is_file:
        data, content_type = _bytes(value), part.content_type.partition(",")[0].strip() or "application/octet-stream"
        disposition += f'; filename="{quoted}"'
    elif isinstance(value, Mapping | list) or (part.content_type and is_json_type(part.content_type)):
        data, content_type = write_json(value).encode(), part.content_type or "application/json"
    else:
        data, content_type = text_of(value).encode(), part.content_type
    typed = f"\r\nContent-Type: {content_type}" if content_type and "*" not in content_type else ""
    return f"{disposition}{typed}\r\n".encode(), data


def _bytes(value: object) -> bytes:
    if not isinstance(value, str):
        raise BodyRefused("binary data is given as base64 text")
    try:
        return b64decode(value, validate=True)
    except ValueError:
        raise BodyRefused("binary data must be valid base64") from None


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable()
