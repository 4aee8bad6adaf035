"""One upstream that hangs, breaks or is flooded costs the others nothing (UP-4, UP-13, UP-17 to UP-19)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from tests.support.until import settle
from wicketgate.access.identity import Identity
from wicketgate.errors import (
    ConnectRequired,
    InputRequired,
    RateLimited,
    UpstreamError,
    UpstreamLost,
    UpstreamResting,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.fleet.member import Member, MultiplexUpstream, UpstreamLimits
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.upstreams.embedded import StubUpstream

BOUND_S = 30.0


def context(actor: str = "a") -> CallContext:
    return CallContext(Identity(actor, ("*",)), "trace-1", "s")


class Moody(StubUpstream):
    """Does what *mood* says: raise it, wait for ever, or answer."""

    def __init__(self) -> None:
        super().__init__([], self._answer, name="moody")
        self.mood: Exception | str = "answer"
        self.cancelled = 0

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if isinstance(self.mood, Exception):
            raise self.mood
        if self.mood == "hang":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return {"content": [], "isError": self.mood == "is error"}


def limits(most: int = 2, queue: int = 2, failures: int = 3) -> UpstreamLimits:
    return UpstreamLimits(most, queue, breaker=BreakerPolicy(failures, 10.0, 60.0))


async def call(member: Member, actor: str = "a", timeout_s: float = BOUND_S) -> Mapping[str, Any]:
    return await member.call_tool("x", {}, context(actor), timeout_s)


@requirement("UP-17")
async def test_over_its_places_and_its_queue_a_call_is_refused_with_what_to_do() -> None:
    moody = Moody()
    moody.mood = "hang"
    member = Member(moody, limits(2, 2))
    calls = [asyncio.create_task(call(member)) for _ in range(4)]
    await settle()
    with pytest.raises(RateLimited) as refused:
        await call(member)
    assert refused.value.as_dict()["details"] == {"scope": "upstream", "limit": 2, "queue": 2, "retry_after_s": 1}
    assert refused.value.retryable
    state = member.state()
    assert (state.in_flight, state.queued, state.turned_away, len(moody.calls)) == (2, 2, 1, 2)
    for task in calls:
        task.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    state = member.state()
    assert (state.in_flight, state.queued) == (0, 0)


@requirement("UP-17")
async def test_waiting_counts_against_the_deadline_and_what_never_ran_may_be_repeated() -> None:
    moody = Moody()
    moody.mood = "hang"
    member = Member(moody, limits(1, 5))
    first = asyncio.create_task(call(member))
    await settle()
    with pytest.raises(RateLimited):
        await call(member, timeout_s=0.02)
    assert len(moody.calls) == 1
    assert member.state().breaker == "closed"
    first.cancel()


@requirement("UP-17")
async def test_an_upstream_gets_the_time_that_waiting_has_left() -> None:
    given: list[float] = []

    class Timed(Moody):
        async def call_tool(
            self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
        ) -> Mapping[str, Any]:
            given.append(timeout_s)
            return await super().call_tool(name, arguments, context, timeout_s)

    upstream, clock = Timed(), Clock(0.0)
    upstream.mood = "hang"
    member = Member(upstream, limits(1, 5), now=clock)
    first = asyncio.create_task(call(member))
    await settle()
    second = asyncio.create_task(call(member))
    await settle()
    upstream.mood = "answer"
    clock.now = 3.0
    first.cancel()
    await second
    assert given == [BOUND_S, BOUND_S - 3.0]


@requirement("EXEC-12", "EXEC-14", "UP-13")
async def test_a_hung_call_ends_alone_and_is_cancelled_upstream() -> None:
    moody, good = Moody(), StubUpstream([], name="good")
    moody.mood = "hang"
    fleet = MultiplexUpstream([moody, good])
    hung = asyncio.create_task(fleet.member("moody").call_tool("x", {}, context(), 0.05))
    assert (await fleet.member("good").call_tool("x", {}, context(), BOUND_S))["isError"]
    with pytest.raises(UpstreamTimeout):
        await hung
    assert moody.cancelled == 1


@requirement("UP-19")
@pytest.mark.parametrize("failure", [UpstreamUnavailable("u"), UpstreamTimeout("t"), UpstreamLost("l")])
async def test_failures_of_transport_open_the_breaker_and_calls_answer_at_once(failure: Exception) -> None:
    moody, clock = Moody(), Clock(0.0)
    moody.mood = failure
    member = Member(moody, limits(failures=3), now=clock)
    for _ in range(3):
        with pytest.raises(type(failure)):
            await call(member)
    with pytest.raises(UpstreamResting) as resting:
        await call(member)
    assert resting.value.as_dict()["error"] == "UPSTREAM_UNAVAILABLE"
    assert (resting.value.details, len(moody.calls)) == ({"scope": "actor", "retry_after_s": 10.0}, 3)
    assert (member.state().breaker, member.state().held_off) == ("closed", 1)
    with pytest.raises(type(failure)):
        await call(member, "b")
    clock.now = 10.0
    moody.mood = "answer"
    await call(member)
    assert member.state().held_off == 0


@requirement("UP-19")
async def test_a_deadline_counts_as_a_failure_and_a_caller_who_leaves_does_not() -> None:
    moody = Moody()
    moody.mood = "hang"
    member = Member(moody, limits(failures=2), now=Clock(0.0))
    for _ in range(5):
        leaving = asyncio.create_task(call(member))
        await settle()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert member.state().breaker == "closed"
    for _ in range(2):
        with pytest.raises(UpstreamTimeout):
            await call(member, timeout_s=0.01)
    assert member.state().held_off == 1


@requirement("UP-19")
@pytest.mark.parametrize("mood", ["is error", UpstreamError("refused"), InputRequired({}, None)])
async def test_answers_of_any_kind_never_open_the_breaker(mood: Exception | str) -> None:
    moody = Moody()
    moody.mood = mood
    member = Member(moody, limits(failures=1))
    for _ in range(3):
        try:
            await call(member)
        except (UpstreamError, InputRequired) as error:
            assert error is mood
    assert member.state().breaker == "closed"


async def test_while_it_rests_nobody_queues_for_it() -> None:
    moody = Moody()
    moody.mood = "hang"
    member = Member(moody, limits(most=1, queue=5, failures=1), now=Clock(0.0))
    waiting = [asyncio.create_task(call(member, timeout_s=timeout_s)) for timeout_s in (0.02, BOUND_S)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [UpstreamTimeout, UpstreamResting]


class Reconnecting(Moody):
    """Connects whenever it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: Callable[[str], None] = lambda name: None

    async def supervise(self, changed: Callable[[str], None]) -> None:
        self.changed = changed
        self.connect()
        await asyncio.Event().wait()

    def connect(self) -> None:
        before = self.status
        self.status = UpstreamStatus("ready", "", before.connections + 1, "the connection was lost")
        self.changed(self.name)


async def test_connections_are_counted_and_a_new_one_ends_the_breakers_pause() -> None:
    upstream, clock = Reconnecting(), Clock(0.0)
    upstream.mood = UpstreamLost("l")
    member = Member(upstream, limits(failures=1), now=clock)
    assert member.state().connected_s is None
    supervisor = asyncio.create_task(member.supervise(lambda name: None))
    await settle()
    with pytest.raises(UpstreamLost):
        await call(member)
    with pytest.raises(UpstreamResting):
        await call(member)
    upstream.changed(upstream.name)  # its tools changed: that is no new session
    assert (member.state().connections, member.state().held_off) == (1, 1)
    clock.now = 3.0
    upstream.connect()
    upstream.mood = "answer"
    await call(member)
    clock.now = 5.0
    state = member.state()
    assert (state.connections, state.connected_s, state.held_off) == (2, 2.0, 0)
    supervisor.cancel()


class Endless(StubUpstream):
    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        await asyncio.Event().wait()
        raise AssertionError


@requirement("UP-4")
async def test_a_list_that_never_ends_costs_only_its_own_upstream() -> None:
    good = StubUpstream([{"name": "one"}], name="good")
    fleet = MultiplexUpstream([Member(Endless([], name="endless"), UpstreamLimits(listing_s=0.02)), good])
    listings = await fleet.list_tools()
    assert isinstance(listings["endless"], UpstreamTimeout)
    assert listings["good"] == [{"name": "one"}]


async def test_a_supervisor_that_fails_hurts_nobody_and_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(StubUpstream):
        started = 0

        async def supervise(self, changed: Callable[[str], None]) -> None:
            self.started += 1
            if self.started < 3:
                raise RuntimeError("no one expects this")
            await super().supervise(changed)

    monkeypatch.setattr("wicketgate.fleet.member._FIRST_PAUSE_S", 0.001)
    broken = Broken([], name="broken")
    changed = asyncio.Event()
    supervisor = asyncio.create_task(Member(broken).supervise(lambda name: changed.set()))
    async with asyncio.timeout(BOUND_S):
        await changed.wait()
    assert broken.started == 3
    assert "its supervisor failed" in caplog.text
    supervisor.cancel()


@requirement("OPS-9")
async def test_a_retired_member_takes_no_more_and_ends_what_outlives_the_drain() -> None:
    moody = Moody()
    moody.mood = "hang"
    member = Member(moody, limits(1, 5))
    runs, waits = asyncio.create_task(call(member)), asyncio.create_task(call(member))
    await settle()
    async with asyncio.timeout(BOUND_S):
        await member.retire(0.01)
    with pytest.raises(UpstreamLost):
        await runs
    with pytest.raises(UpstreamUnavailable):
        await waits
    with pytest.raises(UpstreamUnavailable):
        await call(member)
    assert (moody.cancelled, member.state().breaker) == (1, "closed")


@requirement("OPS-9")
async def test_a_retired_member_lets_a_call_finish_within_the_drain() -> None:
    release = asyncio.Event()

    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        await release.wait()
        return {"content": []}

    member = Member(StubUpstream([], answer))
    running = asyncio.create_task(call(member))
    await settle()
    retiring = asyncio.create_task(member.retire(BOUND_S))
    await settle()
    assert not retiring.done()
    release.set()
    async with asyncio.timeout(BOUND_S):
        await retiring
    assert await running == {"content": []}


@requirement("UP-114")
async def test_a_call_that_becomes_a_task_has_the_deadline_of_tasks() -> None:
    told: list[str] = []

    async def answer(name: str, arguments: Mapping[str, Any], of: CallContext) -> Mapping[str, Any]:
        assert of.marks.prolong is not None
        of.marks.prolong()
        of.marks.prolong()
        # Longer than the deadline of a call that is no task.
        await (asyncio.Event().wait() if name == "hang" else asyncio.sleep(0.05))
        return {"content": []}

    member = Member(StubUpstream([], answer, name="slow"), limits())
    assert await member.call_tool("work", {}, context(), 0.01, BOUND_S) == {"content": []}
    of = replace(context(), on_task=lambda: told.append("task"))
    with pytest.raises(UpstreamTimeout, match=r"within 0\.1 s"):
        await member.call_tool("hang", {}, of, 0.01, 0.1)
    with pytest.raises(UpstreamTimeout, match=r"within 0\.01 s"):
        await member.call_tool("hang", {}, of, 0.01, 0.005)
    assert told == ["task"], "once, and not where tasks may not last longer"
    assert of.marks.prolong is None


async def prolong(of: CallContext) -> None:
    assert of.marks.prolong is not None
    of.marks.prolong()


async def report_progress(of: CallContext) -> None:
    await of.caller.progress(1, None, None)


@requirement("UP-114", "UP-133")
@pytest.mark.parametrize("sign_of_life", [prolong, report_progress])
async def test_a_gate_that_stops_ends_its_calls_and_nothing_prolongs_them(
    sign_of_life: Callable[[CallContext], Awaitable[None]],
) -> None:
    began = asyncio.Event()

    async def answer(name: str, arguments: Mapping[str, Any], of: CallContext) -> Mapping[str, Any]:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await sign_of_life(of)
        raise AssertionError

    member = Member(StubUpstream([], answer, name="slow"), limits())
    of = replace(context(), caller=RecordingCaller())
    calling = asyncio.create_task(member.call_tool("x", {}, of, BOUND_S, 2 * BOUND_S))
    await began.wait()
    member.stop()
    with pytest.raises(UpstreamLost, match="The gate is stopping; the call was ended while the tool ran"):
        await calling
    with pytest.raises(UpstreamUnavailable, match="The gate is stopping; nothing"):
        await call(member)


@requirement("OPS-531")
@pytest.mark.parametrize(
    ("mood", "outcome"),
    [
        ("answer", "ok"),
        ("is error", "error"),
        (UpstreamError("no"), "error"),
        (InputRequired({}, None), "asked"),
        (ConnectRequired("log in", upstream="moody"), "login"),
        (UpstreamTimeout("late"), "timeout"),
        ("hang", "timeout"),
        (UpstreamLost("lost"), "lost"),
        (UpstreamUnavailable("off"), "unavailable"),
        (ValueError("a mistake"), "fault"),
    ],
)
async def test_each_call_that_was_made_counts_once_by_how_it_ended(mood: Exception | str, outcome: str) -> None:
    moody, clock = Moody(), Clock()
    member = Member(moody, limits(1, 0), now=clock)
    moody.mood = mood
    with suppress(Exception):
        await call(member, timeout_s=0.05)
    counts = member.state().calls
    assert {each: count for each, count in counts.outcomes.items() if count} == {outcome: 1}
    assert sum(counts.took.counts) == 1


@requirement("OPS-531")
async def test_calls_that_end_with_their_caller_or_the_gate_are_told_apart_and_refused_ones_are_not_counted() -> None:
    moody = Moody()
    moody.mood = "hang"
    member = Member(moody, limits(1, 0))
    left = asyncio.create_task(call(member))
    await settle()
    with pytest.raises(RateLimited):
        await call(member)
    left.cancel()
    await settle()
    ended = asyncio.create_task(call(member))
    await settle()
    member.stop()
    with pytest.raises(UpstreamLost):
        await ended
    outcomes = member.state().calls.outcomes
    assert {each: count for each, count in outcomes.items() if count} == {"cancelled": 1, "lost": 1}
