"""Servers that take longer to start than their timeout, because ``npx`` and ``uvx`` install at the first run."""

import asyncio
import logging
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.process import alive
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, UNRULY, context, next_change, value
from tests.support.until import until
from wicketgate.errors import UpstreamUnavailable
from wicketgate.net import Outgoing
from wicketgate.upstreams.mcp import client
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

SERVE = f"exec {shlex.join(UNRULY)}"
LONG_S = 60.0


class Slow:
    """A server that notes its process, and waits until it is let go before it does *then*."""

    def __init__(self, folder: Path, then: str = SERVE, **options: Any) -> None:
        self._pids = folder / "pids"
        self._go = folder / "go"
        os.mkfifo(self._go)
        script = f"echo $$ >> {self._pids}; cat {self._go}; {then}"
        connect = partial(stdio_transport, "slow", ["sh", "-c", script], {}, None, grace_s=0.1)
        given = {"connect_timeout_s": 0.2, "jitter": lambda: 0, "tried": "sh", **options}
        self.upstream = McpServerUpstream("slow", connect, **given)
        self.changes: asyncio.Queue[str] = asyncio.Queue()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            supervising = tasks.create_task(self.upstream.supervise(self.changes.put_nowait))
            yield
            supervising.cancel()

    def pids(self) -> list[int]:
        return [int(line) for line in self._pids.read_text().split()] if self._pids.exists() else []

    async def started(self, times: int = 1) -> None:
        await until(lambda: len(self.pids()) >= times)

    async def let_go(self) -> None:
        async with asyncio.timeout(BOUND_S):
            await asyncio.to_thread(self._go.write_text, "")

    async def down(self, error: str) -> None:
        await until(lambda: ((self.upstream.status.phase, self.upstream.status.error)) == (("down", error)))


@requirement("UP-65")
@pytest.mark.parametrize("era", ["", "--modern"])
async def test_a_process_that_lives_is_waited_for_beyond_the_timeout_and_joins_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.setattr(client, "_DISCOVER_S", 0.05)  # so that the handshake waits behind the other question
    slow = Slow(tmp_path, f"{SERVE} {era}", patience=1_000)
    async with slow.running():
        await slow.down("no answer within 0.2 s")
        assert slow.upstream.status.report == (
            "no answer within 0.2 s (sh): its process still runs and is waited for, up to 200 s; raise "
            "connect_timeout_s if it always takes so long"
        )
        with pytest.raises(UpstreamUnavailable, match=r"slow is not connected \(no answer within 0.2 s\)"):
            await slow.upstream.call_tool("echo", {}, context(), 1)
        await slow.let_go()
        await next_change(slow.changes)
        assert await value(slow.upstream, "echo", {"a": 1}) == {"a": 1}
        assert await value(slow.upstream, "pid") == slow.pids()[0]
        status = slow.upstream.status
        assert (status.phase, status.report, status.connections) == ("ready", "", 1)
    assert len(slow.pids()) == 1


@requirement("UP-65")
async def test_a_process_that_ends_after_the_timeout_is_started_again(tmp_path: Path) -> None:
    slow = Slow(tmp_path, "exit 3", patience=1_000)
    async with slow.running():
        await slow.down("no answer within 0.2 s")
        await slow.let_go()
        await slow.down("it ended with code 3 before it was ready")
        await slow.started(2)


@requirement("UP-65")
async def test_a_process_that_never_answers_is_ended_at_the_bound_and_started_again(tmp_path: Path) -> None:
    slow = Slow(tmp_path, connect_timeout_s=0.1, patience=3)
    async with slow.running():
        await slow.down("no answer within 0.3 s")
        await slow.started(2)
        assert not alive(slow.pids()[0])


@requirement("UP-65", "UP-14")
async def test_a_process_that_is_waited_for_holds_up_no_stop(tmp_path: Path) -> None:
    slow = Slow(tmp_path, patience=1_000)
    async with asyncio.timeout(BOUND_S), slow.running():
        await slow.down("no answer within 0.2 s")
    assert not alive(slow.pids()[0])


@requirement("UP-66")
@pytest.mark.parametrize(("fetches", "because"), [("", ""), ("npx", " (npx fetches the server at the first run)")])
async def test_a_line_says_what_is_waited_for_and_which_setting_bounds_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fetches: str, because: str
) -> None:
    caplog.set_level(logging.INFO, "wicketgate.upstream")
    for notice_s in (0.05, 1.0, 10.0):
        folder = tmp_path / f"{notice_s:g}"
        folder.mkdir()
        slow = Slow(folder, connect_timeout_s=LONG_S, notice_s=notice_s, fetches=fetches)
        caplog.clear()
        async with slow.running():
            await until(lambda: any("slow: still" in message for message in caplog.messages))
            assert slow.upstream.status.phase == "connecting"
            await slow.let_go()
            await next_change(slow.changes)
        lines = [message for message in caplog.messages if "slow: still" in message]
        if "still starting" in lines[0]:
            break  # otherwise a busy machine took longer than this to begin the process
    assert lines == [f"slow: still starting after {notice_s:g} s{because}; waits until connect_timeout_s = 60"]


@requirement("UP-66")
async def test_a_server_that_is_ready_in_time_brings_no_such_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wicketgate.upstream")
    slow = Slow(tmp_path, connect_timeout_s=LONG_S, notice_s=LONG_S)
    async with slow.running():
        await slow.let_go()
        await next_change(slow.changes)
    assert not any("still" in message for message in caplog.messages)


@requirement("UP-65", "UP-66")
async def test_a_server_over_http_has_no_process_that_could_be_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wicketgate.upstream")

    async def silent(seen: Seen) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    async with HttpService(silent) as service:
        connect = partial(http_transport, "mute", f"{service.url}/mcp", {}, outgoing=Outgoing())
        upstream = McpServerUpstream(
            "mute", connect, connect_timeout_s=0.2, jitter=lambda: 0, notice_s=0.05, tried=service.url
        )
        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
            supervising = tasks.create_task(upstream.supervise(lambda _: None))
            await until(lambda: len(service.seen) >= 2)
            assert upstream.status.error == "no answer within 0.2 s"
            assert upstream.status.report == (
                f"no answer within 0.2 s ({service.url}): raise connect_timeout_s if it is only slow"
            )
            supervising.cancel()
    assert caplog.messages[0] == "mute: still connecting after 0.05 s; waits until connect_timeout_s = 0.2"
