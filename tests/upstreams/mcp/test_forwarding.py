"""Messages and questions of a tool server while a call runs, over stdio: their receivers and their order (UP-8)."""

import asyncio
from typing import Any

import pytest

from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, cancellations, connected, context, next_change, unruly, value
from wicketgate.errors import InputRequired, UpstreamError, UpstreamLost
from wicketgate.ports import AnswerTime, InputAnswers

ASK = {"method": "elicitation/create"}
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}
FORM = {"message": "Who?", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}}


@requirement("FACE-9", "FACE-10", "UP-8")
@pytest.mark.parametrize("era", ["--modern", "--handshake"])
async def test_progress_and_log_messages_reach_the_caller_in_order_before_the_result(era: str) -> None:
    upstream = unruly(era)
    async with connected(upstream) as changes:
        for restarted in (False, True):
            if restarted:
                with pytest.raises(UpstreamLost):
                    await value(upstream, "crash")
                await next_change(changes)
            caller = RecordingCaller()
            of = context(caller)
            await value(upstream, "tell", {"times": 3}, of)
            assert of.marks.progress == 3, "for progress of a task that may follow"
            assert caller.told == [
                news for n in (1, 2, 3) for news in (("progress", n, 3.0, None), ("log", "info", n, "u"))
            ]


async def test_a_silent_caller_asks_for_no_progress() -> None:
    upstream = unruly()
    async with connected(upstream):
        call = (await value(upstream, "seen"))[-1]
    assert "progressToken" not in call["params"]["_meta"]


@requirement("FACE-9", "UP-8")
async def test_progress_goes_to_its_own_call_and_a_log_message_to_none_when_several_are_in_flight() -> None:
    upstream = unruly()
    first, second = RecordingCaller(), RecordingCaller()
    async with connected(upstream):
        waiting = asyncio.create_task(upstream.call_tool("hang", {}, context(first), 10))
        await value(upstream, "echo")
        await value(upstream, "tell", {"times": 2}, context(second))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert first.told == []
    assert second.told == [("progress", 1, 2.0, None), ("progress", 2, 2.0, None)]


@requirement("UP-8", "UP-10")
@pytest.mark.parametrize("request_id", [77, 0, "0", "wicketgate-0", "wicketgate-1", "a"])
async def test_a_question_reaches_the_caller_and_its_answer_the_server_under_the_servers_own_id(
    request_id: int | str,
) -> None:
    upstream = unruly()
    caller = RecordingCaller("now", ACCEPTED)
    async with connected(upstream):
        answer = await value(upstream, "ask", {**ASK, "id": request_id}, context(caller))
    assert answer == {"result": ACCEPTED}
    ((method, params),) = caller.asked
    assert (method, params["message"]) == ("elicitation/create", "Who?")


@requirement("UP-8")
async def test_a_question_that_nobody_can_answer_is_cancelled_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upstream = unruly()
    caller = RecordingCaller("never")
    async with connected(upstream):
        assert await value(upstream, "ask", ASK, context(caller)) == {"result": {"action": "cancel"}}
    assert caller.asked == []
    assert any("not shown to anyone" in message for message in caplog.messages)


@requirement("UP-8")
async def test_a_question_is_cancelled_when_calls_of_two_clients_are_in_flight() -> None:
    upstream = unruly()
    asker = RecordingCaller("now", ACCEPTED)
    first, second = context(RecordingCaller(), "other"), context(asker)
    async with connected(upstream):
        waiting = asyncio.create_task(upstream.call_tool("hang", {}, first, 10))
        await value(upstream, "echo")
        assert await value(upstream, "ask", ASK, second) == {"result": {"action": "cancel"}}
        assert first.marks.questioned, "the question may have been of either call"
        assert second.marks.questioned
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_question_that_the_server_takes_back_is_given_up() -> None:
    upstream = unruly()
    caller = RecordingCaller("now")
    async with connected(upstream):
        await value(upstream, "ask", {**ASK, "withdraw": True}, context(caller))
    assert caller.asked == [] or caller.given_up.is_set()


async def test_leaving_a_call_gives_its_question_up_and_cancels_it_on_the_server() -> None:
    upstream = unruly()
    caller = RecordingCaller("now")
    async with connected(upstream):
        asking = asyncio.create_task(upstream.call_tool("ask", ASK, context(caller), 10))
        async with asyncio.timeout(BOUND_S):
            await caller.asking.wait()
            asking.cancel()
            await caller.given_up.wait()
        await asyncio.gather(asking, return_exceptions=True)


async def test_input_that_is_required_is_asked_for_and_the_call_made_again_with_it() -> None:
    upstream = unruly("--modern")
    caller = RecordingCaller("now", ACCEPTED)
    async with connected(upstream):
        done = await value(upstream, "wants", {**ASK, "keys": ["a", "b"]}, context(caller))
    assert done == {"given": {"a": ACCEPTED, "b": ACCEPTED}, "state": "state é"}
    assert caller.asked == [("elicitation/create", FORM)] * 2


async def test_a_client_that_answers_later_gets_the_requests_and_brings_its_answers_and_the_state_back() -> None:
    upstream = unruly("--modern")
    async with connected(upstream):
        with pytest.raises(InputRequired) as required:
            await value(upstream, "wants", {**ASK, "keys": ["a"]}, context(RecordingCaller("later")))
        assert required.value.requests == {"a": {"method": "elicitation/create", "params": FORM}}
        answers = InputAnswers({"a": ACCEPTED}, required.value.request_state)
        done = await value(
            upstream, "wants", {**ASK, "keys": ["a"]}, context(RecordingCaller("later"), answers=answers)
        )
    assert done == {"given": {"a": ACCEPTED}, "state": "state é"}


@pytest.mark.parametrize(
    ("arguments", "answers", "reason"),
    [
        ({**ASK, "keys": ["a"]}, "never", "needs an answer from a person"),
        ({"method": "sampling/createMessage", "keys": ["a"]}, "now", "sampling or roots"),
        ({**ASK, "keys": ["a"], "more": True}, "now", "too often"),
    ],
)
async def test_a_tool_whose_questions_lead_nowhere_is_an_error_that_says_why(
    arguments: dict[str, Any], answers: AnswerTime, reason: str
) -> None:
    upstream = unruly("--modern")
    async with connected(upstream):
        with pytest.raises(UpstreamError, match=reason):
            await value(upstream, "wants", arguments, context(RecordingCaller(answers, ACCEPTED)))


@requirement("UP-45")
@pytest.mark.parametrize("kind", ['"task"', '"COMPLETE"', '""', "5", "{}"])
async def test_a_result_of_a_kind_that_is_not_known_is_no_success(kind: str) -> None:
    upstream = unruly("--modern")
    line = f'{{"jsonrpc": "2.0", "id": {{id}}, "result": {{"resultType": {kind}, "content": []}}}}'
    async with connected(upstream):
        with pytest.raises(UpstreamError, match="not a valid MCP result"):
            await upstream.call_tool("say", {"lines": [line]}, context(), 5)


@requirement("UP-45")
@pytest.mark.parametrize("member", ["", '"resultType": "complete", ', '"resultType": null, '])
async def test_a_result_is_complete_when_it_says_so_or_says_nothing(member: str) -> None:
    upstream = unruly("--modern")
    line = f'{{"jsonrpc": "2.0", "id": {{id}}, "result": {{{member}"content": []}}}}'
    async with connected(upstream):
        assert (await upstream.call_tool("say", {"lines": [line]}, context(), 5))["content"] == []


async def test_a_server_is_told_that_we_can_be_asked_only_for_callers_who_can() -> None:
    upstream = unruly("--modern")
    async with connected(upstream):
        declared = []
        answers: AnswerTime
        for answers in ("now", "later", "never"):
            call = (await value(upstream, "seen", {}, context(RecordingCaller(answers))))[-1]
            declared.append("elicitation" in call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"])
        assert declared == [True, True, False]
        assert await cancellations(upstream) == []
