"""A server that runs but answers nothing is given up and started again; one that is busy is not."""

import asyncio
import os
import signal
from functools import partial

import pytest

from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, UNRULY, connected, context, next_change, unruly, value
from wicketgate.errors import UpstreamTimeout
from wicketgate.fleet.member import Member
from wicketgate.upstreams.mcp.call import Refused
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import UNANSWERED, McpServerUpstream, Silence


@requirement("UP-6")
@pytest.mark.parametrize("options", [(), ("--modern",)], ids=["handshake", "2026"])
async def test_a_server_that_was_stopped_is_given_up_after_some_calls_and_started_again(options: tuple[str]) -> None:
    connect = partial(stdio_transport, "unruly", [*UNRULY, *options], {}, None, grace_s=0.1)
    upstream = McpServerUpstream("unruly", connect, connect_timeout_s=15, jitter=lambda: 0, probe_s=0.05)
    async with connected(upstream) as changes, asyncio.timeout(BOUND_S):
        stopped = await value(upstream, "pid")
        os.kill(stopped, signal.SIGSTOP)
        for _ in range(UNANSWERED):
            with pytest.raises(UpstreamTimeout):
                await Member(upstream).call_tool("echo", {}, context(), 0.05)
        while upstream.status.connections < 2:
            await next_change(changes)
        assert await value(upstream, "pid") != stopped
        assert upstream.status.last_error == "it answers nothing any more"


@requirement("UP-6")
async def test_calls_that_their_callers_deadline_ends_count_too() -> None:
    upstream = unruly(grace_s=0.1)
    async with connected(upstream), asyncio.timeout(BOUND_S):
        for _ in range(UNANSWERED):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.06):
                    await upstream.call_tool("hang", {}, context(), 0.1)
        assert upstream._silence._unanswered == UNANSWERED


@requirement("UP-6")
async def test_a_server_that_answers_a_probe_or_whose_caller_still_waits_is_not_given_up() -> None:
    probed, answers = asyncio.Event(), [True]

    async def probe() -> None:
        probed.set()
        if answers[0]:
            raise Refused(-32601, "no such method")
        await asyncio.Event().wait()

    silence = Silence(probe, probe_s=0.01)
    silence.in_flight = 1
    lasting = asyncio.create_task(silence.lasting())
    async with asyncio.timeout(BOUND_S):
        for answers[0] in (True, False):
            probed.clear()
            for _ in range(UNANSWERED):
                silence.unanswered()
            await probed.wait()
            probed.clear()
        await probed.wait()
        await probed.wait()
        assert not lasting.done()
        silence.in_flight = 0
        await lasting
