"""The tables of ``bench.execute``: ratios, goals, and who is ahead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.execute_rows import Block, Key, calls_of_block, goals_table, processes, ratio_tables, rows_of
from tests.support.requirement import requirement


def block(caller_us: float, gateway_us: float = 0) -> Block:
    return Block(caller_us, gateway_us, 50, 400, 1_000)


BLOCKS: dict[Key, list[Block]] = {
    ("handshake", "100 B", 32, "direct"): [block(1_000)],
    ("handshake", "100 B", 32, "gateway handshake"): [block(100, 1_000)],
    ("stdio", "1 MB", 1, "direct"): [block(5_000)],
    ("stdio", "1 MB", 1, "namespaced 2026"): [block(100, 6_000)],
    ("stdio", "1 MB", 1, "mcp-proxy"): [block(100, 5_000)],
    ("stdio", "100 B", 32, "direct"): [block(180), block(200), block(220)],
    ("stdio", "100 B", 32, "in process"): [block(290), block(310), block(250)],
    ("stdio", "100 B", 32, "namespaced 2026"): [block(100, 151)] * 3,
    ("stdio", "100 B", 32, "mcp-proxy"): [block(100, 900)] * 3,
}


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    rows = {(row.upstream, *row.block, row.way): row for row in rows_of(BLOCKS)}
    own = rows["stdio", "100 B", 32, "in process"]
    # 290 / 180, 310 / 200 and 250 / 220: another machine in each round.
    assert own.ratio == pytest.approx(1.55)
    assert (own.low_us, own.ours_us, own.high_us, own.calls_s) == (250, 290, 310, 2_500)
    namespaced = rows["stdio", "100 B", 32, "namespaced 2026"]
    # 151 / 180, 151 / 200 and 151 / 220.
    assert namespaced.ratio == pytest.approx(151 / 200)
    assert namespaced.beside == pytest.approx(151 / 900)
    assert rows["handshake", "100 B", 32, "gateway handshake"].beside is None


def test_rows_stand_by_upstream_block_and_way() -> None:
    assert [(row.upstream, row.way) for row in rows_of(BLOCKS)] == [
        *(("stdio", way) for way in ("direct", "in process", "namespaced 2026", "mcp-proxy")),
        *(("stdio", way) for way in ("direct", "namespaced 2026", "mcp-proxy")),
        *(("handshake", way) for way in ("direct", "gateway handshake")),
    ]
    assert len(processes(rows_of(BLOCKS)).splitlines()) == 1 + len(BLOCKS)


@requirement("OPS-525")
def test_goals_are_judged_in_microseconds_and_beside_the_direct_client_and_mcp_proxy() -> None:
    goals = goals_table(rows_of(BLOCKS))
    assert [(line[0], line[1], line[3]) for line in goals.rows] == [
        ("stdio, 100 B, 32: namespaced 2026", "≤ 190 µs", "met"),
        ("stdio, 100 B, 32: namespaced 2026", "≤ 0.2 × mcp-proxy", "met"),
        ("stdio, 100 B, 32: in process", "≤ 1.5 × direct", "**missed**"),
        ("handshake, 100 B, 32: gateway handshake", "≤ 1.6 × direct", "met"),
        ("ahead of mcp-proxy", "every row", "**missed**"),
    ]
    assert goals.rows[-1][2] == "2 of 3"
    assert goals.notes == ["behind mcp-proxy: stdio, 1 MB, callers: 1, namespaced 2026: × 1.20"]


def test_nobody_is_ahead_of_a_peer_that_was_not_measured() -> None:
    kept = {key: of for key, of in BLOCKS.items() if key[3] != "mcp-proxy"}
    assert all("mcp-proxy" not in line[0] for line in goals_table(rows_of(kept)).rows)


@requirement("OPS-525")
def test_a_cell_has_microseconds_and_both_ratios_and_a_missing_peer_has_a_row_with_the_reason() -> None:
    stdio, handshake = ratio_tables(rows_of(BLOCKS), {("handshake", "mcp-proxy"): "could not be installed"})
    assert stdio.head[1:] == ["100 B, 32", "1 MB, 1"]
    assert [line[0] for line in stdio.rows] == ["direct", "in process", "namespaced 2026", "mcp-proxy"]
    assert stdio.rows[1][1:] == ["290 (1.55; 0.322)", "–"]
    assert stdio.rows[2][1:] == ["151 (0.755; 0.168)", "6,000 (1.20; 1.20)"]
    assert handshake.rows[1:] == [
        ["gateway handshake", "1,000 (1.00; –)"],
        ["mcp-proxy: could not be installed", "–"],
    ]


@given(st.floats(0, 5), st.floats(0, 10), st.integers(1, 64))
def test_a_block_has_two_calls_a_caller_at_least(seconds: float, call_s: float, callers: int) -> None:
    assert calls_of_block(seconds, call_s, callers) >= 2 * callers
