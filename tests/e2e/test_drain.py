"""A stop signal while work is under way, through every door of the real process."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from mcp import Client

from tests.e2e.test_serve import HEADERS, address, write_config
from tests.support.mcp_client import NEW, OLD, mcp_client
from tests.support.model_server import DONE, ModelServer, Reply, chunk
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, RunningService, chat_body, frames

TOOLS = """
import asyncio
from wicketgate.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool
async def hold(port: int) -> str:
    "Answer when the test closes the connection."
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.read()
    writer.close()
    return "whole"
"""

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}

AFTER_THE_SIGNAL_S = 3.0
"""Longer than the half second after which sse-starlette, left alone, cuts every stream of the process."""


class Holding:
    """A port of the test's: calls of ``hold`` are under way while they are connected."""

    def __init__(self) -> None:
        self._arrivals = asyncio.Semaphore(0)
        self._release = asyncio.Event()

    async def __aenter__(self) -> "Holding":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()
        self._server.close()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def arrived(self, count: int) -> None:
        async with asyncio.timeout(BOUND_S):
            for _ in range(count):
                await self._arrivals.acquire()

    def release(self) -> None:
        self._release.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._arrivals.release()
        await self._release.wait()
        writer.close()


async def hold(client: Client, port: int) -> str:
    found: Any = await client.call_tool("tool_browse", {"query": "hold"})
    call = {"tool_id": found.structured_content["cards"][0]["id"], "args": {"port": port}}
    return str(await client.call_tool("tool_execute", call))


@requirement("CHAT-78", "OPS-24")
async def test_what_runs_three_seconds_into_the_drain_ends_whole_through_every_door(tmp_path: Path) -> None:
    (tmp_path / "holding_tools.py").write_text(TOOLS)
    go_on = asyncio.Event()
    reply = Reply([chunk({"content": "one"}), go_on, chunk({"content": "two"}), chunk({}, "stop"), DONE])
    async with ModelServer(reply) as model, Holding() as holding:
        config = write_config(
            tmp_path,
            upstreams=[{"name": "mine", "python": "holding_tools:registry", "cwd": str(tmp_path)}],
            model={"provider": "openai-chat", "base_url": model.base_url, "model": "some-model"},
            server={"drain_s": 10},
        )
        async with program("app", "serve", "--config", str(config), "--port", "0") as running:
            url = await address(running)
            async with (
                httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=20, trust_env=False) as http,
                mcp_client(RunningService(url, http, None), OLD) as handshake,
                mcp_client(RunningService(url, http, None), NEW) as stateless,
                asyncio.TaskGroup() as tasks,
                http.stream("POST", "/engine/chat", json=chat_body()) as response,
            ):
                calls = [tasks.create_task(hold(client, holding.port)) for client in (handshake, stateless)]
                pieces = response.aiter_text()
                text = await anext(pieces)
                await holding.arrived(2)

                running.process.send_signal(signal.SIGTERM)
                # Not a wait for something to have happened: these seconds are what is tried.
                await asyncio.sleep(AFTER_THE_SIGNAL_S)
                go_on.set()
                holding.release()

                with suppress(httpx.RemoteProtocolError):
                    async for piece in pieces:
                        text += piece
                results = [await asyncio.wait_for(call, BOUND_S) for call in calls]
            assert await running.ended() == 0
    assert [event for event, _ in frames(text)] == ["text-delta", "text-delta", "done"]
    assert frames(text)[-1][1]["finish_reason"] == "stop"
    for result in results:
        assert "whole" in result, result


@requirement("CHAT-78", "OPS-24")
async def test_clients_that_only_listen_do_not_hold_up_a_stop(tmp_path: Path) -> None:
    config = write_config(tmp_path, upstreams=[], server={"drain_s": 600})
    async with program("app", "serve", "--config", str(config), "--port", "0") as running:
        url = await address(running)
        accept = {"Accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(base_url=url, headers={**HEADERS, **accept}, trust_env=False) as http:
            session = {"mcp-session-id": (await http.post("/mcp", json=INITIALIZE)).headers["mcp-session-id"]}
            async with http.stream("GET", "/mcp", headers=session) as listening:
                running.process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(BOUND_S):
                    assert [piece async for piece in listening.aiter_text()] == []
        assert await running.ended() == 0
