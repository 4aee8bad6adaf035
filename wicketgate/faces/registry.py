"""The registry face: search, schema, call, batch (S4), whatever the number of operations behind it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wicketgate.faces.operations import (
    BATCH_AT_ONCE,
    DEFAULT_LIMIT,
    MAX_BATCH,
    MAX_LIMIT,
    Ended,
    OperationError,
    Operations,
    Output,
    check_fields,
)
from wicketgate.faces.surface import SurfaceResult, SurfaceTool
from wicketgate.ports import CallContext

INSTRUCTIONS = (
    "Call `search` to discover operations, `schema` for an operation's full spec, `call` to invoke one, `batch` to "
    "invoke several that do not depend on each other."
)

_CALL_PROPERTIES = {
    "operation": {"type": "string", "description": "/namespace/name, as search gave it"},
    "input": {"type": "object"},
}

_TOOLS = (
    SurfaceTool(
        name="search",
        description="Find operations by words, or list all. Gives names and descriptions; call schema for the rest.",
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "namespace": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
                "cursor": {"type": "string", "description": "next_cursor of the same search"},
            },
            "additionalProperties": False,
        },
        read_only=True,
    ),
    SurfaceTool(
        name="schema",
        description="The full specification of one operation: input and output schema, errors, access.",
        input_schema={
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "additionalProperties": False,
        },
        read_only=True,
    ),
    SurfaceTool(
        name="call",
        description="Invoke one operation.",
        input_schema={
            "type": "object",
            "properties": _CALL_PROPERTIES,
            "required": ["operation"],
            "additionalProperties": False,
        },
    ),
    SurfaceTool(
        name="batch",
        description=(
            f"Invoke up to {MAX_BATCH} independent operations, {BATCH_AT_ONCE} at a time. Each gives its own output or "
            "error, in the order of the calls."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "calls": {
                    "type": "array",
                    "maxItems": MAX_BATCH,
                    "items": {"type": "object", "properties": _CALL_PROPERTIES, "required": ["operation"]},
                }
            },
            "required": ["calls"],
            "additionalProperties": False,
        },
    ),
)

# A call says itself what its fields are, for it leaves a record.
_FIELDS = {tool.name: frozenset(tool.input_schema["properties"]) for tool in _TOOLS if tool.name != "call"}


class RegistryFace:
    """Implements ToolSurface. Every failure is a result ``{code, message, retryable, details?}``, an unknown tool too
    (alknet A04)."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        return _TOOLS

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        try:
            return await self._call(name, arguments, context)
        except OperationError as error:
            return _result(error.as_dict(), is_error=True)

    async def _call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        fields: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
        if name in _FIELDS and arguments is not None:
            check_fields(arguments, name, _FIELDS[name])
        match name:
            case "search":
                return _result(await self._operations.search(fields, context))
            case "schema":
                return _result(await self._operations.schema(fields.get("name"), context))
            case "call":
                return _call_result(await self._operations.call(fields, context))
            case "batch":
                ended = await self._operations.batch(fields.get("calls"), context)
                return _result({"results": [_item(one) for one in ended]})
            case _:
                raise OperationError("NOT_FOUND", f"unknown gateway tool: {name[:128]}")


def _call_result(output: Output) -> SurfaceResult:
    """structuredContent is always an object (DESIGN §3), and the text is the same JSON; pictures and sound stay what
    they are (alknet A22)."""
    value = output.value
    if value is output.content:
        return SurfaceResult(output.content, {"result": value}, _json({"result": value}), False)
    structured = value if isinstance(value, dict) else {"result": value}
    return _result(structured, text=value if isinstance(value, str) else _json(value))


def _item(ended: Ended) -> dict[str, Any]:
    if isinstance(ended.outcome, OperationError):
        return {"request_id": ended.request_id, "isError": True, "error": ended.outcome.as_dict()}
    return {"request_id": ended.request_id, "isError": False, "output": ended.outcome.value}


def _result(structured: Mapping[str, Any], *, is_error: bool = False, text: str | None = None) -> SurfaceResult:
    compact = _json(structured)
    return SurfaceResult(({"type": "text", "text": compact if text is None else text},), structured, compact, is_error)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
