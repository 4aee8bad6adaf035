"""The traffic of late: what was called, how it ended, what it cost, for anyone who watches a gate (OPS-221, OPS-222).

It is kept in memory, bounded, by this process, whether or not there is an audit. Arguments and results are never in it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Literal

import msgspec

from wicketgate.gateway.audit import AuditRecord
from wicketgate.gateway.options import Meter, TokenCost

MOST_RECORDS = 10_000
_MOST_TOOLS = 20_000
_SAMPLE = 101
"""Durations of a tool of which the median is taken, the newest ones."""
_SAMPLE_OF_ALL = 1_001

Listener = Callable[[AuditRecord], None]


@dataclass(slots=True)
class ToolTraffic:
    """*calls* were run, or tried; *failed* of them ended with an error of gate or tool. *refused*: those
    that were turned down before anything ran, which are in no other number."""

    calls: int = 0
    failed: int = 0
    refused: int = 0
    sample: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLE))

    def add(self, record: AuditRecord) -> None:
        self.count(record.duration_ms, refused=was_refused(record), failed=has_failed(record))

    def count(self, duration_ms: float, *, refused: bool, failed: bool) -> None:
        if refused:
            self.refused += 1
            return
        self.calls += 1
        self.failed += failed
        self.sample.append(duration_ms)

    @property
    def median_ms(self) -> float | None:
        return round(median(self.sample), 3) if self.sample else None


class Kept(msgspec.Struct, frozen=True):
    """A record with its number: the first is 1, and none is given twice."""

    number: int
    record: AuditRecord


Counted = Literal["tool_browse", "tool_execute", "tool_view"]


class Traffic:
    """*now* gives seconds since the epoch. Use from one event loop only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.since = now()
        self.meta: dict[str, int] = {"tool_browse": 0, "tool_execute": 0, "tool_view": 0}
        """Calls of the three tools, by models of the engine and MCP clients of the gateway face."""
        self.cost = TokenCost()
        self.all = ToolTraffic(sample=deque(maxlen=_SAMPLE_OF_ALL))
        self._tools: OrderedDict[str, ToolTraffic] = OrderedDict()
        self._records: deque[Kept] = deque(maxlen=MOST_RECORDS)
        self._number = 0
        self._listeners: list[Listener] = []
        self._cost_listeners: list[Callable[[], None]] = []

    def now(self) -> float:
        return self._now()

    def note(self, record: AuditRecord) -> None:
        """Keep the record of an operation that has ended."""
        self._number += 1
        self._records.append(Kept(self._number, record))
        if record.operation == "execute":
            refused, failed = was_refused(record), has_failed(record)
            for counted in (self.all, self._tool(record.tool_id)):
                counted.count(record.duration_ms, refused=refused, failed=failed)
        for listener in self._listeners:
            listener(record)

    def tool(self, tool_id: str) -> ToolTraffic:
        return self._tools.get(tool_id) or ToolTraffic()

    def tools(self) -> Iterator[tuple[str, ToolTraffic]]:
        return iter(self._tools.items())

    def records(self, before: int | None = None) -> Iterator[Kept]:
        """The records that are still kept, the newest first; with *before*, those of lower numbers."""
        skipped = 0 if before is None else max(0, self._number - before + 1)
        return islice(reversed(self._records), skipped, None)

    @property
    def last(self) -> int:
        """The number of the newest record; 0 if there is none."""
        return self._number

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* with each further record; it must not wait or fail. Returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def listen_to_cost(self, listener: Callable[[], None]) -> Callable[[], None]:
        """As ``listen``, called after each change of *meta* and *cost*."""
        self._cost_listeners.append(listener)
        return lambda: self._cost_listeners.remove(listener)

    def metered(self, meter: Meter) -> Meter:
        """A meter that counts here too."""
        return _Metered(self, meter)

    def add_cost(self, tool: str, cost: TokenCost) -> None:
        if tool in self.meta:
            self.meta[tool] += 1
        self.cost += cost
        for listener in self._cost_listeners:
            listener()

    def _tool(self, tool_id: str) -> ToolTraffic:
        known = self._tools.get(tool_id)
        if known is None:
            known = self._tools[tool_id] = ToolTraffic()
            if len(self._tools) > _MOST_TOOLS:
                self._tools.popitem(last=False)
        else:
            self._tools.move_to_end(tool_id)
        return known


def was_refused(record: AuditRecord) -> bool:
    """True for a call that was denied, did not fit, waits for an approval, or was given up before it left."""
    if record.outcome == "cancelled":
        return record.transport == "none"
    return record.outcome in ("denied", "invalid", "approval_required")


def has_failed(record: AuditRecord) -> bool:
    """True for an error of the tool, and for a call that did not get to its answer."""
    return record.outcome == "failed" or record.tool == "error"


class _Metered:
    def __init__(self, traffic: Traffic, meter: Meter) -> None:
        self._traffic = traffic
        self._meter = meter

    def stream_ended(self, outcome: str) -> None:
        self._meter.stream_ended(outcome)

    def meta_tool(self, tool: str, outcome: str, seconds: float, cost: TokenCost) -> None:
        self._meter.meta_tool(tool, outcome, seconds, cost)
        self._traffic.add_cost(tool, cost)
