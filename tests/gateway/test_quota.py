"""Executions are bounded in any minute, for each actor and for single tools (gateway 131)."""

import pytest

from app.errors import RateLimited
from app.gateway.quota import Quota
from tests.support.requirement import requirement


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@requirement("gateway 131")
def test_the_window_slides_and_each_actor_has_its_own() -> None:
    clock = Clock()
    quota = Quota(clock, per_actor=2)
    quota.take("a", "x:one#0")
    clock.now = 30.0
    quota.take("a", "x:two#0")
    with pytest.raises(RateLimited) as refused:
        quota.take("a", "x:one#0")
    assert refused.value.as_dict() == {
        "error": "RATE_LIMITED",
        "message": "At most 2 executions a minute are allowed here.",
        "path": "x:one#0",
        "retryable": True,
        "details": {"scope": "actor", "limit": 2, "retry_after_s": 30.0},
    }
    quota.take("b", "x:one#0")
    clock.now = 60.0
    quota.take("a", "x:one#0")
    with pytest.raises(RateLimited):
        quota.take("a", "x:one#0")


@requirement("gateway 131")
def test_a_tools_limit_is_its_own_and_a_refused_call_counts_nowhere() -> None:
    clock = Clock()
    quota = Quota(clock, per_actor=3, per_tool={"x:delete_*": 1, "x:*": 10})
    quota.take("a", "x:delete_all#0")
    for _ in range(5):
        with pytest.raises(RateLimited) as refused:
            quota.take("a", "x:delete_one#0")
        assert (refused.value.details or {})["scope"] == "tool"
    quota.take("a", "x:read#0")
    quota.take("a", "x:read#0")
    with pytest.raises(RateLimited) as refused:
        quota.take("a", "x:read#0")
    assert (refused.value.details or {})["scope"] == "actor"


def test_without_limits_nothing_is_counted_and_zero_allows_nothing() -> None:
    free, none = Quota(Clock()), Quota(Clock(), per_tool={"x:*": 0})
    for _ in range(100):
        free.take("a", "x:one#0")
    with pytest.raises(RateLimited):
        none.take("a", "x:one#0")
