"""Tools and results fitted to the client's protocol version, and long lists in pages.

One odd tool or result of a server does not cost the client the whole answer. What is plain is known without the SDK's
types, and everything else is read with them.
"""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar

import msgspec

from wicketgate.errors import GatewayError
from wicketgate.faces.mcp.request import RpcError
from wicketgate.faces.mcp.sdk import TYPES, imported
from wicketgate.faces.meta_tool import compact_json
from wicketgate.faces.surface import ResultForm, SurfaceResult, SurfaceTool
from wicketgate.mcp_names import INVALID_PARAMS, MODERN_PROTOCOL_VERSIONS
from wicketgate.results.bulk import odd_json

T = TypeVar("T")

PAGE = 1_000

# A list gives under this key of ``_meta`` the reason, by server, that items are left out.
MISSING_KEY = "wicketgate/missing"

# The newer era requires it in every result; older clients ignore it.
WHOLE = {"resultType": "complete"}

_TTL = {"ttlMs": 0, "cacheScope": "private"}
_OF_THE_CONNECTION = "io.modelcontextprotocol/"
_MAX_KEPT = 32
_MAX_INDEXES = 8
"""One of ten thousand tools takes some 200 KB."""
_NOT_PLAIN = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""Errors for a value of another kind."""
_PLAIN = frozenset({"content", "structuredContent", "isError", "resultType"})


def _shape(must: Mapping[str, Any], may: Mapping[str, Any]) -> Any:
    """The type of an object with members that it must have, and may have. Others are left out."""
    # Called by another name, because the names of members are not fixed here.
    make: Any = TypedDict
    return make("Shape", {**must, **{key: NotRequired[kind] for key, kind in may.items()}})


ICON = _shape({"src": str}, {"mimeType": str, "sizes": list[str], "theme": Literal["dark", "light"]})
_META = {"_meta": dict[str, Any]}
_SHARE = Annotated[float, msgspec.Meta(ge=0, le=1)]
_ON_BLOCKS = {
    **_META,
    "annotations": _shape(
        {}, {"audience": list[Literal["assistant", "user"]], "lastModified": str, "priority": _SHARE}
    ),
}
_MEDIA = _shape({"type": str, "data": str, "mimeType": str}, _ON_BLOCKS)
_NAMED = {"title": str, "description": str, "size": int, "mimeType": str, "icons": list[ICON]}  # type: ignore[valid-type]
_BLOCKS = {
    "text": _shape({"type": str, "text": str}, _ON_BLOCKS),
    "image": _MEDIA,
    "audio": _MEDIA,
    "resource_link": _shape({"type": str, "uri": str, "name": str}, {**_ON_BLOCKS, **_NAMED}),
    "resource": _shape({"type": str, "resource": dict[str, Any]}, _ON_BLOCKS),
}
_CONTENTS = {kind: _shape({"uri": str, kind: str}, {**_META, "mimeType": str}) for kind in ("text", "blob")}
_PROPERTIES = dict[str, dict[str, Any] | bool]
_SCHEMA = _shape({"type": Literal["object"]}, {"$schema": str, "properties": _PROPERTIES, "required": list[str]})
_HINTS = {f"{hint}Hint": bool for hint in ("readOnly", "destructive", "idempotent", "openWorld")}
_TOOL = {"title": str, "outputSchema": _SCHEMA, "annotations": _shape({}, {**_HINTS, "title": str}), **_META}
_TOOL_SHAPE = _shape({"name": str, "description": str, "inputSchema": _SCHEMA}, _TOOL)
_OF_TOOLS = frozenset({"name", "description", "inputSchema", *_TOOL})
_OF_HINTS = frozenset({"title", *_HINTS})


class ToolListings:
    """Pages of ``tools/list``, kept while a face shows the same list."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str | None, str], _Page] = {}

    async def page(self, tools: Sequence[SurfaceTool], cursor: str | None, version: str) -> dict[str, Any]:
        """Raises RpcError for an invalid cursor."""
        return {**WHOLE, **(await self._page(tools, cursor, version)).answer}

    async def written(self, tools: Sequence[SurfaceTool], cursor: str | None, version: str) -> dict[str, Any]:
        """As ``page``, without what is no field of this version, and with all tools as one JSON text."""
        page = await self._page(tools, cursor, version)
        if page.written is None:
            fields = {**WHOLE, **_TTL, **page.answer} if version in MODERN_PROTOCOL_VERSIONS else page.answer
            if not page.plain:
                fields = _serialized("tools/list", version, {**WHOLE, **_TTL, **page.answer})
            page.written = {**fields, "tools": written(fields["tools"])}
        return page.written

    async def _page(self, tools: Sequence[SurfaceTool], cursor: str | None, version: str) -> "_Page":
        key = (id(tools), cursor, version)
        kept = self._kept.get(key)
        if kept is None or kept.tools is not tools:
            shown, following = paged(tools, cursor, lambda tool: tool.name)
            found = [_tool_json(tool, version) for tool in shown]
            plain = all(map(_is_plain_tool, found))
            if not plain:
                await imported(TYPES)
                found = _fitting(found, version)
            answer: dict[str, Any] = {"tools": found}
            if following is not None:
                answer["nextCursor"] = following
            kept = self._kept[key] = _Page(tools, answer, plain)
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
    plain: bool
    written: dict[str, Any] | None = None


def paged(items: Sequence[T], cursor: str | None, name: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
    """A page and the cursor of the next. A cursor names the last item shown, so it outlives changes of the others.

    Raises RpcError for an unknown cursor, or one whose item is gone: then the client lists from the beginning.
    """
    start = 0
    if cursor is not None:
        try:
            last = base64.urlsafe_b64decode(cursor.encode("ascii")).decode("utf-8", "surrogatepass")
        except (binascii.Error, UnicodeError):
            last = ""
        start = next((place for place, item in enumerate(items, 1) if name(item) == last), 0)
        if start == 0:
            raise RpcError(INVALID_PARAMS, "This cursor is not valid any more. List again from the beginning.")
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


async def fitted(result: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """A result of ``tools/call`` without what is no field of this version. Raises ValueError for one that is not valid
    MCP."""
    plain = _read_plain(result, version)
    if plain is not None:
        return plain
    await imported(TYPES)
    return fitted_result(result, version)


def fitted_result(result: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """As ``fitted``, by the SDK's types alone."""
    return _serialized("tools/call", version, result)


def _serialized(method: str, version: str, result: Mapping[str, Any]) -> dict[str, Any]:
    from mcp_types.methods import serialize_server_result

    return serialize_server_result(method, version, result)


def written(value: object) -> msgspec.Raw:
    """*value* as JSON, lone surrogates as escapes. Raises ValueError, TypeError or RecursionError for what is none."""
    return msgspec.Raw(_encoded(value))


def json_rpc(message: Mapping[str, Any]) -> bytes:
    """A message of JSON-RPC. Raises as ``written``."""
    return _encoded({"jsonrpc": "2.0", **message})


def _encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError):
        return odd_json(value, ascii_only=True).encode()


def _read_plain(result: Mapping[str, Any], version: str) -> Mapping[str, Any] | None:
    """Returns the fields of a result of content and an object beside it; None for any other."""
    if not result.keys() <= _PLAIN or not isinstance(result.get("isError", False), bool):
        return None
    if "structuredContent" in result and type(result["structuredContent"]) is not dict:
        return None
    blocks = result.get("content")
    if not isinstance(blocks, list) or result.get("resultType") != "complete":
        return None
    try:
        result = {**result, "content": [_read_block(block) for block in blocks]}
    except _NOT_PLAIN:
        return None
    if version in MODERN_PROTOCOL_VERSIONS:
        return result
    return {key: value for key, value in result.items() if key not in WHOLE}


def _read_block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """A block of content. Raises one of _NOT_PLAIN."""
    read = _read(block, _BLOCKS[block["type"]])
    if "resource" in read:
        (kind,) = _CONTENTS.keys() & read["resource"].keys()
        read["resource"] = _read(read["resource"], _CONTENTS[kind])
    return read


def _read(value: Mapping[str, Any], shape: Any) -> dict[str, Any]:
    """Raises one of _NOT_PLAIN, for what only some versions show too."""
    read: dict[str, Any] = msgspec.convert(value, shape)
    if None in read.get("_meta", {}).values():
        raise ValueError
    return read


def _is_plain_tool(tool: Mapping[str, Any]) -> bool:
    """True for a tool that every version shows as it is."""
    try:
        _read(tool, _TOOL_SHAPE)
        known = tool.keys() <= _OF_TOOLS and tool.get("annotations", {}).keys() <= _OF_HINTS
        return known and not any(None in tool.get(key, {}).values() for key in ("inputSchema", "outputSchema"))
    except _NOT_PLAIN:
        return False


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
        _serialized(method, version, {**answer, **WHOLE, **_TTL})
    except ValueError:
        return False
    return True


def _bare(tool: Mapping[str, Any], version: str) -> dict[str, Any]:
    kept = {"name": tool["name"], "description": tool["description"], "inputSchema": {"type": "object"}}
    for key, value in tool.items():
        if _carries("tools/list", {"tools": [{**kept, key: value}]}, version):
            kept[key] = value
    return kept
