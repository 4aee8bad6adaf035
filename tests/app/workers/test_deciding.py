"""The times at which a worker is started again, and the metrics of several as one text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.workers.metrics import merged, starts_text, workers_known
from app.workers.place import Loads
from app.workers.supervisor import LASTED_S, MAX_DELAY_S, MAX_IN_VAIN, Deaths
from tests.support.requirement import requirement


@requirement("OPS-178")
def test_pauses_double_up_to_their_bound_and_begin_anew_after_a_long_life() -> None:
    deaths = Deaths()
    pauses = [deaths.pause_s(lived_s=1, was_ready=True) for _ in range(10)]
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert pauses[-1] == MAX_DELAY_S
    assert deaths.pause_s(lived_s=LASTED_S, was_ready=True) == 0.1
    assert not deaths.hopeless


@requirement("OPS-178")
def test_starts_in_vain_are_hopeless_only_in_a_row() -> None:
    deaths = Deaths()
    for _ in range(MAX_IN_VAIN - 1):
        deaths.pause_s(lived_s=0, was_ready=False)
    deaths.pause_s(lived_s=0, was_ready=True)
    assert not deaths.hopeless
    for _ in range(MAX_IN_VAIN):
        deaths.pause_s(lived_s=0, was_ready=False)
    assert deaths.hopeless


def _text(value: float) -> str:
    registry = CollectorRegistry()
    Counter("calls", "Calls {of} all.", ["tool"], registry=registry).labels('a "b" {c}').inc(value)
    Gauge("places", "Places.", registry=registry).set(value)
    Histogram("seconds", "Seconds.", buckets=(1,), registry=registry).observe(value)
    return generate_latest(registry).decode() + starts_text(1)


@requirement("OPS-180")
def test_the_metrics_of_all_are_one_text_whose_series_name_their_worker() -> None:
    text = merged({0: _text(1), 2: _text(5)}) + workers_known([0, 2], 3)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    values = {
        (sample.name, sample.labels["worker"]): sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name in ("calls_total", "places", "seconds_sum", "wicketgate_worker_up")
    }
    assert values == {
        **{(name, "0"): 1 for name in ("calls_total", "places", "seconds_sum")},
        **{(name, "2"): 5 for name in ("calls_total", "places", "seconds_sum")},
        **{("wicketgate_worker_up", number): up for number, up in (("0", 1), ("1", 0), ("2", 1))},
    }
    assert families["calls"].samples[0].labels["tool"] == 'a "b" {c}'
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)), "each family stands once"


@requirement("OPS-175")
def test_the_worker_with_the_fewest_connections_takes_the_next() -> None:
    loads = Loads.of(3)
    assert loads.is_least(0, 5), "the others are not there yet"
    assert loads.is_least(1, 0)
    assert not loads.is_least(0, 5)
    loads.absent(1)
    assert loads.is_least(0, 5)
