"""The state of one connection to an MCP server: the requests in flight, and the meaning of each message that comes.

``ConnectionState.sort`` decides; ``exchange.py`` then does the I/O. Nothing here waits, reads a clock or opens a
socket.

Ids are strings of our own. A request of the server that has one of our ids is still a request (UP-10).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from wicketgate.access.shares import full_scope
from wicketgate.mcp_names import METHOD_NOT_FOUND
from wicketgate.upstreams.mcp.asking import ELICIT, ROOTS, unanswered
from wicketgate.upstreams.mcp.call import Call
from wicketgate.upstreams.mcp.wire import Message, params_of

PROGRESS = "notifications/progress"
LOG = "notifications/message"
CANCELLED = "notifications/cancelled"
LIST_CHANGED = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
RESOURCE_UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

_PREFIX = "wicketgate-"
_MAX_QUESTIONS = 256
_MAX_LEFT = 1_000
"""Requests left early whose answers may still come: an answer is no noise, however late."""


class OutgoingRequest(msgspec.Struct, frozen=True):
    """A request without its id. *headers* go with it where the transport is HTTP."""

    method: str
    params: Mapping[str, Any]
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class AnswerTo(msgspec.Struct, frozen=True):
    """The answer to *call*."""

    call: Call
    message: Message


class News(msgspec.Struct, frozen=True):
    """A notification that belongs to *call*: progress, a log message, or an event of its subscription."""

    call: Call
    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class Question:
    """The server asks the client of *call*, by one of the methods that are passed on; None where it cannot be known
    whose question it is."""

    request_id: int | str
    method: str
    params: Any
    call: Call | None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The server no longer wants the answer to its question."""

    request_id: int | str


@dataclass(frozen=True, slots=True)
class Announcement:
    """A notification about the server itself, such as a changed list."""

    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class OwnReply:
    """A request of the server that is answered at once with *message*."""

    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Late:
    """The first answer to a request whose caller has left."""


@dataclass(frozen=True, slots=True)
class Stray:
    """Nothing that concerns us: an answer to no request, or a notification for no one."""


Sorted = AnswerTo | News | Question | Withdrawn | Announcement | OwnReply | Late | Stray

LATE = Late()
STRAY = Stray()


class ConnectionState:
    def __init__(self) -> None:
        self._ids = count()
        self._calls: dict[str, Call] = {}
        self._left: dict[int | str | None, None] = {}
        self._questions: dict[int | str, Question] = {}
        self._passed_on = frozenset({ELICIT})

    @property
    def calls(self) -> list[Call]:
        return list(self._calls.values())

    def new_token(self) -> str:
        """The id of the next request, which is its progress token too."""
        return f"{_PREFIX}{next(self._ids)}"

    def begin(self, call: Call) -> None:
        self._calls[call.token] = call

    def pass_on(self, methods: frozenset[str]) -> None:
        """Take requests of the server by these *methods* for questions from now on."""
        self._passed_on = methods

    def end(self, call: Call) -> list[Question]:
        """Forget *call*. Returns its open questions, which have no one left to answer them."""
        if self._calls.pop(call.token, None) is not None and call.carried and not call.settled:
            self._left[call.token] = None
            if len(self._left) > _MAX_LEFT:
                del self._left[next(iter(self._left))]
        return [question for question in self._questions.values() if question.call is call] if self._questions else []

    def answered(self, request_id: int | str) -> None:
        """Forget a question."""
        self._questions.pop(request_id, None)

    def sort(self, message: Message, related: Call | None = None) -> Sorted:
        """The meaning of *message*. *related*: the request on whose own stream it came."""
        if message.method is None:
            call = self._calls.get(message.id) if isinstance(message.id, str) else None
            if call is None:
                return LATE if self._left.pop(message.id, STRAY) is None else STRAY
            return AnswerTo(call, message)
        if message.id is not None:
            return self._request(message.id, message.method, message, related)
        return self._notification(message.method, params_of(message), related)

    def by_id(self, token: str) -> Call | None:
        """The request with this id, if it is in flight."""
        return self._calls.get(token)

    def _request(self, request_id: int | str, method: str, message: Message, related: Call | None) -> Sorted:
        if method == "ping":
            return OwnReply(result(request_id, {}))
        if method not in self._passed_on:
            # It was not declared, so a server has no right to it.
            error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
            return OwnReply({"jsonrpc": "2.0", "id": request_id, "error": error})
        if request_id in self._questions:
            return STRAY
        asker = related or self._asker()
        if self._is_full(asker):
            return OwnReply(unanswered(request_id, method))
        params = params_of(message)
        if method == ROOTS and message.params is None:
            params = {}  # it has none
        question = self._questions[request_id] = Question(request_id, method, params, asker)
        return question

    def _is_full(self, asker: Call | None) -> bool:
        """True if no more questions may be open, for the actor of *asker*: those of one may wait for ten minutes."""
        held = Counter(_actor_of(question.call) for question in self._questions.values())
        return full_scope(held[_actor_of(asker)], len(self._questions), _MAX_QUESTIONS, None) is not None

    def _notification(self, method: str, params: Any, related: Call | None) -> Sorted:
        call: Call | None
        match method, params:
            case "notifications/progress", {"progressToken": str(token)}:
                call = self._calls.get(token)
                return STRAY if call is None else News(call, method, params)
            case "notifications/message", _:
                call = related or self._only()
                return STRAY if call is None else News(call, method, params)
            case "notifications/cancelled", {"requestId": int() | str() as request_id}:
                return Withdrawn(request_id) if request_id in self._questions else STRAY
            case _, {"_meta": {"io.modelcontextprotocol/subscriptionId": str(token)}} if token in self._calls:
                return News(self._calls[token], method, params)
        if method in LIST_CHANGED or method == RESOURCE_UPDATED:
            return Announcement(method, params)
        return STRAY

    def _only(self) -> Call | None:
        """The one call in flight, if there is just one: a message must not reach the caller of another call."""
        calls = [call for call in self._calls.values() if call.context is not None]
        return calls[0] if len(calls) == 1 else None

    def _asker(self) -> Call | None:
        """The call that a question belongs to, if all calls in flight are one client's."""
        calls = [call for call in self._calls.values() if call.context is not None]
        clients = {(call.context.identity.actor, call.context.session) for call in calls if call.context is not None}
        return calls[-1] if len(clients) == 1 else None


def _actor_of(call: Call | None) -> str:
    """Empty where it is not known."""
    return "" if call is None or call.context is None else call.context.identity.actor


def result(request_id: int | str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Our answer to a request of the server."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}
