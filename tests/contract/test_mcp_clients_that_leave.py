"""Clients of ``/mcp`` that leave in the middle: nothing of that is an error of the service (OPS-48)."""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.contract.test_mcp_door import INITIALIZE
from tests.support.requirement import requirement
from tests.support.service import KEY, FileServer, RunningService, running_service
from tests.support.until import until

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
OLDER = {"Mcp-Protocol-Version": "2025-06-18"}
NEWER = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "files__slow"}
SLOW = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "files__slow", "arguments": {}, "_meta": META},
}
MANY = 40


async def sent(
    service: RunningService, message: dict[str, Any], headers: dict[str, str], missing: int = 0
) -> asyncio.StreamWriter:
    """The writer of a new connection on which all but *missing* bytes of the request were sent."""
    body = json.dumps(message).encode()
    head = {
        "Host": "localhost",
        "Authorization": f"Bearer {KEY}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "application/json, text/event-stream",
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    _, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(service.url).port)
    writer.write(f"POST /mcp/namespaced HTTP/1.1\r\n{lines}\r\n".encode() + body[: len(body) - missing])
    await writer.drain()
    return writer


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def until_held(service: RunningService, calls: int) -> None:
    await until(lambda: service.app.state.gate.shared.limits.calls.held == calls)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Lists the warnings and errors, without those of a loop that a busy machine kept waiting."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.funcName != "watch_loop"
    ]


@requirement("OPS-48")
@pytest.mark.parametrize("headers", [OLDER, NEWER], ids=["older", "newer"])
async def test_a_client_that_leaves_within_its_body_is_no_error(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        writer = await sent(service, INITIALIZE if headers is OLDER else SLOW, headers, missing=10)
        await until_held(service, 1)
        await leave(writer)
        await until_held(service, 0)
    assert errors(caplog) == []


@requirement("OPS-48", "FACE-135")
async def test_clients_that_leave_while_their_calls_run_are_no_errors(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wicketgate.http")
    files = FileServer()
    async with running_service(upstreams=[files]) as service:
        writers = [await sent(service, SLOW, NEWER) for _ in range(MANY)]
        await until(lambda: files.slow_running >= MANY)
        await asyncio.gather(*map(leave, writers))
        await until_held(service, 0)
        metrics = await service.metrics()
    assert errors(caplog) == []
    assert 'status="500"' not in metrics
    assert f'http_requests_total{{path="/mcp/namespaced",status="0"}} {MANY}.0' in metrics
    assert sum(record.getMessage().endswith("no response") for record in caplog.records) == MANY
