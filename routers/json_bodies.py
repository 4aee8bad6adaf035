"""JSON and parameters as they are read by hand, so that refusals have our shape; and their schemas (OPS-153)."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from app.json_body import TooManyValues, read_counted, read_short
from routers.refusals import Refused, refuse
from wicketgate.results.bulk import read_object

TEXT: Mapping[str, Any] = {"type": "string"}
OBJECT: Mapping[str, Any] = {"type": "object", "additionalProperties": True}
"""Declared open, since some generators close an object that is not."""
REFUSAL = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
"""The content of a refusal."""


def query(name: str, schema: Mapping[str, Any] = TEXT, *, required: bool = False) -> dict[str, Any]:
    """The schema of a parameter in the query."""
    return {"name": name, "in": "query", "required": required, "schema": dict(schema)}


def in_path(name: str, schema: Mapping[str, Any] = TEXT) -> dict[str, Any]:
    """The schema of a parameter in the path."""
    return {"name": name, "in": "path", "required": True, "schema": dict(schema)}


def parameters(*each: dict[str, Any]) -> dict[str, Any]:
    return {"parameters": list(each)}


def json_body(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """The schema of a body that is an object with *properties*."""
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class SurrogateJson(JSONResponse):
    """Escapes what UTF-8 cannot encode: texts of tools and callers may hold half a surrogate pair."""

    def render(self, content: Any) -> bytes:
        try:
            return super().render(content)
        except UnicodeEncodeError:
            return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


async def json_object(request: Request) -> dict[str, Any]:
    """The object in the body. Raises Refused for any other body."""
    try:
        body = read_object(await read_counted(request.receive))
    except TooManyValues as error:
        raise Refused(refuse(413, "payload_too_large", str(error))) from None
    if body is None:
        raise Refused(refuse(400, "invalid_request", "Request body must be a JSON object"))
    return body


async def short_object(request: Request, most_bytes: int) -> dict[str, Any]:
    """The object in a body of a few bytes; an empty one for any other body."""
    return read_object(await read_short(request.receive, most_bytes) or b"") or {}


def number_in(text: str) -> int | None:
    """The number that *text* writes in at most nine digits; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
