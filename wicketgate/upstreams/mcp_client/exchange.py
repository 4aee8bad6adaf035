"""The requests in flight on one connection that the SDK's session shares with us: their ids, and what belongs to whom.

Our ids are strings that the SDK never makes, so neither can take the other's answer, and a request of the server that
happens to have an id of ours is still a request (gatekit G72).
"""

import asyncio
import logging
from collections.abc import Mapping
from itertools import count
from typing import Any, Protocol

from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp_client.call import LOG, PROGRESS, Call
from wicketgate.upstreams.mcp_client.elicitation import ELICIT, answer_to
from wicketgate.upstreams.mcp_client.failure import Gone
from wicketgate.upstreams.mcp_client.json_rpc import Message, params_of

log = logging.getLogger("wicketgate.upstream")

_PREFIX = "wicketgate-"
_MAX_QUESTIONS = 64

UNASKED_A_SECOND = 5_000
UNASKED_AT_ONCE = 10_000
HEAVY = 10
"""What a server may say beside its answers before it is read more slowly: so many notes, or a tenth of it in messages
for the session and questions, which cost more."""


class Sender(Protocol):
    """The way out of the connection."""

    async def send(self, message: Mapping[str, Any], call: Call) -> None:
        """Waits while the server reads nothing; marks *call* as carried before it goes. Raises Gone."""
        ...

    def post(self, message: Mapping[str, Any]) -> None:
        """Without waiting, and without a word when it cannot go."""
        ...


class Exchange:
    def __init__(self, name: str, sender: Sender) -> None:
        self._name = name
        self._sender = sender
        self._ids = count()
        self._calls: dict[int | str, Call] = {}
        self._questions: dict[int | str, tuple[asyncio.Task[None], Call | None]] = {}
        self._gone: str | None = None

    def new_call(self, context: CallContext | None) -> Call:
        return Call(f"{_PREFIX}{next(self._ids)}", context)

    async def request(self, method: str, params: Mapping[str, Any], call: Call) -> dict[str, Any]:
        """The result. Who leaves early has the request cancelled on the server, and no other one. Raises Refused,
        Malformed, Gone."""
        if self._gone is not None:
            raise Gone(self._gone, carried=False)
        self._calls[call.token] = call
        try:
            await self._sender.send({"jsonrpc": "2.0", "id": call.token, "method": method, "params": params}, call)
            return await call.answer()
        finally:
            del self._calls[call.token]
            self._drop_questions(call)
            if call.carried and not call.settled:
                self._sender.post(
                    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call.token}}
                )

    def take(self, message: Message, related: Call | None = None) -> bool:
        """True if it was for us; all else is the session's. *related*: the request whose own stream it came on."""
        if message.method is None:
            call = self._calls.get(message.id) if message.id is not None else None
            if call is not None:
                call.settle(message)
            return call is not None
        if message.id is not None:
            if message.method == ELICIT:
                self._ask(message.id, params_of(message), related)
                return True
            return False
        match message.method:
            case "notifications/progress":
                self._progress(params_of(message))
                return True
            case "notifications/message":
                if (call := related or self._only()) is not None:
                    call.note(LOG, params_of(message))
                return True
            case "notifications/cancelled":
                return self._withdraw(params_of(message))
        return False

    def unreadable(self, head: bytes, tail: bytes, error: Exception) -> None:
        """An answer that was not taken: its call, known by the id in its first or last bytes, need not wait."""
        for token, call in self._calls.items():
            sign = f'"{token}"'.encode()
            if sign in head or sign in tail:
                call.fail(error)

    def close(self, how: str) -> None:
        """The connection is gone; so are all that wait."""
        self._gone = how
        for call in self._calls.values():
            call.fail(Gone(how, carried=True))
        for question, _ in self._questions.values():
            question.cancel()

    def _progress(self, params: object) -> None:
        match params:
            case {"progressToken": str(token)} if (call := self._calls.get(token)) is not None:
                call.note(PROGRESS, params)

    def _only(self) -> Call | None:
        """The one call in flight, if there is just one: nobody is told what may be another's."""
        calls = [call for call in self._calls.values() if call.context is not None]
        return calls[0] if len(calls) == 1 else None

    def _asker(self) -> Call | None:
        """Whose call a question belongs to, if all calls in flight are one client's."""
        calls = [call for call in self._calls.values() if call.context is not None]
        clients = {(call.context.identity.actor, call.context.session) for call in calls if call.context is not None}
        return calls[-1] if len(clients) == 1 else None

    def _ask(self, request_id: int | str, params: object, related: Call | None) -> None:
        if request_id in self._questions:
            return
        if len(self._questions) >= _MAX_QUESTIONS:
            self._sender.post({"jsonrpc": "2.0", "id": request_id, "result": {"action": "cancel"}})
            return
        call = related or self._asker()

        async def answer() -> None:
            result = await answer_to(self._name, params, call)
            self._sender.post({"jsonrpc": "2.0", "id": request_id, "result": result})

        task = asyncio.create_task(answer())
        self._questions[request_id] = task, call
        task.add_done_callback(lambda _: self._questions.pop(request_id, None))

    def _withdraw(self, params: object) -> bool:
        match params:
            case {"requestId": int() | str() as request_id} if request_id in self._questions:
                self._questions[request_id][0].cancel()
                return True
        return False

    def _drop_questions(self, call: Call) -> None:
        """The call is over, so nobody is there any more to answer what was asked in it."""
        for request_id, (question, of) in list(self._questions.items()):
            if of is call and not question.done():
                question.cancel()
                self._sender.post({"jsonrpc": "2.0", "id": request_id, "result": {"action": "cancel"}})
