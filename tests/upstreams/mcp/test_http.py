"""A real server over streamable HTTP in both eras, and over SSE: what it says in a call, and what leaving it does."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.credentials import Tokens
from tests.support.process import ROOT, Program, program
from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, connected, context, over, value
from tests.support.until import until
from wicketgate.errors import UpstreamError, UpstreamUnavailable
from wicketgate.net import Outgoing
from wicketgate.upstreams.mcp.client import Connect
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.sse import sse_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

KINDS = ("2026", "handshake", "both", "sse")
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """By kind. One process speaks both eras of streamable HTTP, one SSE."""
    command = [sys.executable, "-m", "tests.support.talking_server"]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as http,
        subprocess.Popen([*command, "--sse"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as sse,
    ):
        try:
            http_url, sse_url = (_address(server) for server in (http, sse))
            yield {"2026": http_url, "handshake": http_url, "both": http_url, "sse": sse_url}
        finally:
            http.kill()
            sse.kill()


def _address(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    return server.stdout.readline().removeprefix("listening on ").strip()


@asynccontextmanager
async def talking(kind: str, url: str, **options: Any) -> AsyncIterator[McpServerUpstream]:
    options = {"outgoing": Outgoing(), **options}
    connect: Connect = partial(
        sse_transport if kind == "sse" else http_transport, "talking", url, {"X-Ours": "1"}, **options
    )
    modes: Mapping[str, Mode] = {"2026": "modern", "handshake": "handshake"}
    upstream = over(connect, modes.get(kind, "auto"))
    async with connected(upstream):
        yield upstream


@requirement("FACE-9", "FACE-10", "FACE-11", "FACE-13", "UP-11")
@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_server_says_reaches_the_caller_and_leaving_reaches_the_server(
    kind: str, urls: dict[str, str]
) -> None:
    async with talking(kind, urls[kind]) as upstream, asyncio.timeout(BOUND_S):
        caller = RecordingCaller("now", ACCEPTED)
        await value(upstream, "tell", {}, context(caller))
        assert caller.told == [
            news for n in (1, 2, 3) for news in (("progress", n, 3.0, f"step {n}"), ("log", "info", n, "talk"))
        ]

        asked = await value(upstream, "ask", {}, context(caller))
        assert (asked["action"], asked["content"]) == ("accept", {"name": "Ada"})

        waiting = [RecordingCaller(), RecordingCaller()]
        hanging = [asyncio.create_task(upstream.call_tool("hang", {}, context(of), 10)) for of in waiting]
        await until(lambda: all(of.told for of in waiting))
        before = await value(upstream, "left")
        hanging[0].cancel()
        await until(lambda: value(upstream, "left"), lambda left: left == before + 1)
        assert not hanging[1].done()
        hanging[1].cancel()
        await asyncio.gather(*hanging, return_exceptions=True)

        assert len(await value(upstream, "big", {"bytes": 3_000_000})) == 3_000_000
        assert upstream.status.connections == 1


async def test_questions_of_the_handshake_era_are_told_apart_by_their_streams(
    urls: dict[str, str],
) -> None:
    async with talking("handshake", urls["handshake"]) as upstream, asyncio.timeout(BOUND_S):
        first, second = RecordingCaller("now", ACCEPTED), RecordingCaller("now", {"action": "decline"})
        answers = await asyncio.gather(
            value(upstream, "ask", {}, context(first, "one")),
            value(upstream, "ask", {}, context(second, "two")),
            value(upstream, "tell", {}, context(first, "one")),
            value(upstream, "tell", {}, context(second, "two")),
        )
        assert [answer["action"] for answer in answers[:2]] == ["accept", "decline"]
        for caller in (first, second):
            assert [news[0] for news in caller.told] == ["progress", "log"] * 3


@requirement("UP-7")
async def test_a_call_of_2026_carries_the_headers_of_its_era_and_ours_and_mirrored_arguments(
    urls: dict[str, str],
) -> None:
    async with talking("2026", urls["2026"]) as upstream:
        assert [tool["name"] for tool in await upstream.list_tools()][-1] == "big"  # the wrong one is left out
        headers = await value(upstream, "headers", {"region": "Zürich"})
    assert headers["mcp-protocol-version"] == "2026-07-28"
    assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "headers")
    assert headers["mcp-param-region"] == "=?base64?WsO8cmljaA==?="
    assert headers["x-ours"] == "1"
    assert "authorization" not in headers


async def test_a_call_refused_for_its_headers_is_made_once_more_after_listing_the_tools(
    urls: dict[str, str],
) -> None:
    async with talking("2026", urls["2026"]) as upstream:
        headers = await value(upstream, "headers", {"region": "eu"})
    assert headers["mcp-param-region"] == "eu"


@pytest.mark.parametrize("kind", ["2026", "handshake"])
async def test_a_page_larger_than_what_is_taken_fails_its_call_alone(kind: str, urls: dict[str, str]) -> None:
    async with talking(kind, urls[kind], max_answer_bytes=100_000) as upstream:
        with pytest.raises(UpstreamError):
            await value(upstream, "big", {"bytes": 1_000_000})
        assert await value(upstream, "left") >= 0


@requirement("ROUTE-15", "UP-3")
async def test_an_sse_server_that_goes_away_is_told_and_calls_fail_at_once() -> None:
    async with asyncio.timeout(BOUND_S), program("tests.support.talking_server", "--sse") as server:
        url = (await server.wait_for(r"listening on (\S+)", "stdout")).group(1)
        async with talking("sse", url) as upstream:
            await _watch_it_go(upstream, server)


async def _watch_it_go(upstream: McpServerUpstream, server: Program) -> None:
    waiting = asyncio.create_task(upstream.call_tool("hang", {}, context(), 15))
    await value(upstream, "left")
    server.process.kill()
    with pytest.raises(UpstreamError):
        await waiting
    await until(lambda: upstream.status.phase == "down")
    with pytest.raises(UpstreamUnavailable):
        await value(upstream, "left")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_gateways_own_credential_is_sent(kind: str, urls: dict[str, str]) -> None:
    async with talking(kind, urls[kind], credentials=Tokens()) as upstream:
        assert (await value(upstream, "headers"))["authorization"] == "Bearer t0"
