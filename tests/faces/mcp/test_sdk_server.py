"""The SDK's server of a face, and what it would say of itself."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from mcp.server.lowlevel import NotificationOptions, Server

from tests.support.requirement import requirement
from wicketgate.access.seal import Seal
from wicketgate.faces.assembly import Face
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.mcp.server import McpDoor
from wicketgate.fleet.features import FeatureChange
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.upstreams.embedded import StubUpstream

ALL = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
OFFERS = ["resources", "prompts", "completions"]


class SomeOffers:
    """The part of NamespacedOffers that an opening reads."""

    def __init__(self, *offered: str) -> None:
        self._offered = offered

    def offered(self, offer: str) -> bool:
        return offer in self._offered

    def extensions(self) -> Mapping[str, Any]:
        return {}

    def watch(self, notify: Callable[[FeatureChange], None]) -> None:
        pass

    def __getattr__(self, name: str) -> object:
        return None


@requirement("FACE-241")
@pytest.mark.parametrize("offered", [None, [], OFFERS], ids=["tools alone", "nothing yet", "all"])
async def test_what_is_declared_is_what_the_sdk_finds_served(offered: list[str] | None) -> None:
    runtime = ProxyRuntime(StubUpstream([], name="none"))
    offers: Any = None if offered is None else SomeOffers(*offered)
    face = Face(GatewayFace(runtime), "", runtime.running, runtime.may_still_use, offers=offers)
    door = McpDoor(face, name="face", version="1", seal=Seal((), b"k" * 32, lambda: 0.0, lambda: "n"))
    found: dict[str, Any] = {}
    for version in ("2025-11-25", "2026-07-28"):
        can = Server.get_capabilities(door.sdk.server, ALL, protocol_version=version)
        found = can.model_dump(by_alias=True, mode="json", exclude_none=True)
        assert door.capabilities() == {key: found[key] for key in found if key not in OFFERS or key in (offered or ())}
    assert set(OFFERS) <= found.keys() or offered is None
    await runtime.aclose()
