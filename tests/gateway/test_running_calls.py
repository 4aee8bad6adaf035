"""Calls in tasks of their own, which may outlive the requests that began them (EXEC-44 to EXEC-46)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextvars import ContextVar
from itertools import count
from typing import Any, TypeVar

import pytest

from tests.support.clock import Clock
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.shares import CountedShares, Lease
from wicketgate.errors import InputRequired, RateLimited, UpstreamLost, UpstreamTimeout
from wicketgate.gateway.running_calls import AttendedCaller, Progress, RunningCall, RunningCalls, RunningLimits
from wicketgate.ports import SilentCaller

T = TypeVar("T")


class Work:
    """Work that ends when it is told to, and knows that it was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.end = asyncio.Event()
        self.ends: list[str] = []

    async def run(self, result: str = "done", error: Exception | None = None) -> str:
        self.begun.set()
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        if error is not None:
            raise error
        return result


class SlowShares(CountedShares):
    """A limit counted in a store whose answers the test delays."""

    def __init__(self, kind: str, most: int) -> None:
        super().__init__(kind, most)
        self.answer = asyncio.Event()

    async def take(self, actor: str, make_room: Callable[[int], bool] | None = None) -> Lease:
        lease = await super().take(actor, make_room)
        await self.answer.wait()
        return lease


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


def calls(clock: Clock, **limits: Any) -> RunningCalls:
    numbers = count(1)
    return RunningCalls(RunningLimits(**limits), now=clock, new_id=lambda: f"c{next(numbers)}")


@pytest.fixture
async def running(clock: Clock) -> AsyncIterator[RunningCalls]:
    made = calls(clock)
    yield made
    await made.aclose()


async def held(
    running: RunningCalls, owner: str, label: str, work: Coroutine[Any, Any, T], **more: Any
) -> RunningCall[T]:
    """A call that may outlive its request."""
    call = running.begin(owner, label, work, **more)
    try:
        await running.hold(call)
    except RateLimited:
        call.cancel()
        raise
    return call


@requirement("EXEC-44")
async def test_a_waiter_that_leaves_leaves_the_call_alone_and_the_next_gets_the_result(running: RunningCalls) -> None:
    work = Work()
    call = await held(running, "ann", "shop:search@1#a", work.run())
    first = asyncio.ensure_future(call.settled(None))
    await work.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not await call.settled(0)
    assert work.ends == []
    work.end.set()
    assert await call.settled(None)
    assert call.ended
    assert call.outcome() == "done"
    assert call.question is None
    assert running.get("ann", call.id) is call


@requirement("EXEC-44")
async def test_anothers_call_does_not_exist(running: RunningCalls) -> None:
    call = await held(running, "ann", "shop:search@1#a", Work().run())
    assert running.get("bob", call.id) is None
    assert running.get("ann", "c9") is None
    running.drop(call)
    running.drop(call)
    assert running.get("ann", call.id) is None
    assert running.held == 0


@requirement("EXEC-44")
async def test_its_outcome_is_what_it_raised_and_a_cancelled_one_says_so(running: RunningCalls) -> None:
    failed, asking, cancelled = Work(), Work(), Work()
    refused = await held(running, "ann", "shop:a@1#a", failed.run(error=UpstreamTimeout("late", path="shop:a@1#a")))
    asks = await held(running, "ann", "shop:b@1#b", asking.run(error=InputRequired({"q": {}}, None)))
    ended = await held(running, "ann", "shop:c@1#c", cancelled.run())
    failed.end.set()
    asking.end.set()
    await cancelled.begun.wait()
    ended.cancel()
    assert await refused.settled(None) and await asks.settled(None) and await ended.settled(None)
    with pytest.raises(UpstreamTimeout, match="late"):
        refused.outcome()
    with pytest.raises(InputRequired) as question:
        asks.outcome()
    assert (asks.question, refused.question, ended.question) == (question.value, None, None)
    with pytest.raises(UpstreamLost, match="it was cancelled") as lost:
        ended.outcome()
    assert lost.value.path == "shop:c@1#c"
    assert cancelled.ends == ["cancelled"]


@requirement("EXEC-44")
async def test_the_call_keeps_the_context_of_the_request_that_began_it(running: RunningCalls) -> None:
    trace: ContextVar[str] = ContextVar("trace", default="-")

    async def work() -> str:
        await asyncio.sleep(0)
        return trace.get()

    trace.set("first")
    call = await held(running, "ann", "t", work())
    trace.set("second")
    await call.settled(None)
    assert call.outcome() == "first"


@requirement("EXEC-45")
async def test_an_owner_has_its_part_of_the_places(clock: Clock) -> None:
    running = calls(clock, most=3, per_owner=2)
    kept = [await held(running, "ann", f"t{number}", Work().run()) for number in range(2)]
    work = Work()
    with pytest.raises(RateLimited) as refused:
        await held(running, "ann", "t", work.run())
    assert (refused.value.details or {})["scope"] == "actor"
    await held(running, "bob", "t", Work().run())
    with pytest.raises(RateLimited) as refused:
        await held(running, "eve", "t", work.run())
    assert (refused.value.details or {})["scope"] == "all"
    assert running.refused == {"actor": 1, "all": 1}
    running.drop(kept[0])
    await held(running, "ann", "t", Work().run())
    assert running.held == 3
    await running.aclose()


@requirement("EXEC-45")
async def test_a_call_takes_a_place_when_it_outlives_its_request_and_goes_on_without_one(clock: Clock) -> None:
    running = calls(clock, most=1)
    work = Work()
    short = running.begin("ann", "short", work.run())
    long = await held(running, "ann", "long", Work().run())
    assert running.get("ann", short.id) is None
    with pytest.raises(RateLimited):
        await running.hold(short)
    running.drop(long)
    await running.hold(short)
    await running.hold(short)
    assert running.get("ann", short.id) is short
    assert running.held == 1
    await running.aclose()


@requirement("EXEC-45")
async def test_an_ended_call_is_kept_for_a_while_and_one_that_runs_for_as_long_as_it_does(clock: Clock) -> None:
    running = calls(clock, kept_s=60, most=2)
    work = Work()
    ended = await held(running, "ann", "a", work.run())
    runs = await held(running, "ann", "b", Work().run())
    clock.now = 100
    work.end.set()
    await ended.settled(None)
    clock.now = 159
    assert running.get("ann", ended.id) is ended
    clock.now = 160
    assert running.get("ann", ended.id) is None
    assert running.get("ann", runs.id) is runs
    assert running.held == 1
    await running.aclose()


class Heard(SilentCaller):
    answers = "now"

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.heard.append(("progress", progress, total, message))

    async def log(self, level: str, data: object, logger: str | None) -> None:
        self.heard.append(("log", level, data))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.heard.append(("ask", method))
        return {"action": "accept"}


@requirement("EXEC-46")
async def test_the_server_speaks_to_the_request_that_waits_now(running: RunningCalls) -> None:
    first, second = Heard(), Heard()
    caller = AttendedCaller(first)
    call = await held(running, "ann", "t", Work().run(), caller=caller)
    said = [call.progress]
    await caller.progress(1, 4, "one")
    caller.leave()
    await caller.progress(2, 4, "two")
    await caller.log("info", "unheard", None)
    said.append(call.progress)
    caller.attend(AttendedCaller(second))
    await caller.progress(3, None, None)
    await caller.log("info", "heard", None)
    assert first.heard == [("progress", 1, 4, "one")]
    assert second.heard == [("progress", 3, None, None), ("log", "info", "heard")]
    assert [*said, call.progress] == [None, Progress(2, 4, "two"), Progress(3, None, None)]
    assert caller.answers == "now"


@requirement("EXEC-45")
async def test_an_ended_call_keeps_no_more_of_its_request_than_a_second_attempt_needs(running: RunningCalls) -> None:
    caller, work, asking = AttendedCaller(Heard()), Work(), Work()
    done = await held(running, "ann", "t", work.run(), caller=caller, request={"big": 1})
    asked = await held(running, "ann", "t", asking.run(error=InputRequired({"q": {}}, None)), request={"big": 2})
    await caller.progress(1, 2, "half")
    work.end.set()
    asking.end.set()
    await done.settled(None)
    await asked.settled(None)
    assert (done.caller, done.request, asked.request) == (None, None, {"big": 2})
    assert done.progress == Progress(1, 2, "half")


@requirement("EXEC-46")
async def test_a_question_waits_for_the_next_request(running: RunningCalls) -> None:
    caller, client = AttendedCaller(Heard()), Heard()
    caller.leave()
    asking = asyncio.ensure_future(caller.ask("elicitation/create", {}))
    while not caller.asks:
        await asyncio.sleep(0)
    assert not asking.done()
    caller.attend(client)
    assert await asking == {"action": "accept"}
    assert client.heard == [("ask", "elicitation/create")]
    await caller.answered()


class Absent(Heard):
    """A client whose person never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.set()
        return await asyncio.Future()


@requirement("EXEC-46")
async def test_a_question_is_put_again_where_a_client_leaves_it_without_an_answer(running: RunningCalls) -> None:
    first, second, client = Absent(), Absent(), Heard()
    caller = AttendedCaller(first)
    call = await held(running, "ann", "t", caller.ask("elicitation/create", {}), caller=caller)
    await first.asked.wait()
    caller.leave(first)
    caller.attend(second)
    await second.asked.wait()
    caller.leave(first)  # another than the one that is there
    caller.attend(client)
    await call.unasked()
    assert await call.settled(None)
    assert call.outcome() == {"action": "accept"}
    await call.unasked()


@requirement("EXEC-45")
async def test_an_answer_that_was_given_makes_room(clock: Clock) -> None:
    running = calls(clock, most=2, per_owner=2)
    works = [Work(), Work()]
    first, second = [await held(running, "ann", "t", work.run()) for work in works]
    for work, call in zip(works, (first, second), strict=True):
        work.end.set()
        await call.settled(None)
    with pytest.raises(RateLimited):
        await held(running, "ann", "t", Work().run())
    running.give(second)
    assert running.get("ann", second.id) is second
    await held(running, "bob", "t", Work().run())
    assert running.get("ann", second.id) is None
    assert running.get("ann", first.id) is first
    with pytest.raises(RateLimited):
        await held(running, "bob", "t", Work().run())
    await running.aclose()


@requirement("OPS-145")
async def test_from_the_drain_on_no_call_outlives_its_request_and_the_end_ends_each(clock: Clock) -> None:
    running = calls(clock)
    work, waited_for = Work(), Work()
    call = await held(running, "ann", "a", work.run())
    short = running.begin("ann", "b", waited_for.run())
    await work.begun.wait()
    running.begin_drain()
    with pytest.raises(RateLimited, match="being stopped"):
        await running.hold(short)
    assert work.ends == []
    await running.aclose()
    assert (work.ends, waited_for.ends) == (["cancelled"], ["cancelled"])
    with pytest.raises(UpstreamLost, match="the gate is being stopped"):
        call.outcome()


@requirement("OPS-145")
async def test_a_place_that_is_granted_during_the_drain_is_given_back(clock: Clock) -> None:
    shares = SlowShares("running", 10)
    running = RunningCalls(RunningLimits(), now=clock, new_id=lambda: "c1", shares=shares)
    call = running.begin("ann", "a", Work().run())
    holding = asyncio.create_task(running.hold(call))
    await until(lambda: shares.held)
    running.begin_drain()
    shares.answer.set()
    with pytest.raises(RateLimited, match="being stopped"):
        await holding
    assert shares.held == 0
    await running.aclose()


@requirement("OPS-146")
async def test_a_key_that_is_not_good_any_more_ends_its_calls(running: RunningCalls) -> None:
    work, other = Work(), Work()
    call = await held(running, "ann", "a", work.run(), key_id="laptop")
    kept = await held(running, "ann", "b", other.run(), key_id="desktop")
    await work.begun.wait()
    assert running.end_of("laptop") == {"calls": 1}
    assert await call.settled(None)
    assert work.ends == ["cancelled"]
    with pytest.raises(UpstreamLost, match="its key is no longer valid"):
        call.outcome()
    assert running.get("ann", call.id) is None
    assert running.get("ann", kept.id) is kept


@requirement("EXEC-49")
async def test_large_results_of_one_actor_make_room_among_themselves(clock: Clock) -> None:
    running = calls(clock, most_bytes=100)

    async def kept(owner: str, size: int) -> str:
        call = await held(running, owner, "tool", asyncio.sleep(0))
        call.bytes = size
        await call.settled(None)
        await asyncio.sleep(0)
        return call.id

    ann, *eve = [await kept("ann", 40), await kept("eve", 30), await kept("eve", 30), await kept("eve", 30)]
    assert [running.get("eve", id) is not None for id in eve] == [False, True, True]
    assert running.get("ann", ann) is not None, "who has less loses nothing"
    alone = await kept("eve", 1_000)
    assert running.get("eve", alone) is None
    assert running.get("ann", ann) is not None
    assert running.held == 1
