"""A server over stdio that one process runs for several gates (OPS-182 to OPS-184)."""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.support.process import children
from tests.support.requirement import requirement
from tests.support.supervised import UNRULY, cancellations, connected, context, next_change, value
from wicketgate.errors import UpstreamError, UpstreamLost
from wicketgate.upstreams.mcp.shared_owner import StdioOwner
from wicketgate.upstreams.mcp.shared_stdio import SharedProgram, shared_stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

BOUND_S = 30.0


@asynccontextmanager
async def owner(folder: Path) -> AsyncIterator[Path]:
    path = folder / "o.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    listener.setblocking(False)
    stop, learned = asyncio.Event(), list[SharedProgram]()
    serving = asyncio.create_task(StdioOwner(learned.append, asyncio.Event()).serve(listener, stop))
    try:
        yield path
    finally:
        stop.set()
        async with asyncio.timeout(BOUND_S):
            await serving


def gate(path: Path, *options: str, command: list[str] | None = None) -> McpServerUpstream:
    """The connector of one gate."""
    program = SharedProgram("unruly", tuple(command or [*UNRULY, *options]), {}, None, 100_000)
    connect = partial(shared_stdio_transport, path, program)
    return McpServerUpstream("unruly", connect, connect_timeout_s=15, jitter=random.random)


@requirement("OPS-182", "OPS-183")
async def test_two_gates_use_one_process_and_each_gets_its_own_answers(tmp_path: Path) -> None:
    async with owner(tmp_path) as path, AsyncExitStack() as stack:
        gates = [gate(path), gate(path)]
        for each in gates:
            await stack.enter_async_context(connected(each))
        pids = {await value(each, "pid") for each in gates}
        assert len(pids) == 1
        answers = await asyncio.gather(*(value(gates[n % 2], "echo", {"n": n}) for n in range(40)))
        assert answers == [{"n": n} for n in range(40)]
        # A caller who leaves has its own call cancelled, and no other.
        call = asyncio.create_task(value(gates[0], "hang"))
        async with asyncio.timeout(BOUND_S):
            while "hang" not in [m.get("params", {}).get("name") for m in await value(gates[1], "seen")]:
                await asyncio.sleep(0.05)
            call.cancel()
            while await cancellations(gates[1]) != ["hang"]:
                await asyncio.sleep(0.05)


@requirement("OPS-184")
async def test_the_end_of_the_server_is_told_to_each_with_its_code_and_it_is_started_once_again(tmp_path: Path) -> None:
    async with owner(tmp_path) as path, AsyncExitStack() as stack:
        gates = [gate(path), gate(path)]
        changes = [await stack.enter_async_context(connected(each)) for each in gates]
        first = await value(gates[0], "pid")
        with pytest.raises(UpstreamLost, match="ended with code 3"):
            await value(gates[0], "crash", {"code": 3})
        for each in changes:
            await next_change(each)
        pids = {await value(each, "pid") for each in gates}
        assert len(pids) == 1
        assert first not in pids
        assert [each.status.last_error for each in gates] == ["it ended with code 3"] * 2


@requirement("OPS-183")
async def test_an_answer_that_is_too_large_costs_its_own_call_and_says_so(tmp_path: Path) -> None:
    async with owner(tmp_path) as path, AsyncExitStack() as stack:
        gates = [gate(path), gate(path)]
        for each in gates:
            await stack.enter_async_context(connected(each))
        held = asyncio.create_task(value(gates[1], "echo", {"a": 1}))
        with pytest.raises(UpstreamError, match="more than 100000 bytes"):
            await gates[0].call_tool("large", {"bytes": 200_000}, context(), 10)
        assert await held == {"a": 1}
        assert [each.status.connections for each in gates] == [1, 1]


@requirement("OPS-182")
async def test_the_process_ends_with_its_last_user(tmp_path: Path) -> None:
    async with owner(tmp_path) as path:
        one = gate(path)
        async with connected(one):
            async with connected(other := gate(path)):
                pid = await value(other, "pid")
            assert await value(one, "pid") == pid
        async with asyncio.timeout(BOUND_S):
            while pid in children(os.getpid()):
                await asyncio.sleep(0.01)


@requirement("OPS-182")
async def test_a_program_that_cannot_be_started_is_told_as_without_an_owner(tmp_path: Path) -> None:
    async with owner(tmp_path) as path:
        missing = gate(path, command=["/no/such/program"])
        running = asyncio.create_task(missing.supervise(lambda _: None))
        async with asyncio.timeout(BOUND_S):
            while missing.status.phase != "down":
                await asyncio.sleep(0.01)
        assert missing.status.error == "the command was not found"
        assert "correct command" in missing.status.report
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@requirement("OPS-184")
async def test_without_an_owner_it_is_down_and_joins_when_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "o.sock"
    one = gate(path)
    changes: asyncio.Queue[str] = asyncio.Queue()
    running = asyncio.create_task(one.supervise(changes.put_nowait))
    async with asyncio.timeout(BOUND_S):
        while one.status.phase != "down":
            await asyncio.sleep(0.01)
        async with owner(tmp_path):
            await changes.get()
            assert await value(one, "echo", {"a": 1}) == {"a": 1}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
