"""``wicketgate mcp``: a face over stdin and stdout, in a process of its own (FACE-36, UP-14, OPS-11)."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.contract.test_mcp_namespaced import NO_MESSAGES
from tests.support.process import ROOT, START_BOUND_S, Program, alive, children, program
from tests.support.requirement import requirement


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "wicketgate.yaml"
    servers = [
        {
            "name": name,
            "command": [sys.executable, "-m", f"tests.support.{name}_server"],
            "cwd": str(ROOT),
            "instructions": True,
        }
        for name in ("echo", "feature")
    ]
    path.write_text(json.dumps({"upstreams": servers}))
    return str(path)


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
@requirement("FACE-7", "FACE-35", "UP-3", "OPS-11")
async def test_a_client_of_either_era_starts_it_and_finds_everything_at_once(
    config: str, mode: str, version: str
) -> None:
    command = ["-m", "app", "mcp", "--config", config, "--face", "namespaced", "--actor", "ann"]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=str(ROOT))
    async with asyncio.timeout(START_BOUND_S), Client(server, mode=mode) as client:
        assert client.protocol_version == version
        assert "feature: Read the note first." in (client.instructions or "")
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"echo__echo", "feature__touch"} <= set(names)
        echoed = await client.call_tool("echo__echo", {"text": "hi"})
        echo = json.loads(echoed.content[0].text)  # type: ignore[union-attr]
        assert echo["text"] == "hi"
        assert echo["meta"]["wicketgate/correlation_id"].startswith("req_")
        assert len((await client.list_resources()).resources) == 4


class Wire:
    """Lines in, lines out."""

    def __init__(self, running: Program) -> None:
        self._running = running

    async def send(self, line: str) -> None:
        stdin = self._running.process.stdin
        assert stdin is not None
        stdin.write(line.encode() + b"\n")
        await stdin.drain()

    async def ask(self, id: int, method: str, **params: Any) -> dict[str, Any]:
        await self.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        found = await self._running.wait_for(rf'(?m)^.*"id":{id}[,}}].*$', "stdout")
        answer: dict[str, Any] = json.loads(found.group())
        return answer

    def answers(self) -> list[dict[str, Any]]:
        """All messages so far but notifications."""
        messages = map(json.loads, self._running.stdout.rpartition("\n")[0].splitlines())
        return [message for message in messages if "method" not in message]

    async def open(self) -> None:
        answer = await self.ask(
            1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "0"}
        )
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        await self.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')


@requirement("FACE-4", "FACE-5", "FACE-6", "FACE-36", "UP-14")
async def test_rubbish_is_answered_the_session_goes_on_and_the_end_of_stdin_ends_it_all(config: str) -> None:
    async with program("app", "mcp", "--config", config, stdin=asyncio.subprocess.PIPE) as running:
        wire = Wire(running)
        await wire.open()
        for body, id, code in NO_MESSAGES:
            seen = len(wire.answers())
            await wire.send(body)
            # What servers say that have just come may stand between.
            await running.wait_for(rf'(?:(?:.*"method".*\n)*(?!.*"method").*\n){{{seen + 1}}}', "stdout")
            answer = wire.answers()[seen]
            assert (answer["id"], answer["error"]["code"]) == (id, code), body[:80]
        await wire.send("")
        await wire.send("x" * 11_000_000)
        await running.wait_for("larger than 10485760 bytes", "stdout")
        assert (await wire.ask(99, "ping"))["result"] == {}
        listed = await wire.ask(100, "tools/list")
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["tool_browse", "tool_execute", "tool_view"]
        started = children(running.process.pid)
        assert len(started) == 2
        assert running.process.stdin is not None
        running.process.stdin.close()
        assert await running.ended() == 0
    assert not any(map(alive, started))
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in running.stdout.splitlines())
    assert all(json.loads(line)["component"] for line in running.stderr.splitlines())
    assert f"Configuration: {config}" in running.stderr


@requirement("FACE-52")
async def test_the_opening_waits_for_no_server(tmp_path: Path) -> None:
    config = tmp_path / "wicketgate.yaml"
    mute = {"name": "mute", "command": [sys.executable, "-c", "import sys; sys.stdin.read()"]}
    config.write_text(json.dumps({"server": {"start_deadline_s": 3_600}, "upstreams": [mute]}))
    async with program("app", "mcp", "--config", str(config), stdin=asyncio.subprocess.PIPE) as running:
        await Wire(running).open()
        assert running.process.stdin is not None
        running.process.stdin.close()
        assert await running.ended() == 0


@requirement("FACE-36", "UP-14")
async def test_the_command_line_says_what_the_actor_may_do_and_a_signal_ends_it_though_a_call_runs(config: str) -> None:
    args = ("app", "mcp", "--config", config, "--face", "namespaced", "--permission", "tools:echo:sleep")
    async with program(*args, stdin=asyncio.subprocess.PIPE) as running:
        wire = Wire(running)
        await wire.open()
        listed = await wire.ask(2, "tools/list")
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["echo__sleep"]
        call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "echo__sleep", "arguments": {}}}
        await wire.send(json.dumps(call))
        assert (await wire.ask(4, "ping"))["result"] == {}
        started = children(running.process.pid)
        assert await running.stop(signal.SIGTERM) == 0
    assert len(started) == 2
    assert not any(map(alive, started))
