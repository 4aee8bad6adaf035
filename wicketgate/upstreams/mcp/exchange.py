"""The I/O side of one connection: requests wait here for their answers, and each message is carried out as the session
has sorted it."""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.call import Call, Gone, Heard
from wicketgate.upstreams.mcp.elicitation import answer_to
from wicketgate.upstreams.mcp.session import (
    CANCELLED,
    Announcement,
    Answer,
    McpRequest,
    News,
    Question,
    Reply,
    Session,
    Sorted,
    Withdrawn,
    result,
)
from wicketgate.upstreams.mcp.tasks import Background
from wicketgate.upstreams.mcp.wire import Message

UNASKED_A_SECOND = 5_000
UNASKED_AT_ONCE = 10_000
_LIGHT = 1
_HEAVY = 10
"""Measures of what a server may send beside its answers before it is read more slowly: so many notes, or a tenth of it
in messages that cause work."""


class Sender(Protocol):
    """The way out of a connection on which all answers come back on one stream."""

    async def send(self, message: Mapping[str, Any], call: Call) -> None:
        """Send a request. Waits while the server reads nothing; marks *call* as carried before it leaves. Raises Gone
        and Malformed."""
        ...

    def post(self, message: Mapping[str, Any]) -> None:
        """Send anything but a request, without waiting. Does nothing when it cannot be sent."""
        ...


class Poster(Protocol):
    """The half of a Sender that an Exchange needs."""

    def post(self, message: Mapping[str, Any]) -> None: ...


class Exchange:
    """The requests in flight on one connection, and the server's own requests and news.

    *announced* gets the notifications that are about the server itself; set it before the first is of interest.
    """

    def __init__(self, name: str, poster: Poster) -> None:
        self.announced: Heard = _unheard
        self.background = Background()
        self._name = name
        self._poster = poster
        self._session: Session[Call] = Session()
        self._questions: dict[int | str, asyncio.Task[None]] = {}
        self._gone: str | None = None

    def new_call(self, context: CallContext | None, heard: Heard | None = None) -> Call:
        return Call(self._session.new_token(), context, heard)

    def begin(self, call: Call) -> None:
        """*call* is in flight from now on; always ``end`` it. Raises Gone."""
        if self._gone is not None:
            raise Gone(self._gone, carried=False)
        self._session.begin(call)

    def end(self, call: Call) -> None:
        """*call* is over. If it was left early, the server is asked to cancel it, and no other one."""
        for request_id in self._session.end(call):
            # The person that was asked has no call any more.
            if self._questions[request_id].cancel():
                self._poster.post(result(request_id, {"action": "cancel"}))
        if call.carried and call.cancellable and not call.settled:
            self._poster.post({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": call.token}})

    async def request(self, outgoing: McpRequest, call: Call, sender: Sender) -> dict[str, Any]:
        """The result of a request whose answer comes on the common stream. Raises Refused, Malformed, Gone."""
        self.begin(call)
        try:
            await sender.send(
                {"jsonrpc": "2.0", "id": call.token, "method": outgoing.method, "params": outgoing.params}, call
            )
            return await call.answer()
        finally:
            self.end(call)

    def take(self, message: Message, related: Call | None = None) -> int:
        """Carry out *message*, which came on the stream of *related* if that is given. Returns how much of the server's
        measure it uses up: nothing for an answer."""
        return self.carry_out(self._session.sort(message, related))

    def take_elsewhere(self, message: Message) -> int:
        """As ``take``, for messages on a stream of no request while callers read streams of their own."""
        found = self._session.sort(message)
        weight = self.carry_out(found)
        if isinstance(found, News):
            self.background.start(found.call.pass_on())
        return weight

    def carry_out(self, found: Sorted[Call]) -> int:
        match found:
            case Answer(call, message):
                call.settle(message)
                return 0
            case News(call, method, params):
                call.note(method, params)
                return _LIGHT
            case Question(request_id, params, call):
                self._ask(request_id, params, call)
            case Withdrawn(request_id):
                self._questions[request_id].cancel()
                return _LIGHT
            case Announcement(method, params):
                self.announced(method, params)
            case Reply(message):
                self._poster.post(message)
            case _:
                return _LIGHT
        return _HEAVY

    def unreadable(self, head: bytes, tail: bytes, error: Exception) -> None:
        """Fail the request whose answer was dropped, if its id stands in the answer's first or last bytes."""
        call = self._session.named_in(head) or self._session.named_in(tail)
        if call is not None:
            call.fail(error)

    def refuse(self, how: str) -> None:
        """Let no new request begin."""
        self._gone = how

    def close(self, how: str) -> None:
        """The connection is gone, and with it all requests that wait."""
        self._gone = how
        for call in self._session.calls:
            call.fail(Gone(how, carried=True))
        for question in self._questions.values():
            question.cancel()

    def _ask(self, request_id: int | str, params: object, call: Call | None) -> None:
        if call is None:
            # It may be any call's, so the result of none is for other callers.
            for one in self._session.calls:
                if one.context is not None:
                    one.context.marks.questioned = True

        async def answer() -> None:
            self._poster.post(result(request_id, await answer_to(self._name, params, call)))

        def over(_: object) -> None:
            self._session.answered(request_id)
            del self._questions[request_id]

        task = self._questions[request_id] = self.background.start(answer())
        # Not in the task itself: one that is cancelled before its first step never runs.
        task.add_done_callback(over)


def _unheard(method: str, params: object) -> None:
    """Drops an announcement."""
