"""Faults of a tool server over stdio: each costs its own call at most (UP-4, UP-9 to UP-14)."""

import asyncio
import json
import os
import shlex
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import alive, children
from tests.support.requirement import requirement
from tests.support.supervised import (
    BOUND_S,
    UNRULY,
    cancellations,
    connected,
    context,
    next_change,
    over,
    unruly,
    value,
)
from tests.support.until import until
from wicketgate.errors import UpstreamError, UpstreamLost, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from wicketgate.fleet.member import Member
from wicketgate.upstreams.mcp.exchange import Pace
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import Delay, McpServerUpstream

GOOD = '{"jsonrpc":"2.0","id":{id},"result":{"structuredContent":{"value":"good"}}}'


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("{not json", marks=requirement("UP-9")),
        pytest.param('caf\xe9 {"id":1', marks=requirement("UP-9")),
        pytest.param("", marks=requirement("UP-9")),
        pytest.param(" \t ", marks=requirement("UP-9")),
        pytest.param('"a string"', marks=requirement("UP-9")),
        pytest.param('[{"jsonrpc":"2.0","id":"another","result":{}}]', marks=requirement("UP-9")),
        pytest.param('got {"jsonrpc":"2.0","id":{id},"method":"tools/c', marks=requirement("UP-9")),
        pytest.param('{"jsonrpc":"2.0","id":{id},"method":"tools/c', marks=requirement("UP-9")),
        pytest.param('{"method":"tools/call","params":NaN,"id":{id}}', marks=requirement("UP-9")),
        pytest.param('{"jsonrpc":"2.0","id":"another","result":{}}', marks=requirement("UP-9")),
        pytest.param('{"jsonrpc":"2.0","id":99999,"result":{}}', marks=requirement("UP-9")),
        pytest.param('{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}', marks=requirement("UP-9")),
        pytest.param('{"jsonrpc":"2.0","id":{"a":1},"result":{}}', marks=requirement("UP-9")),
        pytest.param('{"jsonrpc":"2.0","id":{id},"method":"ping"}', marks=requirement("UP-10")),
        pytest.param('{"jsonrpc":"2.0","id":{id},"method":"roots/list"}', marks=requirement("FACE-11", "UP-10")),
        pytest.param('{"jsonrpc":"2.0","method":"notifications/unknown","params":5}'),
        pytest.param('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[]}}'),
        pytest.param('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}'),
        pytest.param("[" * 100_000),
    ],
)
async def test_a_line_that_is_no_answer_is_passed_over_and_the_answer_after_it_counts(line: str) -> None:
    upstream = unruly()
    async with connected(upstream):
        assert await value(upstream, "say", {"lines": [line, GOOD]}) == "good"
        assert upstream.status.connections == 1


@pytest.mark.parametrize(
    "members",
    [
        pytest.param('"result":{},"error":{"code":1,"message":"x"}', marks=requirement("UP-10")),
        pytest.param('"more":1', marks=requirement("UP-10")),
        pytest.param('"result":null', marks=requirement("UP-10")),
        pytest.param('"result":[]', marks=requirement("UP-10")),
        pytest.param('"error":"no"'),
        pytest.param('"error":{"code":"1","message":"x"}'),
    ],
)
async def test_an_answer_that_is_none_fails_its_call_at_once_and_nothing_else(members: str) -> None:
    upstream = unruly()
    async with connected(upstream):
        with pytest.raises(UpstreamError, match="not a valid MCP result"):
            await value(upstream, "say", {"lines": ['{"jsonrpc":"2.0","id":{id},' + members + "}"]})
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}
        assert upstream.status.connections == 1


async def test_a_text_cut_amid_a_character_arrives_with_a_mark_in_its_place() -> None:
    upstream = unruly()
    async with connected(upstream):
        half = '{"jsonrpc":"2.0","id":{id},"result":{"structuredContent":{"value":"caf\xe9 \\ud83d."}}}'
        assert (await value(upstream, "say", {"lines": [half]})) == "caf\ufffd ?."


@requirement("ROUTE-15", "UP-12", "UP-19")
async def test_a_server_that_crashes_in_a_call_is_told_with_its_exit_code_and_started_again() -> None:
    upstream = unruly()
    async with connected(upstream) as changes:
        with pytest.raises(UpstreamLost, match="ended with code 3"):
            await value(upstream, "crash")
        with pytest.raises(UpstreamUnavailable, match="ended with code 3"):
            await value(upstream, "echo")
        await next_change(changes)
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}
        assert (upstream.status.connections, upstream.status.last_error) == (2, "it ended with code 3")


async def test_an_answer_that_was_given_before_the_end_counts() -> None:
    upstream = unruly()
    async with connected(upstream):
        assert await value(upstream, "answer_and_crash", {"a": 1}) == {"a": 1}


@requirement("UP-223")
@pytest.mark.parametrize(
    ("lasted_s", "served", "pauses"),
    [(1.0, False, [0.2, 0.4, 0.8]), (1.0, True, [0.2, 0.2, 0.2]), (31.0, False, [0.2, 0.2, 0.2])],
)
def test_pauses_grow_only_while_sessions_neither_serve_nor_last(
    lasted_s: float, served: bool, pauses: list[float]
) -> None:
    delay = Delay(lambda: 1.0)
    assert [delay.next_s(lasted_s=lasted_s, served=served) for _ in pauses] == pauses


@requirement("UP-223")
async def test_a_session_that_answered_a_call_begins_the_pauses_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    next_s = Delay.next_s

    def noted(delay: Delay, *, lasted_s: float, served: bool) -> float:
        pauses.append(next_s(delay, lasted_s=lasted_s, served=served))
        return 0.0

    monkeypatch.setattr(Delay, "next_s", noted)
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"echo $$ > {pid}; exec {shlex.join(UNRULY)}"]
    connect = partial(stdio_transport, "unruly", command, {}, None)
    upstream = McpServerUpstream("unruly", connect, connect_timeout_s=15, jitter=lambda: 1.0)
    async with connected(upstream) as changes:
        for answers in (False, False, True, False, True, True):
            if answers:
                await value(upstream, "echo")
            os.kill(int(pid.read_text()), signal.SIGKILL)
            await next_change(changes)
    assert pauses == [0.2, 0.4, 0.2, 0.4, 0.2, 0.2]


@requirement("FACE-13", "UP-13")
async def test_a_call_that_times_out_or_is_left_is_cancelled_on_the_server_and_no_other() -> None:
    upstream = unruly()
    async with connected(upstream):
        with pytest.raises(UpstreamTimeout, match=r"within 0\.1 s"):
            await Member(upstream).call_tool("hang", {}, context(), 0.1)
        other = asyncio.create_task(upstream.call_tool("hang", {}, context(), 10))
        left = asyncio.create_task(upstream.call_tool("ask", {"method": "x"}, context(), 10))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert upstream.status.connections == 1
        assert not other.done()
        other.cancel()


async def test_the_server_is_told_which_calls_were_left_and_not_those_that_were_answered() -> None:
    upstream = unruly()
    async with connected(upstream):
        with pytest.raises(UpstreamTimeout):
            await Member(upstream).call_tool("hang", {}, context(), 0.05)
        await value(upstream, "echo")
        assert await cancellations(upstream) == ["hang"]


@requirement("UP-13")
async def test_a_server_that_reads_nothing_more_times_its_callers_out_and_holds_nobody_else() -> None:
    stuck, other = unruly(grace_s=0.1), unruly()
    async with connected(stuck), connected(other):
        member = Member(stuck)
        calls = [asyncio.create_task(member.call_tool("stop_reading", {}, context(), 0.5))]
        much = {"text": "x" * 1_000_000}
        calls += [asyncio.create_task(member.call_tool("echo", much, context(), 0.5)) for _ in range(20)]
        async with asyncio.timeout(BOUND_S):
            assert await value(other, "echo", {"a": 1}) == {"a": 1}
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, UpstreamTimeout) for outcome in outcomes)


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the measure of what may be said unasked: on a busy machine a flood may take as long as it is allowed to."""
    monkeypatch.setattr("wicketgate.upstreams.mcp.stdio.Pace", lambda rate, burst, now: Pace(rate, burst, lambda: 0.0))


@requirement("UP-16")
@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize("kind", ["question", "ping", "noise"])
async def test_a_server_that_never_stops_talking_is_read_more_slowly_and_answered_no_more_than_it_reads(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    flood = {
        "question": '{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"m"}}',
        "ping": '{"jsonrpc":"2.0","id":%d,"method":"ping"}',
        "noise": "line %d",
    }[kind]
    answer = '{"jsonrpc":"2.0","id":{id},"result":{"content":[]}}'
    lines = [flood % number for number in range(1_500 if kind != "noise" else 12_000)]
    upstream = unruly(name=kind)
    async with connected(upstream), asyncio.timeout(BOUND_S):
        assert await upstream.call_tool("say", {"lines": [*lines, answer]}, context(), 10) == {"content": []}
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}
    assert "they are read more slowly" in caplog.text


@requirement("UP-16", "UP-64")
@pytest.mark.usefixtures("no_time_passes")
@pytest.mark.parametrize("line", ['{"jsonrpc":"2.0","method":"notifications/x","params":[%s]}', '{"id":1,"x":[%s]} x'])
async def test_a_server_that_says_much_unasked_is_read_more_slowly_however_few_its_messages_are(
    line: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = '{"jsonrpc":"2.0","id":{id},"result":{"content":[]}}'
    lines = [line % ",".join(["{}"] * 350_000)] * 6
    upstream = unruly(name="much")
    async with connected(upstream), asyncio.timeout(BOUND_S):
        assert await upstream.call_tool("say", {"lines": [*lines, answer]}, context(), 10) == {"content": []}
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}
    assert "they are read more slowly" in caplog.text


@requirement("UP-64", "UP-220")
@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":{id},"result":{"content":[]},"x":"' + "x" * 5_000_000 + "}",
        '{"jsonrpc":"2.0","id":{id},"result":{"structuredContent":{"value":NaN}}}',
        '{"result":{"structuredContent":{"id":"wg-0","value":NaN}},"jsonrpc":"2.0","id":{id}}',
        '{"id":{id},"jsonrpc":"2.0","result":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"jsonrpc": "2.0", "id": {id}, "result": {"structuredContent": {"value": ' + "9" * 100_000 + "}}}",
        '{"jsonrpc":"2.0","id":{id},"resu',
        '\xef\xbb\xbf{"jsonrpc":"2.0","id":{id},"result":{}}',
        '[{"jsonrpc":"2.0","id":{id},"result":{}}]',
    ],
    ids=["large", "NaN", "id last", "deep", "long integer", "half a line", "byte order mark", "batch of one"],
)
async def test_a_broken_answer_that_shows_its_id_fails_its_call_at_once(line: str) -> None:
    upstream = unruly()
    async with connected(upstream), asyncio.timeout(BOUND_S):
        with pytest.raises(UpstreamError, match="not a valid MCP result"):
            await upstream.call_tool("say", {"lines": [line]}, context(), 60)
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}


@requirement("UP-64")
async def test_an_error_of_very_many_parts_arrives_without_its_data() -> None:
    line = '{"jsonrpc":"2.0","id":{id},"error":{"code":7,"message":"no","data":[%s]}}'
    upstream = unruly()
    async with connected(upstream):
        for number, data in ((3, [{}, {}, {}]), (350_000, None)):
            with pytest.raises(UpstreamRefused) as refused:
                await upstream.call_tool("say", {"lines": [line % ",".join(["{}"] * number)]}, context(), 10)
            assert (refused.value.upstream_code, refused.value.refusal, refused.value.data) == (7, "no", data)


@requirement("UP-11")
async def test_an_answer_larger_than_what_is_taken_fails_its_call_and_says_so() -> None:
    upstream = unruly(max_answer_bytes=100_000)
    async with connected(upstream):
        assert (
            len((await upstream.call_tool("large", {"bytes": 90_000}, context(), 10))["content"][0]["text"]) == 90_000
        )
        with pytest.raises(UpstreamError, match="more than 100000 bytes"):
            await upstream.call_tool("large", {"bytes": 5_000_000}, context(), 10)
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}


@requirement("UP-11")
async def test_stderr_is_read_at_any_rate_and_logged_in_pieces(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "wicketgate.upstream")
    upstream = unruly()
    async with connected(upstream):
        for _ in range(3):
            assert await value(upstream, "stderr", {"bytes": 200_000}) == {"bytes": 200_000}
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}
    assert max(len(record.getMessage()) for record in caplog.records) < 1_100


@requirement("ROUTE-8", "UP-9")
async def test_a_greeting_is_passed_over_and_many_tools_in_one_list_all_arrive() -> None:
    upstream = unruly("--banner", "--tools", "300")
    async with connected(upstream):
        names = [tool["name"] for tool in await upstream.list_tools()]
    assert names[-300:] == [f"tool_{number}" for number in range(300)]


async def test_a_list_without_an_end_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    upstream = unruly("--endless")
    async with connected(upstream):
        assert len(await upstream.list_tools()) == 1_000
    assert any("did not end" in message for message in caplog.messages)


@requirement("UP-37")
async def test_a_server_that_ends_when_it_is_asked_for_the_newer_era_is_asked_for_the_handshake() -> None:
    upstream = unruly("--strict")
    async with connected(upstream):
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}


@requirement("UP-15")
@pytest.mark.parametrize(
    ("command", "cwd", "reason"),
    [
        (["/no/such/bin"], None, "the command was not found"),
        ([sys.executable], "/no/such/folder", "its working directory was not found"),
        ([os.devnull], None, "the command may not be run"),
    ],
)
async def test_what_cannot_be_started_is_told_while_the_others_serve(
    command: list[str], cwd: str | None, reason: str
) -> None:
    broken, fine = over(partial(stdio_transport, "broken", command, {}, cwd)), unruly()
    async with connected(fine):
        supervising = asyncio.create_task(broken.supervise(lambda _: None))
        await until(lambda: broken.status.phase == "down")
        assert broken.status.error == reason
        assert await value(fine, "echo", {"a": 1}) == {"a": 1}
        supervising.cancel()


@requirement("UP-14")
async def test_nothing_that_a_server_started_outlives_it_however_it_ends() -> None:
    upstream = unruly()
    async with connected(upstream) as changes:
        left_by_crash = await value(upstream, "child")
        with pytest.raises(UpstreamLost):
            await value(upstream, "crash")
        await next_change(changes)
        left_by_stop = await value(upstream, "child")
        assert alive(left_by_stop)
    await until(lambda: not (alive(left_by_crash) or alive(left_by_stop)))  # a signal takes its time


@requirement("UP-14")
async def test_a_server_that_ignores_the_end_of_its_input_is_stopped_by_signals() -> None:
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1); signal.pause()"
    before = set(children(os.getpid()))
    async with asyncio.timeout(BOUND_S):
        async with stdio_transport("deaf", [sys.executable, "-c", ignoring], {}, None, lambda _: None, grace_s=0.1):
            (pid,) = set(children(os.getpid())) - before
            assert alive(pid)
    assert not alive(pid)


@requirement("UP-13")
async def test_calls_of_one_server_do_not_wait_for_one_another() -> None:
    upstream = unruly()
    async with connected(upstream):
        hanging = [asyncio.create_task(upstream.call_tool("hang", {}, context(), 10)) for _ in range(50)]
        assert await value(upstream, "echo", {"a": 1}) == {"a": 1}
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        assert len(await cancellations(upstream)) == 50


async def test_a_killed_server_is_told_by_its_signal() -> None:
    upstream = unruly()
    async with connected(upstream) as changes:
        os.kill(await value(upstream, "pid"), signal.SIGKILL)
        await next_change(changes)
        assert upstream.status.last_error == "it was ended by signal 9"


@requirement("UP-7")
async def test_the_stamp_of_its_era_is_on_every_call() -> None:
    for options, expected in (("--modern", True), ("--banner", False)):
        upstream = unruly(options)
        async with connected(upstream):
            call = (await value(upstream, "seen"))[-1]
            meta: dict[str, Any] = call["params"]["_meta"]
            assert ("io.modelcontextprotocol/protocolVersion" in meta) is expected
            assert meta["wicketgate/correlation_id"] == "trace-1"
            assert isinstance(call["id"], str)
            assert json.dumps(meta)
