"""Two processes over one Redis: a handshake session goes on when the one that opened it is killed."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.test_serve import ECHO, HEADERS, address, write_config
from tests.support.process import program
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from tests.support.wire_client import messages_in

ACCEPT = {**HEADERS, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


@requirement("FACE-115", "FACE-116", "FACE-118")
async def test_a_session_outlives_a_killed_replica(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as redis:
        file = write_config(tmp_path, upstreams=[ECHO], storage={"url": redis.url})
        line = ("app", "serve", "--config", str(file), "--port", "0")
        async with program(*line) as one, program(*line) as other:
            a, b = await address(one), await address(other)
            async with httpx.AsyncClient(headers=ACCEPT, trust_env=False, timeout=BOUND_S) as http:

                async def post(url: str, **message: Any) -> httpx.Response:
                    return await http.post(f"{url}/mcp", json={"jsonrpc": "2.0", **message})

                client = {"name": "t", "version": "1"}
                params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
                opened = await post(a, id=1, method="initialize", params=params)
                session = http.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
                assert (await post(b, method="notifications/initialized")).status_code == 202
                for url in (b, a, b):
                    tools = await post(url, id=2, method="tools/list")
                    assert (tools.status_code, tools.headers.get_list("mcp-session-id")) == (200, [session])

                one.process.kill()
                with suppress(httpx.TransportError):
                    await post(a, id=3, method="tools/list")
                listed = await post(b, id=4, method="tools/list")
                (answer,) = messages_in(listed)
                assert [tool["name"] for tool in answer["result"]["tools"]]
                assert (await http.delete(f"{b}/mcp")).status_code == 200
                assert (await post(b, id=5, method="tools/list")).status_code == 404
            assert await other.stop() == 0
