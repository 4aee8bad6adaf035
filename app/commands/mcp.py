"""``wicketgate mcp``: one face over stdio, for clients that start their servers."""

import asyncio
import signal
import sys

from app.logs import service_logs
from app.process import search_python_folders
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import log_configuration
from wicketgate.errors import ConfigError
from wicketgate.faces.mcp.server import McpDoor
from wicketgate.faces.mcp.stdio import serve_stdio
from wicketgate.gate import VERSION, Gate
from wicketgate.log_text import Redactor
from wicketgate.random_ids import random_id


def serve_mcp(settings: Settings, face_name: str, identity: Identity) -> None:
    """Serve until stdin ends, or SIGINT or SIGTERM comes. Logs go to stderr, because stdout belongs to the client."""
    if sys.stdin is None or sys.stdin.closed:
        raise ConfigError("wicketgate mcp speaks over stdin and stdout: start it from an MCP client.")
    server, redactor = settings.server, Redactor(settings.secrets())
    with service_logs(server.log_level, redactor, sys.stderr, log_format=server.log_format):
        asyncio.run(_serve(settings, face_name, identity))


async def _serve(settings: Settings, face_name: str, identity: Identity) -> None:
    log_configuration(settings)
    search_python_folders(settings)
    gate = Gate(settings, waits=False)
    door = McpDoor(
        gate.faces[face_name],
        name=face_name,
        version=VERSION,
        seal=gate.shared.seal,
        local=identity,
        new_id=lambda: f"req_{random_id()}",
    )
    gate.runtime.changes.watch(door.list_changed)
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    if gate.shared.ring_check is not None:
        gate.shared.ring_check.refused = lambda error: (serving.cancel(), None)[1]
    try:
        async with gate:
            await serve_stdio(door, gate.wait_ready, max_bytes=settings.server.max_body_bytes)
    except asyncio.CancelledError:
        pass  # a signal: a normal end
