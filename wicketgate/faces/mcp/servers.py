"""A runtime as an MCP server over stdio, for programs that embed it (FACE-17).

The server half of the SDK is imported when serving begins, because it loads a web framework.
"""

import secrets
from importlib.metadata import version
from time import time

from wicketgate.access.identity import LOCAL, Identity
from wicketgate.access.seal import Seal
from wicketgate.faces.assembly import GATEWAY_INSTRUCTIONS, Face
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.surface import ResultForm
from wicketgate.faces.transparent import INSTRUCTIONS, TransparentFace
from wicketgate.gateway.lifecycle import Lifecycle
from wicketgate.gateway.options import ExposureMode
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.random_ids import random_id

_START_DEADLINE_S = 10.0
_MAX_MESSAGE_BYTES = 4 << 20


class _StdioServer:
    mode: ExposureMode
    face: type[GatewayFace] | type[TransparentFace]
    instructions: str
    result_form: ResultForm = "both"

    def __init__(self, runtime: ProxyRuntime, *, name: str = "wicketgate", identity: Identity = LOCAL) -> None:
        """*name* is shown to clients, which all have *identity*. Raises ValueError if the runtime's mode differs."""
        if runtime.mode is not self.mode:
            raise ValueError(f"{type(self).__name__} serves ProxyRuntime(..., mode=ExposureMode.{self.mode.name})")
        self._runtime = runtime
        self._name = name
        self._identity = identity

    async def run_stdio(self) -> None:
        """Serve this process's stdin and stdout until stdin ends; upstreams are supervised. Call it once.

        Clients wait at most ten seconds for upstreams that are still being connected.
        """
        from wicketgate.faces.mcp.server import McpDoor
        from wicketgate.faces.mcp.stdio import serve_stdio

        runtime = self._runtime
        lifecycle = Lifecycle(runtime.fleet, runtime, start_deadline_s=_START_DEADLINE_S)
        door = McpDoor(
            Face(
                self.face(runtime, started=lifecycle.started),
                self.instructions,
                runtime.running,
                runtime.may_still_use,
                result_form=self.result_form,
            ),
            name=self.mode,
            version=version("wicketgate"),
            seal=Seal((), secrets.token_bytes(32), time, lambda: secrets.token_urlsafe(12)),
            local=self._identity,
            new_id=lambda: f"req_{random_id()}",
        )
        door.info["name"] = self._name
        runtime.changes.watch(door.list_changed)
        async with lifecycle.running():
            await serve_stdio(door, lifecycle.wait_ready, max_bytes=_MAX_MESSAGE_BYTES)


class McpGatewayServer(_StdioServer):
    """Three tools: ``tool_browse``, ``tool_execute`` and ``tool_view`` (FACE-17)."""

    mode = ExposureMode.GATEWAY
    face = GatewayFace
    result_form = "text"
    instructions = GATEWAY_INSTRUCTIONS


class McpProxyServer(_StdioServer):
    """A stripped list of every tool, with ``tool_hydrate`` and ``tool_execute`` (FACE-18 to FACE-21)."""

    mode = ExposureMode.TRANSPARENT
    face = TransparentFace
    instructions = INSTRUCTIONS
