"""The engine's own bound on a call: it ends what no server's deadline ends, such as a plugin that hangs."""

import asyncio
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.engine.events import ToolFailure
from wicketgate.engine.limits import Interruption
from wicketgate.engine.loop_guard import LoopGuard
from wicketgate.engine.tool_rounds import EngineLimits, ToolRounds
from wicketgate.faces.gateway import GatewayFace
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.models.provider import ToolCall
from wicketgate.plugin_api import Allow, Block, PluginConfig, Request, SecurityPlugin
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "s")


class Hanging(SecurityPlugin):
    ended = False

    async def on_request(self, request: Request) -> Allow | Block:
        try:
            await asyncio.Event().wait()
        finally:
            Hanging.ended = True
        raise AssertionError


async def test_a_plugin_that_hangs_ends_with_the_engines_deadline() -> None:
    plugins = PluginChain({GLOBAL: [Installed("hanging", Hanging(PluginConfig()))]}, lambda: 0.0)
    upstream = StubUpstream([{"name": "get", "inputSchema": {"type": "object"}}])
    runtime = ProxyRuntime(upstream, RuntimeOptions(plugins=plugins))
    await runtime.refresh_catalog()
    (tool_id,) = runtime.catalog().items
    limits = EngineLimits(tool_timeout_s=0.05)
    rounds = ToolRounds(GatewayFace(runtime), CONTEXT, limits, Interruption(), LoopGuard(None))
    arguments: dict[str, Any] = {"tool_id": tool_id}
    async with asyncio.timeout(10):
        results = [
            each
            async for batch in rounds.asked([ToolCall("c1", "tool_execute", arguments, "")], None)
            for each in batch
        ]
    assert results == [ToolFailure("c1", "tool_execute timed out after 0.05s")]
    assert (Hanging.ended, upstream.calls) == (True, [])
