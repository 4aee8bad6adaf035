"""Values that metrics read at a scrape, in the Prometheus text format, with the same closed sets of labels."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from app.port.connections import ConnectionCounts
from app.telemetry import SpanCounts
from wicketgate.access.identity import KeyLife
from wicketgate.access.shares import ShareCounts
from wicketgate.fleet.member import MemberState
from wicketgate.gateway.spending import UNIT
from wicketgate.login.login_flow import LoginCounts
from wicketgate.measures import CallCounts, Durations
from wicketgate.models.watched import ModelCounts
from wicketgate.storage.measures import ERROR_KINDS, StorageMeasures


@dataclass(frozen=True, slots=True)
class Gauges:
    """Values that are read at a scrape. *tools*: in force, by upstream. Those of the audit log: by sink. *keys*: by
    id. *models*: by their configured names. *connections*: of the port; None under another server. *learned*: the
    executions that taught which words lead to a tool; *lessons_dropped*: those that no store has.
    *approvals_waiting*: those of all processes; None if they cannot be read. *budgets*: checks by outcome."""

    upstreams: Mapping[str, MemberState]
    tools: Mapping[str, int]
    shares: Sequence[ShareCounts]
    audit_lost: Mapping[str, int]
    audit_refused: Mapping[str, int]
    audit_seconds: Mapping[str, Durations] = field(default_factory=dict)
    storage: StorageMeasures = field(default_factory=StorageMeasures)
    keys: Mapping[str, KeyLife] = field(default_factory=dict)
    connections: ConnectionCounts | None = None
    learned: int = 0
    lessons_dropped: int = 0
    logins: LoginCounts = field(default_factory=LoginCounts)
    spans: SpanCounts = field(default_factory=SpanCounts)
    models: Mapping[str, ModelCounts] = field(default_factory=dict)
    approvals_waiting: int | None = None
    budgets: Mapping[str, int] = field(default_factory=dict)


class GaugeCollector(Collector):
    def __init__(self, read: Callable[[], Gauges]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        gauges = self._read()
        yield from _of_upstreams(gauges)
        yield from _of_audit(gauges)
        yield from _of_storage(gauges.storage)
        yield from _of_keys(gauges.keys)
        yield from _of_shares(gauges.shares)
        yield from _of_logins(gauges.logins)
        yield from _of_models(gauges.models)
        learned, dropped = (
            "Executions that taught which words lead to a tool.",
            "Lessons of executions that no store has.",
        )
        yield _counter("learned", learned, [], [((), gauges.learned)])
        yield _counter("lessons_dropped", dropped, [], [((), gauges.lessons_dropped)])
        waiting = "Calls that wait for an approval, at all processes of the store."
        yield _gauge("approvals_waiting", waiting, [], [((), gauges.approvals_waiting)])
        checks = "Checks of budgets when a chat begins: within 80 %, warned, refused."
        yield _counter("budget_checks", checks, ["outcome"], _each(gauges.budgets))
        if gauges.connections is not None:
            yield from _of_connections(gauges.connections)
        spans = {"ended": gauges.spans.ended, "sent": gauges.spans.sent, "failed": gauges.spans.failed}
        yield _counter("spans", "Spans that ended, and those a collector took or refused.", ["state"], _each(spans))
        yield _gauge("tasks", "Tasks of the event loop.", [], [((), len(asyncio.all_tasks()))])
        yield _gauge("threads", "Threads.", [], [((), threading.active_count())])


Values = Iterable[tuple[Sequence[str], float | None]]
"""Values by their labels; None if there is none."""


def _counter(name: str, words: str, labels: Sequence[str], values: Values) -> Metric:
    return _filled(CounterMetricFamily(f"wicketgate_{name}", words, labels=labels), values)


def _gauge(name: str, words: str, labels: Sequence[str], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(f"wicketgate_{name}", words, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
    for labels, value in values:
        if value is not None:
            family.add_metric(labels, value)
    return family


def _each(counts: Mapping[str, int]) -> Values:
    return (((name,), count) for name, count in counts.items())


def _of_keys(keys: Mapping[str, KeyLife]) -> Iterable[Metric]:
    """The times of the keys that are configured now, so that keys that are gone leave no series behind."""
    for name, words, value in (
        ("last_used", "When a request last came with this key.", "last_used"),
        ("expires", "When this key expires, if it does.", "expires_at"),
    ):
        times = (((key_id,), getattr(life, value)) for key_id, life in keys.items())
        yield _gauge(f"key_{name}_timestamp_seconds", words, ["key"], times)


def _of_audit(gauges: Gauges) -> Iterable[Metric]:
    yield _counter("audit_lost", "Records that a sink did not keep.", ["sink"], _each(gauges.audit_lost))
    refused = "Calls not made, since a critical sink could not be written."
    yield _counter("audit_refused", refused, ["sink"], _each(gauges.audit_refused))
    yield _durations("audit_write_seconds", "How long records waited.", "sink", gauges.audit_seconds)


def _of_storage(storage: StorageMeasures) -> Iterable[Metric]:
    waits = HistogramMetricFamily("wicketgate_storage_wait_seconds", "How long steps of the store took.")
    waits.add_metric([], *histogram(storage.waits))
    yield waits
    errors = (((kind,), storage.errors[kind]) for kind in ERROR_KINDS)
    yield _counter("storage_errors", "Steps of the store that failed, by kind.", ["kind"], errors)
    refused = "Steps not tried, since the store was locked or away."
    yield _counter("storage_refused", refused, [], [((), storage.refused)])
    away = "1 while a shared store is away, or its file was removed."
    yield _gauge("storage_away", away, [], [((), int(bool(storage.away)))])
    without = "Steps done without the store (open, partial) or refused (closed), by the kind of state."
    yield _counter("storage_without", without, ["state", "mode"], storage.fail.counts.items())


def _durations(name: str, words: str, label: str, values: Mapping[str, Durations]) -> Metric:
    seconds = HistogramMetricFamily(f"wicketgate_{name}", words, labels=[label])
    for value, durations in values.items():
        seconds.add_metric([value], *histogram(durations))
    return seconds


def histogram(durations: Durations) -> tuple[list[tuple[str, float]], float]:
    """Returns the buckets, each with all that took no longer, and the sum."""
    totals = accumulate(durations.counts)
    bounds = [*(str(float(bound)) for bound in durations.bounds), "+Inf"]
    return [(bound, float(total)) for bound, total in zip(bounds, totals, strict=True)], durations.total_s


def _of_shares(all_shares: Sequence[ShareCounts]) -> Iterable[Metric]:
    yield _gauge("active", "Places taken, by kind.", ["kind"], (((each.kind,), each.held) for each in all_shares))
    yield _gauge("limit", "Places there are, by kind.", ["kind"], (((each.kind,), each.most) for each in all_shares))
    refused = (((each.kind, scope), count) for each in all_shares for scope, count in each.refused.items())
    yield _counter("refused", "Refused: the actor's share was full, or all places.", ["kind", "scope"], refused)


def _of_logins(counts: LoginCounts) -> Iterable[Metric]:
    label, words = ["upstream", "outcome"], "Logins at tool servers in a browser: begun, and what became of them."
    yield _counter("logins", words, [*label, "reason"], counts.logins.items())
    yield _counter("token_refreshes", "Refreshes of tokens of connected accounts.", label, counts.refreshes.items())
    exchanges = "Tokens of callers, exchanged for those of a server or not."
    yield _counter("token_exchanges", exchanges, label, counts.exchanges.items())


def _of_connections(counts: ConnectionCounts) -> Iterable[Metric]:
    yield _gauge("connections_open", "Connections of clients open now.", [], [((), counts.open)])
    refused = "Connections over a bound: 503, or unanswered."
    yield _counter("connections_refused", refused, ["reason"], _each(counts.refused))
    cut = "Connections closed on their client: to make room, or too slow."
    yield _counter("connections_cut", cut, ["reason"], _each(counts.cut))
    yield _counter("out_of_files", "Turns in which no connection could be accepted.", [], [((), counts.out_of_files)])


_TOKEN_KINDS = {
    "prompt": "prompt_tokens",
    "completion": "completion_tokens",
    "cache_read": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}
"""The fields of Usage by the kind of tokens."""


def _of_models(models: Mapping[str, ModelCounts]) -> Iterable[Metric]:
    yield from _of_calls("model", {name: each.turns for name, each in models.items()})
    first = {name: each.first_token for name, each in models.items()}
    yield _durations(
        "model_first_token_seconds", "Time to the first token of turns that begin with text.", "model", first
    )
    words = "As the provider counted them; cache_read and cache_write are parts of prompt, reasoning of completion."
    tokens = (
        ((name, kind), getattr(each.usage, counted))
        for name, each in models.items()
        for kind, counted in _TOKEN_KINDS.items()
    )
    yield _counter("model_tokens", words, ["model", "kind"], tokens)
    costs = (((name,), each.usage.cost / UNIT) for name, each in models.items())
    yield _counter("model_cost", "What the turns cost, in the currency of the prices.", ["model"], costs)


_UPSTREAM_GAUGES: Sequence[tuple[str, str, Callable[[MemberState], float | None]]] = (
    ("up", "1 while connected, or ready to be with an account.", lambda s: s.status.phase in ("ready", "waiting")),
    ("connected_seconds", "How long ago its newest session began.", lambda state: state.connected_s),
    ("breaker", "For all callers: 0 closed, 1 open.", lambda state: int(state.breaker == "open")),
    ("actors_held_off", "Actors kept away by their own failures.", lambda state: state.held_off),
    ("calls_in_flight", "Calls that run now.", lambda state: state.in_flight),
    ("calls_queued", "Calls that wait for a place.", lambda state: state.queued),
)
_UPSTREAM_COUNTERS: Sequence[tuple[str, str, Callable[[MemberState], float]]] = (
    ("connections", "Sessions it has had.", lambda state: state.connections),
    ("breaker_opened", "How often it has opened for all.", lambda state: state.breaker_opened),
    ("calls_turned_away", "Calls not made: no place, or the breaker is open.", lambda state: state.turned_away),
)


def _of_calls(of: str, calls: Mapping[str, CallCounts]) -> Iterable[Metric]:
    """Yields the outcomes and durations of calls, by upstream or model."""
    outcomes = (((name, each), count) for name, made in calls.items() for each, count in made.outcomes.items())
    yield _counter(f"{of}_calls", "Calls that were made, by how they ended.", [of, "outcome"], outcomes)
    yield _durations(f"{of}_seconds", "How long they took.", of, {name: made.took for name, made in calls.items()})


def _of_upstreams(gauges: Gauges) -> Iterable[Metric]:
    states = gauges.upstreams.items()
    for make, rows in ((_gauge, _UPSTREAM_GAUGES), (_counter, _UPSTREAM_COUNTERS)):
        for name, words, read in rows:
            yield make(f"upstream_{name}", words, ["upstream"], (((each,), read(state)) for each, state in states))
    yield from _of_calls("upstream", {name: state.calls for name, state in states})
    tools = (((name,), gauges.tools.get(name, 0)) for name in gauges.upstreams)
    yield _gauge("tools", "Tools in force.", ["upstream"], tools)
