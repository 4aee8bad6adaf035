"""One rule says whether a call without an answer may be made again, for every kind of server (EXEC-12, EXEC-70)."""

import asyncio
import json
import shlex
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, running_service
from tests.support.supervised import UNRULY
from tests.support.wire_client import WireClient
from wicketgate.tools import ToolRegistry

UNKNOWN = "whether it took effect is not known"
SCHEMA = {"type": "object"}
TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in ("write", "read")]
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Service", "version": "1"},
    "paths": {"/w": {"post": {"operationId": "write"}}, "/r": {"get": {"operationId": "read"}}},
}
released = threading.Event()
registry = ToolRegistry()


@registry.tool()
def write() -> None:
    """Write."""
    released.wait(BOUND_S)


@registry.tool(read_only=True)
def read() -> None:
    """Read."""
    released.wait(BOUND_S)


async def never_done(seen: Seen) -> Reply:
    """An MCP server at ``/mcp`` and a service beside it; no call of either is answered."""
    message: Mapping[str, Any] = json.loads(seen.body) if seen.body.startswith(b"{") else {}
    match seen.target, message.get("method"):
        case "/openapi.json", _:
            return Reply(json.dumps(DOCUMENT).encode())
        case "/mcp", None:
            return Reply(status=405)
        case "/mcp", "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            result: Mapping[str, Any] = {"protocolVersion": "2025-11-25", **about}
        case "/mcp", "tools/list":
            result = {"tools": TOOLS}
        case "/mcp", str(method) if method != "tools/call":
            return Reply(status=404 if "id" in message else 202)
        case _:
            await asyncio.Event().wait()
    return Reply(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())


@requirement("EXEC-12", "EXEC-70")
@pytest.mark.parametrize("kind", ["stdio", "http", "openapi", "python"])
async def test_what_a_caller_may_do_is_the_same_for_every_kind_of_server(kind: str, tmp_path: Path) -> None:
    writing, reading = ("hang", "say") if kind == "stdio" else ("write", "read")
    # Begins once: after its end it is not reached.
    once = f"[ ! -e {tmp_path}/began ] && touch {tmp_path}/began && exec {shlex.join(UNRULY)}"
    released.clear()
    async with AsyncExitStack() as stack:
        stack.callback(released.set)
        async with HttpService(never_done) as http:
            entries: Mapping[str, Mapping[str, Any]] = {
                "stdio": {"command": ["sh", "-c", once], "read_only": [reading]},
                "http": {"url": f"{http.url}/mcp", "read_only": [reading]},
                "openapi": {"openapi": f"{http.url}/openapi.json"},
                "python": {"python": f"{__name__}:registry", "threads": 3},
            }
            upstreams = [{"name": "s", "timeout_s": 0.2, **entries[kind]}]
            client = WireClient(
                await stack.enter_async_context(running_service(None, None, settings={"upstreams": upstreams}))
            )

            async def told(tool: str, arguments: Mapping[str, Any]) -> tuple[str, bool, bool]:
                async with asyncio.timeout(BOUND_S):
                    error = (await client.call(f"s__{tool}", arguments))["error"]
                return error["data"]["error"], error["data"]["retryable"], UNKNOWN in error["message"]

            assert await told(writing, {}) == ("UPSTREAM_TIMEOUT", False, True)
            assert await told(reading, {"lines": []} if kind == "stdio" else {}) == ("UPSTREAM_TIMEOUT", True, False)
            if kind == "stdio":
                assert await told("crash", {}) == ("UPSTREAM_ERROR", False, True)
        # The service has ended, or the process; the two threads for one actor still run what was given up.
        assert await told(writing, {}) == ("UPSTREAM_UNAVAILABLE", True, False)
