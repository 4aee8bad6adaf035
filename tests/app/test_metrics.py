"""Values read at each scrape (docs/operations.md)."""

from app.metrics import Gauges, Metrics
from tests.support.requirement import requirement


@requirement("OPS-12")
async def test_what_audit_sinks_lost_and_refused_is_counted_by_sink() -> None:
    metrics = Metrics()
    metrics.watch(lambda: Gauges({}, {}, 0, 0, {"audit_csv": 2, "audit_jsonl": 0}, {"audit_jsonl": 3}))
    lines = metrics.render().decode().splitlines()
    assert 'wicketgate_audit_lost_total{sink="audit_csv"} 2.0' in lines
    assert 'wicketgate_audit_lost_total{sink="audit_jsonl"} 0.0' in lines
    assert 'wicketgate_audit_refused_total{sink="audit_jsonl"} 3.0' in lines
