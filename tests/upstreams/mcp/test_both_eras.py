"""A server that speaks both eras: which calls go in which, and the life of the second session."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.support.both_eras import BothEras, both_eras_server
from tests.support.credentials import Tokens
from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from tests.support.scripted_server import MODERN
from tests.support.supervised import BOUND_S, connected, context, unruly, value
from wicketgate.errors import UpstreamUnavailable
from wicketgate.fleet.member import loop_time
from wicketgate.ports import SILENT, Caller
from wicketgate.upstreams.mcp import open_sessions
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.upstream import McpServerUpstream


@asynccontextmanager
async def serving(server: BothEras, **options: Any) -> AsyncIterator[McpServerUpstream]:
    async with both_eras_server(server, **options) as upstream, connected(upstream), asyncio.timeout(BOUND_S):
        yield upstream


async def era_of(upstream: McpServerUpstream, caller: Caller) -> str:
    """The era of a call, or its session if it has one."""
    era: str = (await upstream.call_tool("era", {}, context(caller), 10))["content"][0]["text"]
    return era


class Rooted(RecordingCaller):
    """The caller of a client of the handshake era that has folders alone."""

    def __init__(self) -> None:
        super().__init__("now")
        self.capabilities = {"roots": {}}


@requirement("UP-280", "UP-281")
async def test_only_a_call_whose_client_can_be_asked_as_it_runs_goes_in_the_handshake_era() -> None:
    server = BothEras()
    async with serving(server) as upstream:
        await upstream.list_tools()
        for caller in (SILENT, RecordingCaller("never"), RecordingCaller("later"), Rooted()):
            assert await era_of(upstream, caller) == MODERN
        assert "initialize" not in server.methods
        read = partial(upstream.features.request, "resources/read", {"uri": "x://y"}, timeout_s=10)
        eras = [await era_of(upstream, RecordingCaller("now")) for _ in range(2)]
        eras.append((await read(context=context(RecordingCaller("now"))))["content"][0]["text"])
        assert [*server.sessions] * 3 == eras
        assert (await read(context=context()))["content"][0]["text"] == MODERN
        assert (server.methods.count("initialize"), server.methods.count("tools/list")) == (1, 1)


@requirement("UP-280")
async def test_a_client_is_asked_only_for_what_is_forwarded() -> None:
    server = BothEras()
    async with serving(server, forward=("roots",)) as upstream:
        assert await era_of(upstream, Rooted()) in server.sessions


@requirement("UP-281")
async def test_the_first_calls_wait_for_one_session_and_a_caller_that_leaves_ends_it_for_nobody() -> None:
    server = BothEras()
    server.is_open.clear()
    async with serving(server) as upstream:
        calls = [asyncio.create_task(era_of(upstream, RecordingCaller("now"))) for _ in range(3)]
        await server.asked.wait()
        calls[0].cancel()
        assert await era_of(upstream, SILENT) == MODERN, "other calls wait for nothing"
        server.is_open.set()
        assert await asyncio.gather(*calls[1:]) == [*server.sessions] * 2
        assert server.methods.count("initialize") == 1


@requirement("UP-281")
async def test_a_second_session_that_the_server_lost_is_opened_again_by_the_call_after_the_one_that_finds_out() -> None:
    server = BothEras()
    async with serving(server) as upstream:
        first = await era_of(upstream, RecordingCaller("now"))
        server.sessions.clear()
        with pytest.raises(UpstreamUnavailable):
            await era_of(upstream, RecordingCaller("now"))
        second = await era_of(upstream, RecordingCaller("now"))
        assert (second in server.sessions, second != first, upstream.status.connections) == (True, True, 1)
        server.sessions.clear()
        server.handshake = False
        with pytest.raises(UpstreamUnavailable):
            await era_of(upstream, RecordingCaller("now"))
        assert await era_of(upstream, RecordingCaller("now")) == MODERN


class Missing(Tokens):
    """Tokens that may be missing."""

    are_missing = False

    async def authorization(self) -> str:
        if self.are_missing:
            raise UpstreamUnavailable("no token")
        return await super().authorization()


@requirement("UP-281")
async def test_a_second_session_outlives_a_credential_that_is_missing_and_closes_none() -> None:
    server, tokens = BothEras(), Missing()
    async with serving(server, credentials=tokens) as upstream:
        first = await era_of(upstream, RecordingCaller("now"))
        tokens.are_missing = True
        with pytest.raises(UpstreamUnavailable):
            await era_of(upstream, RecordingCaller("now"))
        tokens.are_missing = False
        assert await era_of(upstream, RecordingCaller("now")) == first
        server.sessions.clear()
        with pytest.raises(UpstreamUnavailable):
            await era_of(upstream, RecordingCaller("now"))
        await era_of(upstream, RecordingCaller("now"))
        assert (server.methods.count("initialize"), tokens.closed) == (2, 0)
    assert tokens.closed == 1


@requirement("UP-282")
async def test_a_server_without_the_handshake_is_called_in_the_newer_era_and_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = BothEras(handshake=False)
    async with serving(server) as upstream:
        for _ in range(3):
            assert await era_of(upstream, RecordingCaller("now")) == MODERN
        assert server.methods.count("initialize") == 1
        server.handshake = True
        monkeypatch.setattr(open_sessions, "loop_time", lambda: loop_time() + open_sessions.AGAIN_S)
        assert await era_of(upstream, RecordingCaller("now")) in server.sessions


@requirement("UP-281")
async def test_a_call_that_waits_for_a_second_session_is_not_forgotten_when_the_upstream_stops() -> None:
    server = BothEras()
    server.is_open.clear()
    async with serving(server) as upstream:
        waiting = asyncio.create_task(era_of(upstream, RecordingCaller("now")))
        await server.asked.wait()
    assert await waiting == MODERN


@requirement("UP-102", "UP-283")
@pytest.mark.parametrize(("mode", "extensions"), [("modern", {}), ("auto", {"io.modelcontextprotocol/tasks": {}})])
async def test_a_server_of_one_era_by_its_setting_and_one_with_tasks_have_one_session(
    mode: Mode, extensions: Mapping[str, Any]
) -> None:
    server = BothEras(extensions)
    async with serving(server, mode=mode) as upstream:
        assert await era_of(upstream, RecordingCaller("now")) == MODERN
    assert "initialize" not in server.methods


@requirement("UP-283")
async def test_a_server_over_stdio_has_one_process_for_callers_of_both_eras() -> None:
    upstream = unruly("--modern")
    async with connected(upstream), asyncio.timeout(BOUND_S):
        callers = (RecordingCaller("now"), RecordingCaller("later"), SILENT)
        pids = {await value(upstream, "pid", of=context(caller)) for caller in callers}
    assert len(pids) == 1
