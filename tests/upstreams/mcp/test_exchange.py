"""Pace: how much may come at once, and how long to wait after that."""

from tests.support.requirement import requirement
from wicketgate.upstreams.mcp.exchange import Pace


@requirement("UP-16")
def test_what_is_within_the_measure_waits_for_nothing_and_what_is_beyond_it_waits_until_it_is_within() -> None:
    at = [0.0]
    pace = Pace(10, 20, lambda: at[0])
    assert [pace.take(10), pace.take(10)] == [0, 0]
    assert pace.take(5) == 0.5
    at[0] = 0.5
    assert pace.take() == 0.1
    at[0] = 1000
    assert pace.take(20) == 0
    assert pace.take() == 0.1
