"""A stop signal while work is under way, through every door of the real process."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.types import ElicitResult

from tests.support.mcp_client import NEW, OLD, mcp_client
from tests.support.model_server import DONE, ModelServer, Reply, chunk
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.served import HEADERS, INITIALIZE, address, write_config
from tests.support.service import BOUND_S, RunningService, chat_body, frames
from tests.support.until import until

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

AFTER_THE_SIGNAL_S = 1.0
"""Longer than the half second after which sse-starlette, left alone, cuts every stream of the process."""


class Holding:
    """A port of the test's: calls of ``hold`` are under way while they are connected."""

    def __init__(self) -> None:
        self._arrivals = asyncio.Semaphore(0)
        self._release = asyncio.Event()
        self.arrivals = 0

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
        self.arrivals += 1
        self._arrivals.release()
        await self._release.wait()
        writer.close()


async def hold(client: Client, port: int) -> str:
    found: Any = await client.call_tool("tool_browse", {"query": "hold"})
    call = {"tool_id": found.structured_content["cards"][0]["id"], "args": {"port": port}}
    return str(await client.call_tool("tool_execute", call))


@requirement("CHAT-78", "OPS-24")
async def test_what_runs_a_second_into_the_drain_ends_whole_through_every_door(tmp_path: Path) -> None:
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
                # Not a wait for something to have happened: this second is what is tried.
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


CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def held_config(folder: Path, **server: Any) -> Path:
    (folder / "holding_tools.py").write_text(TOOLS)
    upstream = {"name": "mine", "python": "holding_tools:registry", "cwd": str(folder)}
    return write_config(folder, upstreams=[upstream], server=server)


async def readiness(url: str, becomes: int) -> None:
    """Ask on a new connection each time until the answer has this status."""
    async with httpx.AsyncClient(trust_env=False) as http:
        await until(
            lambda: http.get(f"{url}/readyz", headers={"Connection": "close"}),
            lambda answer: answer.status_code == becomes,
        )


@asynccontextmanager
async def call_held_at_a_stop(
    folder: Path, mode: str, drain_s: float
) -> AsyncIterator[tuple[str, httpx.AsyncClient, Holding, asyncio.Task[str]]]:
    """A service that was told to stop while a call runs: its URL, a client of it, what holds the call, and the call."""
    config = held_config(folder, drain_s=drain_s)
    async with Holding() as holding, program("app", "serve", "--config", str(config), "--port", "0") as running:
        url = await address(running)
        async with (
            httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=20, trust_env=False) as http,
            mcp_client(RunningService(url, http, None), mode) as client,
            asyncio.TaskGroup() as tasks,
        ):
            call = tasks.create_task(hold(client, holding.port))
            await holding.arrived(1)
            running.process.send_signal(signal.SIGTERM)
            yield url, http, holding, call
        assert await running.ended() == 0


@requirement("OPS-36")
async def test_while_only_an_mcp_call_runs_the_port_stays_open_and_refuses_what_is_new(tmp_path: Path) -> None:
    async with call_held_at_a_stop(tmp_path, NEW, drain_s=60) as (url, http, holding, call):
        await readiness(url, 503)

        chat = await http.post("/engine/chat", json=chat_body())
        operation = await http.get("/operations", params={"q": "hold"})
        message = await http.post("/mcp", json=CALL, headers=ACCEPT)
        assert (await http.get("/healthz")).status_code == 200
        for answer in (chat, operation, message):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.headers["connection"] == "close"
        assert chat.json()["code"] == "engine_unavailable"
        assert (operation.json()["code"], "stopping" in operation.json()["message"]) == ("unavailable", True)
        assert message.json()["error"]["code"] == -32603
        holding.release()
        assert "whole" in await asyncio.wait_for(call, BOUND_S)


@requirement("OPS-36")
async def test_a_call_that_outlives_the_drain_is_answered_in_plain_words(tmp_path: Path) -> None:
    async with call_held_at_a_stop(tmp_path, OLD, drain_s=0.2) as (*_, call):
        assert "whether it took effect is not known" in await asyncio.wait_for(call, BOUND_S)


@requirement("OPS-36")
async def test_the_answer_to_a_question_is_taken_during_the_drain(tmp_path: Path) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def elicited(context: Any, params: Any) -> ElicitResult:
        asked.set()
        await answer.wait()
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with program("tests.support.talking_server") as server:
        upstream = {"name": "talk", "url": (await server.wait_for(r"listening on (\S+)", "stdout")).group(1)}
        config = write_config(tmp_path, upstreams=[upstream], server={"drain_s": 60})
        async with program("app", "serve", "--config", str(config), "--port", "0") as running:
            url = await address(running)
            async with (
                httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=20, trust_env=False) as http,
                mcp_client(RunningService(url, http, None), OLD, client={"elicitation_callback": elicited}) as client,
                asyncio.TaskGroup() as tasks,
            ):
                found: Any = await client.call_tool("tool_browse", {"path": "/talk"})
                tool = next(card["id"] for card in found.structured_content["cards"] if ":ask" in card["id"])
                call = tasks.create_task(client.call_tool("tool_execute", {"tool_id": tool, "args": {}}))
                await asyncio.wait_for(asked.wait(), BOUND_S)
                running.process.send_signal(signal.SIGTERM)
                await readiness(url, 503)
                answer.set()
                assert "Ada" in str(await asyncio.wait_for(call, BOUND_S))
            assert await running.ended() == 0


@requirement("OPS-36")
async def test_while_it_settles_readiness_is_over_and_requests_are_served(tmp_path: Path) -> None:
    config = held_config(tmp_path, settle_s=3_600)
    async with program("app", "serve", "--config", str(config), "--port", "0") as running:
        url = await address(running)
        async with httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=20, trust_env=False) as http:
            running.process.send_signal(signal.SIGTERM)
            await readiness(url, 503)
            served = await http.post("/engine/chat", json=chat_body())
            assert (served.status_code, served.headers["connection"]) == (200, "close")
            assert frames(served.text)[-1][0] == "done"
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0


@requirement("OPS-37")
async def test_restarts_on_a_passed_socket_refuse_no_connection(tmp_path: Path) -> None:
    config = str(held_config(tmp_path, drain_s=5))
    statuses: list[int] = []
    over = asyncio.Event()

    async def keep_asking(url: str, keep_alive: int) -> None:
        limits = httpx.Limits(max_keepalive_connections=keep_alive)
        async with httpx.AsyncClient(headers=HEADERS, timeout=60, trust_env=False, limits=limits) as http:
            while not over.is_set():
                statuses.append((await http.get(f"{url}/metrics")).status_code)

    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        fd = listener.fileno()
        line = ("app", "serve", "--config", config)
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(keep_asking(url, number % 2)) for number in range(8)]
            for number in range(3):
                async with program(*line, passed=fd, cold=number == 0) as running:
                    assert await address(running) == url
                    before = len(statuses)
                    await until(lambda: len(statuses), lambda asked: asked >= before + 40)
                    assert await running.stop() == 0
            over.set()
            # What still waits in the queue is answered by one more process.
            async with program(*line, passed=fd) as running:
                await address(running)
                await asyncio.wait_for(asyncio.gather(*asking), BOUND_S)
    assert set(statuses) == {200}


@requirement("OPS-37")
@pytest.mark.parametrize(("count", "problem"), [("2", "exactly one"), ("1", "no socket")])
async def test_a_passed_socket_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, count: str, problem: str
) -> None:
    config = str(write_config(tmp_path, upstreams=[]))
    with (tmp_path / "file").open("w") as file:
        line = ("app", "serve", "--config", config)
        async with program(*line, passed=file.fileno(), env={"LISTEN_FDS": count}) as running:
            assert await running.ended() == 1
    assert running.stderr.startswith("wicketgate: LISTEN_FDS is")
    assert problem in running.stderr


@requirement("OPS-52")
async def test_a_connection_to_a_passed_socket_waits_until_the_tools_are_there(tmp_path: Path) -> None:
    upstream = {"name": "echo", "command": [sys.executable, "-m", "tests.support.echo_server"]}
    config = str(write_config(tmp_path, upstreams=[upstream]))
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        line = ("app", "serve", "--config", config)
        async with httpx.AsyncClient(headers=HEADERS, timeout=60, trust_env=False) as http:
            call = {"operation": "/echo/echo", "input": {"text": "x"}}
            early = asyncio.create_task(http.post(f"{url}/operations/call", json=call))
            async with program(*line, passed=listener.fileno()) as running:
                assert (await early).status_code == 200
                assert await running.stop() == 0


STANDS_STILL = """
import sys
import threading

import app.port.server

app.port.server._ENDS_WITHIN_S = 0.5
threading.Thread(target=threading.Event().wait, name="stands still").start()

from app.cli import main

sys.argv = ["wicketgate", *sys.argv[1:]]
main()
"""


@requirement("OPS-336")
async def test_a_process_that_does_not_end_is_ended_and_says_what_stood_still(tmp_path: Path) -> None:
    file = write_config(tmp_path, server={"drain_s": 0})
    async with program("-c", STANDS_STILL, "serve", "--config", str(file), "--port", "0") as running:
        await address(running)
        assert await running.stop(signal.SIGTERM) == 1
    assert "did not end within" in running.stderr
    assert "thread stands still" in running.stderr
