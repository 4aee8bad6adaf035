"""The gateway face: three tools in front of every other (S0 §4.2; wire shapes in DESIGN §3)."""

import asyncio
import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.catalog.card import card_json, render_cards
from app.errors import ArgsInvalid, GatewayError, UpstreamUnavailable
from app.faces.surface import SurfaceResult, SurfaceTool, UnknownTool
from app.gateway.meter import Meter, NoMeter, TokenCost, estimate_tokens
from app.gateway.ports import CallContext
from app.gateway.runtime import DEFAULT_TOP_K, Browse, DryRun, ProxyRuntime
from app.results.envelope import ResultEnvelope

MAX_TOP_K = 50

_TOOLS = (
    SurfaceTool(
        name="tool_browse",
        description=(
            "Find tools. Give either query (what you want to do, in words) or path ('/' lists the namespaces, "
            "'/<namespace>' what is inside). Returns cards; pass a card's id to tool_execute, or browse an id that "
            "starts with '/'."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "path": {"type": "string"},
                "top_k": {"type": "integer", "minimum": 1, "maximum": MAX_TOP_K, "default": DEFAULT_TOP_K},
            },
            "additionalProperties": False,
        },
        read_only=True,
    ),
    SurfaceTool(
        name="tool_execute",
        description=(
            "Run a tool by its id. If args do not fit, nothing runs and the error lists what is expected. "
            "Large results are kept as artifacts; read them with tool_view."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "tool_id": {"type": "string"},
                "args": {"type": "object"},
                "dry_run": {"type": "boolean", "description": "Only check the args."},
            },
            "required": ["tool_id"],
            "additionalProperties": False,
        },
    ),
    SurfaceTool(
        name="tool_view",
        description="Read part of an artifact of tool_execute by its handle.",
        input_schema={
            "type": "object",
            "properties": {
                "handle": {"type": "string"},
                "selector": {
                    "type": "object",
                    "description": (
                        '{"type":"head","chars":2000}, {"type":"lines","start":0,"end":50}, {"type":"rows",...}, '
                        '{"type":"grep","pattern":"error","context":2} or {"type":"json_path","path":"$.a[0].b"}'
                    ),
                },
            },
            "required": ["handle", "selector"],
            "additionalProperties": False,
        },
        read_only=True,
    ),
)


_ARGUMENTS = {tool.name: frozenset(tool.input_schema["properties"]) for tool in _TOOLS}


class GatewayFace:
    """Implements ToolSurface over a runtime. Every failure of a meta-tool is a result, never an exception."""

    def __init__(
        self, runtime: ProxyRuntime, *, started: Callable[[], bool] = lambda: True, meter: Meter | None = None
    ) -> None:
        """*started* is false while the first tools are still being gathered: then nothing is said not to exist."""
        self._runtime = runtime
        self._started = started
        self._meter = meter or NoMeter()

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        return _TOOLS

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            result = await self._call(name, arguments, context)
        except GatewayError as error:
            result = _result(error.as_dict(), is_error=True)
        outcome = result.structured.get("error") or result.structured.get("status") or "ok"
        self._meter.meta_tool(name, outcome, clock() - began, result.cost)
        return result

    async def _call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        known = _ARGUMENTS.get(name)
        if known is None:
            raise UnknownTool(name)
        if not self._started():
            raise UpstreamUnavailable("The tool servers are still being connected. Try again in a moment.")
        fields = _fields(arguments, name, known)
        match name:
            case "tool_browse":
                return self._browse(fields, context)
            case "tool_execute":
                return await self._execute(fields, context)
            case _:
                return await self._view(fields, context)

    def _browse(self, fields: Mapping[str, Any], context: CallContext) -> SurfaceResult:
        query, path = fields.get("query"), fields.get("path")
        if (query is None) == (path is None):
            raise ArgsInvalid("tool_browse takes exactly one of query and path.")
        top_k = fields.get("top_k", DEFAULT_TOP_K)
        if not isinstance(top_k, int) or isinstance(top_k, bool) or not 1 <= top_k <= MAX_TOP_K:
            raise ArgsInvalid(f"top_k must be an integer from 1 to {MAX_TOP_K}.")
        if path is not None:
            if not isinstance(path, str):
                raise ArgsInvalid("path must be a string.")
            return _browse_result(self._runtime.browse_path(path, context))
        if not isinstance(query, str):
            raise ArgsInvalid("query must be a string.")
        return _browse_result(self._runtime.browse_query(query, top_k, context))

    async def _execute(self, fields: Mapping[str, Any], context: CallContext) -> SurfaceResult:
        tool_id = _text(fields, "tool_id")
        dry_run = fields.get("dry_run", False)
        if not isinstance(dry_run, bool):
            raise ArgsInvalid("dry_run must be true or false.", path=tool_id)
        outcome = await self._runtime.execute(tool_id, fields.get("args", {}), context, dry_run=dry_run)
        if isinstance(outcome, DryRun):
            return _result(_dry_run_json(outcome))
        result = _result(outcome.envelope.as_dict(), is_error=outcome.envelope.status == "error")
        return replace(result, cost=outcome.cost)

    async def _view(self, fields: Mapping[str, Any], context: CallContext) -> SurfaceResult:
        handle = _text(fields, "handle")
        selector = fields.get("selector")
        view = await self._runtime.view(handle, selector, context)
        body: dict[str, Any] = {"handle": handle, "selector": selector, "content": view.content, "total": view.total}
        if view.next is not None:
            body["next"] = view.next
        result = _result(body)
        if view.media is None:
            return result
        data = base64.b64encode(view.media.data).decode("ascii")
        media = {"type": view.media.kind, "data": data, "mimeType": view.media.media_type}
        return replace(result, content=(*result.content, media))


def _fields(arguments: object, tool: str, known: Collection[str]) -> Mapping[str, Any]:
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise ArgsInvalid(f"The arguments of {tool} must be an object.")
    if unknown := sorted(str(key) for key in arguments if key not in known):
        raise ArgsInvalid(
            f"{tool} has no argument {unknown[0][:64]!r}. It takes: {', '.join(sorted(known))}.",
            details={"unknown": [key[:64] for key in unknown[:20]]},
        )
    return arguments


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise ArgsInvalid(f"{key} is required and must be a string.")
    return value


def _browse_result(browse: Browse) -> SurfaceResult:
    body: dict[str, Any] = {"cards": [card_json(card) for card in browse.cards]}
    if browse.hint:
        body["hint"] = browse.hint
    lines = render_cards(browse.cards) or browse.hint
    return _result(body, lines=lines, naive_chars=browse.spared_chars)


def _dry_run_json(dry: DryRun) -> dict[str, Any]:
    summary = "The arguments are valid. This was a dry run: nothing was called."
    checks = {"schema_validation": "pass"}
    if dry.needs_approval:
        summary += " The call itself needs the owner's approval."
        checks["approval"] = "required"
    envelope = ResultEnvelope(
        status="ok",
        summary=summary,
        facts=(),
        artifacts=(),
        provenance={"tool_id": dry.tool_id, **dry.notes},
    )
    return {
        **envelope.as_dict(),
        "dry_run": True,
        "tool_id": dry.tool_id,
        "upstream_name": dry.upstream_name,
        "args_valid": True,
        # The server's hints are never verified, and a dry run does not change that (S1 "Security Considerations").
        "annotations": {"verified": False},
        "checks": checks,
    }


def _result(body: Mapping[str, Any], *, is_error: bool = False, lines: str = "", naive_chars: int = 0) -> SurfaceResult:
    """*lines* is the text for MCP clients where it is not the JSON itself."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    cost = TokenCost(estimate_tokens(len(text)), estimate_tokens(naive_chars))
    return SurfaceResult(({"type": "text", "text": lines or text},), body, text, is_error, cost)
