"""The assembly of the four faces. The doors decide under which paths MCP clients find them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from time import monotonic

from wicketgate.access.identity import Identity
from wicketgate.faces import registry, transparent
from wicketgate.faces.always import AlwaysFace
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.namespaced_offers import NamespacedOffers
from wicketgate.faces.operations import Operations
from wicketgate.faces.registry import RegistryFace
from wicketgate.faces.surface import Offers, ResultForm, ToolSurface
from wicketgate.faces.transparent import TransparentFace
from wicketgate.fleet.features import FeatureFleet, Features
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.kept_calls import KeptCalls
from wicketgate.gateway.running_calls import RunningCalls
from wicketgate.gateway.runtime import ProxyRuntime

GATEWAY_INSTRUCTIONS = "Find tools with tool_browse, run them with tool_execute, read large results with tool_view."
_NAMESPACED = "Tools, resources and prompts of several servers, each named server__name."


@dataclass(frozen=True, slots=True)
class Face:
    """A surface, the instructions for the clients that connect to it, the calls that may outlive their requests, if a
    caller may still use a tool, by its id, its offers besides tools, those calls in other processes, if there may be
    any, and the form of its results unless the client asks for another."""

    surface: ToolSurface
    instructions: str
    running: RunningCalls
    may_still_use: Callable[[str, Identity], bool]
    offers: Offers | None = None
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
) -> dict[str, Face]:
    """The faces by the name that paths and ``mcp.face`` use. *timeout_s* bounds requests that are not tool calls,
    *result_form* is that of the three tools (FACE-176), *always* are patterns of the tools next to them."""
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
    return {
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


def _namespaced(
    runtime: ProxyRuntime, fleet: MultiplexUpstream, started: Callable[[], bool], timeout_s: float
) -> tuple[Face, NamespacedOffers, NamespacedFace]:
    def servers() -> Mapping[str, Features]:
        return {name: member.features for name, member in fleet.members.items() if member.features is not None}

    features = FeatureFleet(servers, monotonic, timeout_s=timeout_s)
    face = NamespacedFace(runtime, fleet.statuses, started=started)
    # A server that joins the fleet changes the catalog first, so its features are watched from then on.
    runtime.watch(features.attend)
    runtime.at_end(features.aclose)
    offers = NamespacedOffers(face, features, runtime, _NAMESPACED)
    return Face(face, _NAMESPACED, runtime.running, runtime.may_still_use, offers, runtime.kept), offers, face
