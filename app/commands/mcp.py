"""``wicketgate mcp``: one face over stdio, for clients that start their servers themselves (DESIGN §2)."""

import asyncio
import secrets
import signal
import sys
from time import time

from app.logs import json_logs
from app.main import VERSION, create_runtime, make_artifact_store
from wicketgate.access.identity import Identity
from wicketgate.config.approvals import make_seal
from wicketgate.config.audit_loader import make_auditor
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.faces.assembly import make_faces
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.mcp.server import McpDoor
from wicketgate.faces.mcp.stdio import serve_stdio
from wicketgate.faces.operations import Operations
from wicketgate.text.redaction import Redactor


def serve_mcp(settings: Settings, face_name: str, identity: Identity) -> None:
    """Until stdin ends, or SIGINT or SIGTERM comes. Logs go to stderr: stdout is the client's."""
    if sys.stdin is None or sys.stdin.closed:
        raise ConfigError("wicketgate mcp speaks over stdin and stdout: start it from an MCP client.")
    with json_logs(settings.server.log_level, Redactor(settings.secrets()), sys.stderr):
        asyncio.run(_serve(settings, face_name, identity))


async def _serve(settings: Settings, face_name: str, identity: Identity) -> None:
    artifacts = make_artifact_store(settings.storage)
    auditor = make_auditor(settings.plugins, time)
    runtime, fleet, lifecycle = create_runtime(settings, artifacts=artifacts, auditor=auditor)
    faces = make_faces(
        runtime,
        fleet,
        lifecycle.started,
        gateway=GatewayFace(runtime, started=lifecycle.started),
        operations=Operations(runtime, started=lifecycle.started),
        timeout_s=settings.engine.tool_timeout_s,
    )
    face = faces[face_name]
    door = McpDoor(
        face.surface,
        name=face_name,
        version=VERSION,
        instructions=face.instructions,
        seal=make_seal(settings.auth),
        offers=face.offers,
        local=identity,
        new_id=lambda: f"req_{secrets.token_hex(12)}",
    )
    runtime.watch(door.list_changed)
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    try:
        async with lifecycle.running():
            await serve_stdio(door, lifecycle.wait_ready, max_bytes=settings.server.max_body_bytes)
    except asyncio.CancelledError:
        pass  # a signal: a normal end
    finally:
        await artifacts.aclose()
        if auditor is not None:
            await auditor.aclose()
