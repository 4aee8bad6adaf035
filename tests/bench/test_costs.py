"""The table of costs: one column a size and contestant."""

from typing import Any

from bench.costs import costs_table


def contestant(name: str, asked: int, refused: int = 0) -> dict[str, Any]:
    run = {"wall_ms": 20.0, "cpu_ms": 10.0}
    browse = {"p50_ms": 0.5, "p99_ms": None, "max_cpu_ms": 4.0, "asked": asked, "refused": refused}
    return {
        "name": name,
        "remarks": [],
        "tools": 100,
        "memory_mb": 1.0,
        "refresh": {"cold": run, "unchanged": run, "described": run | {"cpu_ms": 0.5}, "renamed": run},
        "browse": {"queries": browse, "paths": browse, "root": browse},
    }


def test_a_change_is_shown_as_a_share_of_a_cold_refresh_and_each_kind_with_its_longest() -> None:
    size = {"tools": 1_000, "source": "made", "contestants": [contestant("ours", 8), contestant("peer", 3, 2)]}
    table = costs_table([size, {**size, "tools": 50_000, "contestants": [contestant("ours", 3)]}])
    assert list(table.head) == ["", "1,000: ours", "1,000: peer", "50,000: ours"]
    rows = {row[0]: list(row[1:]) for row in table.rows}
    assert rows["1 description changed, % of cold (CPU)"] == ["5.0", "5.0", "5.0"]
    assert rows["query, median ms"] == ["0.500", "2 of 3 refused, 0.500", "0.500"]
    assert [f"{kind}, longest CPU ms" in rows for kind in ("query", "path", "path /")] == [True] * 3
    assert "50,000 tools: made" in table.notes
