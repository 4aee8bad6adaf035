"""Counters in the Prometheus text format. Labels are closed sets: never an actor or a tool id."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wicketgate.fleet.guards import BreakerState
from wicketgate.fleet.member import MemberState
from wicketgate.gateway.options import TokenCost
from wicketgate.models.provider import Usage

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


@dataclass(frozen=True, slots=True)
class Gauges:
    """Values that are read at a scrape. *tools*: in force, by upstream. *audit_lost* and *audit_refused*: by sink."""

    upstreams: Mapping[str, MemberState]
    tools: Mapping[str, int]
    active_streams: int
    sessions: int
    audit_lost: Mapping[str, int]
    audit_refused: Mapping[str, int]


class Metrics:
    """Implements Meter. Each instance has its own registry, so that two applications in a process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._meta_tools = Counter(
            "wicketgate_meta_tool_calls", "Calls of the meta-tools.", ["tool", "outcome"], registry=self._registry
        )
        self._meta_tool_seconds = Histogram(
            "wicketgate_meta_tool_seconds", "How long they took.", ["tool"], buckets=_SECONDS, registry=self._registry
        )
        self._shown = Counter(
            "wicketgate_tokens_shown", "Tokens given to models, estimated.", ["tool"], registry=self._registry
        )
        self._naive = Counter(
            "wicketgate_tokens_naive",
            "Tokens it would have taken with all schemas in the prompt and raw results, estimated.",
            ["tool"],
            registry=self._registry,
        )
        self._streams = Counter(
            "wicketgate_streams", "Chat streams by how they ended.", ["outcome"], registry=self._registry
        )
        model_tokens = Counter(
            "wicketgate_model_tokens",
            "As the provider counted them; cache_read and cache_write are parts of prompt, reasoning of completion.",
            ["kind"],
            registry=self._registry,
        )
        self._model_tokens_by_kind = [model_tokens.labels(kind) for kind in _KINDS]

    def watch(self, read: Callable[[], Gauges]) -> None:
        """Reads these gauges at each scrape."""
        self._registry.register(_GaugeCollector(read))
        ProcessCollector(registry=self._registry)  # memory, file descriptors, CPU, where the system has them

    def meta_tool(self, tool: str, outcome: str, seconds: float, cost: TokenCost) -> None:
        self._meta_tools.labels(tool, outcome).inc()
        self._meta_tool_seconds.labels(tool).observe(seconds)
        self._shown.labels(tool).inc(cost.shown)
        self._naive.labels(tool).inc(cost.naive)

    def stream_ended(self, outcome: str, usage: Usage) -> None:
        self._streams.labels(outcome).inc()
        for counter, tokens in zip(self._model_tokens_by_kind, _counts(usage), strict=True):
            if tokens:
                counter.inc(tokens)

    def render(self) -> bytes:
        return generate_latest(self._registry)


_BREAKER: Mapping[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}

_KINDS = ("prompt", "completion", "cache_read", "cache_write", "reasoning")


def _counts(usage: Usage) -> tuple[int, ...]:
    """Returns the token counts in the order of the kinds."""
    return (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )


class _GaugeCollector(Collector):
    def __init__(self, read: Callable[[], Gauges]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        gauges = self._read()
        yield from _of_upstreams(gauges)
        yield from _of_audit(gauges)
        yield GaugeMetricFamily("wicketgate_active_streams", "Chat streams open now.", value=gauges.active_streams)
        yield GaugeMetricFamily("wicketgate_mcp_sessions", "Handshake sessions open on /mcp.", value=gauges.sessions)
        yield GaugeMetricFamily("wicketgate_tasks", "Tasks of the event loop.", value=len(asyncio.all_tasks()))
        yield GaugeMetricFamily("wicketgate_threads", "Threads.", value=threading.active_count())


def _of_audit(gauges: Gauges) -> Iterable[Metric]:
    lost = CounterMetricFamily("wicketgate_audit_lost", "Records that a sink did not keep.", labels=["sink"])
    refused = CounterMetricFamily(
        "wicketgate_audit_refused", "Calls not made, since a critical sink could not be written.", labels=["sink"]
    )
    for family, counts in ((lost, gauges.audit_lost), (refused, gauges.audit_refused)):
        for sink, count in counts.items():
            family.add_metric([sink], count)
    return lost, refused


def _of_upstreams(gauges: Gauges) -> Iterable[Metric]:
    label = ["upstream"]
    up = GaugeMetricFamily("wicketgate_upstream_up", "1 while connected.", labels=label)
    tools = GaugeMetricFamily("wicketgate_tools", "Tools in force.", labels=label)
    connected = GaugeMetricFamily(
        "wicketgate_upstream_connected_seconds", "How long ago its newest session began.", labels=label
    )
    connections = CounterMetricFamily("wicketgate_upstream_connections", "Sessions it has had.", labels=label)
    breaker = GaugeMetricFamily(
        "wicketgate_upstream_breaker", "0: closed, 1: half open, 2: open, nothing is sent.", labels=label
    )
    opened = CounterMetricFamily("wicketgate_upstream_breaker_opened", "How often it has opened.", labels=label)
    in_flight = GaugeMetricFamily("wicketgate_upstream_calls_in_flight", "Calls that run now.", labels=label)
    queued = GaugeMetricFamily("wicketgate_upstream_calls_queued", "Calls that wait for a place.", labels=label)
    turned_away = CounterMetricFamily(
        "wicketgate_upstream_calls_turned_away", "Calls not made: no place, or the breaker is open.", labels=label
    )
    for name, state in gauges.upstreams.items():
        up.add_metric([name], int(state.status.phase == "ready"))
        tools.add_metric([name], gauges.tools.get(name, 0))
        if state.connected_s is not None:
            connected.add_metric([name], state.connected_s)
        connections.add_metric([name], state.connections)
        breaker.add_metric([name], _BREAKER[state.breaker])
        opened.add_metric([name], state.breaker_opened)
        in_flight.add_metric([name], state.in_flight)
        queued.add_metric([name], state.queued)
        turned_away.add_metric([name], state.turned_away)
    return up, tools, connected, connections, breaker, opened, in_flight, queued, turned_away
