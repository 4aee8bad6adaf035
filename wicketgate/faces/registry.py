"""The registry face: four tools (search, schema, call, batch) for any number of operations (FACE-22 to FACE-32)."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from wicketgate.faces.meta_tool import compact_json, json_result, object_schema
from wicketgate.faces.operations import (
    BATCH_AT_ONCE,
    DEFAULT_LIMIT,
    MAX_BATCH,
    MAX_LIMIT,
    BatchOutcome,
    OperationError,
    Operations,
    Output,
    check_fields,
    naming,
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
        description="Find operations by words, or list all. Gives names and short descriptions; call schema for more.",
        input_schema=object_schema(
            {
                "query": {"type": "string"},
                "namespace": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
                "cursor": {"type": "string", "description": "next_cursor of the same search"},
            }
        ),
        read_only=True,
    ),
    SurfaceTool(
        name="schema",
        description="The full specification of one operation: input and output schema, errors, access.",
        input_schema=object_schema({"name": {"type": "string"}}, "name"),
        read_only=True,
    ),
    SurfaceTool("call", "Invoke one operation.", object_schema(_CALL_PROPERTIES, "operation")),
    SurfaceTool(
        name="batch",
        description=(
            f"Invoke up to {MAX_BATCH} independent operations, {BATCH_AT_ONCE} at a time. Each gives its own output or "
            "error, in the order of the calls."
        ),
        input_schema=object_schema(
            {
                "calls": {
                    "type": "array",
                    "maxItems": MAX_BATCH,
                    "items": {"type": "object", "properties": _CALL_PROPERTIES, "required": ["operation"]},
                }
            },
            "calls",
        ),
    ),
)

# The fields of a call are checked later, because a refused call leaves an audit record.
_FIELDS = {tool.name: frozenset(tool.input_schema["properties"]) for tool in _TOOLS if tool.name != "call"}


class RegistryFace:
    """Implements ToolSurface. Every failure is a result ``{code, message, retryable, details?}``, also an unknown tool
    (FACE-22)."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def prepare(self, context: CallContext) -> None:
        await self._operations.prepare(context)

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        return _TOOLS

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        try:
            return await self._call(name, arguments, context)
        except OperationError as error:
            return replace(json_result(error.as_dict(), is_error=True), refused=error.refused)

    async def _call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        fields: Mapping[str, Any] = arguments if isinstance(arguments, Mapping) else {}
        if name == "schema" and fields:
            arguments = fields = naming(fields, "name")
        if name in _FIELDS and arguments is not None:
            check_fields(arguments, name, _FIELDS[name])
        match name:
            case "search":
                return json_result(await self._operations.search(fields, context))
            case "schema":
                return json_result(await self._operations.schema(fields.get("name"), context))
            case "call":
                return _call_result(await self._operations.call(fields, context))
            case "batch":
                ended = await self._operations.batch(fields.get("calls"), context)
                return json_result({"results": [_item(one) for one in ended]})
            case _:
                raise OperationError("NOT_FOUND", f"unknown gateway tool: {name[:128]}")


def _call_result(output: Output) -> SurfaceResult:
    """structuredContent is always an object (FACE-27), and the text is the same JSON. Pictures, sound and resources
    stay as they are, beside structured content too (FACE-22, FACE-101)."""
    value = output.value
    structured = value if isinstance(value, dict) else {"result": value}
    if any(block.get("type") != "text" for block in output.content):
        return SurfaceResult(output.content, structured, compact_json(structured), False)
    return json_result(structured, lines=value if isinstance(value, str) else compact_json(value))


def _item(ended: BatchOutcome) -> dict[str, Any]:
    if isinstance(ended.outcome, OperationError):
        return {"request_id": ended.request_id, "isError": True, "error": ended.outcome.as_dict()}
    return {"request_id": ended.request_id, "isError": False, "output": ended.outcome.value}
