"""Messages to a caller while it waits: in order, bounded, and before the answer (FACE-9, FACE-10)."""

import asyncio

import pytest

from tests.support.recording_caller import RecordingCaller
from tests.support.supervised import BOUND_S, context
from wicketgate.upstreams.mcp.call import Call, Gone
from wicketgate.upstreams.mcp.wire import Message

PROGRESS = "notifications/progress"


class SlowCaller(RecordingCaller):
    """Takes one note only after *go*."""

    def __init__(self) -> None:
        super().__init__()
        self.taking = asyncio.Event()
        self.go = asyncio.Event()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.taking.set()
        await self.go.wait()
        await super().progress(progress, total, message)


async def test_news_pass_in_order_before_the_answer_also_if_two_tasks_pass_them_on() -> None:
    caller = SlowCaller()
    call = Call("t", context(caller))
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
        call.note(PROGRESS, {"progress": 1})
        tasks.create_task(call.pass_on())
        await caller.taking.wait()
        call.note(PROGRESS, {"progress": 2})
        tasks.create_task(call.pass_on())
        call.settle(Message("t", result={"content": []}))
        answer = tasks.create_task(call.answer())
        await asyncio.sleep(0)
        assert not answer.done()
        caller.go.set()
        assert await answer == {"content": []}
        assert [news[1] for news in caller.told] == [1, 2]


async def test_of_news_for_a_caller_that_is_too_slow_the_oldest_are_dropped() -> None:
    caller = RecordingCaller()
    call = Call("t", context(caller))
    for number in range(1_005):
        call.note(PROGRESS, {"progress": number})
    await call.pass_on()
    assert [news[1] for news in caller.told] == list(range(5, 1_005))


async def test_the_first_outcome_counts() -> None:
    call = Call("t", context())
    call.fail(Gone("it went away", carried=True))
    call.settle(Message("t", result={}))
    with pytest.raises(Gone):
        await call.answer()


@pytest.mark.parametrize("huge", [10**400, -(10**400), float("inf"), float("nan")])
async def test_progress_beyond_all_numbers_ends_no_call(huge: float) -> None:
    caller = RecordingCaller()
    call = Call("t", context(caller))
    call.note(PROGRESS, {"progress": 1, "total": huge, "message": "begun"})
    call.note(PROGRESS, {"progress": huge, "total": 2})
    call.note(PROGRESS, {"progress": 2, "total": 2})
    call.settle(Message("t", result={"content": []}))
    assert await call.answer() == {"content": []}
    assert caller.told == [("progress", 1, None, "begun"), ("progress", 2, 2.0, None)]
