"""The benchmark of tool_execute measures what its rows say, and takes no bad answer for a call."""

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import execute_ways
from bench.catalogs import ROOT
from bench.checkouts import HERE, Checkout
from bench.cpu import LOAD, MEASURED, cpu_s, pin
from bench.execute import measure
from bench.execute_parts import measure_parts, shown_parts
from bench.execute_rows import PEERS, UPSTREAMS, Block, measures_of, rows_of
from bench.execute_throughput import throughput, throughput_table
from bench.execute_upstream import TOOL, text_of
from bench.execute_ways import LEAN, Way, open_ways
from bench.peers import Peer
from bench.quiet_process import quiet_process
from bench.raw_mcp import VERSIONS, raw_http
from tests.support.requirement import requirement


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


@requirement("OPS-525")
async def test_every_way_to_a_tool_is_measured_beside_the_direct_one() -> None:
    # The other ways differ from these in the words of their requests only.
    ours = ["direct", "in process", "gateway handshake"]
    cores = os.sched_getaffinity(0)
    async with open_ways(wanted=ours) as opened:
        ways = opened.ways
        assert {upstream: [way.name for way in its] for upstream, its in ways.items()} == dict.fromkeys(UPSTREAMS, ours)
        assert opened.missing == {}
        for way in (way for upstream in UPSTREAMS for way in ways[upstream]):
            with pytest.raises(RuntimeError, match="not good"):
                await way.block(-2, 1, 1, 1)
        # The process that is measured has a core for itself; its callers and upstreams have the other.
        for way in (way for its in ways.values() for way in its):
            assert os.sched_getaffinity(way.gateway or way.client) == MEASURED
            assert way.upstream is not None
            assert os.sched_getaffinity(way.upstream) == LOAD
            assert os.sched_getaffinity(way.client) == (LOAD if way.gateway else MEASURED)
        blocks, _ = await measure(ways, {"100 B": 100, "1 MB": 2**20}, [2], rounds=1, block_s=0)
        rows = rows_of(blocks)
        clients = {way.client for its in ways.values() for way in its}
        upstream_processes = [{way.upstream for way in its} for its in ways.values()]
        gateways = {way.gateway for its in ways.values() for way in its}
    assert os.sched_getaffinity(0) == cores

    # The direct client shares its process with nothing else, and neither does any other.
    assert len(clients) == len(UPSTREAMS) * len(ours)
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


@requirement("OPS-526")
async def test_another_checkout_is_measured_at_the_same_faces(tmp_path: Path) -> None:
    """This one stands in for it, under another name."""
    other = tmp_path / "before"
    other.symlink_to(ROOT)
    before = Checkout("before", other)
    async with open_ways(["stdio"], ["namespaced 2026"], [before, HERE]) as opened:
        blocks, _ = await measure(opened.ways, {"100 B": 100}, [2], rounds=2, block_s=0)
        gateways = {way.gateway for way in opened.ways["stdio"]} - {None}
    assert len(gateways) == 2
    ((measure_name, found),) = measures_of(blocks, [before, HERE]).items()
    assert measure_name == "namespaced 2026, stdio, 100 B, 2 callers, CPU µs"
    assert [(name, len(values), min(values) > 0) for name, values in found.items()] == [
        ("before", 2, True),
        ("here", 2, True),
    ]


async def test_another_gateway_is_measured_over_stdio_and_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server over stdio stands in for what would have to be installed."""

    @asynccontextmanager
    async def target_of(
        way: str, peer: Peer, upstream: str | Sequence[str]
    ) -> AsyncIterator[tuple[list[str], int | None]]:
        yield LEAN, None

    monkeypatch.setattr(execute_ways, "find_peer", lambda way: Peer(Path(), {}) if way == "FastMCP" else "no wheel")
    monkeypatch.setattr(execute_ways, "peer_target", target_of)
    async with open_ways(["stdio", "handshake"], PEERS) as opened:
        assert opened.missing == {("stdio", "mcp-proxy"): "no wheel", ("handshake", "mcp-proxy"): "no wheel"}
        blocks, notes = await measure(opened.ways, {"100 B": 100}, [1], rounds=1, block_s=0)
        rows = rows_of(blocks)
    assert [(row.upstream, row.way, row.gateway_us > 0) for row in rows] == [
        (upstream, way, way == "FastMCP") for upstream in ("stdio", "handshake") for way in ("direct", "FastMCP")
    ]
    assert notes == []


async def test_a_peer_that_cannot_be_started_is_missing_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def target_of(
        way: str, peer: Peer, upstream: str | Sequence[str]
    ) -> AsyncIterator[tuple[list[str], int | None]]:
        yield [sys.executable, "-c", "print('such a pity')"], None

    monkeypatch.setattr(execute_ways, "find_peer", lambda way: Peer(Path(), {}))
    monkeypatch.setattr(execute_ways, "peer_target", target_of)
    async with open_ways(["stdio"], ["mcp-proxy"]) as opened:
        assert [way.name for way in opened.ways["stdio"]] == ["direct"]
        assert list(opened.missing) == [("stdio", "mcp-proxy")]


async def test_a_peer_that_fails_has_a_line_that_says_so_and_ours_ends_the_run() -> None:
    good = Block(100, 0, 50, 400, 1_000)
    ways = {"stdio": [Fixed("direct", good), Fixed("FastMCP", None)]}
    blocks, notes = await measure(ways, {"1 MB": 2**20}, [2, 4], rounds=1, block_s=0)
    assert list(blocks) == [("stdio", "1 MB", 2, "direct"), ("stdio", "1 MB", 4, "direct")]
    assert notes == ["FastMCP fails: too large (stdio, 1 MB, 2; stdio, 1 MB, 4)"]
    with pytest.raises(RuntimeError):
        await measure({"stdio": [Fixed("in process", None)]}, {"1 MB": 2**20}, [2], rounds=1, block_s=0)


class Fixed(Way):
    """Always the same block; a failure if there is none."""

    def __init__(self, name: str, found: Block | None) -> None:
        self.name = name
        self._found = found

    async def block(self, chars: int, callers: int, calls: int, first: int) -> Block:
        if self._found is None:
            raise RuntimeError("too large")
        return self._found


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
    (line,) = await throughput(["namespaced 2026"], window_s=0.1)
    assert line.calls_core_s > 0
    assert line.calls_s > 0
    assert 0 < line.health_p50_ms <= line.health_p99_ms <= line.health_longest_ms
    assert len(throughput_table([line]).rows) == 1


def test_the_threads_of_a_process_are_pinned_all() -> None:
    code = "import threading; threading.Thread(target=input, args=['begun\\n']).start()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        tasks = Path(f"/proc/{process.pid}/task")
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert len(list(tasks.iterdir())) >= 2
        core = min(os.sched_getaffinity(0))
        pin(process.pid, {core})
        assert {frozenset(os.sched_getaffinity(int(each.name))) for each in tasks.iterdir()} == {frozenset({core})}
    finally:
        process.communicate(b"\n")
