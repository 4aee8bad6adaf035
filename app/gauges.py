"""Values that metrics read at a scrape, in the Prometheus text format, with the same closed sets of labels."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from app.port.connections import ConnectionCounts
from wicketgate.access.identity import KeyLife
from wicketgate.access.shares import ShareCounts
from wicketgate.fleet.breaker import BreakerState
from wicketgate.fleet.member import MemberState
from wicketgate.login.counts import LoginCounts
from wicketgate.measures import BOUNDS_S, Durations
from wicketgate.storage.measures import ERROR_KINDS, StorageMeasures

_BREAKER: Mapping[BreakerState, int] = {"closed": 0, "half_open": 1, "open": 2}


@dataclass(frozen=True, slots=True)
class Gauges:
    """Values that are read at a scrape. *tools*: in force, by upstream. Those of the audit log: by sink. *keys*: by
    id. *connections*: of the port; None under another server. *learned*: the executions that taught which
    words lead to a tool; *lessons_dropped*: those that no store has."""

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


class GaugeCollector(Collector):
    def __init__(self, read: Callable[[], Gauges]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        gauges = self._read()
        yield from _of_upstreams(gauges)
        yield from _of_audit(gauges)
        yield from _of_storage(gauges.storage)
        yield from _of_keys(gauges)
        yield from _of_shares(gauges)
        yield from _of_logins(gauges.logins)
        yield CounterMetricFamily(
            "wicketgate_learned", "Executions that taught which words lead to a tool.", value=gauges.learned
        )
        yield CounterMetricFamily(
            "wicketgate_lessons_dropped", "Lessons of executions that no store has.", value=gauges.lessons_dropped
        )
        if gauges.connections is not None:
            yield from _of_connections(gauges.connections)
        yield GaugeMetricFamily("wicketgate_tasks", "Tasks of the event loop.", value=len(asyncio.all_tasks()))
        yield GaugeMetricFamily("wicketgate_threads", "Threads.", value=threading.active_count())


def _of_keys(gauges: Gauges) -> Iterable[Metric]:
    """The times of the keys that are configured now, so that keys that are gone leave no series behind."""
    used = GaugeMetricFamily(
        "wicketgate_key_last_used_timestamp_seconds", "When a request last came with this key.", labels=["key"]
    )
    expires = GaugeMetricFamily(
        "wicketgate_key_expires_timestamp_seconds", "When this key expires, if it does.", labels=["key"]
    )
    for key_id, life in gauges.keys.items():
        if life.last_used is not None:
            used.add_metric([key_id], life.last_used)
        if life.expires_at is not None:
            expires.add_metric([key_id], life.expires_at)
    return used, expires


def _of_audit(gauges: Gauges) -> Iterable[Metric]:
    lost = CounterMetricFamily("wicketgate_audit_lost", "Records that a sink did not keep.", labels=["sink"])
    refused = CounterMetricFamily(
        "wicketgate_audit_refused", "Calls not made, since a critical sink could not be written.", labels=["sink"]
    )
    for family, counts in ((lost, gauges.audit_lost), (refused, gauges.audit_refused)):
        for sink, count in counts.items():
            family.add_metric([sink], count)
    seconds = HistogramMetricFamily("wicketgate_audit_write_seconds", "How long records waited.", labels=["sink"])
    for sink, durations in gauges.audit_seconds.items():
        seconds.add_metric([sink], *_histogram(durations))
    return lost, refused, seconds


def _of_storage(storage: StorageMeasures) -> Iterable[Metric]:
    waits = HistogramMetricFamily("wicketgate_storage_wait_seconds", "How long steps of the store took.")
    waits.add_metric([], *_histogram(storage.waits))
    errors = CounterMetricFamily(
        "wicketgate_storage_errors", "Steps of the store that failed, by kind.", labels=["kind"]
    )
    for kind in ERROR_KINDS:
        errors.add_metric([kind], storage.errors[kind])
    refused = CounterMetricFamily(
        "wicketgate_storage_refused", "Steps not tried, since the store was locked or away.", value=storage.refused
    )
    away = GaugeMetricFamily("wicketgate_storage_away", "1 while a shared store is away.", value=int(storage.away))
    without = CounterMetricFamily(
        "wicketgate_storage_without",
        "Steps done without the store (open, partial) or refused (closed), by the kind of state.",
        labels=["state", "mode"],
    )
    for (state, mode), count in storage.fail.counts.items():
        without.add_metric([state, mode], count)
    return waits, errors, refused, away, without


def _histogram(durations: Durations) -> tuple[list[tuple[str, float]], float]:
    """Returns the buckets, each with all that took no longer, and the sum."""
    totals = accumulate(durations.counts)
    bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
    return [(bound, float(total)) for bound, total in zip(bounds, totals, strict=True)], durations.total_s


def _of_shares(gauges: Gauges) -> Iterable[Metric]:
    active = GaugeMetricFamily("wicketgate_active", "Places taken, by kind.", labels=["kind"])
    limit = GaugeMetricFamily("wicketgate_limit", "Places there are, by kind.", labels=["kind"])
    refused = CounterMetricFamily(
        "wicketgate_refused", "Refused: the actor's share was full, or all places.", labels=["kind", "scope"]
    )
    for shares in gauges.shares:
        active.add_metric([shares.kind], shares.held)
        limit.add_metric([shares.kind], shares.most)
        for scope, count in shares.refused.items():
            refused.add_metric([shares.kind, scope], count)
    return active, limit, refused


def _of_logins(counts: LoginCounts) -> Iterable[Metric]:
    logins = CounterMetricFamily(
        "wicketgate_logins",
        "Logins at tool servers in a browser: begun, and what became of them.",
        labels=["upstream", "outcome", "reason"],
    )
    for labels, count in counts.logins.items():
        logins.add_metric(labels, count)
    yield logins
    for name, words, by_outcome in (
        ("refreshes", "Refreshes of tokens of connected accounts.", counts.refreshes),
        ("exchanges", "Tokens of callers, exchanged for those of a server or not.", counts.exchanges),
    ):
        family = CounterMetricFamily(f"wicketgate_token_{name}", words, labels=["upstream", "outcome"])
        for pair, count in by_outcome.items():
            family.add_metric(pair, count)
        yield family


def _of_connections(counts: ConnectionCounts) -> Iterable[Metric]:
    yield GaugeMetricFamily("wicketgate_connections_open", "Connections of clients open now.", value=counts.open)
    refused = CounterMetricFamily(
        "wicketgate_connections_refused", "Connections over a bound: 503, or unanswered.", labels=["reason"]
    )
    cut = CounterMetricFamily(
        "wicketgate_connections_cut",
        "Connections closed on their client: to make room, or too slow.",
        labels=["reason"],
    )
    for family, reasons in ((refused, counts.refused), (cut, counts.cut)):
        for reason, count in reasons.items():
            family.add_metric([reason], count)
        yield family
    yield CounterMetricFamily(
        "wicketgate_out_of_files", "Turns in which no connection could be accepted.", value=counts.out_of_files
    )


def _of_upstreams(gauges: Gauges) -> Iterable[Metric]:
    label = ["upstream"]
    up = GaugeMetricFamily("wicketgate_upstream_up", "1 while connected, or ready to be with an account.", labels=label)
    tools = GaugeMetricFamily("wicketgate_tools", "Tools in force.", labels=label)
    connected = GaugeMetricFamily(
        "wicketgate_upstream_connected_seconds", "How long ago its newest session began.", labels=label
    )
    connections = CounterMetricFamily("wicketgate_upstream_connections", "Sessions it has had.", labels=label)
    breaker = GaugeMetricFamily(
        "wicketgate_upstream_breaker", "For all callers: 0 closed, 1 half open, 2 open.", labels=label
    )
    opened = CounterMetricFamily("wicketgate_upstream_breaker_opened", "How often it has opened for all.", labels=label)
    held_off = GaugeMetricFamily(
        "wicketgate_upstream_actors_held_off", "Actors kept away by their own failures.", labels=label
    )
    in_flight = GaugeMetricFamily("wicketgate_upstream_calls_in_flight", "Calls that run now.", labels=label)
    queued = GaugeMetricFamily("wicketgate_upstream_calls_queued", "Calls that wait for a place.", labels=label)
    turned_away = CounterMetricFamily(
        "wicketgate_upstream_calls_turned_away", "Calls not made: no place, or the breaker is open.", labels=label
    )
    for name, state in gauges.upstreams.items():
        up.add_metric([name], int(state.status.phase in ("ready", "waiting")))
        tools.add_metric([name], gauges.tools.get(name, 0))
        if state.connected_s is not None:
            connected.add_metric([name], state.connected_s)
        connections.add_metric([name], state.connections)
        breaker.add_metric([name], _BREAKER[state.breaker])
        opened.add_metric([name], state.breaker_opened)
        held_off.add_metric([name], state.held_off)
        in_flight.add_metric([name], state.in_flight)
        queued.add_metric([name], state.queued)
        turned_away.add_metric([name], state.turned_away)
    return up, tools, connected, connections, breaker, opened, held_off, in_flight, queued, turned_away
