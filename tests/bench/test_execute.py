"""The benchmark of tool_execute measures what its rows say, and takes no bad answer for a call."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import execute_ways
from bench.catalogs import ROOT
from bench.cpu import cpu_s, pin
from bench.execute import measure
from bench.execute_parts import measure_parts, shown_parts
from bench.execute_rows import PEERS, UPSTREAMS, WAYS, rows_of
from bench.execute_throughput import throughput, throughput_table
from bench.execute_upstream import TOOL, text_of
from bench.execute_ways import Way, open_ways
from bench.peers import Peer
from bench.quiet_process import quiet_process
from bench.raw_mcp import VERSIONS, RawClient, raw_http, raw_stdio


@given(st.integers(0, 10**9), st.integers(13, 2_000))
def test_a_text_is_as_long_as_asked_and_another_for_each_number(number: int, chars: int) -> None:
    assert len(text_of(number, chars)) == chars
    assert text_of(number, chars) != text_of(number + 1, chars)


def test_a_text_of_a_megabyte_is_whole() -> None:
    assert len(text_of(1, 2**20)) == 2**20


def test_the_cpu_time_of_a_process_is_what_it_says_itself() -> None:
    before = time.process_time()
    seen = cpu_s(os.getpid())
    assert before <= seen <= time.process_time()


def test_a_process_that_is_gone_has_no_cpu_time() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_s(process.pid)


async def test_every_part_of_a_call_has_its_time() -> None:
    rows = await measure_parts({"100 B": 100, "1 MB": 2**20}, [1, 2], rounds=1, max_calls=2)
    operations = ["direct", "validate", "weigh", "seal", "store", "runtime.execute", "face.call"]
    small = [row["operation"] for row in rows if (row["size"], row["callers"]) == ("100 B", 1)]
    large = [row["operation"] for row in rows if (row["size"], row["callers"]) == ("1 MB", 2)]
    assert small == operations
    assert sorted(large) == sorted([*operations, "hop to a thread"])
    assert all(row["cpu_us"] > 0 and row["wall_us"] > 0 for row in rows)
    assert len(shown_parts(rows).splitlines()) == 1 + len(large)


async def test_every_way_to_a_tool_is_measured_beside_the_direct_one() -> None:
    ours = [way for way in WAYS if way not in PEERS]
    async with open_ways(wanted=ours) as opened:
        ways = opened.ways
        assert {upstream: [way.name for way in its] for upstream, its in ways.items()} == dict.fromkeys(UPSTREAMS, ours)
        assert opened.notes == []
        for way in (way for upstream in UPSTREAMS for way in ways[upstream]):
            with pytest.raises(RuntimeError):
                await way.call({"number": 1, "chars": -2})
        blocks, _ = await measure(ways, {"100 B": 100, "1 MB": 2**20}, [2], rounds=1, block_s=0)
        rows = rows_of(blocks)
        upstream_processes = [{way.upstream for way in its} for its in ways.values()]
        gateways = {way.gateway for its in ways.values() for way in its}

    # Each has a child of its own over stdio, the faces share the service's; over HTTP there is one for all.
    assert [len(processes) for processes in upstream_processes] == [3, 1, 1]
    assert len(gateways - {None}) == 1
    assert [(row.upstream, row.size, row.way) for row in rows] == [
        (upstream, size, way) for upstream in UPSTREAMS for size in ("100 B", "1 MB") for way in ours
    ]
    for row in rows:
        assert min(row.caller_us, row.upstream_us, row.latency_us) > 0
        assert (row.gateway_us > 0) == (row.way not in ("direct", "in process"))
        assert (row.ratio == 1) == (row.way == "direct")


async def test_another_gateway_is_measured_over_stdio_and_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own service stands in for what would have to be installed."""
    server = [sys.executable, "-m", "bench.execute_upstream"]

    @asynccontextmanager
    async def client_of(way: str, peer: Peer, upstream: str | Sequence[str]) -> AsyncIterator[tuple[RawClient, int]]:
        async with raw_stdio(server, ROOT) as (client, pid):
            yield client, pid

    monkeypatch.setattr(execute_ways, "find_peer", lambda way: Peer(Path(), {}) if way == "FastMCP" else f"no {way}")
    monkeypatch.setattr(execute_ways, "peer_client", client_of)
    async with open_ways(["stdio", "handshake"], PEERS) as opened:
        assert opened.notes == ["no mcp-proxy"]
        blocks, notes = await measure(opened.ways, {"100 B": 100}, [1], rounds=1, block_s=0)
        rows = rows_of(blocks)
    assert [(row.upstream, row.way, row.gateway_us > 0) for row in rows] == [
        (upstream, way, way == "FastMCP") for upstream in ("stdio", "handshake") for way in ("direct", "FastMCP")
    ]
    assert notes == []


async def test_a_peer_that_fails_has_a_line_that_says_so_and_ours_ends_the_run() -> None:
    async def good(arguments: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)

    async def bad(arguments: Mapping[str, Any]) -> None:
        raise RuntimeError("too large")

    ways = {"stdio": [Way("direct", good, None), Way("FastMCP", bad, None)]}
    blocks, notes = await measure(ways, {"1 MB": 2**20}, [2], rounds=1, block_s=0)
    assert list(blocks) == [("stdio", "1 MB", 2, "direct")]
    assert notes == ["FastMCP fails, stdio, 1 MB, callers: 2: too large"]
    with pytest.raises(RuntimeError):
        await measure({"stdio": [Way("in process", bad, None)]}, {"1 MB": 2**20}, [2], rounds=1, block_s=0)


async def test_the_lean_client_speaks_both_eras_over_http() -> None:
    async with quiet_process(sys.executable, "-m", "bench.execute_upstream", "--http") as server:
        url = (await server.wait_for(r"listening on (http://\S+)")).group(1)
        for era in VERSIONS:
            async with raw_http(url, era) as client:
                assert await client.list_tools() == [TOOL]
                result = await client.call_tool(TOOL, {"number": 7, "chars": 60})
                assert result["content"] == [{"type": "text", "text": text_of(7, 60)}]
                with pytest.raises(RuntimeError):
                    await client.call_tool("another", {})


async def test_a_process_that_ends_early_is_told_with_its_last_words() -> None:
    async with quiet_process(sys.executable, "-c", "print('such a pity')") as process:
        with pytest.raises(RuntimeError, match="such a pity"):
            await process.wait_for("never")


async def test_one_core_has_its_throughput_and_the_answers_of_healthz() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("takes two cores")
    (line,) = await throughput(["namespaced 2026"], window_s=0.5)
    assert os.sched_getaffinity(0) == cores
    assert line.calls_core_s > 0
    assert line.calls_s > 0
    assert 0 < line.health_p50_ms <= line.health_p99_ms <= line.health_longest_ms
    assert len(throughput_table([line]).rows) == 1


def test_the_threads_of_a_process_are_pinned_all() -> None:
    code = "import threading; threading.Thread(target=input).start()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        tasks = Path(f"/proc/{process.pid}/task")
        while len(list(tasks.iterdir())) < 2:
            time.sleep(0.01)
        core = min(os.sched_getaffinity(0))
        pin(process.pid, {core})
        assert {frozenset(os.sched_getaffinity(int(each.name))) for each in tasks.iterdir()} == {frozenset({core})}
    finally:
        process.communicate(b"\n")
