"""Large answers that don't come to their end, or find no room, keep nothing from other servers (UP-275 to UP-277)."""

import asyncio
import sys
from functools import partial
from typing import cast

import pytest

from tests.support.model_server import HOLD, Reply
from tests.support.process import ROOT
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, connected, context, over
from tests.support.until import until
from tests.upstreams.mcp.test_http_direct import call, connection
from wicketgate import answer_room
from wicketgate.answer_room import AnswerHold, hold_in_force
from wicketgate.errors import UpstreamUnclear
from wicketgate.fleet.slots import CallSlots, shared_slots
from wicketgate.upstreams.mcp.call import Malformed
from wicketgate.upstreams.mcp.child_process import ChildProcess
from wicketgate.upstreams.mcp.stdio import LastWords, StdioConnection, stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

MiB = 1 << 20
ANSWER = b'{"jsonrpc":"2.0","id":"t-1","result":{"content":[{"type":"text","text":"' + b"x" * 1_200_000
UNFINISHED = "did not come to the end of its answer in time"


def room() -> CallSlots:
    return shared_slots("answers", lambda: 32 * MiB)


def large(name: str) -> McpServerUpstream:
    command = [sys.executable, "-m", "tests.support.large_server"]
    return over(partial(stdio_transport, name, command, {}, str(ROOT), max_answer_bytes=64 * MiB), "handshake")


async def text_of(upstream: McpServerUpstream, size: int, *, unfinished: bool = False) -> str:
    given = {"bytes": size, "unfinished": unfinished}
    result = await upstream.call_tool("large", given, context(), BOUND_S)
    return str(result["content"][0]["text"])


@requirement("UP-275")
async def test_a_line_that_does_not_end_gives_its_room_to_another_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slots, drips, other = room(), large("drips"), large("other")
    async with connected(drips), connected(other), asyncio.timeout(BOUND_S):
        monkeypatch.setattr(answer_room, "HOLD_S", 0.5)
        unfinished = asyncio.create_task(text_of(drips, 2_000_000, unfinished=True))
        await until(lambda: slots.running or unfinished.done())
        monkeypatch.undo()
        assert len(await text_of(other, 2_000_000)) > 1_900_000
        with pytest.raises(UpstreamUnclear, match=UNFINISHED):
            await unfinished
    assert slots.running == 0
    assert [record.getMessage() for record in caplog.records if "is skipped" in record.getMessage()] == [
        "drips writes a line of more than a megabyte that is skipped: it did not come to its end"
    ]


@requirement("UP-276")
async def test_a_line_that_finds_no_room_in_time_does_not_block_what_comes_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots, full, server = room(), AnswerHold("carl"), large("waits")
    async with connected(server), asyncio.timeout(BOUND_S):
        await full.take(100 * MiB)
        monkeypatch.setattr(answer_room, "HOLD_S", 0.1)
        with pytest.raises(UpstreamUnclear, match=UNFINISHED):
            await text_of(server, 2_000_000)
        assert len(await text_of(server, 90_000)) == 90_000
        monkeypatch.undo()
        full.close()
        assert len(await text_of(server, 2_000_000)) > 1_900_000
    assert (slots.running, slots.waiting) == (0, 0)


class SilentChild:
    """Stands for a ChildProcess that says nothing by itself."""

    async def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> None: ...

    def rest(self, seconds: float) -> None: ...

    def pause(self) -> None:
        raise AssertionError("it is read on")

    def read_on(self) -> None: ...

    async def stop(self) -> None: ...


@requirement("UP-276", "UP-277")
async def test_a_line_that_nobody_waits_for_takes_no_room_and_is_no_sign_of_life_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots = room()
    server = StdioConnection("idle", lambda how: None, 64 * MiB, LastWords("idle"))
    server.child = cast(ChildProcess, SilentChild())
    server.output(ANSWER)
    began = server.exchange.heard
    server.output(b"x")
    assert (slots.running, server.exchange.heard) == (0, began + 1)
    monkeypatch.setattr(answer_room, "HOLD_S", 0.0)
    for _ in range(3):
        server.output(b"x")
    assert server.exchange.heard == began + 1
    server.output(b'"}]}}\n{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n')
    assert server.exchange.heard == began + 2
    await server.close()


@requirement("UP-275")
@pytest.mark.parametrize(
    "reply",
    [Reply([b"data: " + ANSWER, HOLD]), Reply([ANSWER, HOLD], 200, {"content-type": "application/json"})],
    ids=["events", "JSON"],
)
async def test_an_answer_over_http_that_stalls_half_way_gives_its_room_back(
    reply: Reply, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slots, own = room(), AnswerHold("bob")
    monkeypatch.setattr(answer_room, "HOLD_S", 0.2)
    async with connection(reply, max_bytes=64 * MiB) as (calls, _):
        mark = hold_in_force.set(own)
        with pytest.raises(Malformed, match=UNFINISHED):
            await call(calls)
        hold_in_force.reset(mark)
        own.close()
        assert slots.running == 0
    assert f"scripted {UNFINISHED}; its memory was released" in caplog.text
