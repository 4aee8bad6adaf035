"""Executions are bounded by the minute, for each actor and for single tools (ACCESS-16)."""

import pytest

from tests.support.clock import Clock
from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import RateLimited
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.quota import Quota
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext, PendingCall
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.quotas import StoredQuotas
from wicketgate.upstreams.embedded import StubUpstream

A, B = Identity("a"), Identity("b")


@requirement("ACCESS-16")
async def test_the_window_slides_and_each_actor_has_its_own() -> None:
    clock = Clock(0.0)
    quota = Quota(StoredQuotas(MemoryStore(clock)), per_actor=2)
    await quota.take(A, "x:one#0")
    clock.now = 30.0
    await quota.take(A, "x:two#0")
    with pytest.raises(RateLimited) as refused:
        await quota.take(A, "x:one#0")
    assert refused.value.as_dict() == {
        "error": "RATE_LIMITED",
        "message": "At most 2 executions a minute are allowed here.",
        "path": "x:one#0",
        "retryable": True,
        "details": {"scope": "actor", "limit": 2, "retry_after_s": 45.1},
    }
    await quota.take(B, "x:one#0")
    clock.now = 75.1
    await quota.take(A, "x:one#0")
    with pytest.raises(RateLimited):
        await quota.take(A, "x:one#0")


@requirement("ACCESS-16")
async def test_a_tools_limit_is_its_own_and_a_refused_call_counts_nowhere() -> None:
    clock = Clock(0.0)
    quota = Quota(StoredQuotas(MemoryStore(clock)), per_actor=3, per_tool={"x:delete_*": 1, "x:*": 10})
    await quota.take(A, "x:delete_all#0")
    for _ in range(5):
        with pytest.raises(RateLimited) as refused:
            await quota.take(A, "x:delete_one#0")
        assert (refused.value.details or {})["scope"] == "tool"
    await quota.take(A, "x:read#0")
    await quota.take(A, "x:read#0")
    with pytest.raises(RateLimited) as refused:
        await quota.take(A, "x:read#0")
    assert (refused.value.details or {})["scope"] == "actor"


@requirement("ACCESS-16")
async def test_without_limits_nothing_is_counted_and_zero_allows_nothing() -> None:
    free, none = (
        Quota(StoredQuotas(MemoryStore(Clock(0.0)))),
        Quota(StoredQuotas(MemoryStore(Clock(0.0))), per_tool={"x:*": 0}),
    )
    for _ in range(100):
        await free.take(A, "x:one#0")
    with pytest.raises(RateLimited):
        await none.take(A, "x:one#0")


class Agreeing:
    """An owner who has agreed to one call; *used* once it was asked for."""

    used = False

    async def approve(self, call: PendingCall) -> None:
        self.used = True


@requirement("ACCESS-16")
async def test_a_call_over_the_quota_uses_up_no_approval() -> None:
    upstream = StubUpstream([{"name": "pay", "inputSchema": {"type": "object"}}], name="office")
    runtime = await refreshed(
        ProxyRuntime(
            upstream,
            RuntimeOptions(
                RuntimePolicies(access=AccessPolicy([AccessRule("office:pay", approval="always")]), per_actor=0)
            ),
        )
    )
    owner = Agreeing()
    (tool_id,) = runtime.catalog().items
    with pytest.raises(RateLimited):
        await runtime.execute(tool_id, {}, CallContext(Identity("owner_1", ("*",)), "req_1", "s", approver=owner))
    assert (owner.used, upstream.calls) == (False, [])
