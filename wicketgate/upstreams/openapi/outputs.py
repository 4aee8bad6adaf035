"""What an operation answers with when it succeeds, as far as its document says (OpenAPI "Responses Object", S4 §2)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from wicketgate.upstreams.openapi.bodies import base_type, is_json_type
from wicketgate.upstreams.openapi.document import Document, Unusable
from wicketgate.upstreams.openapi.schemas import ToolSchemas

STREAMS = frozenset(
    {
        "text/event-stream",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        "application/json-seq",
        "multipart/x-mixed-replace",
    }
)


def answer_types(document: Document, raw: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(base_type(kind) for content in _successes(document, raw) for kind in content)


def accept_header(media_types: frozenset[str]) -> str:
    """JSON first; never a stream, where the server leaves us the choice."""
    known = sorted(kind for kind in media_types - STREAMS if re.fullmatch(r"[\w.+*-]+/[\w.+*-]+", kind, re.ASCII))
    wanted = sorted(known, key=lambda kind: not is_json_type(kind))[:10]
    return ", ".join([*(wanted or ["application/json"]), "*/*;q=0.1"])


def output_schema(document: Document, raw: Mapping[str, Any], schemas: ToolSchemas) -> dict[str, Any] | None:
    """Of a JSON answer that is always an object; structured content is nothing else (MCP). None too when it would be
    large: it is only a help."""
    for content in _successes(document, raw):
        for media_type, media in content.items():
            if is_json_type(media_type) and isinstance(media, Mapping) and "schema" in media:
                try:
                    return _object_schema(document, media["schema"], schemas)
                except Unusable:
                    return None
    return None


def _object_schema(document: Document, raw: object, schemas: ToolSchemas) -> dict[str, Any] | None:
    if document.resolve(raw).get("type") != "object":
        return None
    schema = schemas.read(raw)
    if definitions := schemas.definitions():
        schema["$defs"] = definitions
    if not schemas.whole or schema.get("type", "object") != "object":
        return None
    # Tools declare the type at the root, also where it follows from a reference.
    return {"type": "object", **schema}


def _successes(document: Document, raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The ``content`` of every response that is a success, the lowest status first."""
    responses = raw.get("responses")
    if not isinstance(responses, Mapping):
        return
    statuses = sorted(status for status in responses if status[:1] == "2" and len(status) == 3)
    for status in statuses or (["default"] if "default" in responses else []):
        try:
            content = document.resolve(responses[status]).get("content")
        except Unusable:
            continue  # what an answer looks like is a help, and its lack no reason not to ask
        if isinstance(content, Mapping):
            yield content
