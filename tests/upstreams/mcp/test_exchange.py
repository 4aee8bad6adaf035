"""The meaning of each message on a connection, for any requests in flight (UP-9 to UP-14), and the pace of those that
are unasked."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from tests.support.supervised import context
from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.call import Call
from wicketgate.upstreams.mcp.exchange import Exchange, Pace
from wicketgate.upstreams.mcp.wire import Message

ASK = "elicitation/create"
STRAY, LATE = 1, 0
"""How much of a server's measure the messages use up."""


class Talk:
    """An exchange with a call in flight for each of *contexts*. *news* are the notifications by number of call; -1 is
    the server itself."""

    def __init__(self, *contexts: CallContext | None) -> None:
        self.posted: list[Mapping[str, Any]] = []
        self.news: list[tuple[int, str, Any]] = []
        self.of = Exchange("files", self.posted.append)
        self.of.announced = lambda method, params: self.news.append((-1, method, params))
        self.calls = [self._begun(number, each) for number, each in enumerate(contexts)]

    def _begun(self, number: int, each: CallContext | None) -> Call:
        call = self.of.new_call(each, lambda method, params: self.news.append((number, method, params)))
        self.of.begin(call)
        return call


@requirement("UP-9", "UP-10")
def test_an_answer_belongs_to_the_request_with_its_id_and_to_no_other() -> None:
    talk = Talk(context(), context())
    first, second = talk.calls
    assert talk.of.take(Message("another", result={})) == STRAY
    assert talk.of.take(Message(0, result={})) == STRAY
    talk.of.take(Message(first.token, "ping"))
    assert talk.posted == [{"jsonrpc": "2.0", "id": first.token, "result": {}}]
    talk.of.take(Message(second.token, result={}))
    assert (first.settled, second.settled) == (False, True)
    talk.of.end(second)
    assert talk.of.take(Message(second.token, result={})) == STRAY


@requirement("UP-127")
def test_the_first_answer_after_its_caller_has_left_is_late_and_every_further_one_is_stray() -> None:
    talk = Talk(context(), context())
    left, unsent = talk.calls
    left.carried = True
    talk.of.end(left)
    talk.of.end(unsent)
    assert talk.of.take(Message(unsent.token, result={})) == STRAY
    assert talk.of.take(Message(left.token, result={})) == LATE
    assert talk.of.take(Message(left.token, result={})) == STRAY
    for _ in range(1_001):
        call = talk.of.new_call(context())
        call.carried = True
        talk.of.begin(call)
        talk.of.end(call)
    assert talk.of.take(Message("wicketgate-2", result={})) == STRAY, "as many as are remembered left after it"
    assert talk.of.take(Message("wicketgate-3", result={})) == LATE


@requirement("FACE-9")
def test_news_goes_to_its_own_request_and_a_log_message_to_the_only_call() -> None:
    progress = {"progressToken": "wicketgate-1", "progress": 1}
    log: dict[str, Any] = {"level": "info", "data": 1}
    talk = Talk(context(), context())
    talk.of.take(Message(None, "notifications/progress", progress))
    talk.of.take(Message(None, "notifications/message", log))
    talk.of.take(Message(None, "notifications/message", log), talk.calls[0])
    talk.of.end(talk.calls[0])
    talk.of.take(Message(None, "notifications/message", log))
    logged = "notifications/message"
    assert talk.news == [(1, "notifications/progress", progress), (0, logged, log), (1, logged, log)]


def test_an_event_of_a_subscription_goes_to_its_request_and_any_other_is_an_announcement() -> None:
    talk = Talk(None)
    params = {"_meta": {"io.modelcontextprotocol/subscriptionId": talk.calls[0].token}}
    changed = "notifications/tools/list_changed"
    talk.of.take(Message(None, changed, params))
    talk.of.take(Message(None, changed, None))
    talk.of.end(talk.calls[0])
    talk.of.take(Message(None, changed, params))
    assert talk.news == [(0, changed, params), (-1, changed, None), (-1, changed, params)]


@requirement("FACE-11")
async def test_a_question_belongs_to_a_call_only_where_all_calls_are_one_clients() -> None:
    callers = [RecordingCaller("now"), RecordingCaller("now"), RecordingCaller("now")]
    talk = Talk(context(callers[0]), context(callers[1]))
    talk.of.take(Message(1, ASK, {"of": "the latest call"}))
    talk.of.begin(Call("x", context(callers[2], session="other")))
    talk.of.take(Message(2, ASK, {"of": "nobody knows"}))
    talk.of.take(Message(3, ASK, {"of": "the first call"}), talk.calls[0])
    assert talk.of.take(Message(3, ASK, {})) == STRAY, "the same question again"
    async with asyncio.timeout(10):
        await callers[0].asking.wait()
        await callers[1].asking.wait()
    assert [[params["of"] for _, params in caller.asked] for caller in callers] == [
        ["the first call"],
        ["the latest call"],
        [],
    ]
    assert talk.posted == [{"jsonrpc": "2.0", "id": 2, "result": {"action": "cancel"}}]
    # The server takes one question back; the call of the other one ends.
    talk.of.take(Message(None, "notifications/cancelled", {"requestId": 3}))
    talk.of.end(talk.calls[1])
    async with asyncio.timeout(10):
        await callers[0].given_up.wait()
        await callers[1].given_up.wait()
    assert talk.posted[1:] == [{"jsonrpc": "2.0", "id": 1, "result": {"action": "cancel"}}]
    await talk.of.background.close()


@requirement("UP-16", "UP-126")
async def test_no_more_than_205_questions_of_one_actor_are_open_at_once() -> None:
    talk = Talk(context(RecordingCaller("now")))
    for number in range(206):
        talk.of.take(Message(number, ASK, {}))
    assert talk.posted == [{"jsonrpc": "2.0", "id": 205, "result": {"action": "cancel"}}]
    await talk.of.background.close()


@requirement("UP-8")
@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "unknown"])
def test_what_was_not_declared_is_refused(method: str) -> None:
    talk = Talk(context())
    talk.of.take(Message(7, method))
    (reply,) = talk.posted
    assert (reply["id"], reply["error"]["code"]) == (7, -32601)


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
async def test_no_sequence_of_messages_makes_taking_them_fail(messages: list[tuple[Any, Any, Any]]) -> None:
    talk = Talk(context())
    for request_id, method, params in messages:
        assert talk.of.take(Message(request_id, method, params)) in (0, 1, 10)
    talk.of.end(talk.calls[0])
    await talk.of.background.close()


@requirement("UP-16")
def test_what_is_within_the_measure_waits_for_nothing_and_what_is_beyond_it_waits_until_it_is_within() -> None:
    at = [0.0]
    pace = Pace(10, 20, lambda: at[0])
    assert [pace.take(10), pace.take(10)] == [0, 0]
    assert pace.take(5) == 0.5
    at[0] = 0.5
    assert pace.take() == 0.1
    at[0] = 1000
    assert pace.take(20) == 0
    assert pace.take() == 0.1
