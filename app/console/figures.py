"""The figures of a gate's traffic, as one caller may see them (OPS-225)."""

from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Any

from app.console.live import Readable
from wicketgate.gateway.audit import AuditRecord
from wicketgate.gateway.traffic import ToolTraffic, Traffic, was_refused

Figure = tuple[int, int, float | None]
"""Calls that ran, those of them that failed, and the median of the last durations in milliseconds."""


def whole_traffic(traffic: Traffic) -> dict[str, Any]:
    """The traffic of all callers since the process began."""
    return {
        "since": traffic.since,
        "totals": {
            "calls": traffic.all.calls,
            "failed": traffic.all.failed,
            "refused": traffic.all.refused,
            "median_ms": traffic.all.median_ms,
            "given_tokens": traffic.cost.shown,
            "naive_tokens": traffic.cost.naive,
        },
        "meta": dict(traffic.meta),
        "tools": {tool_id: _figure(each) for tool_id, each in traffic.tools()},
    }


def own_traffic(traffic: Traffic, readable: Readable) -> dict[str, Any]:
    """That of one actor, as far as its records are still kept and *readable*. Tokens are counted for all together, and
    left out; so is which door a call came through: all count as ``tool_execute``."""
    kept = (each.record for each in traffic.records())
    records = [each for each in kept if readable(each.actor, each.tool_id, each.server)]
    tools = dict[str, ToolTraffic]()
    executed = [record for record in records if record.operation == "execute"]
    for record in reversed(executed):
        tools.setdefault(record.tool_id, ToolTraffic()).add(record)
    counted = Counter(record.operation for record in records)
    return {
        "since": traffic.since,
        "totals": {
            "calls": sum(each.calls for each in tools.values()),
            "failed": sum(each.failed for each in tools.values()),
            "refused": sum(each.refused for each in tools.values()),
            "median_ms": _median(record for record in executed if not was_refused(record)),
            "given_tokens": 0,
            "naive_tokens": 0,
        },
        "meta": {"tool_browse": 0, "tool_execute": counted["execute"], "tool_view": counted["view"]},
        "tools": {tool_id: _figure(each) for tool_id, each in tools.items()},
    }


def _figure(traffic: ToolTraffic) -> Figure:
    return traffic.calls, traffic.failed, traffic.median_ms


def _median(records: Iterable[AuditRecord]) -> float | None:
    durations = [record.duration_ms for record in records]
    return round(median(durations), 3) if durations else None
