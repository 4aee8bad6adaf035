"""The gateway face: three tools in front of every other (FACE-17; wire shapes in EXEC-18)."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from wicketgate.catalog.card import ChoiceCard, card_json, render_card
from wicketgate.catalog.card_lines import SIGNATURES, lines_of_json, with_signatures
from wicketgate.catalog.signature import signature
from wicketgate.errors import ArgsInvalid, ConnectRequired, GatewayError, OutOfOrder, UpstreamUnavailable, ViewFailed
from wicketgate.faces.long_calls import LongCalls, execution_result
from wicketgate.faces.meta_tool import (
    CONNECTING,
    compact_json,
    dry_run_result,
    failure,
    json_result,
    read_fields,
    read_text,
)
from wicketgate.faces.surface import Refusal, SurfaceResult, SurfaceTool, UnknownTool
from wicketgate.faces.uris import shown_uri
from wicketgate.gateway.archive import CALL_HANDLE, PROGRAM_HANDLE, NamedLink, no_such_artifact, part_of
from wicketgate.gateway.browsing import Browse
from wicketgate.gateway.calls import DryRun
from wicketgate.gateway.options import Meter, NoMeter, TokenCost
from wicketgate.gateway.programs import RUN, ProgramAnswer, Programs
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.results.bulk import utf8
from wicketgate.results.envelope import mcp_result_to_envelope
from wicketgate.results.page import page_of_json
from wicketgate.results.view import View

MAX_TOP_K = 50

# Together they cost a model at most 300 tokens (FACE-190), so their schemas stay open.
TOOLS = (
    SurfaceTool(
        name="tool_browse",
        description=(
            "Find tools for one step of a task, by query (what to do) or path ('/': all namespaces); browse again for "
            "the next step. Pass a card's id to tool_execute, or as path if it starts with '/'."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "path": {"type": "string"},
                "top_k": {"type": "integer", "maximum": MAX_TOP_K},
            },
        },
        read_only=True,
        title="Find tools",
        hints={"openWorldHint": False},
    ),
    SurfaceTool(
        name="tool_execute",
        description=(
            "Run a tool by its id. If args do not fit, nothing runs and the error says what does. Large results are "
            "kept for tool_view."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "tool_id": {"type": "string"},
                "args": {"type": "object"},
                "dry_run": {"type": "boolean"},
            },
            "required": ["tool_id"],
        },
        title="Run tool",
        hints={"openWorldHint": True},
    ),
    SurfaceTool(
        name="tool_view",
        description="Read part of a kept result, or wait for a slow call.",
        input_schema={
            "type": "object",
            "properties": {
                "handle": {"type": "string"},
                "selector": {
                    "type": "object",
                    "description": (
                        "type: head (chars), lines or rows (start, end), grep (pattern), json_keys (keys), "
                        "json_path (path); of a slow call wait, cancel"
                    ),
                },
            },
            "required": ["handle", "selector"],
        },
        read_only=True,
        title="Read result",
    ),
)
_BROWSE, _EXECUTE, _ = TOOLS
_RUN = SurfaceTool(
    name=RUN,
    description=(
        "Run a Python program that calls tools: loop, filter, join, and return only what matters. "
        "tool(id, **args) calls a tool and gives its result (dict, list or text); browse(query) finds ids. The last "
        "expression is the answer. A refused or failed call raises ToolError, whose text begins with the code. No "
        "files, network, packages, yield or own exceptions; json, re, datetime and math are there. A call that needs a "
        "person pauses the program; it goes on by itself."
    ),
    input_schema={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    title="Run program",
    hints={"openWorldHint": True},
)
WITH_RUN = (*TOOLS, _RUN)
_ARGUMENTS = {tool.name: frozenset(tool.input_schema["properties"]) for tool in WITH_RUN}


_MOST_MEANT = 5
MAX_NAMED = 40
"""Namespaces in the instructions of a client."""


ReadResource = Callable[[Mapping[str, Any], CallContext], Awaitable[Mapping[str, Any]]]
"""As ``NamespacedOffers.read_resource``."""


class GatewayFace:
    """Implements ToolSurface over a runtime. Every failure of a meta-tool is a result, never an exception."""

    def __init__(
        self, runtime: ProxyRuntime, *, started: Callable[[], bool] = lambda: True, meter: Meter | None = None
    ) -> None:
        """*started* is false until the first tools are there. Until then no tool is reported as unknown."""
        self._runtime = runtime
        self._started = started
        self._meter = meter or NoMeter()
        self.read_resource: ReadResource | None = None
        """Reads a resource by its shown URI, as clients of the namespaced face do; None: links cannot be viewed."""
        self.programs: Programs | None = None
        """Runs programs, if code mode is on."""
        self._long_calls = LongCalls(runtime)
        self._levels = WrittenLevels()

    def prepare(self, context: CallContext) -> Awaitable[None]:
        return self._runtime.browsing.prepare(context)

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        """The three tools, the same bytes for all callers at all times: prompts begin with them (FACE-190). With code
        mode there is a fourth, unless the client has switched it off (EXEC-141)."""
        return WITH_RUN if self._runs_programs(context) else TOOLS

    def _runs_programs(self, context: CallContext) -> bool:
        return self.programs is not None and context.code_mode

    def introduction(self, context: CallContext) -> str:
        """The namespaces that the caller may browse, in one line (FACE-16)."""
        names = self._runtime.browsing.namespaces(context)
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return f"Namespaces here: {', '.join(names[:MAX_NAMED])}{more}." if names else ""

    def may_write(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> bool:
        """False for looking around, for a dry run, and for a tool that is known to change nothing."""
        if name == _RUN.name:
            return True
        if name != _EXECUTE.name or arguments.get("dry_run") is True:
            return False
        tool_id = arguments.get("tool_id")
        return isinstance(tool_id, str) and self._runtime.may_write(tool_id, context)

    def shown_again(self, name: str, text: str) -> str:
        """The JSON of a browse as its lines, that of an envelope or a view as its page; any other text unchanged."""
        return (lines_of_json(text) if name == _BROWSE.name else page_of_json(text)) or text

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        if name not in _ARGUMENTS or (name == _RUN.name and not self._runs_programs(context)):
            return failure(self._not_callable(name, context))
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            result = await self._call(name, arguments, context)
        except GatewayError as error:
            result = replace(
                failure(error),
                out_of_order=isinstance(error, OutOfOrder),
                connects=isinstance(error, ConnectRequired),
            )
        outcome = result.structured.get("error") or result.structured.get("status") or "ok"
        self._meter.meta_tool(name, outcome, clock() - began, result.cost)
        return result

    async def _call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        known = _ARGUMENTS[name]
        if not self._started():
            raise UpstreamUnavailable(CONNECTING)
        fields = read_fields(arguments, name, known)
        match name:
            case "tool_browse":
                return await self._browse(fields, context)
            case "tool_execute":
                return await self._execute(fields, context)
            case "tool_run":
                assert self.programs is not None
                return _program_result(await self.programs.run(read_text(fields, "code"), context))
            case _:
                return await self._view(fields, context)

    def _not_callable(self, name: str, context: CallContext) -> ArgsInvalid:
        """The error for a call of a tool behind the gate by its own name. Raises UnknownTool if no tool is meant."""
        meant = self._runtime.tools_meant(name, context)[:_MOST_MEANT]
        if not meant:
            raise UnknownTool(name)
        which = f'"{meant[0]}"' if len(meant) == 1 else f"one of {', '.join(meant)}"
        return ArgsInvalid(f"{name} is run with tool_execute: tool_id {which}, its arguments in args.", path=meant[0])

    async def _browse(self, fields: Mapping[str, Any], context: CallContext) -> SurfaceResult:
        query, path = fields.get("query"), fields.get("path")
        if (query is None) == (path is None):
            raise ArgsInvalid("tool_browse takes exactly one of query and path.")
        top_k = _top_k(fields)
        await self._runtime.browsing.prepare(context, path)
        if isinstance(query, str):
            return await self._written(await self._runtime.browse_query(query, top_k, context), context)
        if isinstance(path, str):
            return await self._written(await self._runtime.browse_path(path, context), context)
        raise ArgsInvalid(f"{'query' if path is None else 'path'} must be a string.")

    async def _written(self, browse: Browse, context: CallContext) -> SurfaceResult:
        if len(browse.cards) <= _MANY_CARDS:
            result = _browse_result(browse, self._levels)
            return self._with_signatures(result, browse, context) if self._runs_programs(context) else result
        return await asyncio.to_thread(_browse_result, browse, self._levels)

    def _with_signatures(self, result: SurfaceResult, browse: Browse, context: CallContext) -> SurfaceResult:
        """Adds a block with a line for each tool: the cards themselves stay as they are (EXEC-144)."""
        assert self.programs is not None
        items = self._runtime.catalog().items
        shown = [items[card.id] for card in browse.cards if card.kind == "tool" and card.id in items]
        lines = [signature(item, self.programs.shape(item, context)) for item in shown]
        if not lines:
            return result
        body = {**result.structured, SIGNATURES: lines}
        return json_result(body, lines=with_signatures(result.shown, lines), cost=result.cost)

    async def _execute(self, fields: Mapping[str, Any], context: CallContext) -> SurfaceResult:
        tool_id = read_text(fields, "tool_id")
        dry_run = fields.get("dry_run", False)
        if not isinstance(dry_run, bool):
            raise ArgsInvalid("dry_run must be true or false.", path=tool_id)
        await self._runtime.browsing.prepare_call(tool_id, context)
        args = fields.get("args", {})
        if not dry_run and self._long_calls.may_leave(context):
            return await self._long_calls.execute(tool_id, args, context)
        outcome = await self._runtime.execute(tool_id, args, context, dry_run=dry_run)
        return dry_run_result(outcome) if isinstance(outcome, DryRun) else execution_result(outcome)

    async def _view(self, fields: Mapping[str, Any], context: CallContext) -> SurfaceResult:
        handle = read_text(fields, "handle")
        selector = fields.get("selector")
        if handle.startswith(f"{PROGRAM_HANDLE}:") and self.programs is not None:
            kind, timeout_s = self._long_calls.read(handle, selector)
            id = handle.partition(":")[2]
            async with self._runtime.audited("view", context, handle):
                return _program_result(
                    await self.programs.view(id, timeout_s, cancel=kind == "cancel", context=context)
                )
        if handle.startswith(f"{CALL_HANDLE}:"):
            return await self._long_calls.view(handle, selector, context)
        link = await self._runtime.viewing.link(handle, context)
        if link is not None and self.read_resource is not None:
            view = await _view_link(self.read_resource, link, handle, selector, context)
        else:
            view = await self._runtime.view(handle, selector, context)
        body: dict[str, Any] = {"handle": handle, "selector": selector, "content": view.content, "total": view.total}
        if view.next is not None:
            body["next"] = view.next
        result = json_result(body)
        if view.media is None:
            return result
        data = base64.b64encode(view.media.data).decode("ascii")
        media = {"type": view.media.kind, "data": data, "mimeType": view.media.media_type}
        return replace(result, content=(*result.content, media))


def _program_result(answer: ProgramAnswer) -> SurfaceResult:
    cost = None if answer.cost is None else TokenCost(*answer.cost)
    return json_result(answer.body, is_error=answer.is_error, cost=cost)


async def _view_link(read: ReadResource, link: NamedLink, handle: str, selector: object, context: CallContext) -> View:
    """Reads the resource of *link* and returns the part that *selector* names. Raises ViewFailed."""
    try:
        result = await read({"uri": shown_uri(link.server, link.uri)}, context)
    except Refusal as refusal:
        # A resource that this caller may not read and none are one answer, that of an artifact.
        raise (ViewFailed(refusal.message, path=handle) if refusal.theirs else no_such_artifact(handle)) from None
    binaries, text = mcp_result_to_envelope(
        {"content": [{"type": "resource", "resource": part} for part in result["contents"]]}, ""
    )[1:]
    data, media_type, _ = next(iter(binaries.values()), (b"", "text/plain", ""))
    data = utf8(text) if text and len(binaries) > 1 else data
    return await part_of(data, media_type, selector, handle)


_MANY_CARDS = 200
"""Writing more takes milliseconds."""


_MOST_LEVELS = 32_768


_Written = tuple[ChoiceCard, dict[str, Any], str, str]


class WrittenLevels:
    """The JSON and the line of cards of levels, each written once: ``/`` has one for each namespace, of which there can
    be thousands, and they are the same objects for all callers that see all of it. Some 1,000 bytes each."""

    def __init__(self) -> None:
        # By the identity of the card, which is held, so that it is no other's.
        self._known: dict[int, _Written] = {}
        # Levels inside a namespace are made for each browse of a caller that sees a part of them.
        self._equal: dict[ChoiceCard, _Written] = {}

    def of(self, cards: Sequence[ChoiceCard]) -> tuple[list[dict[str, Any]], str, str]:
        """Returns the JSON form of *cards*, which is shared, the same as text without brackets, and their lines."""
        known, bodies, texts, lines = self._known, list[dict[str, Any]](), list[str](), list[str]()
        for card in cards:
            written = known.get(id(card)) or self._write(card)
            bodies.append(written[1])
            texts.append(written[2])
            lines.append(written[3])
        return bodies, ",".join(texts), "\n".join(lines)

    def _write(self, card: ChoiceCard) -> _Written:
        # Each value alone: a thread that writes thousands of cards in one step holds the loop like one that runs there.
        if card.kind != "internal":
            body = card_json(card)
            return card, body, _json_of(body), render_card(card)
        if (written := self._equal.get(card)) is None:
            if len(self._equal) >= _MOST_LEVELS:
                self._equal.clear()
                self._known.clear()
            body = card_json(card)
            written = self._equal[card] = self._known[id(card)] = card, body, _json_of(body), render_card(card)
        return written


def _browse_result(browse: Browse, levels: WrittenLevels) -> SurfaceResult:
    hint = {"hint": browse.hint} if browse.hint else {}
    if browse.written is not None:
        body: dict[str, Any] = {"cards": list(map(card_json, browse.cards)), **hint}
        return json_result(body, lines=browse.written or None, naive_chars=browse.spared_chars, text=_json_of(body))
    bodies, parts, lines = levels.of(browse.cards)
    lines = browse.text if hint else lines
    rest = f',"hint":{_json_of(browse.hint)}' if hint else ""
    text = f'{{"cards":[{parts}]{rest}}}'
    return json_result({"cards": bodies, **hint}, lines=lines or None, naive_chars=browse.spared_chars, text=text)


def _json_of(value: object) -> str:
    """As ``compact_json``, twelve times faster."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:  # a lone half of a surrogate pair
        return compact_json(value)


_encode = msgspec.json.Encoder().encode


def _top_k(fields: Mapping[str, Any]) -> int | None:
    """None if it was not sent, or as null: then the scores decide (BROWSE-30, BROWSE-61)."""
    top_k = fields.get("top_k")
    if top_k is None:
        return None
    if not isinstance(top_k, int) or isinstance(top_k, bool) or not 1 <= top_k <= MAX_TOP_K:
        raise ArgsInvalid(f"top_k must be an integer from 1 to {MAX_TOP_K}.")
    return top_k
