"""Tools and results fitted to the client's protocol version, and long lists in pages.

One odd tool or result of a server does not cost the client the whole answer.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from wicketgate.errors import GatewayError
from wicketgate.faces.meta_tool import compact_json
from wicketgate.faces.surface import ResultForm, SurfaceResult, SurfaceTool
from wicketgate.results.bulk import json_with, odd_json

T = TypeVar("T")

PAGE = 1_000

# The newer era requires it in every result; older clients ignore it.
WHOLE = {"resultType": "complete"}

_TTL = {"ttlMs": 0, "cacheScope": "private"}
_OF_THE_CONNECTION = "io.modelcontextprotocol/"
_MAX_KEPT = 32
_MAX_INDEXES = 8
"""One of ten thousand tools takes some 200 KB."""
_PLAIN = frozenset({"content", "structuredContent", "isError", "resultType"})


class ToolListings:
    """Pages of ``tools/list``, kept while a face shows the same list."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str | None, str], _Page] = {}

    def page(self, tools: Sequence[SurfaceTool], cursor: str | None, version: str) -> dict[str, Any]:
        """Raises MCPError for an invalid cursor."""
        return {**WHOLE, **self._page(tools, cursor, version).answer}

    def written(self, tools: Sequence[SurfaceTool], cursor: str | None, version: str) -> dict[str, Any]:
        """As ``page``, without what is no field of this version, and with all tools as one JSON text."""
        page = self._page(tools, cursor, version)
        if page.written is None:
            fields = serialize_server_result("tools/list", version, {**WHOLE, **_TTL, **page.answer})
            page.written = {**fields, "tools": written(fields["tools"])}
        return page.written

    def _page(self, tools: Sequence[SurfaceTool], cursor: str | None, version: str) -> "_Page":
        key = (id(tools), cursor, version)
        kept = self._kept.get(key)
        if kept is None or kept.tools is not tools:
            shown, following = paged(tools, cursor, lambda tool: tool.name)
            answer: dict[str, Any] = {"tools": _fitting([_tool_json(tool, version) for tool in shown], version)}
            if following is not None:
                answer["nextCursor"] = following
            kept = self._kept[key] = _Page(tools, answer)
            if len(self._kept) > _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return kept


class ToolNames:
    """Tools by name, kept for the lists that were asked last: callers of different rights take turns."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Sequence[SurfaceTool], dict[str, SurfaceTool]]] = {}

    def find(self, tools: Sequence[SurfaceTool], name: str) -> SurfaceTool | None:
        # The list is kept too, so that no other gets its id.
        kept = self._kept.get(id(tools))
        if kept is None:
            if len(self._kept) >= _MAX_INDEXES:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(tools)] = tools, {tool.name: tool for tool in tools}
        return kept[1].get(name)


@dataclass(slots=True)
class _Page:
    tools: Sequence[SurfaceTool]
    answer: dict[str, Any]
    written: dict[str, Any] | None = None


def paged(items: Sequence[T], cursor: str | None, name: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
    """A page and the cursor of the next. A cursor names the last item shown, so it outlives changes of the others.

    Raises MCPError for an unknown cursor, or one whose item is gone: then the client lists from the beginning.
    """
    start = 0
    if cursor is not None:
        try:
            last = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("utf-8", "surrogatepass")
        except (binascii.Error, UnicodeError):
            last = ""
        start = next((place for place, item in enumerate(items, 1) if name(item) == last), 0)
        if start == 0:
            raise MCPError(INVALID_PARAMS, "This cursor is not valid any more. List again from the beginning.")
    page = items[start : start + PAGE]
    if start + PAGE >= len(items):
        return page, None
    return page, base64.urlsafe_b64encode(name(page[-1]).encode("utf-8", "surrogatepass")).decode("ascii")


def as_it_came(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    """A server's own result of ``tools/call`` for a client of *version*."""
    answer = without_ours(result)
    if not isinstance(answer.get("content"), list):
        answer["content"] = []  # required by MCP, but some servers omit it
    if version not in MODERN_PROTOCOL_VERSIONS and not isinstance(answer.get("structuredContent"), Mapping):
        answer.pop("structuredContent", None)
    return answer


def without_ours(result: Mapping[str, Any]) -> dict[str, Any]:
    """A server's result without the ``_meta`` of its connection to us."""
    answer = {**result, **WHOLE}
    meta = answer.pop("_meta", None)
    if isinstance(meta, Mapping):
        kept = {key: value for key, value in meta.items() if not key.startswith(_OF_THE_CONNECTION)}
        if kept:
            answer["_meta"] = kept
    return answer


def result_json(result: SurfaceResult, version: str, form: ResultForm) -> dict[str, Any]:
    """A face's result of ``tools/call`` for a client of *version*."""
    if result.as_it_came is not None:
        return as_it_came(result.as_it_came, version)
    answer: dict[str, Any] = {**WHOLE, "content": list(result.content), "isError": result.is_error}
    if form != "text":
        answer["structuredContent"] = result.structured
    if form == "json":
        answer["content"][0] = {"type": "text", "text": result.text}
    return without_ours({**answer, "_meta": result.meta}) if result.meta else answer


def failure_json(error: GatewayError, *, typed: bool) -> dict[str, Any]:
    """A call that failed, as a result. *typed*: its tool is shown with an output schema, which *error* does not fit."""
    body = error.as_dict()
    if typed:
        return {**WHOLE, "content": [{"type": "text", "text": compact_json(body)}], "isError": True}
    content = [{"type": "text", "text": body["message"]}]
    return {**WHOLE, "content": content, "structuredContent": body, "isError": True}


def fitted(result: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """A result of ``tools/call`` without what is no field of this version. Raises ValidationError for one that is
    not valid MCP."""
    if not _is_plain(result):
        return serialize_server_result("tools/call", version, result)
    if version in MODERN_PROTOCOL_VERSIONS:
        return result
    return {key: value for key, value in result.items() if key not in WHOLE}


def written(value: object) -> msgspec.Raw:
    """*value* as JSON, lone surrogates as escapes. Raises ValueError, TypeError or RecursionError for what is none."""
    return msgspec.Raw(_encoded(value))


def written_in_parts(value: object) -> bytes:
    """As ``written``, for a very large value: run it in a thread, and others run between the parts."""
    return json_with(_encoded, value)


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError):
        return odd_json(value, ascii_only=True).encode()


def _is_plain(result: Mapping[str, Any]) -> bool:
    """True for a result that every version shows as it is: texts, an object beside them, and nothing else."""
    if not result.keys() <= _PLAIN or not isinstance(result.get("isError", False), bool):
        return False
    if "structuredContent" in result and type(result["structuredContent"]) is not dict:
        return False
    blocks = result.get("content")
    return isinstance(blocks, list) and all(
        type(block) is dict and len(block) == 2 and block.get("type") == "text" and type(block.get("text")) is str
        for block in blocks
    )


def _tool_json(tool: SurfaceTool, version: str) -> dict[str, Any]:
    schema = tool.input_schema
    answer: dict[str, Any] = {
        **tool.more,
        "name": tool.name,
        "description": tool.description,
        "inputSchema": schema if schema.get("type") == "object" else {**schema, "type": "object"},
    }
    if tool.title is not None:
        answer["title"] = tool.title
    output = tool.output_schema
    if output is not None and (version in MODERN_PROTOCOL_VERSIONS or output.get("type") == "object"):
        answer["outputSchema"] = output
    if tool.read_only or tool.hints:
        answer["annotations"] = {**tool.hints, **({"readOnlyHint": True} if tool.read_only else {})}
    return answer


def fitting(method: str, key: str, items: Sequence[Mapping[str, Any]], version: str) -> list[Mapping[str, Any]]:
    """The *items* that this version can carry."""
    if _carries(method, {key: list(items)}, version):
        return list(items)
    return [item for item in items if _carries(method, {key: [item]}, version)]


def _fitting(tools: list[dict[str, Any]], version: str) -> list[dict[str, Any]]:
    """All *tools*, without the fields that this version cannot carry."""
    if _carries("tools/list", {"tools": tools}, version):
        return tools
    return [tool if _carries("tools/list", {"tools": [tool]}, version) else _bare(tool, version) for tool in tools]


def _carries(method: str, answer: Mapping[str, Any], version: str) -> bool:
    try:
        serialize_server_result(method, version, {**answer, **WHOLE, **_TTL})
    except ValidationError:
        return False
    return True


def _bare(tool: Mapping[str, Any], version: str) -> dict[str, Any]:
    kept = {"name": tool["name"], "description": tool["description"], "inputSchema": {"type": "object"}}
    for key, value in tool.items():
        if _carries("tools/list", {"tools": [{**kept, key: value}]}, version):
            kept[key] = value
    return kept
