"""One caller's failures at a tool server, with real servers: they keep nobody else away (UP-48 to UP-50)."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, UNRULY, next_change
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.errors import GatewayError, UpstreamResting, UpstreamTimeout, UpstreamUnavailable
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.fleet.member import Member, UpstreamLimits
from wicketgate.net import HttpClient, Outgoing
from wicketgate.ports import CallContext, Upstream
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream
from wicketgate.upstreams.openapi.upstream import OpenApiUpstream, ServiceAccess

SLOW_S = 0.1


def context(actor: str) -> CallContext:
    return CallContext(Identity(actor, ("*",)), "trace-1", "s")


@asynccontextmanager
async def served(
    upstream: Upstream, failures: int = 5, pause_s: float = 0.05
) -> AsyncIterator[tuple[Member, "asyncio.Queue[str]"]]:
    member = Member(upstream, UpstreamLimits(breaker=BreakerPolicy(failures, pause_s, 2 * pause_s)))
    changes: asyncio.Queue[str] = asyncio.Queue()
    supervising = asyncio.create_task(member.supervise(changes.put_nowait))
    try:
        await next_change(changes)
        yield member, changes
    finally:
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)


def stdio_server(*options: str) -> McpServerUpstream:
    connect = partial(stdio_transport, "unruly", [*UNRULY, *options], {}, None, grace_s=0.1)
    return McpServerUpstream("unruly", connect, connect_timeout_s=15, jitter=lambda: 0, ping_s=0.2)


class Service:
    """An HTTP service with one operation, which is slow where its argument says so. It can be *open* or not."""

    poll_s = 1_000.0
    url = ""

    def __init__(self) -> None:
        self.data: bytes | None = None

    async def load(self) -> bytes | None:
        data, self.data = self.data, None
        return data

    def upstream(self, url: str) -> OpenApiUpstream:
        parameter = {"name": "slow", "in": "query", "schema": {"type": "boolean"}}
        paths = {"/it": {"get": {"operationId": "it", "parameters": [parameter]}}}
        self.data = json.dumps({"openapi": "3.1.0", "paths": paths}).encode()
        http = HttpClient(Outgoing())
        access = ServiceAccess(url, {}, None, 1_000_000)
        return OpenApiUpstream("api", self, http, access, connect_timeout_s=5, jitter=lambda: 0)


async def answer(seen: Seen) -> Reply:
    if "slow=true" in seen.target:
        await asyncio.Event().wait()
    return Reply(b'{"ok": true}')


async def repeated(member: Member, actor: str, tool: str, arguments: dict[str, Any]) -> None:
    while True:
        with suppress(GatewayError):
            await member.call_tool(tool, arguments, context(actor), SLOW_S)
        await asyncio.sleep(0)


@requirement("UP-48")
@pytest.mark.parametrize(
    ("kind", "slow_actors"), [("openapi", ["bob"]), ("stdio", ["bob"]), ("stdio", ["bob", "bert"])]
)
async def test_a_caller_whose_calls_are_slow_keeps_nobody_else_away(kind: str, slow_actors: list[str]) -> None:
    async with HttpService(answer) as service, asyncio.timeout(BOUND_S):
        upstream: Upstream = stdio_server() if kind == "stdio" else Service().upstream(service.url)
        fast, slow = ("echo", "hang") if kind == "stdio" else ("it", "it")
        async with served(upstream) as (member, _), asyncio.TaskGroup() as tasks:
            crowd = [tasks.create_task(repeated(member, actor, slow, {"slow": True})) for actor in slow_actors * 4]
            # She calls now and then, each time after others were turned away for a while.
            for _ in range(5):
                before = member.state().turned_away
                await until(lambda: member.state().turned_away, lambda now: now >= before + 20)
                await member.call_tool(fast, {"slow": False}, context("alice"), BOUND_S)
            # Their pauses are short: each is held off again after its next failure.
            await until(lambda: member.state().held_off >= len(slow_actors))
            state = member.state()
            assert (state.breaker, state.breaker_opened, state.held_off) == ("closed", 0, len(slow_actors))
            for one in crowd:
                one.cancel()


@requirement("UP-19", "UP-49")
async def test_a_lone_caller_of_a_server_that_stopped_is_refused_at_once_and_served_when_it_is_back() -> None:
    async with served(stdio_server(), failures=3) as (member, changes), asyncio.timeout(BOUND_S):
        result = await member.call_tool("pid", {}, context("local"), BOUND_S)
        os.kill(result["structuredContent"]["value"], signal.SIGKILL)
        while member.state().breaker == "closed":
            with suppress(GatewayError):
                await member.call_tool("pid", {}, context("local"), BOUND_S)
            await asyncio.sleep(0)
        with pytest.raises(UpstreamResting, match="left alone"):
            await member.call_tool("pid", {}, context("other"), BOUND_S)
        while member.state().connections < 2:
            await next_change(changes)
        # Its new session is an answer to us: no pause has to end before it is open to all.
        await member.call_tool("pid", {}, context("other"), BOUND_S)
        assert member.state().breaker == "closed"


@requirement("UP-48", "UP-50")
async def test_a_lone_caller_of_a_hanging_tool_is_held_off_alone() -> None:
    async with served(stdio_server(), failures=3, pause_s=BOUND_S) as (member, _), asyncio.timeout(BOUND_S):
        for _ in range(3):
            with pytest.raises(UpstreamTimeout):
                await member.call_tool("hang", {}, context("local"), 0.05)
        with pytest.raises(UpstreamResting, match="for you") as resting:
            await member.call_tool("hang", {}, context("local"), 0.05)
        assert resting.value.details is not None
        assert resting.value.details["scope"] == "actor"
        await member.call_tool("echo", {}, context("other"), BOUND_S)
        assert (member.state().breaker, member.state().held_off) == ("closed", 1)


@requirement("UP-49", "UP-50")
async def test_a_service_that_refuses_connections_is_left_alone_for_all_and_tried_by_us() -> None:
    service = HttpService(answer)
    async with service:
        port = int(service.url.rpartition(":")[2])
    async with served(Service().upstream(service.url), failures=3) as (member, _), asyncio.timeout(BOUND_S):
        for _ in range(3):
            with pytest.raises(UpstreamUnavailable):
                await member.call_tool("it", {}, context("local"), BOUND_S)
        await until(lambda: member.state().breaker == "open")
        async with HttpService(answer, port=port) as again:
            # Nobody calls meanwhile: the connection that shows it is ours, and sends nothing.
            await until(lambda: member.state().breaker == "closed")
            assert again.seen == []
            await member.call_tool("it", {}, context("other"), BOUND_S)
        assert member.state().breaker == "closed"
