"""The length of a call's way: frames of ours between a face and an upstream."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import wicketgate
from wicketgate.access.identity import Identity
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.operations import Operations
from wicketgate.faces.registry import RegistryFace
from wicketgate.faces.transparent import TransparentFace
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugin_api import MiddlewarePlugin, PluginConfig, SecurityPlugin
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

ROOT = f"{Path(wicketgate.__file__).parent}/"
CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "s")
PLUGINS = PluginChain(
    {GLOBAL: [Installed("one", SecurityPlugin(PluginConfig())), Installed("two", MiddlewarePlugin(PluginConfig()))]},
    lambda: 0.0,
)


class Counting(StubUpstream):
    """Notes the frames of ours that wait for its answer, the outermost last."""

    def __init__(self) -> None:
        super().__init__([{"name": "get", "inputSchema": {"type": "object"}}], name="stub")
        self.frames: list[str] = []

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        # A coroutine that runs has those that await it as its callers.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(ROOT):
                self.frames.append(frame.f_code.co_qualname)
            frame = frame.f_back
        return {"content": []}


@pytest.mark.parametrize(("plugins", "most"), [(None, 8), (PLUGINS, 9)], ids=["plain", "plugins"])
@pytest.mark.parametrize("name", ["GatewayFace", "TransparentFace", "RegistryFace", "NamespacedFace"])
async def test_a_call_crosses_few_frames(name: str, plugins: PluginChain | None, most: int) -> None:
    upstream = Counting()
    fleet = MultiplexUpstream([upstream])
    runtime = ProxyRuntime(fleet, RuntimeOptions(plugins=plugins))
    await runtime.refresh_catalog()
    (tool_id,) = runtime.catalog().items
    match name:
        case "GatewayFace":
            result = await GatewayFace(runtime).call("tool_execute", {"tool_id": tool_id}, CONTEXT)
        case "TransparentFace":
            result = await TransparentFace(runtime).call("tool_execute", {"tool_id": tool_id}, CONTEXT)
        case "RegistryFace":
            result = await RegistryFace(Operations(runtime)).call("call", {"operation": "stub/get"}, CONTEXT)
        case _:
            result = await NamespacedFace(runtime, fleet.statuses).call("stub__get", {}, CONTEXT)
    assert not result.is_error
    assert upstream.frames[-1] == f"{name}.call"
    assert len(upstream.frames) <= most, upstream.frames
