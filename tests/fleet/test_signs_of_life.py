"""Progress is a sign of life: it puts the deadline of a call off (UP-133 to UP-135)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.support.jumping_loop import run_jumping, time_passes
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.errors import UpstreamTimeout
from wicketgate.fleet.member import Member, loop_time
from wicketgate.ports import SILENT, AnswerTime, CallContext, Caller, SilentCaller
from wicketgate.upstreams.embedded import StubUpstream

TIMEOUT_S, LONGEST_S = 30.0, 3_600.0
Work = Callable[[CallContext], Awaitable[None]]


class Listener(SilentCaller):
    """Hears progress, and answers a question after *thinks_s*."""

    answers: AnswerTime = "later"

    def __init__(self, thinks_s: float = 0.0) -> None:
        self.heard: list[float] = []
        self._thinks_s = thinks_s

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.heard.append(progress)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        await time_passes(self._thinks_s)
        return {"action": "accept"}


def ended(work: Work, caller: Caller | None = None, *, longest_s: float = LONGEST_S) -> tuple[str, float]:
    """The end of a call that does *work*, and after how many seconds it came."""

    async def main() -> tuple[str, float]:
        async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
            await work(context)
            return {"content": []}

        member = Member(StubUpstream([], answer, name="slow"))
        context = CallContext(Identity("a", ("*",)), "trace-1", "s", caller or Listener())
        began = loop_time()
        try:
            await member.call_tool("x", {}, context, TIMEOUT_S, longest_s)
            words = "done"
        except UpstreamTimeout as late:
            words = str(late)
        return words, round(loop_time() - began, 3)

    return run_jumping(main())


def steps(number: int, each_s: float, rest_s: float = 0.0) -> Work:
    """Reports progress *number* times, each after *each_s*, then takes *rest_s*."""

    async def work(context: CallContext) -> None:
        for step in range(number):
            await time_passes(each_s)
            await context.caller.progress(step, None, None)
        await time_passes(rest_s)

    return work


@requirement("UP-133")
def test_a_call_that_reports_progress_goes_on_past_its_deadline() -> None:
    listener = Listener()
    assert ended(steps(30, 20, 29), listener) == ("done", 629)
    assert listener.heard == [*range(30)]
    assert ended(steps(0, 0, 31)) == ("slow did not answer within 30 s.", 30)


@requirement("UP-133")
def test_the_deadline_runs_again_from_the_last_progress() -> None:
    words, after_s = ended(steps(3, 20, 1_000))
    assert (words, after_s) == ("slow did not answer within 30 s of its last progress.", 90)


@requirement("UP-133")
def test_progress_at_the_beginning_shortens_nothing() -> None:
    assert ended(steps(1, 0, 29)) == ("done", 29)


@requirement("UP-134")
def test_a_call_that_reports_progress_for_ever_is_ended() -> None:
    assert ended(steps(10_000, 20)) == ("slow did not answer within 3600 s.", 3_600)
    assert ended(steps(10, 20), longest_s=100) == ("slow did not answer within 100 s.", 100)


@requirement("UP-134")
@pytest.mark.parametrize("longest_s", [0, 10])
def test_where_long_calls_may_not_last_longer_progress_changes_nothing(longest_s: float) -> None:
    assert ended(steps(10, 20), longest_s=longest_s) == ("slow did not answer within 30 s.", 30)


@requirement("UP-134")
def test_a_call_that_becomes_a_task_after_progress_lasts_no_longer_for_it() -> None:
    async def work(context: CallContext) -> None:
        await steps(5, 20)(context)
        assert context.marks.prolong is not None
        context.marks.prolong()
        await steps(1_000, 20)(context)

    assert ended(work) == ("slow did not answer within 3600 s.", 3_600)


@requirement("UP-104", "UP-133", "UP-134")
def test_the_time_of_a_person_counts_neither_way() -> None:
    async def asks(context: CallContext) -> None:
        await time_passes(20)
        asking = asyncio.create_task(context.caller.ask("elicitation/create", {}))
        await time_passes(100)
        await context.caller.progress(1, None, None)
        await asking
        await time_passes(29)

    assert ended(asks, Listener(thinks_s=200)) == ("done", 249)

    async def for_ever(context: CallContext) -> None:
        await context.caller.ask("elicitation/create", {})
        await steps(1_000, 20)(context)

    assert ended(for_ever, Listener(thinks_s=200), longest_s=100) == ("slow did not answer within 100 s.", 300)


@requirement("UP-135")
def test_a_caller_that_hears_nothing_waits_as_long_as_ever() -> None:
    assert ended(steps(10, 20), SILENT) == ("slow did not answer within 30 s.", 30)
