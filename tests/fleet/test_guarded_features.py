"""Resources and prompts take the same places and meet the same breaker as tools (UP-19)."""

import asyncio

import pytest

from tests.fleet.test_features import CONTEXT, Scripted
from tests.support.requirement import requirement
from wicketgate.errors import RateLimited, UpstreamResting, UpstreamTimeout, UpstreamUnavailable
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.fleet.features import Features
from wicketgate.fleet.member import Member, UpstreamLimits
from wicketgate.upstreams.embedded import StubUpstream


class WithFeatures(StubUpstream):
    def __init__(self, features: Features) -> None:
        super().__init__([], name="books")
        self.features = features


def guarded(inner: Features, limits: UpstreamLimits) -> tuple[Member, Features]:
    member = Member(WithFeatures(inner), limits)
    assert member.features is not None
    return member, member.features


@requirement("UP-17", "UP-19")
async def test_a_read_takes_a_place_and_is_turned_away_where_there_is_none() -> None:
    inner = Scripted([])
    inner.release.clear()
    member, features = guarded(inner, UpstreamLimits(max_concurrent=2, max_queued=0))
    running = [asyncio.create_task(features.request("resources/read", {}, CONTEXT, 5)) for _ in range(2)]
    await asyncio.sleep(0)
    assert member.state().in_flight == 2
    with pytest.raises(RateLimited):
        await features.request("resources/read", {}, CONTEXT, 5)
    inner.release.set()
    await asyncio.gather(*running)
    assert await features.request("resources/read", {"uri": "x"}, CONTEXT, 5) == {"asked": {"uri": "x"}}


@requirement("UP-19")
async def test_reads_that_time_out_open_the_breaker_for_tools_too() -> None:
    inner = Scripted([])
    inner.release.clear()
    member, features = guarded(inner, UpstreamLimits(breaker=BreakerPolicy(failures=2)))
    for _ in range(2):
        with pytest.raises(UpstreamTimeout):
            await features.request("prompts/get", {}, CONTEXT, 0.01)
    with pytest.raises(UpstreamResting):
        await features.request("prompts/get", {}, CONTEXT, 0.01)
    with pytest.raises(UpstreamResting):
        await member.call_tool("x", {}, CONTEXT, 0.01)


async def test_a_list_that_never_ends_is_over_in_time_and_a_retired_server_is_not_read() -> None:
    inner = Scripted([])
    inner.release.clear()
    member, features = guarded(inner, UpstreamLimits(listing_s=0.01))
    with pytest.raises(UpstreamTimeout, match="all its resources"):
        await features.list_all("resources")
    await member.retire(0)
    with pytest.raises(UpstreamUnavailable, match="out of service"):
        await features.request("resources/read", {}, CONTEXT, 5)
