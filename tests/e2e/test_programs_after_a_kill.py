"""A program waits for an approval where its process is killed: it ends at another replica, and repeats no call."""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.served import address, write_config
from tests.support.service import BOUND_S, KEY
from wicketgate.access.identity import hash_key

TOOLS = """
import time
from pathlib import Path
from wicketgate.tools import ToolRegistry

registry = ToolRegistry()


def note(what: str) -> None:
    with Path(__file__).with_name("calls").open("a") as file:
        file.write(what + "\\n")


@registry.tool
def read(page: int) -> list[str]:
    "Read a page."
    note(f"read {page}")
    return ["ann", "bob"]


@registry.tool
def send(to: str) -> str:
    "Send a mail."
    note(f"send {to}")
    return "sent"


@registry.tool
def hang() -> str:
    "Wait for long."
    note("hang")
    time.sleep(600)
    return "late"
"""
WAITS = 'names = tool("bank:read", page=1)\n[name + " " + tool("bank:send", to=name) for name in names]'
WORKS = 'tool("bank:read", page=2)\ntool("bank:hang")'


def config(folder: Path, url: str) -> Path:
    (folder / "counting_tools.py").write_text(TOOLS)
    return write_config(
        folder,
        auth={
            "keys": [{"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["tools:*"]}],
            "seal_keys": ["k" * 40],
        },
        upstreams=[{"name": "bank", "python": "counting_tools:registry", "cwd": str(folder), "timeout_s": 900}],
        access=[{"match": "bank:send", "approval": "always"}],
        storage={"url": url},
        code_mode={"enabled": True},
        tasks={"after_s": 1},
    )


async def call(at: httpx.AsyncClient, name: str, **arguments: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}
    opened = await at.post("/mcp?result=json", json=first, headers=headers)
    headers |= {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    answer = await at.post("/mcp?result=json", json=message, headers=headers)
    text = answer.text.partition("data: ")[2].partition("\n")[0] or answer.text
    result: dict[str, Any] = json.loads(text)["result"]["structuredContent"]
    return result


async def ended(at: httpx.AsyncClient, handle: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        while True:
            seen = await call(at, "tool_view", handle=handle, selector={"type": "wait", "timeout_s": 1})
            if seen.get("status") not in ("waiting", "running"):
                return seen


@pytest.mark.parametrize("shared", ["file", "redis"])
@requirement("EXEC-146", "EXEC-147", "EXEC-148")
async def test_a_program_outlives_its_process_while_it_waits_and_is_lost_while_it_works(
    tmp_path: Path, shared: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("redis_url") if shared == "redis" else f"sqlite:///{tmp_path}/store.db"
    serve = ("app", "serve", "--config", str(config(tmp_path, url)), "--port", "0")
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(program(*serve)) for _ in range(3)]
        headers = {"Authorization": f"Bearer {KEY}"}
        at = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=await address(each), headers=headers, trust_env=False, timeout=BOUND_S)
            )
            for each in running
        ]
        waits = await call(at[0], "tool_run", code=WAITS)
        works = await call(at[0], "tool_run", code=WORKS)
        assert (waits["status"], works["status"]) == ("waiting", "running")
        os.kill(running[0].process.pid, signal.SIGKILL)
        await running[0].ended()

        for to in ("ann", "bob"):
            async with asyncio.timeout(BOUND_S):
                while True:
                    listed = (await at[1].get("/console/api/approvals")).json()["waiting"]
                    if [each["args"] for each in listed] == [{"to": to}]:
                        break
                    await call(at[2], "tool_view", handle=waits["handle"], selector={"type": "wait", "timeout_s": 1})
            decided = await at[1].post(f"/console/api/approvals/{listed[0]['id']}", json={"decision": "approve"})
            assert decided.status_code == 200, decided.text
        answer = await ended(at[2], waits["handle"])
        assert answer["summary"] == '["ann sent","bob sent"]'
        lost = await ended(at[1], works["handle"])
        assert (lost["error"], lost["details"]) == ("PROGRAM_LOST", {"ran": {"bank:read": 1}})
    assert sorted((tmp_path / "calls").read_text().split("\n")) == [
        "",
        "hang",
        "read 1",
        "read 2",
        "send ann",
        "send bob",
    ]
