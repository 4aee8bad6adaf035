"""Counters in the Prometheus text format (DESIGN §2 "Paths"). Labels are closed sets: never an actor or a tool id."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from app.gateway.meter import TokenCost

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


@dataclass(frozen=True, slots=True)
class Gauges:
    """What is read when somebody asks: *upstreams* maps a name to (connected, tools in force)."""

    upstreams: Mapping[str, tuple[bool, int]]
    active_streams: int


class Metrics:
    """Implements Meter. One registry an instance: two applications in a process do not mix."""

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
        self._model_tokens = Counter(
            "wicketgate_model_tokens", "Tokens as the provider counted them.", ["kind"], registry=self._registry
        )

    def watch(self, read: Callable[[], Gauges]) -> None:
        """Register what is read at each scrape."""
        self._registry.register(_GaugeCollector(read))

    def meta_tool(self, tool: str, outcome: str, seconds: float, cost: TokenCost) -> None:
        self._meta_tools.labels(tool, outcome).inc()
        self._meta_tool_seconds.labels(tool).observe(seconds)
        self._shown.labels(tool).inc(cost.shown)
        self._naive.labels(tool).inc(cost.naive)

    def stream_ended(self, outcome: str, prompt_tokens: int, completion_tokens: int) -> None:
        self._streams.labels(outcome).inc()
        self._model_tokens.labels("prompt").inc(prompt_tokens)
        self._model_tokens.labels("completion").inc(completion_tokens)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _GaugeCollector(Collector):
    def __init__(self, read: Callable[[], Gauges]) -> None:
        self._read = read

    def collect(self) -> Iterable[GaugeMetricFamily]:
        gauges = self._read()
        up = GaugeMetricFamily("wicketgate_upstream_up", "1 while connected.", labels=["upstream"])
        tools = GaugeMetricFamily("wicketgate_tools", "Tools in force.", labels=["upstream"])
        for name, (connected, count) in gauges.upstreams.items():
            up.add_metric([name], int(connected))
            tools.add_metric([name], count)
        yield up
        yield tools
        yield GaugeMetricFamily("wicketgate_active_streams", "Chat streams open now.", value=gauges.active_streams)
