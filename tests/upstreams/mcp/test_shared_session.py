"""Two workers on the session of one server: nothing of one reaches the other."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.upstreams.mcp.shared_session import Out, SharedSession, ToServer


def sent(out: Iterable[Out]) -> list[tuple[int | None, Any]]:
    """Each message with its client, None for the server."""
    return [(None if isinstance(each, ToServer) else each.client, json.loads(each.line)) for each in out]


class Pair:
    """Clients 0 and 1 of one session."""

    def __init__(self) -> None:
        self.session = SharedSession()
        self.session.joined(0)
        self.session.joined(1)

    def client(self, number: int, **message: Any) -> list[tuple[int | None, Any]]:
        return sent(self.session.from_client(number, json.dumps({"jsonrpc": "2.0", **message}).encode()))

    def server(self, **message: Any) -> list[tuple[int | None, Any]]:
        return sent(self.session.from_server(json.dumps({"jsonrpc": "2.0", **message}).encode()))

    def call(self, number: int, own_id: str = "wg-1") -> str:
        """A call with a progress token; returns the id that the server sees."""
        params = {"name": "echo", "_meta": {"progressToken": own_id, "kept": 1}}
        ((to, message),) = self.client(number, id=own_id, method="tools/call", params=params)
        assert to is None
        assert message["params"]["_meta"] == {"progressToken": message["id"], "kept": 1}
        return str(message["id"])


@requirement("OPS-183")
def test_answers_and_progress_reach_the_caller_under_its_own_id() -> None:
    pair = Pair()
    first, second = pair.call(0), pair.call(1)
    assert first != second
    note = {"progressToken": second, "progress": 0.5}
    assert pair.server(method="notifications/progress", params=note) == [
        (
            1,
            {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": "wg-1", "progress": 0.5},
            },
        )
    ]
    assert pair.server(id=second, result={"v": 2}) == [(1, {"jsonrpc": "2.0", "id": "wg-1", "result": {"v": 2}})]
    assert pair.server(id=first, error={"code": 1, "message": "m"})[0][0] == 0
    assert pair.server(id=first, result={}) == [], "an answer is taken once"


@requirement("OPS-183")
def test_a_cancellation_is_of_the_clients_own_call_and_one_who_leaves_cancels_its_calls() -> None:
    pair = Pair()
    first, second = pair.call(0), pair.call(1)
    ((to, message),) = pair.client(0, method="notifications/cancelled", params={"requestId": "wg-1", "reason": "r"})
    assert (to, message["params"]) == (None, {"requestId": first, "reason": "r"})
    assert pair.server(id=first, result={}) == []
    ((to, message),) = sent(pair.session.left(1))
    assert (to, message["params"]) == (None, {"requestId": second})


@requirement("OPS-183")
@pytest.mark.parametrize("late", [False, True])
def test_the_server_sees_one_handshake_and_both_get_its_answer(late: bool) -> None:
    pair = Pair()
    ((_, asked),) = pair.client(0, id="a", method="initialize", params={"protocolVersion": "2025-06-18"})
    if not late:
        assert pair.client(1, id="b", method="initialize", params={}) == []
    answers = pair.server(id=asked["id"], result={"capabilities": {}})
    if late:
        answers += pair.client(1, id="b", method="initialize", params={})
    assert [(to, message["id"], message["result"]) for to, message in answers] == [
        (0, "a", {"capabilities": {}}),
        (1, "b", {"capabilities": {}}),
    ]
    confirmed = [pair.client(number, method="notifications/initialized") for number in (0, 1)]
    assert [len(each) for each in confirmed] == [1, 0]


@requirement("OPS-183")
def test_a_question_goes_to_the_only_caller_and_otherwise_to_nobody() -> None:
    pair = Pair()
    pair.call(1)
    question = {"id": 7, "method": "elicitation/create", "params": {"message": "sure?"}}
    assert pair.server(**question) == [(1, {"jsonrpc": "2.0", **question})]
    assert pair.client(0, id=7, result={"action": "accept"}) == [], "it was not asked"
    assert pair.client(1, id=7, result={"action": "accept"})[0][0] is None

    pair.call(0)
    ((to, answer),) = pair.server(**{**question, "id": 8})
    assert (to, answer["result"]) == (None, {"action": "cancel"})
    assert pair.server(method="notifications/message", params={"data": "private"}) == []
    ((to, answer),) = pair.server(id="p", method="ping")
    assert (to, answer["id"], answer["result"]) == (None, "p", {})


@requirement("OPS-183")
def test_news_of_the_server_reach_all_and_those_of_a_stream_its_reader() -> None:
    pair = Pair()
    changed = {"method": "notifications/tools/list_changed"}
    assert [to for to, _ in pair.server(**changed)] == [0, 1]
    ((_, listening),) = pair.client(1, id="l", method="subscriptions/listen", params={})
    tag = "io.modelcontextprotocol/subscriptionId"
    ((to, told),) = pair.server(**changed, params={"_meta": {tag: listening["id"]}})
    assert (to, told["params"]["_meta"][tag]) == (1, "l")


@requirement("OPS-183")
@pytest.mark.parametrize(
    "line", [b"", b"[]", b"7", b"{not json", b'{"id":{}}', b'{"method":5,"id":1}', b'{"id":"wgs-9"}']
)
def test_what_is_no_message_is_nobodys(line: bytes) -> None:
    pair = Pair()
    pair.call(0)
    assert sent(pair.session.from_server(line)) == []
    assert not pair.session.is_answer(line)


def test_an_answer_that_is_too_large_is_found_by_what_is_left_of_it() -> None:
    pair = Pair()
    own = pair.call(1)
    assert pair.session.unreadable(b'{"id":"wgs-99"', b"}") is None
    assert pair.session.unreadable(f'{{"id":"{own}","result":'.encode(), b"") == (1, b'"wg-1"')
    assert pair.server(id=own, result={}) == []
