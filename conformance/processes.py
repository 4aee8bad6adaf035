"""The processes of a run: servers behind the gate, and the gate; ports, keys and configuration."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.process import Program, command, program
from wicketgate.access.identity import hash_key

TIME = {"name": "time", "command": [str(Path(sys.executable).with_name("mcp-server-time"))]}
"""The tool server that tells the time."""
KEY = "wg_conformance_0123456789012345678901234567890123"
_START_S = 40.0


def listening_socket() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def serving(line: Sequence[str | Path], folder: Path) -> AsyncIterator[str]:
    """Yields the MCP URL of a server that takes ``--port``, once it accepts connections."""
    port = free_port()
    async with command(*map(str, line), "--port", str(port), folder=folder) as server:
        await _accepting(server, port)
        yield f"http://127.0.0.1:{port}/mcp"


def configuration(
    folder: Path, upstreams: Sequence[Mapping[str, Any]], keys: Sequence[Mapping[str, Any]] = (), **sections: Any
) -> Path:
    """A configuration file with the key ``KEY``, which may use all tools, and *keys*."""
    auth = {"keys": [{"id": "conformance", "sha256": hash_key(KEY), "actor": "conformance"}, *keys]}
    file = folder / "wicketgate.json"
    file.write_text(
        json.dumps(
            {
                "model": {"provider": "scripted"},
                "auth": auth,
                "upstreams": [{"required": True, **upstream} for upstream in upstreams],
                **sections,
            }
        )
    )
    return file


@asynccontextmanager
async def gate(config: Path) -> AsyncIterator[str]:
    """Yields the base URL of ``wicketgate serve``, once every upstream is connected."""
    async with program("app", "serve", "--config", str(config), "--port", "0") as running:
        found = await running.wait_for(r"(?m)^Wicketgate is ready on (http://\S+)$")
        yield found[1]


async def _accepting(server: Program, port: int) -> None:
    async with asyncio.timeout(_START_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                if server.process.returncode is not None:
                    raise RuntimeError(f"the server ended:\n{server.stderr[-2000:]}") from None
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return
