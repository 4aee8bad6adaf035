"""The assembly of the four faces. The doors decide under which paths MCP clients find them."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from wicketgate.access.identity import Identity
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.said_words import SaidWords
from wicketgate.catalog.tool_id import Visible
from wicketgate.faces import registry, transparent
from wicketgate.faces.gateway import TOOLS, WITH_RUN, GatewayFace
from wicketgate.faces.meta_tool import ToolLists
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.namespaced_offers import NamespacedOffers
from wicketgate.faces.operations import Operations
from wicketgate.faces.registry import RegistryFace
from wicketgate.faces.surface import MAX_ALWAYS, ResultForm, SurfaceResult, SurfaceTool, ToolSurface
from wicketgate.faces.transparent import TransparentFace
from wicketgate.fleet.features import FeatureFleet, Features
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.kept_calls import KeptCalls
from wicketgate.gateway.running_calls import RunningCalls
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext

log = logging.getLogger("wicketgate.gateway")
GATEWAY_INSTRUCTIONS = "Find tools with tool_browse, run them with tool_execute, read large results with tool_view."
_NAMESPACED = "Tools, resources and prompts of several servers, each named server__name."


class AlwaysFace:
    """The gateway face with tools that the operator has chosen, listed next to the three (FACE-180 to FACE-184). A
    chosen tool has the name, the schema and the results of the namespaced face, which also runs it.

    Implements ToolSurface. *patterns* match tools as rules do, or with the hash of an id. The first ``MAX_ALWAYS``
    tools that a caller may see are listed."""

    def __init__(
        self, runtime: ProxyRuntime, gateway: GatewayFace, namespaced: NamespacedFace, patterns: Collection[str]
    ) -> None:
        self._gateway = gateway
        self._namespaced = namespaced
        self._fits = SaidWords({pattern: (pattern,) for pattern in patterns}).of
        self._lists = ToolLists(runtime, self._listed)
        self._lists_with_run = ToolLists(runtime, lambda *audience: (*WITH_RUN, *self._listed(*audience)[len(TOOLS) :]))

    def prepare(self, context: CallContext) -> Awaitable[None]:
        return self._lists_of(context).prepare(context)

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        return self._lists_of(context).of(context)

    def _lists_of(self, context: CallContext) -> ToolLists:
        return self._lists_with_run if self._gateway.tools(context) is WITH_RUN else self._lists

    def introduction(self, context: CallContext) -> str:
        return self._gateway.introduction(context)

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        await self.prepare(context)
        # A tool that this caller is not shown is no tool of this face: the gateway face answers as for any other name.
        chosen = any(tool.name == name for tool in self.tools(context)[len(self._gateway.tools(context)) :])
        return await (self._namespaced if chosen else self._gateway).call(name, arguments, context)

    def _listed(self, catalog: Catalog, visible: Visible | None) -> Sequence[SurfaceTool]:
        chosen = self._namespaced.chosen(catalog, visible, self._fits)
        if visible is None and len(chosen) > MAX_ALWAYS:
            log.warning("mcp.always matches %d tools; the first %d are listed", len(chosen), MAX_ALWAYS)
        return (*TOOLS, *chosen[:MAX_ALWAYS])


@dataclass(frozen=True, slots=True)
class Face:
    """A surface, the instructions for the clients that connect to it, the calls that may outlive their requests, if a
    caller may still use a tool, by its id, its offers besides tools, those calls in other processes, if there may be
    any, and the form of its results unless the client asks for another."""

    surface: ToolSurface
    instructions: str
    running: RunningCalls
    may_still_use: Callable[[str, Identity], bool]
    offers: NamespacedOffers | None = None
    kept: KeptCalls | None = None
    result_form: ResultForm = "both"


def make_faces(
    runtime: ProxyRuntime,
    fleet: MultiplexUpstream,
    started: Callable[[], bool],
    *,
    gateway: GatewayFace,
    operations: Operations,
    timeout_s: float,
    result_form: ResultForm = "text",
    always: Collection[str] = (),
    gates: Mapping[str, tuple[str, Collection[str]]] | None = None,
) -> dict[str, Face]:
    """The faces by the name that paths and ``mcp.face`` use. *timeout_s* bounds requests that are not tool calls,
    *result_form* is that of the three tools (FACE-176), *always* are patterns of the tools next to them. *gates* gives
    by the name of a virtual gate, whose face is ``gates/<name>``, the name of the face that it has, and its own
    *always*."""
    namespaced, offers, all_tools = _namespaced(runtime, fleet, started, timeout_s)
    gateway.read_resource = offers.read_resource
    surfaces: dict[str, tuple[ToolSurface, str]] = {
        "gateway": (
            AlwaysFace(runtime, gateway, all_tools, always) if always else gateway,
            GATEWAY_INSTRUCTIONS,
        ),
        "transparent": (TransparentFace(runtime, started=started), transparent.INSTRUCTIONS),
        "registry": (RegistryFace(operations), registry.INSTRUCTIONS),
    }
    faces = {
        **{
            name: Face(
                *face,
                runtime.running,
                runtime.may_still_use,
                kept=runtime.kept,
                result_form=result_form if name == "gateway" else "both",
            )
            for name, face in surfaces.items()
        },
        "namespaced": namespaced,
    }
    for name, (face, chosen) in (gates or {}).items():
        made = replace(faces[face], surface=gateway) if face == "gateway" else faces[face]
        if chosen:
            made = replace(made, surface=AlwaysFace(runtime, gateway, all_tools, chosen))
        faces[f"gates/{name}"] = made
    return faces


def _namespaced(
    runtime: ProxyRuntime, fleet: MultiplexUpstream, started: Callable[[], bool], timeout_s: float
) -> tuple[Face, NamespacedOffers, NamespacedFace]:
    def servers() -> Mapping[str, Features]:
        return {name: member.features for name, member in fleet.members.items() if member.features is not None}

    features = FeatureFleet(servers, monotonic, timeout_s=timeout_s)
    face = NamespacedFace(runtime, fleet.statuses, started=started)
    # A server that joins the fleet changes the catalog first, so its features are watched from then on.
    runtime.changes.watch(features.attend)
    runtime.at_end(features.aclose)
    offers = NamespacedOffers(face, features, runtime, _NAMESPACED)
    return Face(face, _NAMESPACED, runtime.running, runtime.may_still_use, offers, runtime.kept), offers, face
