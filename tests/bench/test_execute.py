"""The benchmark of tool_execute measures what its rows say, and takes no bad answer for a call."""

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cpu import cpu_s
from bench.execute import measure, shown
from bench.execute_parts import measure_parts, shown_parts
from bench.execute_upstream import text_of
from bench.execute_ways import UPSTREAMS, open_ways

WAYS = ["direct", "in process", "2026", "handshake"]


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
    async with open_ways() as ways:
        assert {upstream: [way.name for way in its] for upstream, its in ways.items()} == dict.fromkeys(UPSTREAMS, WAYS)
        for way in (way for upstream in UPSTREAMS for way in ways[upstream]):
            with pytest.raises(RuntimeError):
                await way.call({"number": 1, "chars": -2})
        rows = await measure(ways, {("100 B", 2): 4, ("1 MB", 1): 1}, rounds=1)
        upstream_processes = [{way.upstream for way in its} for its in ways.values()]

    # Each has a child of its own over stdio, the two eras share the service's; over HTTP there is one for all.
    assert [len(processes) for processes in upstream_processes] == [3, 1, 1]
    assert [(row["upstream"], row["size"], row["callers"], row["way"]) for row in rows] == [
        (upstream, *block, way) for upstream in UPSTREAMS for block in (("100 B", 2), ("1 MB", 1)) for way in WAYS
    ]
    for row in rows:
        assert row["caller_ms"] > 0
        assert row["upstream_ms"] > 0
        assert (row["gateway_ms"] > 0) == (row["way"] in ("2026", "handshake"))
        assert row["whole_ms"] >= row["caller_ms"] + row["upstream_ms"]
        assert set(row["ratio"].values()) == {1.0} or row["way"] != "direct"
    assert len(shown(rows).splitlines()) == 1 + len(rows)
