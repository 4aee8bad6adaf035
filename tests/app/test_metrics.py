"""Values read at each scrape (docs/operations/monitoring.md)."""

import asyncio
import logging
import time

import pytest

from app.gauges import Gauges
from app.lifespan import LOOP_STEP_S, watch_loop
from app.metrics import Metrics
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.shares import CountedShares, ShareRefused
from wicketgate.measures import Durations
from wicketgate.storage.measures import StorageMeasures


@requirement("OPS-12")
async def test_what_audit_sinks_lost_and_refused_is_counted_by_sink() -> None:
    metrics = Metrics()
    metrics.watch(lambda: Gauges({}, {}, [], {"audit_csv": 2, "audit_jsonl": 0}, {"audit_jsonl": 3}))
    lines = metrics.render().decode().splitlines()
    assert 'wicketgate_audit_lost_total{sink="audit_csv"} 2.0' in lines
    assert 'wicketgate_audit_lost_total{sink="audit_jsonl"} 0.0' in lines
    assert 'wicketgate_audit_refused_total{sink="audit_jsonl"} 3.0' in lines


@requirement("OPS-38")
def test_requests_are_counted_by_path_and_status_and_unknown_paths_are_one() -> None:
    metrics = Metrics()
    metrics.know_paths(["/mcp", "/engine/chat"])
    metrics.http_answer("/mcp", 200, 0.01)
    for number in range(3):
        metrics.http_answer(f"/invented/{number}", 404, 0.2)
    lines = metrics.render().decode().splitlines()
    assert 'wicketgate_http_requests_total{path="/mcp",status="200"} 1.0' in lines
    assert 'wicketgate_http_requests_total{path="other",status="404"} 3.0' in lines
    assert 'wicketgate_http_seconds_bucket{le="0.1",path="other"} 0.0' in lines
    assert not any("invented" in line for line in lines)


@requirement("OPS-38")
async def test_a_loop_that_is_held_is_measured_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    late: list[float] = []
    with caplog.at_level(logging.WARNING):
        watching = asyncio.create_task(watch_loop(late.append))
        await asyncio.sleep(0)  # it waits for its first step now
        time.sleep(LOOP_STEP_S + 1.1)  # holds the loop, which is what is tried
        await until(lambda: late)
        watching.cancel()
    assert late[0] >= 1.0
    assert "the event loop was busy for 1." in caplog.text


@requirement("OPS-45")
async def test_waits_for_the_storage_file_and_for_audit_sinks_are_histograms() -> None:
    storage, seconds = StorageMeasures(), Durations()
    storage.errors["busy"] += 2
    storage.refused = 5
    for took in (0.0004, 0.02, 0.9, 60.0):
        storage.waits.observe(took)
    seconds.observe(0.25)
    metrics = Metrics()
    metrics.watch(lambda: Gauges({}, {}, [], {}, {}, {"audit_jsonl": seconds}, storage))
    lines = metrics.render().decode().splitlines()
    for line in (
        'wicketgate_storage_wait_seconds_bucket{le="0.001"} 1.0',
        'wicketgate_storage_wait_seconds_bucket{le="0.025"} 2.0',
        'wicketgate_storage_wait_seconds_bucket{le="10.0"} 3.0',
        'wicketgate_storage_wait_seconds_bucket{le="+Inf"} 4.0',
        "wicketgate_storage_wait_seconds_count 4.0",
        'wicketgate_storage_errors_total{kind="busy"} 2.0',
        'wicketgate_storage_errors_total{kind="full"} 0.0',
        "wicketgate_storage_refused_total 5.0",
        'wicketgate_audit_write_seconds_bucket{le="0.1",sink="audit_jsonl"} 0.0',
        'wicketgate_audit_write_seconds_bucket{le="0.5",sink="audit_jsonl"} 1.0',
        'wicketgate_audit_write_seconds_sum{sink="audit_jsonl"} 0.25',
    ):
        assert line in lines


@requirement("ACCESS-38")
async def test_places_taken_and_refused_are_told_by_kind_and_scope() -> None:
    metrics, chat, calls = Metrics(), CountedShares("chat", 2), CountedShares("calls", 9, per_actor=1)
    metrics.watch(lambda: Gauges({}, {}, [chat, calls], {}, {}))
    for shares in (chat, calls):
        await shares.take("bob")
    await chat.take("bob")
    for shares in (chat, calls):
        with pytest.raises(ShareRefused):
            await shares.take("bob")
    lines = metrics.render().decode().splitlines()
    assert {
        line for line in lines if line.startswith(("wicketgate_active", "wicketgate_limit", "wicketgate_refused"))
    } == {
        'wicketgate_active{kind="chat"} 2.0',
        'wicketgate_active{kind="calls"} 1.0',
        'wicketgate_limit{kind="chat"} 2.0',
        'wicketgate_limit{kind="calls"} 9.0',
        'wicketgate_refused_total{kind="chat",scope="actor"} 0.0',
        'wicketgate_refused_total{kind="chat",scope="all"} 1.0',
        'wicketgate_refused_total{kind="calls",scope="actor"} 1.0',
        'wicketgate_refused_total{kind="calls",scope="all"} 0.0',
    }


@requirement("OPS-55")
async def test_executions_that_taught_something_are_counted() -> None:
    metrics = Metrics()
    metrics.watch(lambda: Gauges({}, {}, [], {}, {}, learned=3))
    assert "wicketgate_learned_total 3.0" in metrics.render().decode().splitlines()
