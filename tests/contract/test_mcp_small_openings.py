"""A request that opens a stream is small, because it is kept as long; a session keeps no request (FACE-46)."""

import gc
import json
from typing import Any

import httpx
import pytest

from tests.contract.test_mcp_door import INITIALIZE
from tests.support.mcp_client import NEW
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, RunningService, running_service
from tests.support.until import until

META = "io.modelcontextprotocol/"


HEADERS = {
    "Authorization": f"Bearer {KEY}",
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
}


def listening(junk: str) -> dict[str, Any]:
    meta = {f"{META}protocolVersion": NEW, f"{META}clientInfo": {"name": "a", "version": "1"}}
    params = {
        "_meta": {**meta, f"{META}clientCapabilities": {}, "y": junk},
        "notifications": {"toolsListChanged": True},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}


async def begins(service: RunningService, message: dict[str, Any]) -> tuple[int, str]:
    """The status and the first message of the answer."""
    headers = {**HEADERS, "mcp-protocol-version": NEW, "mcp-method": "subscriptions/listen"}
    async with (
        httpx.AsyncClient(timeout=BOUND_S) as http,
        http.stream("POST", f"{service.url}/mcp", content=json.dumps(message).encode(), headers=headers) as answer,
    ):
        async for line in answer.aiter_lines():
            if "jsonrpc" in line:
                return answer.status_code, line
    return answer.status_code, ""


@requirement("FACE-46")
async def test_what_opens_a_stream_is_small() -> None:
    async with running_service() as service:
        status, first = await begins(service, listening("x" * 60_000))
        assert status == 200 and '"error"' not in first
        status, first = await begins(service, listening("x" * 70_000))
        assert '"error"' in first and "65536 bytes" in first


def kept() -> bool:
    return any(isinstance(each, dict) and "marker171" in each for each in gc.get_objects())


@requirement("FACE-46", "FACE-214")
@pytest.mark.usefixtures("both_ways")
async def test_a_session_keeps_no_large_message_and_takes_no_second_opening() -> None:
    async with running_service() as service, httpx.AsyncClient(timeout=BOUND_S) as http:
        opened = await http.post(f"{service.url}/mcp", json=INITIALIZE, headers=HEADERS)
        headers = {**HEADERS, "mcp-session-id": opened.headers["mcp-session-id"]}
        ping = '{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{"marker171":["%s"]}}}' % ("x" * 70_000)
        assert '"result"' in (await http.post(f"{service.url}/mcp", content=ping, headers=headers)).text
        await until(lambda: not kept())
        again = await http.post(f"{service.url}/mcp", json=INITIALIZE, headers=headers)
        assert (again.status_code, "is already initialized" in again.text) == (400, True)
