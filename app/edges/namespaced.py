"""Puts the namespaced face together: its tools, and what its servers have besides (S2)."""

from collections.abc import Callable, Mapping
from time import monotonic

from app.edges.mcp_doors import Face
from app.faces.namespaced import NamespacedFace
from app.faces.namespaced_offers import NamespacedOffers
from app.gateway.feature_fleet import FeatureFleet
from app.gateway.features import Features, HasFeatures
from app.gateway.fleet import MultiplexUpstream
from app.gateway.runtime import ProxyRuntime

_INSTRUCTIONS = "Tools, resources and prompts of several servers, each named server__name."


def namespaced_face(
    runtime: ProxyRuntime, fleet: MultiplexUpstream, started: Callable[[], bool], timeout_s: float
) -> Face:
    """*timeout_s* bounds reading a resource, getting a prompt and completing an argument."""

    def servers() -> Mapping[str, Features]:
        upstreams = ((name, member.upstream) for name, member in fleet.members.items())
        return {name: upstream.features for name, upstream in upstreams if isinstance(upstream, HasFeatures)}

    features = FeatureFleet(servers, monotonic, timeout_s=timeout_s)
    face = NamespacedFace(runtime, fleet.statuses, started=started)
    # Whoever joins the fleet gives its tools first.
    runtime.watch(features.attend)
    return Face(face, _INSTRUCTIONS, NamespacedOffers(face, features, runtime, _INSTRUCTIONS))
