"""The meaning of each message on a connection, for any requests in flight (UP-9 to UP-14)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from tests.support.supervised import context
from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.call import Call
from wicketgate.upstreams.mcp.session import (
    LATE,
    STRAY,
    Announcement,
    AnswerTo,
    ConnectionState,
    Late,
    News,
    OwnReply,
    Question,
    Stray,
    Withdrawn,
)
from wicketgate.upstreams.mcp.wire import Message

ASK = "elicitation/create"


def session(*contexts: CallContext | None) -> tuple[ConnectionState, list[Call]]:
    of = ConnectionState()
    calls = [Call(of.new_token(), each) for each in contexts]
    for call in calls:
        of.begin(call)
    return of, calls


@requirement("UP-9", "UP-10")
def test_an_answer_belongs_to_the_request_with_its_id_and_to_no_other() -> None:
    of, (first, second) = session(context(), context())
    answer = Message(second.token, result={})
    assert of.sort(answer) == AnswerTo(second, answer)
    assert of.sort(Message("another", result={})) == STRAY
    assert of.sort(Message(0, result={})) == STRAY
    assert isinstance(of.sort(Message(first.token, "ping")), OwnReply)
    of.end(second)
    assert of.sort(answer) == STRAY


@requirement("UP-127")
def test_the_first_answer_after_its_caller_has_left_is_late_and_every_further_one_is_stray() -> None:
    of, (left, unsent) = session(context(), context())
    left.carried = True
    of.end(left)
    of.end(unsent)
    assert of.sort(Message(unsent.token, result={})) == STRAY
    assert of.sort(Message(left.token, result={})) == LATE
    assert of.sort(Message(left.token, result={})) == STRAY
    for _ in range(1_001):
        call = Call(of.new_token(), context())
        call.carried = True
        of.begin(call)
        of.end(call)
    assert of.sort(Message("wicketgate-2", result={})) == STRAY, "as many as are remembered left after it"
    assert of.sort(Message("wicketgate-3", result={})) == LATE


@requirement("FACE-9")
def test_news_goes_to_its_own_request_and_a_log_message_to_the_only_call() -> None:
    progress = {"progressToken": "wicketgate-1", "progress": 1}
    of, (first, second) = session(context(), context())
    assert of.sort(Message(None, "notifications/progress", progress)) == News(
        second, "notifications/progress", progress
    )
    log: dict[str, Any] = {"level": "info", "data": 1}
    assert of.sort(Message(None, "notifications/message", log)) == STRAY
    assert of.sort(Message(None, "notifications/message", log), first) == News(first, "notifications/message", log)
    of.end(first)
    assert of.sort(Message(None, "notifications/message", log)) == News(second, "notifications/message", log)


def test_an_event_of_a_subscription_goes_to_its_request_and_any_other_is_an_announcement() -> None:
    of, (listening,) = session(None)
    params = {"_meta": {"io.modelcontextprotocol/subscriptionId": listening.token}}
    changed = "notifications/tools/list_changed"
    assert of.sort(Message(None, changed, params)) == News(listening, changed, params)
    assert of.sort(Message(None, changed, None)) == Announcement(changed, None)
    of.end(listening)
    assert of.sort(Message(None, changed, params)) == Announcement(changed, params)


@requirement("FACE-11")
def test_a_question_belongs_to_a_call_only_where_all_calls_are_one_clients() -> None:
    of, (first, second) = session(context(), context())
    assert of.sort(Message(1, ASK, {})) == Question(1, ASK, {}, second)
    of.begin(Call("x", context(session="other")))
    assert of.sort(Message(2, ASK, {})) == Question(2, ASK, {}, None)
    assert of.sort(Message(3, ASK, {}), first) == Question(3, ASK, {}, first)
    assert of.sort(Message(3, ASK, {})) == STRAY, "the same question again"
    assert of.sort(Message(None, "notifications/cancelled", {"requestId": 3})) == Withdrawn(3)
    assert of.end(first) == [Question(3, ASK, {}, first)]
    of.answered(3)
    assert of.sort(Message(None, "notifications/cancelled", {"requestId": 3})) == STRAY


@requirement("UP-16", "UP-126")
def test_no_more_than_205_questions_of_one_actor_are_open_at_once() -> None:
    of, _ = session(context())
    sorted_as = [of.sort(Message(number, ASK, {})) for number in range(206)]
    assert all(isinstance(each, Question) for each in sorted_as[:-1])
    assert sorted_as[-1] == OwnReply({"jsonrpc": "2.0", "id": 205, "result": {"action": "cancel"}})


@requirement("UP-8")
@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "unknown"])
def test_what_was_not_declared_is_refused(method: str) -> None:
    of, _ = session(context())
    reply = of.sort(Message(7, method))
    assert isinstance(reply, OwnReply)
    assert (reply.message["id"], reply.message["error"]["code"]) == (7, -32601)


NOTIFICATIONS = ("progress", "message", "cancelled", "tools/list_changed", "resources/updated")
METHODS = st.sampled_from([None, ASK, "ping", "roots/list", "x", *(f"notifications/{each}" for each in NOTIFICATIONS)])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just("wicketgate-0"),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["progressToken", "requestId", "_meta", "level", "uri"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@requirement("UP-9")
@given(st.lists(st.tuples(st.none() | st.integers(0, 3) | st.just("wicketgate-0"), METHODS, JSON), max_size=8))
def test_no_sequence_of_messages_makes_sorting_fail(messages: list[tuple[Any, Any, Any]]) -> None:
    of, (call,) = session(context())
    for request_id, method, params in messages:
        found = of.sort(Message(request_id, method, params))
        assert isinstance(found, AnswerTo | News | Question | Withdrawn | Announcement | OwnReply | Late | Stray)
    of.end(call)
