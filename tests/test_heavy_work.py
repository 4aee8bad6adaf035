"""Very large values are worked on one at a time (OPS-42)."""

import asyncio
import threading
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.support.requirement import requirement
from wicketgate.catalog.selectable import mcp_tool_to_selectable
from wicketgate.gateway import archive
from wicketgate.gateway.archive import Archive
from wicketgate.heavy_work import run_queued
from wicketgate.results import firewall
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.memory import MemoryStore
from wicketgate.tokens import shipped_token_counter
from wicketgate.upstreams.mcp import wire
from wicketgate.upstreams.mcp.call import Call

BOUND_S = 20.0


@requirement("OPS-42")
async def test_pieces_of_heavy_work_never_run_side_by_side() -> None:
    running = threading.Lock()
    turns = 0
    going_on = threading.Event()

    def work(number: int) -> int:
        assert running.acquire(blocking=False), "two at once"
        # The loop makes turns meanwhile: one of them sets it.
        assert going_on.wait(BOUND_S)
        running.release()
        return number

    async def beside() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns > 100:
                going_on.set()
            await asyncio.sleep(0)

    beating = asyncio.create_task(beside())
    async with asyncio.timeout(BOUND_S):
        assert await asyncio.gather(*(run_queued(partial(work, n), str(n)) for n in range(8))) == list(range(8))
    beating.cancel()
    assert turns > 100


@requirement("OPS-42")
async def test_a_caller_that_leaves_the_line_takes_its_work_back() -> None:
    ran: list[str] = []
    go = threading.Event()
    first = asyncio.create_task(run_queued(lambda: go.wait(BOUND_S), "alice"))
    left = asyncio.create_task(run_queued(lambda: ran.append("left"), "alice"))
    await asyncio.sleep(0)
    left.cancel()
    last = asyncio.create_task(run_queued(lambda: ran.append("last"), "alice"))
    await asyncio.sleep(0)
    go.set()
    async with asyncio.timeout(BOUND_S):
        assert await first
        await last
    assert left.cancelled()
    assert ran == ["last"]


@requirement("OPS-410", "OPS-520")
async def test_actors_take_turns_whatever_one_of_them_has_waiting() -> None:
    ran: list[str] = []
    go = threading.Event()
    busy = asyncio.create_task(run_queued(lambda: go.wait(BOUND_S), "bob"))
    await asyncio.sleep(0)
    actors = ["bob"] * 10 + ["alice"] * 2
    waiting = [asyncio.create_task(run_queued(partial(ran.append, actor), actor)) for actor in actors]
    await asyncio.sleep(0)
    go.set()
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(busy, *waiting)
    assert ran == ["alice", "bob", "alice"] + ["bob"] * 9


@requirement("OPS-42")
async def test_a_very_large_result_is_decoded_and_sealed_in_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[str] = set()
    in_threads(monkeypatch, threads)
    encoded = msgspec.json.encode({"content": [{"type": "text", "text": "word " * 1_200_000}]})
    message = wire.decode(b'{"jsonrpc":"2.0","id":"1","result":%b}' % encoded)
    assert message is not None
    call = Call("1", None)
    call.settle(message)
    async with asyncio.timeout(BOUND_S):
        result = await call.answer()
        item = mcp_tool_to_selectable({"name": "read", "inputSchema": {"type": "object"}}, "files")
        await Archive(StoredArtifacts(MemoryStore()), shipped_token_counter()).keep(result, item, "alice", {})
    assert len(threads) == 1
    assert all(name.startswith("wicketgate-heavy") for name in threads)


def in_threads(monkeypatch: pytest.MonkeyPatch, threads: set[str]) -> None:
    """Notes the names of the threads in which values are decoded and sealed."""
    decode, seal = wire.whole, firewall.seal_result

    def whole(value: Any) -> Any:
        threads.add(threading.current_thread().name)
        return decode(value)

    def seal_result(*args: Any, **kwargs: Any) -> Any:
        threads.add(threading.current_thread().name)
        return seal(*args, **kwargs)

    monkeypatch.setattr(wire, "whole", whole)
    monkeypatch.setattr(archive, "seal_result", seal_result)
