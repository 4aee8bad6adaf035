"""A server that nobody needs sleeps, and the next request wakes it."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.support import echo_server
from tests.support.process import alive
from tests.support.requirement import requirement
from tests.support.until import until
from tests.upstreams.mcp.test_upstream import BOUND_S, call, change, supervised
from wicketgate.errors import UpstreamError, UpstreamUnavailable
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

IDLE_S = 0.2
SOURCE = Path(echo_server.__file__).read_text()


class Sleeper:
    """The echo server in a file of its own; *events* are what it notes."""

    def __init__(self, folder: Path, idle_s: float = IDLE_S) -> None:
        self.file = folder / "server.py"
        self.file.write_text(SOURCE)
        self.events = asyncio.Queue[str]()
        connect = partial(stdio_transport, "echo", [sys.executable, str(self.file)], {}, None)
        self.upstream = McpServerUpstream(
            "echo",
            connect,
            connect_timeout_s=15,
            jitter=random.random,
            note=lambda kind, why: self.events.put_nowait(kind),
            idle_s=idle_s,
        )

    async def until(self, event: str) -> None:
        async with asyncio.timeout(BOUND_S):
            while await self.events.get() != event:
                pass


@asynccontextmanager
async def asleep(folder: Path) -> AsyncIterator[tuple[Sleeper, "asyncio.Queue[str]", int]]:
    """A server that has been called and sleeps, the queue of its changes, and the id of its last process."""
    sleeper = Sleeper(folder)
    async with supervised(sleeper.upstream) as changes:
        await change(changes)
        await sleeper.upstream.list_tools()
        pid: int = (await call(sleeper.upstream, "pid"))["pid"]
        await sleeper.until("asleep")
        yield sleeper, changes, pid


@requirement("UP-294", "UP-295")
async def test_a_server_that_nobody_calls_is_ended_and_the_next_calls_start_it_once(tmp_path: Path) -> None:
    async with asleep(tmp_path) as (sleeper, changes, pid):
        upstream = sleeper.upstream
        await until(lambda: alive(pid), lambda lives: not lives, bound_s=BOUND_S)
        assert (upstream.status.phase, upstream.status.asleep, upstream.status.error) == ("ready", True, "")
        assert [tool["name"] for tool in await upstream.list_tools()][:2] == ["echo", "environment"]
        assert changes.empty()
        answers = await asyncio.gather(*(call(upstream, "pid") for _ in range(5)))
        assert len({answer["pid"] for answer in answers} - {pid}) == 1
        assert not upstream.status.asleep
        assert upstream.status.connections == 2
        await sleeper.until("asleep")  # and again


@requirement("UP-294")
async def test_a_call_that_runs_keeps_it_awake(tmp_path: Path) -> None:
    sleeper = Sleeper(tmp_path)
    async with supervised(sleeper.upstream) as changes:
        await change(changes)
        await sleeper.upstream.list_tools()
        running = asyncio.create_task(call(sleeper.upstream, "sleep", timeout_s=60))
        await asyncio.wait([running], timeout=5 * IDLE_S)
        assert not running.done()
        assert not sleeper.upstream.status.asleep
        running.cancel()
        await sleeper.until("asleep")


@requirement("UP-294")
async def test_somebody_who_follows_a_resource_wakes_it_and_keeps_it_awake(tmp_path: Path) -> None:
    async with asleep(tmp_path) as (sleeper, _, _):
        sleeper.upstream.features.follow(frozenset({"file:///a"}))
        await sleeper.until("ready")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * IDLE_S):
                await sleeper.until("asleep")
        sleeper.upstream.features.follow(frozenset())
        await sleeper.until("asleep")


@requirement("UP-295")
@pytest.mark.parametrize("spoil", [Path.unlink, lambda file: file.write_text("import sys; sys.exit(3)")])
async def test_a_server_that_cannot_be_started_again_fails_the_call_and_is_down(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    async with asleep(tmp_path) as (sleeper, _, _):
        spoil(sleeper.file)
        with pytest.raises(UpstreamUnavailable, match="echo is not connected"):
            await call(sleeper.upstream, "pid")
        assert sleeper.upstream.status.phase == "down"
        sleeper.file.write_text(SOURCE)
        await sleeper.until("ready")
        assert (await call(sleeper.upstream, "pid"))["pid"]


@requirement("UP-296")
async def test_a_tool_that_woke_as_another_one_is_not_called_before_its_list_is_read(tmp_path: Path) -> None:
    async with asleep(tmp_path) as (sleeper, _, _):
        sleeper.file.write_text(SOURCE.replace("Give back the text", "Send the text to a stranger"))
        with pytest.raises(UpstreamError, match="nothing was run"):
            await call(sleeper.upstream, "echo", text="secret")
        assert (await call(sleeper.upstream, "pid"))["pid"]  # this one is as it was
        assert "stranger" in (await sleeper.upstream.list_tools())[0]["description"]
        assert (await call(sleeper.upstream, "echo", text="known"))["text"] == "known"


@requirement("UP-297")
async def test_a_ping_of_the_breaker_is_answered_while_the_server_sleeps_and_does_not_wake_it(tmp_path: Path) -> None:
    async with asleep(tmp_path) as (sleeper, _, _):
        await sleeper.upstream.ping(BOUND_S)
        assert sleeper.upstream.status.asleep


@requirement("UP-294")
async def test_the_end_of_the_gate_does_not_wait_for_a_server_that_sleeps(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND_S):
        async with asleep(tmp_path):
            pass


@requirement("UP-294")
async def test_it_does_not_sleep_before_its_tools_were_read(tmp_path: Path) -> None:
    sleeper = Sleeper(tmp_path)
    async with supervised(sleeper.upstream) as changes:
        await change(changes)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * IDLE_S):
                await sleeper.until("asleep")
        await sleeper.upstream.list_tools()
        await sleeper.until("asleep")


@requirement("UP-295")
@pytest.mark.parametrize("spoiled", ['"tools/list" if False', '"tools/lost"'])
async def test_a_server_that_no_longer_lists_its_tools_wakes_and_none_of_them_is_called(
    tmp_path: Path, spoiled: str
) -> None:
    async with asleep(tmp_path) as (sleeper, _, _):
        sleeper.file.write_text(SOURCE.replace('case "tools/list"', f"case {spoiled}"))
        with pytest.raises(UpstreamError, match="defines this tool differently"):
            await call(sleeper.upstream, "pid")
        assert sleeper.upstream.status.phase == "ready"


@requirement("UP-295")
async def test_a_server_of_the_older_era_alone_is_woken_in_it(tmp_path: Path) -> None:
    sleeper = Sleeper(tmp_path)
    begun = tmp_path / "begun"
    old = SOURCE.replace(
        'case "server/discover" if modern:',
        f'case "server/discover":\n            open({str(begun)!r}, "a").write("x"); os._exit(3)\n'
        '        case "never":',
    )
    sleeper.file.write_text(old)
    async with supervised(sleeper.upstream) as changes:
        await change(changes)
        await sleeper.upstream.list_tools()
        for _ in range(3):
            await sleeper.until("asleep")
            await call(sleeper.upstream, "pid")
    assert begun.read_text() == "x"
