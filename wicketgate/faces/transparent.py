"""The transparent face: the whole catalog as stripped entries, and two meta-tools that use it (S0 §4.1).

The entries only announce: a tool is run with ``tool_execute``, and its result comes as the server gave it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wicketgate.catalog.catalog import Catalog
from wicketgate.errors import ArgsInvalid, GatewayError, UpstreamUnavailable
from wicketgate.faces.meta_tool import dry_run_json, json_result, read_fields, read_text
from wicketgate.faces.surface import SurfaceResult, SurfaceTool, UnknownTool
from wicketgate.faces.views import Views, Visible
from wicketgate.gateway.calls import DryRun
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext

INSTRUCTIONS = (
    "The list shows every tool without its schema. Read a schema with tool_hydrate and run a tool with tool_execute."
)

SENTINEL_SCHEMA: Mapping[str, Any] = {"type": "object"}
"""In place of every tool's own schema, so that a tool costs the same context whatever its arguments."""

_META_TOOLS = (
    SurfaceTool(
        name="tool_hydrate",
        description="The schemas of a tool of this list, by its name.",
        input_schema={
            "type": "object",
            "properties": {"tool_id": {"type": "string"}},
            "required": ["tool_id"],
            "additionalProperties": False,
        },
        read_only=True,
    ),
    SurfaceTool(
        name="tool_execute",
        description="Run a tool of this list by its name. If args do not fit, nothing runs and the error says why.",
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
)
_ARGUMENTS = {tool.name: frozenset(tool.input_schema["properties"]) for tool in _META_TOOLS}


class TransparentFace:
    """Implements ToolSurface over a runtime. Every failure is a result, never an exception."""

    def __init__(self, runtime: ProxyRuntime, *, started: Callable[[], bool] = lambda: True) -> None:
        self._runtime = runtime
        self._started = started
        self._views = Views(runtime, _listed)

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        """The meta-tools, then every tool that the caller may use, by id."""
        return self._views.of(context)

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        try:
            return await self._call(name, arguments, context)
        except GatewayError as error:
            return json_result(error.as_dict(), is_error=True)

    async def _call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        if not self._started():
            raise UpstreamUnavailable("The tool servers are still being connected. Try again in a moment.")
        known = _ARGUMENTS.get(name)
        if known is None:
            raise await self._not_callable(name, context)
        fields = read_fields(arguments, name, known)
        tool_id = read_text(fields, "tool_id")
        if name == "tool_hydrate":
            hydrated = self._runtime.hydrate(tool_id, context)
            return json_result(
                {
                    "tool_id": hydrated.tool_id,
                    "args_schema": dict(hydrated.args_schema),
                    "output_schema": hydrated.output_schema,
                    "examples": list(hydrated.examples),
                    "constraints": dict(hydrated.constraints),
                }
            )
        if fields.get("dry_run", False) is not False:
            return await self._dry_run(tool_id, fields, context)
        result = await self._runtime.call(tool_id, fields.get("args", {}), context)
        return SurfaceResult((), {}, "", bool(result.get("isError")), as_it_came=result)

    async def _dry_run(self, tool_id: str, fields: Mapping[str, Any], context: CallContext) -> SurfaceResult:
        if fields["dry_run"] is not True:
            raise ArgsInvalid("dry_run must be true or false.", path=tool_id)
        checked = await self._runtime.execute(tool_id, fields.get("args", {}), context, dry_run=True)
        assert isinstance(checked, DryRun)
        return json_result(dry_run_json(checked))

    async def _not_callable(self, name: str, context: CallContext) -> Exception:
        """An entry of the list only announces; what is not in the caller's list is not there."""
        item = self._runtime.catalog().get(name)
        there = item is not None and self._runtime.may_see(item, context)
        await self._runtime.turn_away(name, context, hidden=item is not None and not there)
        if not there:
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
