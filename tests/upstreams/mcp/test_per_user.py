"""One server, and a session for each of its users' accounts: a real server in both eras and over SSE."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.account_server import AccountServer
from tests.support.requirement import requirement
from tests.support.token_users import TokenUsers
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.errors import ConnectRequired, IssuerAway, RateLimited, UpstreamError, UpstreamUnavailable
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.fleet.member import Member, UpstreamLimits, loop_time
from wicketgate.net import Outgoing
from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.client import Connect
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.per_user import UserUpstream
from wicketgate.upstreams.mcp.sse import sse_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

BOUND_S = 30.0


class Setup:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.server = AccountServer(sse=kind == "sse")
        self.users = TokenUsers()
        self.changed: list[str] = []

    def make(self, **options: Any) -> UserUpstream:
        def session(credentials: Any, note: Any) -> McpServerUpstream:
            transport = sse_transport if self.kind == "sse" else http_transport
            connect: Connect = partial(
                transport, "accounts", self.server.url, {}, outgoing=Outgoing(), credentials=credentials
            )
            mode: Any = "handshake" if self.kind == "handshake" else "auto"
            return McpServerUpstream(
                "accounts", connect, connect_timeout_s=10, jitter=random.random, mode=mode, note=note
            )

        return UserUpstream("accounts", self.users, session, now=loop_time, **options)

    def account(self, actor: str, token: str = "") -> None:
        token = token or f"token-of-{actor}"
        self.server.tokens[token] = actor
        self.users.connect(actor, token)


@pytest.fixture(params=["2026", "handshake", "sse"])
def setup(request: pytest.FixtureRequest) -> Setup:
    return Setup(request.param)


def context(actor: str) -> CallContext:
    return CallContext(Identity(actor, ("*",)), "trace", f"session-{actor}")


@asynccontextmanager
async def supervised(setup: Setup, **options: Any) -> AsyncIterator[UserUpstream]:
    async with asyncio.timeout(BOUND_S), setup.server.running():
        upstream = setup.make(**options)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(upstream.supervise(setup.changed.append))
            await until(lambda: upstream.status.phase != "connecting")
            yield upstream
            running.cancel()


async def said(upstream: UserUpstream | Member, tool: str, actor: str) -> str:
    result = await upstream.call_tool(tool, {}, context(actor), 10)
    text: str = result["content"][0]["text"]
    return text


@requirement("UP-170", "UP-171")
async def test_each_caller_has_a_session_of_its_own_account_opened_by_its_first_call(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        setup.account("alice")
        setup.account("bob")
        assert upstream.sessions == 0
        answers = await asyncio.gather(*(said(upstream, "whoami", actor) for actor in ("alice", "bob") * 10))
        assert answers == ["alice", "bob"] * 10
        assert upstream.sessions == 2
        assert set(setup.server.seen) <= {"Bearer token-of-alice", "Bearer token-of-bob"}
        assert upstream.status.connections == 2


@requirement("UP-172")
async def test_a_caller_without_an_account_is_told_where_to_connect_one_and_nothing_is_asked(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        with pytest.raises(ConnectRequired) as required:
            await said(upstream, "whoami", "alice")
        assert required.value.url == setup.users.asked[0].url
        assert not setup.server.seen
        assert upstream.sessions == 0


@requirement("UP-173")
async def test_a_session_ends_at_once_with_its_grant_and_a_call_under_way_is_read_to_its_end(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        setup.account("alice")
        setup.account("bob")
        await asyncio.gather(said(upstream, "whoami", "alice"), said(upstream, "whoami", "bob"))
        setup.users.revoke("alice")
        assert upstream.sessions == 1
        with pytest.raises(ConnectRequired):
            await said(upstream, "whoami", "alice")
        assert await said(upstream, "whoami", "bob") == "bob"
        setup.account("alice", "another-token")
        assert await said(upstream, "whoami", "alice") == "alice"
        if setup.kind == "sse":  # one stream carries all answers
            return
        slow = asyncio.create_task(said(upstream, "slow", "alice"))
        await until(lambda: setup.server.slow)
        setup.account("alice", "third-token")
        setup.server.release.set()
        assert await slow == "alice"


@requirement("UP-171")
async def test_idle_sessions_close_and_the_longest_idle_gives_way(setup: Setup) -> None:
    async with supervised(setup, idle_s=0.05) as upstream:
        setup.account("alice")
        assert await said(upstream, "whoami", "alice") == "alice"
        await until(lambda: not upstream.sessions)
        assert await said(upstream, "whoami", "alice") == "alice"
    setup = Setup(setup.kind)
    async with supervised(setup, max_sessions=2) as upstream:
        for actor in ("a", "b", "c"):
            setup.account(actor)
        await said(upstream, "whoami", "a")
        await said(upstream, "whoami", "b")
        await said(upstream, "whoami", "a")
        before = dict(setup.server.opened)
        await said(upstream, "whoami", "c")
        assert upstream.sessions == 2
        await said(upstream, "whoami", "a")
        assert setup.server.opened["a"] == before["a"], "the longest idle was b"
        slow = [asyncio.create_task(said(upstream, "slow", actor)) for actor in ("a", "c")]
        await until(lambda: setup.server.slow == 2)
        with pytest.raises(RateLimited):
            await said(upstream, "whoami", "b")
        setup.server.release.set()
        assert await asyncio.gather(*slow) == ["a", "c"]


@requirement("UP-174")
async def test_a_401_renews_once_then_asks_to_connect_and_opens_nobodys_breaker(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        member = Member(upstream, UpstreamLimits(breaker=BreakerPolicy(1, 30, 30)))
        setup.account("bob")
        setup.account("alice", "old")
        assert await said(member, "whoami", "alice") == "alice"
        # The token has expired, and a renewed one is good.
        del setup.server.tokens["old"]
        setup.server.tokens["new"] = "alice"
        setup.users.renewed["old"] = "new"
        assert await said(member, "whoami", "alice") == "alice"
        assert setup.users.renewals == 1
        # No token of hers is good any more.
        del setup.server.tokens["new"]
        for _ in range(6):
            with pytest.raises(ConnectRequired):
                await said(member, "whoami", "alice")
            assert await said(member, "whoami", "bob") == "bob"
        assert setup.users.lacked[0] == ("alice", frozenset())
        assert member.state().breaker == "closed"
        assert member.state().held_off == 0
        # The same before there is a session.
        setup.users.connect("carol", "never-good")
        with pytest.raises(ConnectRequired):
            await said(member, "whoami", "carol")
        assert upstream.status.phase == "ready"


@requirement("UP-174")
async def test_a_403_for_want_of_scopes_names_them_and_asks_to_connect(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        setup.account("alice")
        with pytest.raises(ConnectRequired):
            await said(upstream, "admin", "alice")
        assert setup.users.lacked == [("alice", frozenset({"read", "admin"}))]
        assert await said(upstream, "whoami", "alice") == "alice"
        setup.server.admins.add("more")
        setup.account("alice", "more")
        assert await said(upstream, "admin", "alice") == "alice"


@requirement("UP-175")
async def test_an_issuer_that_is_away_is_no_reason_to_connect_and_no_failure_of_the_server(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        member = Member(upstream, UpstreamLimits(breaker=BreakerPolicy(1, 30, 30)))
        setup.account("alice")
        setup.users.away = True
        for _ in range(3):
            with pytest.raises(IssuerAway) as away:
                await said(member, "whoami", "alice")
            assert away.value.code == "UPSTREAM_UNAVAILABLE"
        assert not setup.users.asked
        setup.users.away = False
        assert await said(member, "whoami", "alice") == "alice"
        setup.users.away = True
        with pytest.raises(IssuerAway):
            await said(member, "whoami", "alice")
        assert member.state().breaker == "closed"


@requirement("UP-176")
async def test_the_tools_are_those_of_the_first_account_and_stay_when_it_has_no_session(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        assert upstream.waits
        found = upstream.status
        assert (found.phase, found.error) == ("waiting", "waits for a first login")
        with pytest.raises(UpstreamUnavailable):
            await upstream.list_tools()
        setup.account("alice")
        await upstream.connect(context("alice").identity)
        assert setup.changed == ["accounts"]
        names = [tool["name"] for tool in await upstream.list_tools()]
        assert "only_alice" in names
        setup.account("bob")
        await upstream.connect(context("bob").identity)
        assert [tool["name"] for tool in await upstream.list_tools()] == names
        setup.users.revoke("alice")
        assert [tool["name"] for tool in await upstream.list_tools()] == names
        assert upstream.status.phase == "ready"
        assert await said(upstream, "only_alice", "bob") == "no only_alice here"


@requirement("UP-173")
async def test_a_server_that_cannot_be_reached_is_down_until_a_call_finds_it_again(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        setup.account("alice")
        setup.server.away = True
        with pytest.raises((UpstreamUnavailable, UpstreamError)):
            await said(upstream, "whoami", "alice")
        found = upstream.status
        assert found.phase == "down"
        assert upstream.sessions == 0
        setup.server.away = False
        assert await said(upstream, "whoami", "alice") == "alice"
        assert upstream.status.phase == "ready"


@requirement("UP-178")
async def test_the_credential_of_an_account_is_masked_in_what_the_server_says(setup: Setup) -> None:
    async with supervised(setup) as upstream:
        setup.account("alice")
        assert "token-of-alice" not in await said(upstream, "echo", "alice")
