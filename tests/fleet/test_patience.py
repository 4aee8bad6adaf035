"""The time of a person is not that of a server: a call's deadline stands still while somebody is asked (UP-104)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.errors import UpstreamLost, UpstreamTimeout
from wicketgate.fleet import patience
from wicketgate.fleet.member import Member
from wicketgate.ports import AnswerTime, CallContext, SilentCaller
from wicketgate.upstreams.embedded import StubUpstream

TIMEOUT_S = 0.05
LONG_S = 5 * TIMEOUT_S


class SlowPerson(SilentCaller):
    """Answers after *answers_after* is over."""

    answers: AnswerTime = "later"

    def __init__(self, answers_after: asyncio.Event) -> None:
        self.asking = asyncio.Event()
        self._answers_after = answers_after

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asking.set()
        await self._answers_after.wait()
        return {"action": "accept"}


async def asks(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    if name == "two":
        await asyncio.gather(*(context.caller.ask("elicitation/create", {}) for _ in range(2)))
    else:
        await context.caller.ask("elicitation/create", {})
    if name == "hang":
        await asyncio.Event().wait()
    return {"content": []}


def begun(name: str, person: SlowPerson) -> tuple[Member, "asyncio.Task[Mapping[str, Any]]"]:
    member = Member(StubUpstream([], asks, name="asking"))
    context = CallContext(Identity("a", ("*",)), "trace-1", "s", person)
    return member, asyncio.create_task(member.call_tool(name, {}, context, TIMEOUT_S))


@requirement("UP-104")
@pytest.mark.parametrize("name", ["one", "two"])
async def test_the_time_in_which_a_person_is_asked_does_not_count(name: str) -> None:
    long_past = asyncio.Event()
    _, call = begun(name, SlowPerson(long_past))
    asyncio.get_running_loop().call_later(LONG_S, long_past.set)
    assert await call == {"content": []}


@requirement("UP-104")
async def test_the_rest_of_the_time_counts_after_the_answer() -> None:
    long_past = asyncio.Event()
    _, call = begun("hang", SlowPerson(long_past))
    asyncio.get_running_loop().call_later(LONG_S, long_past.set)
    with pytest.raises(UpstreamTimeout):
        await call


@requirement("UP-104")
async def test_a_person_does_not_have_all_the_time_of_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ASKED_S", TIMEOUT_S)
    _, call = begun("one", SlowPerson(asyncio.Event()))
    with pytest.raises(UpstreamTimeout):
        await call


@requirement("UP-104")
async def test_an_upstream_that_is_taken_out_of_service_waits_for_no_person() -> None:
    person = SlowPerson(asyncio.Event())
    member, call = begun("one", person)
    await person.asking.wait()
    member.stop()
    with pytest.raises(UpstreamLost):
        await call
