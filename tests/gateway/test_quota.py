"""Executions are bounded in any minute, for each actor and for single tools (ACCESS-16)."""

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import RateLimited
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.quota import Quota
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext, PendingCall
from wicketgate.storage.memory_quota import MemoryQuotaStore
from wicketgate.upstreams.embedded import StubUpstream


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@requirement("ACCESS-16")
async def test_the_window_slides_and_each_actor_has_its_own() -> None:
    clock = Clock()
    quota = Quota(MemoryQuotaStore(clock), per_actor=2)
    await quota.take("a", "x:one#0")
    clock.now = 30.0
    await quota.take("a", "x:two#0")
    with pytest.raises(RateLimited) as refused:
        await quota.take("a", "x:one#0")
    assert refused.value.as_dict() == {
        "error": "RATE_LIMITED",
        "message": "At most 2 executions a minute are allowed here.",
        "path": "x:one#0",
        "retryable": True,
        "details": {"scope": "actor", "limit": 2, "retry_after_s": 30.0},
    }
    await quota.take("b", "x:one#0")
    clock.now = 60.0
    await quota.take("a", "x:one#0")
    with pytest.raises(RateLimited):
        await quota.take("a", "x:one#0")


@requirement("ACCESS-16")
async def test_a_tools_limit_is_its_own_and_a_refused_call_counts_nowhere() -> None:
    clock = Clock()
    quota = Quota(MemoryQuotaStore(clock), per_actor=3, per_tool={"x:delete_*": 1, "x:*": 10})
    await quota.take("a", "x:delete_all#0")
    for _ in range(5):
        with pytest.raises(RateLimited) as refused:
            await quota.take("a", "x:delete_one#0")
        assert (refused.value.details or {})["scope"] == "tool"
    await quota.take("a", "x:read#0")
    await quota.take("a", "x:read#0")
    with pytest.raises(RateLimited) as refused:
        await quota.take("a", "x:read#0")
    assert (refused.value.details or {})["scope"] == "actor"


@requirement("ACCESS-16")
async def test_without_limits_nothing_is_counted_and_zero_allows_nothing() -> None:
    free, none = Quota(MemoryQuotaStore(Clock())), Quota(MemoryQuotaStore(Clock()), per_tool={"x:*": 0})
    for _ in range(100):
        await free.take("a", "x:one#0")
    with pytest.raises(RateLimited):
        await none.take("a", "x:one#0")


@requirement("ACCESS-16")
async def test_a_check_refuses_what_would_be_refused_and_counts_nothing() -> None:
    quota = Quota(MemoryQuotaStore(Clock()), per_actor=1)
    for _ in range(3):
        await quota.check("a", "x:one#0")
    await quota.take("a", "x:one#0")
    with pytest.raises(RateLimited):
        await quota.check("a", "x:one#0")


async def test_the_window_that_was_not_used_for_longest_is_forgotten_first() -> None:
    quota = Quota(MemoryQuotaStore(Clock()), per_actor=1)
    await quota.take("used", "x:one#0")
    await quota.take("unused", "x:one#0")
    for number in range(9_998):
        await quota.take(f"actor_{number}", "x:one#0")
    with pytest.raises(RateLimited):
        await quota.check("used", "x:one#0")
    await quota.take("newest", "x:one#0")
    for remembered in ("newest", "used", "actor_0"):
        with pytest.raises(RateLimited):
            await quota.check(remembered, "x:one#0")
    await quota.check("unused", "x:one#0")


class Agreeing:
    """An owner who has agreed to one call; *used* once it was asked for."""

    used = False

    async def approve(self, call: PendingCall) -> None:
        self.used = True


@requirement("ACCESS-16")
async def test_a_call_over_the_quota_uses_up_no_approval() -> None:
    upstream = StubUpstream([{"name": "pay", "inputSchema": {"type": "object"}}], name="office")
    runtime = ProxyRuntime(
        upstream,
        RuntimeOptions(
            RuntimePolicies(access=AccessPolicy([AccessRule("office:pay", approval="always")]), per_actor=0)
        ),
    )
    await runtime.refresh_catalog()
    owner = Agreeing()
    (tool_id,) = runtime.catalog().items
    with pytest.raises(RateLimited):
        await runtime.execute(tool_id, {}, CallContext(Identity("owner_1", ("*",)), "req_1", "s", approver=owner))
    assert (owner.used, upstream.calls) == (False, [])
