"""The lines of a start in a terminal: each upstream once, and only what is said here is left out of the log."""

import asyncio
import io
import logging
from collections.abc import Callable, Sequence

import pytest

import app.start_lines
from app.logs import service_logs
from app.start_lines import StartLines, say_stop
from tests.support.requirement import requirement
from tests.support.script import ScriptModel
from tests.support.service import BOUND_S
from wicketgate.config.settings import Settings
from wicketgate.gate import VERSION, Gate
from wicketgate.ports import Upstream, UpstreamStatus
from wicketgate.upstreams.embedded import StubUpstream

log = logging.getLogger("wicketgate.upstream")
TOOL = {"name": "one", "inputSchema": {"type": "object"}}


class Quiet(StubUpstream):
    """It is in one state, and stays there."""

    def __init__(self, name: str, status: UpstreamStatus) -> None:
        super().__init__([], name=name)
        self.status = status

    async def supervise(self, changed: Callable[[str], None]) -> None:
        await asyncio.Event().wait()


def made(upstreams: Sequence[Upstream]) -> Gate:
    return Gate(Settings(), upstreams=upstreams, provider=ScriptModel())


@requirement("OPS-97")
async def test_each_server_has_its_line_and_its_row() -> None:
    dead = Quiet("dead\x1b[2J", UpstreamStatus("down", "token=abcdefgh refused\n"))
    gate, screen = made([StubUpstream([TOOL], name="one"), dead]), io.StringIO()
    with service_logs("info", lambda text: text.replace("abcdefgh", "***"), screen, log_format="text") as out:
        lines = StartLines(out, gate)
        async with asyncio.timeout(BOUND_S), gate:
            await gate.wait_ready()
            table = lines.end()
    first, *rest = screen.getvalue().splitlines()
    assert first == f"Wicketgate {VERSION}: connecting 2 upstreams ..."
    assert len(rest) == 2
    assert any(line.endswith("down   token=*** refused\\n") for line in rest)
    assert any("ready  1 tool  " in line for line in rest)
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["upstream", "state", "tools", "seconds"]
    assert [row[:3] for row in rows[2:]] == [["one", "ready", "1"], ["dead\\u001b[2J", "down", "0"]]


@requirement("OPS-97")
async def test_who_is_still_awaited_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.start_lines, "_STILL_CONNECTING_S", 0.0)
    gate, screen = made([Quiet("slow", UpstreamStatus("connecting"))]), io.StringIO()
    with service_logs("info", str, screen, log_format="text") as out:
        lines = StartLines(out, gate)
        async with asyncio.timeout(BOUND_S), gate:
            while "Still connecting: slow (the start waits up to 10 s)\n" not in screen.getvalue():
                await asyncio.sleep(0.01)
            assert lines.end().splitlines()[2].split() == ["slow", "connecting"]


@requirement("OPS-98")
async def test_a_stop_before_the_end_of_the_start_says_nothing_more_of_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app.start_lines, "_STILL_CONNECTING_S", 0.0)
    slow = Quiet("slow", UpstreamStatus("connecting"))
    gate, screen = made([slow]), io.StringIO()
    with service_logs("info", str, screen, log_format="text") as out:
        reported = asyncio.Event()
        async with asyncio.timeout(BOUND_S), gate:
            gate.drain.begin(BOUND_S)
            StartLines(out, gate)
            gate.on_upstream(lambda report: reported.set())
            slow.status = UpstreamStatus("down", "it was ended")
            await reported.wait()
    assert screen.getvalue() == f"Wicketgate {VERSION}: connecting 1 upstream ...\n"


@requirement("OPS-97")
async def test_only_what_a_line_says_is_left_out_of_the_log_and_only_until_it_is_said() -> None:
    gate, screen = made([StubUpstream([TOOL], name="one")]), io.StringIO()
    with service_logs("info", str, screen, log_format="text") as out:
        lines = StartLines(out, gate)
        log.info("%s: connected, protocol %s", "one", "1")
        log.warning("%s: %s", "one", "it cannot be reached")
        log.info("one: still starting")
        log.warning("%s: operation left out: %s", "one", "why")
        async with asyncio.timeout(BOUND_S), gate:
            await gate.wait_ready()
            lines.end()
            log.warning("%s: %s", "one", "its process ended")
            log.info("%s: connected, protocol %s", "one", "2")
    text = screen.getvalue()
    for said in ("still starting", "operation left out", "its process ended", "protocol 2"):
        assert said in text
    for unsaid in ("protocol 1", "cannot be reached", "catalog"):
        assert unsaid not in text


async def test_without_servers_there_is_no_table() -> None:
    gate, screen = made([]), io.StringIO()
    with service_logs("info", str, screen, log_format="text") as out:
        assert StartLines(out, gate).end() == ""
    assert screen.getvalue() == f"Wicketgate {VERSION}: no upstreams are configured\n"


@requirement("OPS-98")
async def test_a_stop_that_waits_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.start_lines, "_STILL_RUNNING_S", 0.0)
    gate, screen = made([]), io.StringIO()
    with service_logs("info", str, screen, log_format="text") as out:
        end = say_stop(out, gate)
        end()  # nothing was begun
        async with asyncio.timeout(BOUND_S), gate:
            gate.drain.request_begun()
            gate.drain.request_begun()
            gate.drain.begin(1)
            while "waiting" not in screen.getvalue():
                await asyncio.sleep(0.01)
            gate.drain.begin(0)
            end()
    assert screen.getvalue() == (
        "\rStopping ...\nwaiting up to 1 s for 2 requests; Ctrl-C again ends at once\n\rStopping ... done\n"
    )
