"""Counters in the Prometheus text format. Labels are closed sets: never an actor or a tool id; of a key
only the id, and only while it is configured."""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from app.gauges import GaugeCollector, Gauges, histogram
from wicketgate.access.identity import FailureReason
from wicketgate.gateway.options import TokenCost
from wicketgate.measures import LONG_BOUNDS_S, Durations


class HttpAnswers(Collector):
    """HTTP answers by path and status, counted in plain numbers because every request is counted. *bounds* are the
    upper ends of the buckets of seconds, in ascending order. Use from one event loop only."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._answers: dict[tuple[str, int], int] = {}
        self._took: dict[str, _Took] = {}
        self._since: dict[tuple[str, int], float] = {}

    def count(self, path: str, status: int, seconds: float) -> None:
        """Counts an answer that took *seconds*. *path* is one of a closed set."""
        answered = path, status
        try:
            self._answers[answered] += 1
        except KeyError:
            self._answers[answered] = 1
            self._since[answered] = time.time()
            self._took.setdefault(path, _Took(self._bounds))
        self._took[path].observe(seconds)

    def collect(self) -> Iterable[Metric]:
        answers = CounterMetricFamily(
            "wicketgate_http_requests",
            "HTTP requests by path and status; status 0: the client left before an answer began.",
            labels=["path", "status"],
        )
        for (path, status), number in self._answers.items():
            answers.add_metric([path, str(status)], number, created=self._since[path, status])
        yield answers
        took = HistogramMetricFamily("wicketgate_http_seconds", "How long until the answer began.", labels=["path"])
        for path, each in self._took.items():
            took.add_metric([path], *histogram(each))
            took.add_sample("wicketgate_http_seconds_created", {"path": path}, each.since)
        yield took


class _Took(Durations):
    """The seconds of the answers at one path."""

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self.since = time.time()


CONTENT_TYPE = CONTENT_TYPE_LATEST

_LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_OTHER = "other"


class Metrics:
    """Implements Meter. Each instance has its own registry, so that two applications in a process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter, histogram = partial(Counter, registry=self._registry), partial(Histogram, registry=self._registry)
        of_tool = ["tool"]
        self._meta_tools = counter("wicketgate_meta_tool_calls", "Calls of the meta-tools.", [*of_tool, "outcome"])
        self._meta_tool_seconds = histogram(
            "wicketgate_meta_tool_seconds", "How long they took.", of_tool, buckets=LONG_BOUNDS_S
        )
        self._shown = counter("wicketgate_tokens_shown", "Tokens given to models, estimated.", of_tool)
        naive = "Tokens it would have taken with all schemas in the prompt and raw results, estimated."
        self._naive = counter("wicketgate_tokens_naive", naive, of_tool)
        # Looking one up by its labels costs as much as counting; tools and outcomes are closed sets.
        self._of_meta_tools: dict[tuple[str, str], tuple[Counter, Histogram, Counter, Counter]] = {}
        self._streams = counter("wicketgate_streams", "Chat streams by how they ended.", ["outcome"])
        self._http = HttpAnswers(LONG_BOUNDS_S)
        self._registry.register(self._http)
        lag = "How late the event loop ran what was due, looked at ten times a second."
        self._loop_lag = histogram("wicketgate_loop_lag_seconds", lag, buckets=_LAG_SECONDS)
        self._paths: frozenset[str] = frozenset()
        self._look: Callable[[], Awaitable[None]] | None = None
        failures = "Requests without a credential that is good, by reason."
        self._auth_failures = counter("wicketgate_auth_failures", failures, ["reason"])

    def watch(self, read: Callable[[], Gauges], look: Callable[[], Awaitable[None]] | None = None) -> None:
        """Reads these gauges at each scrape. *look* is awaited before."""
        self._look = look
        self._registry.register(GaugeCollector(read))
        ProcessCollector(registry=self._registry)  # memory, file descriptors, CPU, where the system has them

    def know_paths(self, paths: Iterable[str]) -> None:
        """Counts requests to these paths by path, and those to all others as one."""
        self._paths = frozenset(paths)

    def http_answer(self, path: str, status: int, seconds: float) -> None:
        self._http.count(path if path in self._paths else _OTHER, status, seconds)

    def loop_late(self, seconds: float) -> None:
        self._loop_lag.observe(seconds)

    def meta_tool(self, tool: str, outcome: str, seconds: float, cost: TokenCost) -> None:
        series = self._of_meta_tools.get((tool, outcome))
        if series is None:
            series = self._of_meta_tools[tool, outcome] = (
                self._meta_tools.labels(tool, outcome),
                self._meta_tool_seconds.labels(tool),
                self._shown.labels(tool),
                self._naive.labels(tool),
            )
        calls, took, shown, naive = series
        calls.inc()
        took.observe(seconds)
        shown.inc(cost.shown)
        naive.inc(cost.naive)

    def stream_ended(self, outcome: str) -> None:
        self._streams.labels(outcome).inc()

    def auth_failed(self, reason: FailureReason, key_id: str, source: str) -> None:
        """Implements OnFailure."""
        self._auth_failures.labels(reason).inc()

    async def read(self) -> bytes:
        """Returns what a scrape gets."""
        if self._look is not None:
            await self._look()
        return self.render()

    def render(self) -> bytes:
        return generate_latest(self._registry)
