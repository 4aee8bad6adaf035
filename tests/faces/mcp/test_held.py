"""A call that is held while a person answers, without a client: who may come back to it, and for how long."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, cast

import pytest

from tests.gateway.test_running_calls import SlowShares
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.errors import UpstreamLost
from wicketgate.faces.mcp.held import Asked, HeldCalls, NotHeld
from wicketgate.faces.mcp.sdk_caller import ClientCaller
from wicketgate.faces.mcp.tasks import Elsewhere
from wicketgate.gateway.running_calls import RunningCalls, RunningLimits
from wicketgate.ports import AnswerTime, Caller, CannotAsk

ADA = Identity("ada", ("tools:*",), "k1")
ACCEPT = {"action": "accept"}


class Attempt:
    """One request of a client, as far as a held call needs it."""

    answers: AnswerTime = "later"
    capabilities: Mapping[str, Any] = {"elicitation": {}}

    def may_be_asked(self, method: str, params: Mapping[str, Any]) -> bool:
        return True


def attempt() -> ClientCaller:
    return cast(ClientCaller, Attempt())


def running() -> RunningCalls:
    numbers = count(1)
    return RunningCalls(RunningLimits(), now=lambda: 0.0, new_id=lambda: str(next(numbers)))


def held(running: RunningCalls, answer_s: float) -> HeldCalls:
    calls = HeldCalls(running, answer_s, lambda tool_id, identity: True)
    Elsewhere("gateway", None, calls)
    return calls


async def ask(caller: Caller, given: object = None) -> str:
    try:
        return str((await caller.ask("elicitation/create", {"message": "?"}))["action"])
    except CannotAsk:
        return "nobody"


async def begin(calls: HeldCalls, run: Callable[[Caller, Any], Any] = ask) -> Asked:
    asked = await calls.begin(attempt(), ADA, "a tool", run)
    assert isinstance(asked, Asked)
    return asked


@requirement("FACE-76")
async def test_a_question_that_nobody_comes_back_for_is_given_up_and_the_result_is_kept() -> None:
    calls = held(running(), 0.01)
    ended = asyncio.Event()

    async def run(caller: Caller, given: object) -> str:
        try:
            return await ask(caller)
        finally:
            ended.set()

    asked = await begin(calls, run)
    await ended.wait()
    assert await calls.resume(attempt(), ADA, asked.id, {"question-1": ACCEPT}) == "nobody"


@requirement("FACE-74")
@pytest.mark.parametrize("other", [Identity("bob", ("tools:*",)), Identity("ada", ("tools:files:*",), "k2")])
async def test_neither_another_actor_nor_a_lesser_key_comes_back_to_a_call(other: Identity) -> None:
    calls = held(running(), 60)
    asked = await begin(calls)
    with pytest.raises(NotHeld):
        await calls.resume(attempt(), other, asked.id, {"question-1": ACCEPT})
    equal = Identity("ada", ("tools:*",), "k3")
    assert await calls.resume(attempt(), equal, asked.id, {"question-1": ACCEPT}) == "accept"


@requirement("FACE-73")
async def test_an_attempt_that_is_repeated_while_another_waits_gets_the_same() -> None:
    calls, go = held(running(), 60), asyncio.Event()

    async def run(caller: Caller, given: object) -> str:
        said = await ask(caller)
        await go.wait()
        return said

    asked = await begin(calls, run)
    lost, again = (
        asyncio.create_task(calls.resume(attempt(), ADA, asked.id, {"question-1": ACCEPT})) for _ in range(2)
    )
    await asyncio.sleep(0)
    lost.cancel()
    await asyncio.wait([lost])
    go.set()
    assert await again == "accept"


@requirement("FACE-76")
async def test_a_call_that_is_ended_meanwhile_says_so() -> None:
    every = running()
    calls = held(every, 60)
    asked = await begin(calls)
    back = asyncio.create_task(calls.resume(attempt(), ADA, asked.id, {}))
    assert isinstance(await back, Asked)
    call = every.get("ada", asked.id)
    assert call is not None
    call.cancel("its key is no longer valid")
    with pytest.raises(UpstreamLost):
        await calls.resume(attempt(), ADA, asked.id, {})


@requirement("FACE-76")
async def test_after_the_drain_began_nobody_is_asked() -> None:
    calls = held(running(), 60)

    async def run(caller: Caller, given: object) -> list[str]:
        return [await ask(caller), await ask(caller)]

    asked = await begin(calls, run)
    calls.give_up()
    assert await calls.resume(attempt(), ADA, asked.id, {}) == ["nobody", "nobody"]


@requirement("FACE-123")
async def test_an_attempt_after_one_that_was_given_up_learns_that_the_fate_is_unknown() -> None:
    calls = held(running(), 60)
    began = asyncio.Event()

    async def run(caller: Caller, given: object) -> str:
        said = await ask(caller)
        began.set()
        await asyncio.Event().wait()
        return said

    asked = await begin(calls, run)
    left = asyncio.create_task(calls.resume(attempt(), ADA, asked.id, {"question-1": ACCEPT}))
    await began.wait()
    left.cancel()
    await asyncio.wait([left])
    for _ in range(2):
        with pytest.raises(UpstreamLost):
            await calls.resume(attempt(), ADA, asked.id, {"question-1": ACCEPT})


@requirement("EXEC-45")
async def test_a_call_that_ends_while_its_place_is_counted_keeps_no_place() -> None:
    shares = SlowShares("running", 10)
    calls = held(RunningCalls(RunningLimits(), now=lambda: 0.0, new_id=lambda: "1", shares=shares), 60)
    go = asyncio.Event()

    async def run(caller: Caller, given: object) -> str:
        await go.wait()
        return "done"

    waiting = asyncio.create_task(calls.begin(attempt(), ADA, "a tool", run, after_s=0))
    await until(lambda: shares.held)
    go.set()
    await asyncio.sleep(0.01)
    shares.answer.set()
    assert await waiting == "done"
    assert shares.held == 0
