"""A server that runs but answers nothing is given up and started again, however busy its callers are; one that lives is
not."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest

from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, UNRULY, connected, context, next_change, unruly, value
from tests.support.until import until
from wicketgate.errors import GatewayError, UpstreamTimeout
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.fleet.member import Member, UpstreamLimits
from wicketgate.upstreams.mcp.call import Refused
from wicketgate.upstreams.mcp.silence import PINGS, UNANSWERED, Silence
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream


def quickly_given_up(*options: str, ping_s: float = 0.05) -> McpServerUpstream:
    connect = partial(stdio_transport, "unruly", [*UNRULY, *options], {}, None, grace_s=0.1)
    return McpServerUpstream("unruly", connect, connect_timeout_s=15, jitter=lambda: 0, ping_s=ping_s)


@requirement("UP-6")
@pytest.mark.parametrize("options", [(), ("--modern",)], ids=["handshake", "2026"])
async def test_a_server_that_was_stopped_is_given_up_after_some_calls_and_started_again(options: tuple[str]) -> None:
    upstream = quickly_given_up(*options)
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


@asynccontextmanager
async def steady_callers(member: Member, calls: int, timeout_s: float) -> AsyncIterator[None]:
    """*calls* under way at any time, begun one after the other, so that there is never a moment without one."""

    async def again_and_again(first_s: float) -> None:
        await asyncio.sleep(first_s)  # one after the other
        while True:
            with suppress(GatewayError):
                await member.call_tool("echo", {}, context(), timeout_s)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(again_and_again(timeout_s * n / calls)) for n in range(calls)]
        yield
        for caller in callers:
            caller.cancel()


@requirement("UP-46")
@pytest.mark.parametrize("failures", [0, 5], ids=["breaker off", "breaker on"])
async def test_a_server_that_was_stopped_is_replaced_while_callers_never_cease(failures: int) -> None:
    upstream = quickly_given_up()
    member = Member(upstream, UpstreamLimits(breaker=BreakerPolicy(failures, 0.05, 0.1)))
    async with connected(upstream) as changes, asyncio.timeout(BOUND_S):
        stopped = await value(upstream, "pid")
        async with steady_callers(member, calls=8, timeout_s=0.2):
            os.kill(stopped, signal.SIGSTOP)
            while upstream.status.connections < 2:
                await next_change(changes)
            assert upstream.status.last_error == "it answers nothing any more"
            answered = 0
            while answered < 20:
                with suppress(GatewayError):
                    result = await member.call_tool("pid", {}, context(), 5)
                    answered += result["structuredContent"]["value"] != stopped
                await asyncio.sleep(0)
        assert upstream.status.connections == 2


@requirement("UP-47")
async def test_a_server_whose_one_thread_is_busy_with_an_earlier_call_is_left_to_it() -> None:
    upstream = quickly_given_up(ping_s=0.01)
    member = Member(upstream)
    async with connected(upstream), asyncio.timeout(BOUND_S):
        before = await value(upstream, "pid")
        os.kill(before, signal.SIGSTOP)
        # It takes nothing until it is through with this one, which its caller waits for.
        long = asyncio.create_task(member.call_tool("echo", {}, context(), BOUND_S))
        await asyncio.sleep(0)
        for _ in range(UNANSWERED + 2):
            with pytest.raises(UpstreamTimeout):
                await member.call_tool("echo", {}, context(), 0.05)
        os.kill(before, signal.SIGCONT)
        await long
        assert await value(upstream, "pid") == before


@requirement("UP-47")
async def test_a_server_that_answers_other_calls_or_reports_progress_is_never_doubted() -> None:
    upstream = unruly(grace_s=0.1)
    async with connected(upstream), asyncio.timeout(BOUND_S):
        for sign in ("echo", "tell"):
            for _ in range(UNANSWERED * 2):
                hung = asyncio.create_task(upstream.call_tool("hang", {}, context(), BOUND_S))
                await asyncio.sleep(0)
                await upstream.call_tool(sign, {"times": 1}, context(), BOUND_S)
                hung.cancel()
                await asyncio.gather(hung, return_exceptions=True)
        assert not upstream._connected()._silence._doubt.is_set()


@requirement("UP-6")
async def test_calls_that_their_callers_deadline_ends_count_too() -> None:
    upstream = unruly(grace_s=0.1)
    async with connected(upstream), asyncio.timeout(BOUND_S):
        for _ in range(UNANSWERED):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.06):
                    await upstream.call_tool("hang", {}, context(), 0.1)
        assert upstream._connected()._silence._doubt.is_set()


class Server:
    """The words and the pings of a server; *answers* says what becomes of a ping."""

    def __init__(self) -> None:
        self.heard = 0
        self.pings = 0
        self.answers: Callable[[], Awaitable[object]] = asyncio.Event().wait

    async def ping(self) -> None:
        self.pings += 1
        await self.answers()

    async def pinged(self, times: int) -> None:
        before = self.pings
        await until(lambda: self.pings >= before + times)


async def refuses() -> None:
    raise Refused(-32601, "no such method")


def doubt(silence: Silence) -> None:
    for _ in range(UNANSWERED):
        silence.unanswered(silence.begin())


@requirement("UP-6", "UP-47")
async def test_a_server_that_answers_a_ping_is_kept_and_one_that_may_be_busy_until_its_caller_has_left() -> None:
    server = Server()
    silence = Silence(server.ping, lambda: server.heard, ping_s=0.01)
    lasting = asyncio.create_task(silence.lasting())
    server.answers = refuses
    doubt(silence)
    await server.pinged(1)
    server.answers = asyncio.Event().wait
    earlier = silence.begin()
    doubt(silence)
    await server.pinged(PINGS + 2)
    assert not lasting.done()
    later = silence.begin()
    silence.end(earlier)
    async with asyncio.timeout(BOUND_S):
        await lasting
    silence.end(later)


@requirement("UP-47")
async def test_a_word_of_the_server_during_the_pings_ends_the_doubt() -> None:
    server = Server()
    silence = Silence(server.ping, lambda: server.heard, ping_s=0.01)
    lasting = asyncio.create_task(silence.lasting())
    doubt(silence)
    await server.pinged(1)
    server.heard += 1
    await until(lambda: not silence._doubt.is_set())
    assert (lasting.done(), server.pings) == (False, 1)
    old = silence.begin()
    server.heard += 1
    for call in (old, silence.begin(), silence.begin()):
        silence.unanswered(call)
    assert not silence._doubt.is_set(), "something was heard while the first of them ran"
    lasting.cancel()
