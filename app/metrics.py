"""Counters in the Prometheus text format. Labels are closed sets: never an actor or a tool id; of a key
only the id, and only while it is configured."""

from collections.abc import Callable, Iterable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from app.gauges import GaugeCollector, Gauges
from app.http_counts import HttpAnswers
from wicketgate.access.identity import FailureReason
from wicketgate.gateway.options import TokenCost
from wicketgate.models.provider import Usage

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_OTHER = "other"


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
        # Looking one up by its labels costs as much as counting; tools and outcomes are closed sets.
        self._of_meta_tools: dict[tuple[str, str], tuple[Counter, Histogram, Counter, Counter]] = {}
        self._streams = Counter(
            "wicketgate_streams", "Chat streams by how they ended.", ["outcome"], registry=self._registry
        )
        self._of_streams: dict[str, Counter] = {}
        self._http = HttpAnswers(_SECONDS)
        self._registry.register(self._http)
        self._loop_lag = Histogram(
            "wicketgate_loop_lag_seconds",
            "How late the event loop ran what was due, looked at ten times a second.",
            buckets=_LAG_SECONDS,
            registry=self._registry,
        )
        self._paths: frozenset[str] = frozenset()
        self._auth_failures = Counter(
            "wicketgate_auth_failures",
            "Requests without a credential that is good, by reason.",
            ["reason"],
            registry=self._registry,
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

    def stream_ended(self, outcome: str, usage: Usage) -> None:
        series = self._of_streams.get(outcome)
        if series is None:
            series = self._of_streams[outcome] = self._streams.labels(outcome)
        series.inc()
        for counter, tokens in zip(self._model_tokens_by_kind, _counts(usage), strict=True):
            if tokens:
                counter.inc(tokens)

    def auth_failed(self, reason: FailureReason, key_id: str, source: str) -> None:
        """Implements OnFailure."""
        self._auth_failures.labels(reason).inc()

    async def read(self) -> bytes:
        """Returns what a scrape gets."""
        return self.render()

    def render(self) -> bytes:
        return generate_latest(self._registry)


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
