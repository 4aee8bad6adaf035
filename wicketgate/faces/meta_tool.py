"""Shared parts of the faces: the schemas and arguments of their own tools, results, and a list for each audience."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import anyio
from msgspec.structs import replace

from wicketgate.access.approvers import described
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem, other_fields, shown_annotations
from wicketgate.catalog.tool_id import Visible
from wicketgate.errors import ArgsInvalid, GatewayError, UpstreamRefused
from wicketgate.faces.surface import Refusal, SurfaceResult, SurfaceTool
from wicketgate.gateway.calls import DryRun
from wicketgate.gateway.options import TokenCost
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.mcp_names import URL_ELICITATION_REQUIRED
from wicketgate.ports import CallContext
from wicketgate.results.bulk import outweighs
from wicketgate.results.envelope import ResultEnvelope
from wicketgate.results.page import json_text, page_of
from wicketgate.tokens import estimate_tokens

CONNECTING = "The tool servers are still being connected. Try again in a moment."

LARGE = 500
"""Of more tools than these, a list is made in a thread."""
_MOST_TOOLS = 640_000
"""In all lists of a face that are kept: at most a few hundred bytes each."""
_MOST_LISTS = 4_096


def object_schema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """The input schema of a meta-tool, closed: a misspelt argument is refused."""
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


_MEANT = dict.fromkeys(("arguments", "input", "parameters", "params"), "args") | dict.fromkeys(
    ("id", "name", "tool", "tool_name"), "tool_id"
)
"""Names that models give to arguments of the meta-tools."""


def read_fields(arguments: object, tool: str, known: Collection[str]) -> Mapping[str, Any]:
    """The arguments of a meta-tool. Raises ArgsInvalid for any that is not *known*."""
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise ArgsInvalid(f"The arguments of {tool} must be an object.")
    if unknown := sorted(str(key) for key in arguments if key not in known):
        beside = f' Put it into args: {{"{unknown[0][:64]}": …}}.' if "args" in known else ""
        meant = [(_MEANT[key], key) for key in unknown if key in _MEANT]
        if slips := [f"{own} instead of {key}" for own, key in meant if own in known and own not in arguments]:
            beside = f" Send {', '.join(slips)}."
        raise ArgsInvalid(
            f"{tool} has no argument {unknown[0][:64]!r}.{beside} It takes: {', '.join(sorted(known))}.",
            details={"unknown": [key[:64] for key in unknown[:20]]},
        )
    return arguments


def read_text(fields: Mapping[str, Any], key: str) -> str:
    """A required string. Raises ArgsInvalid."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise ArgsInvalid(f"{key} is required and must be a string.")
    return value


def rest_of_definition(item: SelectableItem | None) -> dict[str, Any]:
    """``{"definition": ...}`` with what hydrating leaves out, if there is any. Pictures that are written out in the
    definition are none of a model's business."""
    if item is None or not item.definition:
        return {}
    rest = other_fields(item)
    if item.title is not None:
        rest["title"] = item.title
    if annotations := shown_annotations(item):
        rest["annotations"] = annotations
    if isinstance(icons := rest.get("icons"), list):
        rest["icons"] = [icon for icon in icons if not _written_out(icon)]
    return {"definition": rest} if rest else {}


def _written_out(icon: object) -> bool:
    source = icon.get("src") if isinstance(icon, Mapping) else None
    return isinstance(source, str) and source.lower().startswith("data:")


def dry_run_result(dry: DryRun) -> SurfaceResult:
    summary = "The arguments are valid. This was a dry run: nothing was called."
    checks = {"schema_validation": "pass"}
    if dry.approval is not None:
        by = described(dry.approval.needs)
        summary += f" The call itself needs the approval of {by or 'its owner'}."
        checks |= {"approval": "required", "approval_by": by or "caller"}
    envelope = ResultEnvelope("ok", summary, (), (), {"tool_id": dry.tool_id, **dry.notes})
    body = {
        **envelope.as_dict(),
        "dry_run": True,
        "tool_id": dry.tool_id,
        "upstream_name": dry.upstream_name,
        "args_valid": True,
        # The server's hints are never verified, and a dry run does not change that (CARD-12).
        "annotations": {"verified": False},
        "checks": checks,
    }
    return json_result(body)


# By the code of a server's error that is for the client itself, the member of its data that says what is wanted: a
# capability that the client did not declare, or pages that a person has to open.
_FOR_CLIENT = {-32021: "requiredCapabilities", URL_ELICITATION_REQUIRED: "elicitations"}
_MAX_UNITS = 1_000


def for_client(error: GatewayError) -> Refusal | None:
    """The server's error behind *error*, if it is for the client and not for a model; its data go into the details of
    *error* too."""
    if not isinstance(error, UpstreamRefused) or (member := _FOR_CLIENT.get(error.upstream_code)) is None:
        return None
    wanted = error.data.get(member) if isinstance(error.data, Mapping) else None
    if wanted is not None and not outweighs(wanted, _MAX_UNITS):
        error.details = {**(error.details or {}), member: wanted}
    return Refusal(error.upstream_code, error.refusal, error.data, theirs=True)


def failure(error: GatewayError) -> SurfaceResult:
    """The failure of a meta-tool."""
    refused = for_client(error)
    return replace(json_result(error.as_dict(), is_error=True), refused=refused)


def json_result(
    body: Mapping[str, Any],
    *,
    is_error: bool = False,
    lines: str | None = None,
    naive_chars: int = 0,
    text: str | None = None,
    cost: TokenCost | None = None,
    meta: Mapping[str, Any] | None = None,
) -> SurfaceResult:
    """The result for *body*. *lines* is the text that a model reads: by default the page of an envelope or a view, the
    JSON of anything else. *text* is the JSON, if it is written already; *cost*, if it is known, otherwise four
    characters a token."""
    text = compact_json(body) if text is None else text
    shown = lines if lines is not None else page_of(body) or text
    if cost is None:
        cost = TokenCost(estimate_tokens(len(shown)), estimate_tokens(naive_chars))
    return SurfaceResult(({"type": "text", "text": shown},), body, text, is_error, cost, shown=shown, meta=meta or {})


compact_json = json_text


class ToolLists:
    """The tools that a face shows to each audience, made once for each catalog.

    *make* gets the catalog and a test of tool ids for visibility, None for an audience that sees all. As many lists are
    kept as have *most_tools* tools together, made last, and at least one: thousands of short ones.
    """

    def __init__(
        self,
        runtime: ProxyRuntime,
        make: Callable[[Catalog, Visible | None], Sequence[SurfaceTool]],
        most_tools: int = _MOST_TOOLS,
    ) -> None:
        self._runtime = runtime
        self._make = make
        self._catalog: Catalog | None = None
        self._waiting: Sequence[str] = ()
        self._most_tools = most_tools
        self._made: dict[Visible | None, Sequence[SurfaceTool]] = {}
        self._kept = 0
        self._making = anyio.Lock()

    async def prepare(self, context: CallContext) -> None:
        """Make the list of this caller, in a thread before a large catalog. ``of`` is a look-up then (BROWSE-59)."""
        while True:
            await self._runtime.browsing.prepare(context)
            catalog = self._runtime.catalog()
            if len(catalog.items) <= LARGE:
                return
            visible = self._runtime.visible(context)
            if self._has(catalog, visible):
                return
            # One at a time: callers of one audience come together after a refresh.
            async with self._making:
                if not self._has(catalog, visible):
                    made = await asyncio.to_thread(self._make, catalog, visible)
                    if catalog is self._runtime.catalog():
                        self._keep(catalog, visible, made)

    def of(self, context: CallContext) -> Sequence[SurfaceTool]:
        """The same object until the catalog or what the caller may see has changed."""
        catalog, visible = self._runtime.catalog(), self._runtime.visible(context)
        if not self._has(catalog, visible):
            self._keep(catalog, visible, self._make(catalog, visible))
        return self._made[visible]

    def _has(self, catalog: Catalog, visible: Visible | None) -> bool:
        current = catalog is self._catalog and self._waiting == self._runtime.first_logins.waiting()
        return current and visible in self._made

    def _keep(self, catalog: Catalog, visible: Visible | None, made: Sequence[SurfaceTool]) -> None:
        waiting = self._runtime.first_logins.waiting()
        if catalog is not self._catalog or waiting != self._waiting:
            self._catalog, self._waiting = catalog, waiting
            self._made.clear()
            self._kept = 0
        elif (known := self._made.pop(visible, None)) is not None:
            self._kept -= len(known)
        self._made[visible] = made
        self._kept += len(made)
        while (self._kept > self._most_tools or len(self._made) > _MOST_LISTS) and len(self._made) > 1:
            self._kept -= len(self._made.pop(next(iter(self._made))))
