"""The transparent face: the whole catalog as stripped entries, and two meta-tools that use it (FACE-18 to FACE-21).

The entries only announce. A client runs a tool with ``tool_execute`` and gets the server's own result.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.tool_id import Visible
from wicketgate.errors import ArgsInvalid, GatewayError, UpstreamUnavailable
from wicketgate.faces.meta_tool import (
    CONNECTING,
    ToolLists,
    dry_run_result,
    failure,
    json_result,
    object_schema,
    read_fields,
    read_text,
    rest_of_definition,
)
from wicketgate.faces.surface import SurfaceResult, SurfaceTool, UnknownTool
from wicketgate.gateway.calls import DryRun
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext

INSTRUCTIONS = (
    "The list shows every tool without its schema. Read a schema with tool_hydrate and run a tool with tool_execute."
)

# In place of every tool's own schema, so that each tool costs the same context.
SENTINEL_SCHEMA: Mapping[str, Any] = {"type": "object"}

_META_TOOLS = (
    SurfaceTool(
        name="tool_hydrate",
        description="The schemas of a tool of this list, by its name.",
        input_schema=object_schema({"tool_id": {"type": "string"}}, "tool_id"),
        read_only=True,
    ),
    SurfaceTool(
        name="tool_execute",
        description="Run a tool of this list by its name. If args do not fit, nothing runs and the error says why.",
        input_schema=object_schema(
            {
                "tool_id": {"type": "string"},
                "args": {"type": "object"},
                "dry_run": {"type": "boolean", "description": "Only check the args."},
            },
            "tool_id",
        ),
    ),
)
_ARGUMENTS = {tool.name: frozenset(tool.input_schema["properties"]) for tool in _META_TOOLS}


class TransparentFace:
    """Implements ToolSurface over a runtime. Every failure is a result, never an exception."""

    def __init__(self, runtime: ProxyRuntime, *, started: Callable[[], bool] = lambda: True) -> None:
        self._runtime = runtime
        self._started = started
        self._lists = ToolLists(runtime, _listed)

    async def prepare(self, context: CallContext) -> None:
        await self._lists.prepare(context)

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        """The meta-tools, then every tool that the caller may use, by id."""
        return self._lists.of(context)

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        try:
            return await self._call(name, arguments, context)
        except GatewayError as error:
            return failure(error)

    async def _call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        if not self._started():
            raise UpstreamUnavailable(CONNECTING)
        known = _ARGUMENTS.get(name)
        if known is None:
            raise await self._not_callable(name, context)
        fields = read_fields(arguments, name, known)
        tool_id = read_text(fields, "tool_id")
        if name == "tool_hydrate":
            hydrated = await self._runtime.hydrate(tool_id, context)
            return json_result(
                {
                    "tool_id": hydrated.tool_id,
                    "args_schema": dict(hydrated.args_schema),
                    "output_schema": hydrated.output_schema,
                    "examples": list(hydrated.examples),
                    "constraints": dict(hydrated.constraints),
                    **rest_of_definition(self._runtime.catalog().get(hydrated.tool_id)),
                }
            )
        args, dry_run = fields.get("args", {}), fields.get("dry_run", False)
        if not isinstance(dry_run, bool):
            raise ArgsInvalid("dry_run must be true or false.", path=tool_id)
        if dry_run:
            checked = await self._runtime.execute(tool_id, args, context, dry_run=True)
            assert isinstance(checked, DryRun)
            return dry_run_result(checked)
        return SurfaceResult.unchanged(await self._runtime.call(tool_id, args, context))

    async def _not_callable(self, name: str, context: CallContext) -> Exception:
        """The error for a call of an entry, or of a name that is not in the caller's list."""
        item = self._runtime.catalog().get(name)
        listed = item is not None and self._runtime.may_see(item, context)
        await self._runtime.audit_unknown(name, context, hidden=item is not None and not listed)
        if not listed:
            return UnknownTool(name)
        return ArgsInvalid("This entry only announces the tool. Call tool_execute with it as tool_id.", path=name)


def _listed(catalog: Catalog, visible: Visible | None) -> tuple[SurfaceTool, ...]:
    shown = sorted(tool_id for tool_id in catalog.items if visible is None or visible(tool_id))
    return (*_META_TOOLS, *(_entry(catalog, tool_id) for tool_id in shown))


def _entry(catalog: Catalog, tool_id: str) -> SurfaceTool:
    item = catalog.items[tool_id]
    return SurfaceTool(
        name=tool_id,
        description=catalog.card(tool_id).description,
        input_schema=SENTINEL_SCHEMA,
        read_only=not item.side_effects,
    )
