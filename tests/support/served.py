"""``wicketgate serve`` as a process of its own, its configuration, and a client of it."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.process import ROOT, Program, program
from tests.support.service import BOUND_S, KEY
from wicketgate.access.identity import hash_key

ECHO = {
    "name": "echo",
    "command": [sys.executable, "-m", "tests.support.echo_server"],
    "env": {"PYTHONPATH": str(ROOT)},
}
HEADERS = {"Authorization": f"Bearer {KEY}"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def write_config(folder: Path, *, key: str = KEY, **sections: Any) -> Path:
    """A configuration with one *key*, and the echo server if there are no ``upstreams``."""
    keys = [{"id": "test", "sha256": hash_key(key), "actor": "owner_1", "permissions": ["tools:*", "ops:read"]}]
    path = folder / "wicketgate.yaml"
    path.write_text(yaml.safe_dump({"auth": {"keys": keys}, "upstreams": [ECHO], **sections}))
    return path


async def address(running: Program) -> str:
    """The address of the service, once it is ready."""
    return (await running.wait_for(r"ready on (http://127\.0\.0\.1:\d+)")).group(1)


@asynccontextmanager
async def serving(
    config: Path, *more: str, files: int | None = None
) -> AsyncIterator[tuple[Program, httpx.AsyncClient]]:
    """The service, once it is ready, and a client of it. It may open *files* files."""
    async with program("app", "serve", "--config", str(config), "--port", "0", *more, files=files) as running:
        url = await address(running)
        async with httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=BOUND_S, trust_env=False) as http:
            yield running, http
