"""Makes the return value of a Python function an MCP result in wire JSON (EXEC-22: structuredContent is an
object or not there)."""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from wicketgate.tools import Media

ToJson = Callable[[Any], Any]
"""Converts a value of the declared type to JSON values. Raises any error of the type's own serializer."""

_WRAPPED = "result"
_MAX_DEPTH = 200
# Python writes no integer as text that has more digits.
_MAX_INTEGER_BITS = 14_000


class NotJson(ValueError):
    """A whole result, or a block of content, holds a value that JSON cannot write."""


def to_json(value: Any) -> Any:
    """Converts the value of a function without a declared return type."""
    return to_jsonable_python(value, by_alias=True, bytes_mode="base64", inf_nan_mode="null")


def to_mcp_result(value: Any, to_json: ToJson = to_json) -> Mapping[str, Any]:
    """Returns the MCP result for *value*.

    Text, bytes, Media and MCP content (one or a list of them) become content. A whole MCP result is kept. All other
    values are JSON, as text and as structured content; there a value that is not an object stands under ``result``.

    Raises NotJson for content or a whole result that JSON cannot hold. For other values raises ValueError, TypeError or
    any error of *to_json*.
    """
    if _is_result(value):
        return _checked(dict(value))
    blocks = _content(value)
    if blocks is not None:
        return _checked({"content": blocks})
    plain = to_json(value)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    structured = plain if isinstance(plain, dict) else {_WRAPPED: plain}
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured}


def wrapped_output(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the output schema of a function whose JSON value fits *schema*. It is always the schema of an object."""
    if schema.get("type") == "object":
        return schema
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    wrapped: dict[str, Any] = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}
    return wrapped | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def failed_result(message: str) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _checked(result: dict[str, Any]) -> dict[str, Any]:
    """Returns *result* made of plain JSON values alone. Long texts are not copied.

    The doors write JSON in different ways: a value that one turns into null is written by another, or fails there.
    """
    return {key: _plain(value, 1) for key, value in result.items()}


def _plain(value: Any, depth: int) -> Any:
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int() if value.bit_length() <= _MAX_INTEGER_BITS:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case Mapping() if depth < _MAX_DEPTH and all(isinstance(key, str) for key in value):
            return {str.__str__(key): _plain(each, depth + 1) for key, each in value.items()}
        case [*items] if depth < _MAX_DEPTH:
            return [_plain(each, depth + 1) for each in items]
        case _:
            raise NotJson


def _content(value: Any) -> list[Mapping[str, Any]] | None:
    """Returns *value* as content blocks, or None when it is data."""
    if value is None:
        return []
    if (block := _block(value)) is not None:
        return [block]
    if isinstance(value, list | tuple) and any(isinstance(item, Media) or _is_block(item) for item in value):
        blocks = [_block(item) for item in value]
        if all(block is not None for block in blocks):
            return [block for block in blocks if block is not None]
    return None


def _block(value: Any) -> Mapping[str, Any] | None:
    match value:
        case str():
            # A text enum becomes its value, not its name.
            return {"type": "text", "text": str.__str__(value)}
        case bytes() | bytearray() | memoryview():
            return _media(Media(bytes(value), "application/octet-stream"))
        case Media():
            return _media(value)
        case _ if _is_block(value):
            return dict(value)
        case _:
            return None


def _media(media: Media) -> Mapping[str, Any]:
    data = base64.b64encode(media.data).decode("ascii")
    kind = media.media_type.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": data, "mimeType": media.media_type}
    uri = f"file:///{media.name or 'result'}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media.media_type, "blob": data}}


def _is_block(value: Any) -> bool:
    match value:
        case {"type": "text", "text": str()} | {"type": "resource_link", "uri": str()}:
            return True
        case {"type": "image" | "audio", "data": str(), "mimeType": str()}:
            return True
        case {"type": "resource", "resource": {"uri": str(), **_rest}}:
            return True
        case _:
            return False


def _is_result(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value.keys() <= {"content", "structuredContent", "isError", "_meta"}:
        return False
    content = value.get("content")
    return isinstance(content, Sequence) and not isinstance(content, str) and all(map(_is_block, content))
