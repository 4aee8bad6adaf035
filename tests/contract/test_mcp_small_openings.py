"""Requests that open what lasts, a session or a stream, are small, because they are kept as long (FACE-46)."""

import asyncio
import gc
import json
from typing import Any

import httpx
import pytest

from tests.support.mcp_client import NEW, OLD
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, RunningService, running_service

META = "io.modelcontextprotocol/"


def opening(version: str, junk: str) -> tuple[dict[str, Any], dict[str, str]]:
    headers = {"Authorization": f"Bearer {KEY}", "Accept": "application/json, text/event-stream"}
    if version == OLD:
        capabilities = {"experimental": {"x": {"y": junk}}}
        params: dict[str, Any] = {"protocolVersion": OLD, "capabilities": capabilities}
        params["clientInfo"] = {"name": "a", "version": "1"}
        return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, headers
    meta = {f"{META}protocolVersion": NEW, f"{META}clientInfo": {"name": "a", "version": "1"}}
    params = {
        "_meta": {**meta, f"{META}clientCapabilities": {}, "y": junk},
        "notifications": {"toolsListChanged": True},
    }
    method = "subscriptions/listen"
    return (
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
        {**headers, "mcp-protocol-version": NEW, "mcp-method": method},
    )


async def begins(service: RunningService, message: dict[str, Any], headers: dict[str, str]) -> tuple[int, str]:
    """The status and the first message of the answer."""
    async with (
        httpx.AsyncClient(timeout=BOUND_S) as http,
        http.stream("POST", f"{service.url}/mcp", content=json.dumps(message).encode(), headers=headers) as answer,
    ):
        async for line in answer.aiter_lines():
            if "jsonrpc" in line:
                return answer.status_code, line
    return answer.status_code, ""


@requirement("FACE-46")
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_what_opens_a_session_or_a_stream_is_small(version: str) -> None:
    async with running_service() as service:
        status, first = await begins(service, *with_type(opening(version, "x" * 60_000)))
        assert status == 200 and '"error"' not in first
        status, first = await begins(service, *with_type(opening(version, "x" * 70_000)))
        assert '"error"' in first and "65536 bytes" in first


@requirement("FACE-46")
async def test_a_session_that_is_open_takes_no_large_second_opening() -> None:
    async with running_service() as service, httpx.AsyncClient(timeout=BOUND_S) as http:
        message, headers = with_type(opening(OLD, "x"))
        opened = await http.post(f"{service.url}/mcp", json=message, headers=headers)
        message, headers = with_type(opening(OLD, "x" * 70_000))
        headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        assert "65536 bytes" in (await http.post(f"{service.url}/mcp", json=message, headers=headers)).text


def kept() -> bool:
    return any(isinstance(each, dict) and "marker171" in each for each in gc.get_objects())


@requirement("FACE-46")
async def test_a_session_keeps_no_large_message_after_its_end() -> None:
    async with running_service() as service, httpx.AsyncClient(timeout=BOUND_S) as http:
        message, headers = with_type(opening(OLD, "x"))
        opened = await http.post(f"{service.url}/mcp", json=message, headers=headers)
        headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        ping = '{"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{"marker171":["%s"]}}}' % ("x" * 70_000)
        assert '"result"' in (await http.post(f"{service.url}/mcp", content=ping, headers=headers)).text
        async with asyncio.timeout(BOUND_S):
            while kept():
                await asyncio.sleep(0.02)


def with_type(request: tuple[dict[str, Any], dict[str, str]]) -> tuple[dict[str, Any], dict[str, str]]:
    return request[0], {**request[1], "Content-Type": "application/json"}
