"""The benchmark of replicas measures what its rows say, at each replica."""

from bench.scaling import measured, shown
from tests.support.requirement import requirement

NAMES = [
    *("call at /operations", "browse at /mcp", "call at /mcp, 100 KB kept", "chat of one delta", "chat with a tool"),
    *("chat with a key", "delta", "a replica at rest, a second", "open stream"),
]


@requirement("OPS-214")
async def test_what_is_kept_costs_redis_something_and_each_operation_the_replicas() -> None:
    found = await measured([2], operations=8, rounds=1, deltas=8, open_streams=8, idle_s=0.05)
    rows = found[2]
    assert list(rows) == NAMES
    assert all(row["gates_ms"] > 0 for name, row in rows.items() if name != "open stream")
    kept = rows["call at /mcp, 100 KB kept"]
    assert kept["commands"] >= 1
    assert kept["kb"] > 50, "the text went to Redis"
    assert rows["delta"]["commands"] < 1
    assert list(rows["open stream"]) == ["memory_kb"]
    assert len(shown(found).splitlines()) == 1 + len(NAMES)
