"""McpServerUpstream against real MCP servers in processes of their own (EXEC-12, UP-1, UP-3)."""

import asyncio
import os
import random
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.odd_server import LARGE_TEXT
from tests.support.process import alive, program
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.errors import UpstreamError, UpstreamLost, UpstreamUnavailable
from wicketgate.fleet.member import Member
from wicketgate.log_text import META_KEY
from wicketgate.net import Outgoing
from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "session")
ECHO = [sys.executable, "-m", "tests.support.echo_server"]
SDK_ECHO = [sys.executable, "-m", "tests.support.sdk_echo_server"]
BOUND_S = 20.0


@asynccontextmanager
async def supervised(upstream: McpServerUpstream) -> AsyncIterator[asyncio.Queue[str]]:
    """The queue gets the upstream's name each time it has something new."""
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.TaskGroup() as tasks:
        supervising = tasks.create_task(upstream.supervise(changes.put_nowait))
        yield changes
        supervising.cancel()


def stdio(command: list[str], env: Mapping[str, str] | None = None, **options: Any) -> McpServerUpstream:
    connect = partial(stdio_transport, "echo", command, env or {}, None, **options)
    return McpServerUpstream("echo", connect, connect_timeout_s=15, jitter=random.random)


async def change(changes: "asyncio.Queue[str]") -> None:
    async with asyncio.timeout(BOUND_S):
        assert await changes.get() == "echo"


async def call(upstream: McpServerUpstream, tool: str, timeout_s: float = 10, **arguments: Any) -> dict[str, Any]:
    result = await Member(upstream).call_tool(tool, arguments, CONTEXT, timeout_s)
    structured: dict[str, Any] = result["structuredContent"]
    return structured


async def test_a_line_that_is_too_long_is_passed_over_and_not_held(caplog: pytest.LogCaptureFixture) -> None:
    noise = shlex.join([sys.executable, "-c", "print('x' * 9_000_000)"])
    upstream = stdio(["sh", "-c", f"{noise}; exec {shlex.join(ECHO)}"], max_answer_bytes=1_000_000)
    async with supervised(upstream) as changes:
        await change(changes)
        assert (await call(upstream, "echo", text="x"))["text"] == "x"
    assert sum("was skipped" in message and "bytes" in message for message in caplog.messages) == 1


async def test_a_result_of_twenty_megabytes_on_one_line_arrives_whole() -> None:
    upstream = stdio([sys.executable, "-m", "tests.support.odd_server"])
    async with supervised(upstream) as changes:
        await change(changes)
        result = await upstream.call_tool("first", {}, CONTEXT, 20)
    assert result["content"][0]["text"] == LARGE_TEXT


@requirement("UP-1", "OPS-14")
async def test_tools_are_listed_and_called_and_the_trace_travels_in_meta() -> None:
    upstream = stdio(SDK_ECHO)
    phases = [upstream.status.phase]
    async with supervised(upstream) as changes:
        await change(changes)
        phases.append(upstream.status.phase)
        tools = await upstream.list_tools()
        assert [tool["name"] for tool in tools] == ["echo", "environment", "die", "pid", "sleep", "refuse"]
        assert tools[0]["inputSchema"]["required"] == ["text"]
        answer = await call(upstream, "echo", text="é\n")
    assert phases == ["connecting", "ready"]
    assert answer["text"] == "é\n"
    assert answer["meta"][META_KEY] == "trace-1"


INHERITED = ("SSL_CERT_FILE", "https_proxy", "NO_PROXY", "LC_ALL", "XDG_CACHE_HOME", "UV_INDEX", "npm_config_registry")
KEPT_BACK = ("WICKETGATE_TEST_SECRET", "UV_PUBLISH_TOKEN", "npm_config__auth", "MY_HTTP_PROXY", "LANGSMITH_API_KEY")


@requirement("UP-15", "UP-260")
async def test_a_child_gets_the_named_variables_and_the_basics_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*INHERITED, *KEPT_BACK):
        monkeypatch.setenv(name, "x")
    upstream = stdio(ECHO, {"NAMED": "y"})
    async with supervised(upstream) as changes:
        await change(changes)
        names = (await call(upstream, "environment"))["names"]
    assert {"NAMED", "PATH", *INHERITED} <= set(names)
    assert not set(KEPT_BACK) & set(names)


@requirement("UP-12")
async def test_a_child_that_dies_in_a_call_fails_that_call_and_is_started_again() -> None:
    upstream = stdio(ECHO)
    async with supervised(upstream) as changes:
        await change(changes)
        first = (await call(upstream, "pid"))["pid"]
        with pytest.raises(UpstreamLost):
            await call(upstream, "die")
        await change(changes)
        second = (await call(upstream, "pid"))["pid"]
        os.kill(second, signal.SIGKILL)
        await change(changes)
        third = (await call(upstream, "pid"))["pid"]
    assert len({first, second, third}) == 3
    assert not any(map(alive, (first, second, third)))


@requirement("UP-9")
async def test_what_is_not_mcp_or_not_utf_8_on_stdout_is_passed_over_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noise = r"printf 'caf\351 is open\n\n{\"half\": \n'; exec " + shlex.join(ECHO)
    upstream = stdio(["sh", "-c", noise])
    async with supervised(upstream) as changes:
        await change(changes)
        assert (await call(upstream, "echo", text="x"))["text"] == "x"
    told = [message for message in caplog.messages if "not MCP" in message]
    assert len(told) == 1
    assert "open" not in told[0]


@requirement("EXEC-13")
async def test_a_refusal_by_the_server_keeps_its_code_and_its_words_made_safe() -> None:
    upstream = stdio(SDK_ECHO)
    async with supervised(upstream) as changes:
        await change(changes)
        with pytest.raises(UpstreamError) as refused:
            await call(upstream, "refuse")
    details = refused.value.as_dict()["details"]
    assert details["upstream_code"] == -32011
    assert details["upstream_message"].startswith("not today")
    assert "\n" not in details["upstream_message"]
    assert len(details["upstream_message"]) <= 256


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that refuses connections until a server takes it; nothing is given it by chance meanwhile."""
    with socket.socket() as holder:
        # Two sockets with this option may share a port while at most one of them listens.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@requirement("UP-3", "UP-5")
async def test_an_http_server_may_come_late_go_away_and_come_back() -> None:
    with reserved_port() as port:
        connect = partial(http_transport, "echo", f"http://127.0.0.1:{port}/mcp", {"X-Test": "1"}, outgoing=Outgoing())
        upstream = McpServerUpstream("echo", connect, connect_timeout_s=10, jitter=lambda: 0)
        async with supervised(upstream) as changes:
            await until(lambda: upstream.status.phase == "down")
            async with program("examples.shop", "--port", str(port)) as shop:
                await shop.wait_for("listening", "stdout")
                await change(changes)
                tools = [tool["name"] for tool in await upstream.list_tools()]
                assert len(tools) >= 50
            with pytest.raises((UpstreamUnavailable, UpstreamLost)):  # lost: a kept-alive connection was found broken
                await upstream.call_tool(tools[0], {}, CONTEXT, 5)
            async with program("examples.shop", "--port", str(port)) as shop:
                await shop.wait_for("listening", "stdout")
                await until(lambda: (upstream.status.connections, upstream.status.phase) == (2, "ready"))
                assert await upstream.call_tool(tools[0], {}, CONTEXT, 5)


@requirement("UP-2")
@pytest.mark.parametrize("mode", ["auto", "handshake"])
async def test_a_server_that_announces_other_tools_is_asked_again_and_every_page_is_read(mode: Mode) -> None:
    async with program("tests.support.changing_server") as server:
        port = (await server.wait_for(r"listening on (\d+)\.", "stdout"))[1]
        connect = partial(http_transport, "echo", f"http://127.0.0.1:{port}/mcp", {}, outgoing=Outgoing())
        upstream = McpServerUpstream("echo", connect, connect_timeout_s=10, jitter=lambda: 0, mode=mode)
        async with supervised(upstream) as changes:
            await change(changes)
            names: list[str] = []
            for number, name in enumerate(("one", "two", "three", "four"), start=2):
                await upstream.call_tool("add", {"name": name}, CONTEXT, 5)
                while len(names) < number:  # asking only when notified: a change that is not announced times out
                    await change(changes)
                    names = [tool["name"] for tool in await upstream.list_tools()]
    assert names == ["add", "one", "two", "three", "four"]
