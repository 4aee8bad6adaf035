"""The calls of late, as those see them who watch a gate."""

from msgspec.structs import replace

from tests.support.requirement import requirement
from wicketgate.gateway.audit import AuditRecord
from wicketgate.gateway.options import NoMeter, TokenCost
from wicketgate.gateway.traffic import MOST_RECORDS, Traffic

OK = AuditRecord(1.0, "execute", "ann", "c", "allowed", tool_id="shop:get#1", tool="ok", duration_ms=2.0, call_id="a")


@requirement("OPS-221", "OPS-302")
def test_calls_failures_and_the_middle_of_the_durations_are_counted_by_tool() -> None:
    traffic = Traffic(lambda: 5.0)
    for duration in (2.0, 4.0, 90.0):
        traffic.note(replace(OK, duration_ms=duration))
    traffic.note(replace(OK, tool="error", duration_ms=3.0))
    traffic.note(replace(OK, outcome="denied", tool="none", tool_id="shop:drop#2"))
    found = {tool_id: (each.calls, each.failed, each.median_ms) for tool_id, each in traffic.tools()}
    assert found == {"shop:get#1": (4, 1, 3.5), "shop:drop#2": (0, 0, None)}
    assert (traffic.all.calls, traffic.all.failed, traffic.all.refused, traffic.since) == (4, 1, 1, 5.0)


@requirement("OPS-221")
def test_other_operations_are_records_and_no_calls() -> None:
    traffic = Traffic(lambda: 0.0)
    traffic.note(replace(OK, operation="view"))
    assert traffic.all.calls == 0
    assert [kept.record.operation for kept in traffic.records()] == ["view"]


@requirement("OPS-222")
def test_the_newest_records_are_kept_and_read_backwards_from_any_number() -> None:
    traffic = Traffic(lambda: 0.0)
    for number in range(MOST_RECORDS + 5):
        traffic.note(replace(OK, call_id=str(number)))
    everything = [kept.number for kept in traffic.records()]
    assert (everything[0], everything[-1], len(everything)) == (MOST_RECORDS + 5, 6, MOST_RECORDS)
    below = [kept.number for kept in traffic.records(before=9)]
    assert below == [8, 7, 6]
    assert [kept.record.call_id for kept in traffic.records(before=8)] == ["6", "5"]
    assert list(traffic.records(before=3)) == []


@requirement("OPS-221")
def test_listeners_hear_each_record_until_they_leave() -> None:
    traffic, heard = Traffic(lambda: 0.0), list[AuditRecord]()
    leave = traffic.listen(heard.append)
    traffic.note(OK)
    leave()
    traffic.note(OK)
    assert heard == [OK]


@requirement("OPS-221")
def test_tokens_of_the_three_tools_are_added_up() -> None:
    traffic, told = Traffic(lambda: 0.0), list[int]()
    traffic.listen_to_cost(lambda: told.append(traffic.cost.shown))
    meter = traffic.metered(NoMeter())
    meter.meta_tool("tool_browse", "ok", 0.1, TokenCost(200, 9_000))
    meter.meta_tool("tool_execute", "ok", 0.1, TokenCost(20, 100))
    meter.meta_tool("another", "ok", 0.1, TokenCost(1, 1))
    assert traffic.meta == {"tool_browse": 1, "tool_execute": 1, "tool_view": 0}
    assert (traffic.cost, told) == (TokenCost(221, 9_101), [200, 220, 221])
