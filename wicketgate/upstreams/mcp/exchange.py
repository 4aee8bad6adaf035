"""The requests in flight on one connection to an MCP server, and the meaning of each message that comes.

Ids are strings of our own. A request of the server that has one of our ids is still a request (UP-10). A server of the
handshake era asks the client of a call while it runs (FACE-11, UP-100). The tasks of a connection end with it, and its
cleaning up is not broken off by a cancellation.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from wicketgate.access.shares import full_scope
from wicketgate.answer_room import AnswerHold
from wicketgate.errors import GatewayError
from wicketgate.mcp_names import METHOD_NOT_FOUND
from wicketgate.ports import CallContext, CannotAsk
from wicketgate.task_end import cancel_all
from wicketgate.upstreams.mcp.asking import ELICIT, ROOTS, unanswered
from wicketgate.upstreams.mcp.call import NOT_VALID, Call, Gone, Heard, Malformed, OutgoingRequest
from wicketgate.upstreams.mcp.wire import SHOWN, Message, answered_id, params_of

log = logging.getLogger("wicketgate.upstream")

UNASKED_A_SECOND = 5_000
UNASKED_AT_ONCE = 10_000
_LIGHT = 1
_HEAVY = 10
"""Measures of what a server may send beside its answers before it is read more slowly: so many notes, or a tenth of it
in messages that cause work."""
_BYTES_OF_ONE = 512

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

Post = Callable[[Mapping[str, Any]], None]
"""Sends anything but a request, without waiting. Does nothing when it cannot be sent."""

Send = Callable[[Mapping[str, Any], Call], Awaitable[None]]
"""Sends a request. Waits while the server reads nothing; marks the call as carried before it leaves. Raises Gone and
Malformed."""


def weight_of(weight: int, size: int) -> int:
    """The measure that a message of *size* bytes uses up, whose kind costs *weight*: decoding takes long by its size,
    whatever it means (UP-64). An answer uses up nothing."""
    return weight and max(weight, size // _BYTES_OF_ONE)


class Background:
    """Tasks that end with their owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if self._closed:
            task.cancel()
        return task

    async def close(self) -> None:
        """Cancel what still runs, and wait until it has ended."""
        self._closed = True
        await cancel_all(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of a connection failed", exc_info=error)


async def to_its_end(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run *work*, which must be bounded, to its end also when the caller is cancelled in the meantime.

    The end of a program may cancel every task of the loop, this one too, even before its first step. So *work* is begun
    again then, and must be able to go on where it was.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        running = asyncio.get_running_loop().create_task(work())
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception:
                break  # its own, raised below
        if not running.cancelled():
            break
    if cancelled is not None:
        if (failure := running.exception()) is not None:
            log.error("the cleanup of a connection failed", exc_info=failure)
        raise cancelled
    running.result()


async def within(seconds: float, event: asyncio.Event) -> bool:
    """True if *event* was set in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Pace:
    """Allows *burst* at once, and *rate* a second after that. *now* is a clock in seconds."""

    def __init__(self, rate: float, burst: float, now: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._left = burst
        self._at = now()

    def take(self, weight: float = 1) -> float:
        """Seconds to wait before the next; 0 while there is something left."""
        now = self._now()
        self._left = min(self._left + (now - self._at) * self._rate, self._burst) - weight
        self._at = now
        return max(0.0, -self._left / self._rate)

    async def rest(self, weight: int) -> None:
        """Take *weight*, and wait until the next may come."""
        if weight and (pause_s := self.take(weight)):
            await asyncio.sleep(pause_s)


@dataclass(eq=False, slots=True)
class Question:
    """The server asks the client of *call*; None where it cannot be known whose question it is. *task* has it
    answered."""

    request_id: int | str
    method: str
    params: Any
    call: Call | None
    task: asyncio.Task[None] = field(init=False)


class Exchange:
    """The requests in flight on one connection, and the server's own requests and news.

    *announced* gets the notifications that are about the server itself; set it before the first is of interest.
    *heard* grows with everything that the server says on the connection, answers included. Requests of the server by
    the methods *passed_on* are questions to clients.
    """

    def __init__(self, name: str, post: Post) -> None:
        self.announced: Heard = lambda method, params: None
        self.heard = 0
        self.background = Background()
        self.name = name
        self.passed_on = frozenset({ELICIT})
        self._post = post
        self._ids = count()
        self.calls: dict[str, Call] = {}
        """Those in flight, by their ids."""
        self._left: dict[int | str | None, None] = {}
        self._questions: dict[int | str, Question] = {}
        self.gone: str | None = None
        """The reason for which no new request may begin."""

    def new_call(self, context: CallContext | None, heard: Heard | None = None) -> Call:
        """A request that is not sent yet. Its id is its progress token too."""
        return Call(f"{_PREFIX}{next(self._ids)}", context, heard)

    def begin(self, call: Call) -> None:
        """Note that *call* is in flight from now on; always ``end`` it. Raises Gone."""
        if self.gone is not None:
            raise Gone(self.gone, carried=False)
        self.calls[call.token] = call

    def end(self, call: Call) -> None:
        """Note that *call* is over. If it was left early, the server is asked to cancel it, and no other one."""
        early = call.carried and not call.settled
        if self.calls.pop(call.token, None) is not None and early:
            self._left[call.token] = None
            if len(self._left) > _MAX_LEFT:
                del self._left[next(iter(self._left))]
        for question in self._questions.values():
            # The person that was asked has no call any more.
            if question.call is call and question.task.cancel():
                self._post(unanswered(question.request_id, question.method))
        if early and call.cancellable:
            self._post({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": call.token}})

    async def request(self, outgoing: OutgoingRequest, call: Call, send: Send) -> dict[str, Any]:
        """The result of a request whose answer comes on the common stream. Raises Refused, Malformed, Gone."""
        self.begin(call)
        try:
            await send({"jsonrpc": "2.0", "id": call.token, "method": outgoing.method, "params": outgoing.params}, call)
            return await call.answer()
        finally:
            self.end(call)

    def take(
        self,
        message: Message,
        related: Call | None = None,
        hold: AnswerHold | None = None,
        *,
        elsewhere: bool = False,
    ) -> int:
        """Carry out *message*, which came on the stream of *related* if that is given. Returns how much of the server's
        measure it uses up: nothing for an answer, be it to a request whose caller has left, once. What *hold* has for
        the message is passed on to its call. *elsewhere*: it came on a stream of no request, while callers read streams
        of their own."""
        self.heard += 1
        if message.method is not None:
            if message.id is not None:
                return self._asked(message.id, message.method, message, related)
            return self._notified(message.method, params_of(message), related, elsewhere)
        call = self.calls.get(message.id) if isinstance(message.id, str) else None
        if call is None:
            return self._left.pop(message.id, _LIGHT) or 0
        if hold is not None and hold.bytes and call.hold is not None:
            call.hold.keep(hold)
        call.settle(message)
        return 0

    def note_life(self) -> None:
        """Notes a sign of life of the server, or that it cannot give one because it is not read."""
        self.heard += 1

    def _asked(self, request_id: int | str, method: str, message: Message, related: Call | None) -> int:
        if method == "ping":
            self._post(result(request_id, {}))
        elif method not in self.passed_on:
            # It was not declared, so a server has no right to it.
            error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
            self._post({"jsonrpc": "2.0", "id": request_id, "error": error})
        elif request_id in self._questions:
            return _LIGHT
        elif self._is_full(asker := related or self._asker()):
            self._post(unanswered(request_id, method))
        else:
            has_none = method == ROOTS and message.params is None
            self._ask(Question(request_id, method, {} if has_none else params_of(message), asker))
        return _HEAVY

    def _is_full(self, asker: Call | None) -> bool:
        """True if no more questions may be open, for the actor of *asker*: those of one may wait for ten minutes."""
        held = Counter(_actor_of(question.call) for question in self._questions.values())
        return full_scope(held[_actor_of(asker)], len(self._questions), _MAX_QUESTIONS, None) is not None

    def _notified(self, method: str, params: Any, related: Call | None, elsewhere: bool) -> int:
        call: Call | None = None
        match method, params:
            case "notifications/progress", {"progressToken": str(token)}:
                call = self.calls.get(token)
            case "notifications/message", _:
                call = related or self._only()
            case "notifications/cancelled", {"requestId": int() | str() as request_id}:
                # The server no longer wants the answer to its question.
                if (question := self._questions.get(request_id)) is not None:
                    question.task.cancel()
            case _, {"_meta": {"io.modelcontextprotocol/subscriptionId": str(token)}} if token in self.calls:
                call = self.calls[token]
            case _ if method in LIST_CHANGED or method == RESOURCE_UPDATED:
                self.announced(method, params)
                return _HEAVY
        if call is not None:
            call.note(method, params)
            if elsewhere:
                self.background.start(call.pass_on())
        return _LIGHT

    def _only(self) -> Call | None:
        """The one call in flight, if there is just one: a message must not reach the caller of another call."""
        calls = [call for call in self.calls.values() if call.context is not None]
        return calls[0] if len(calls) == 1 else None

    def _asker(self) -> Call | None:
        """The call that a question belongs to, if all calls in flight are one client's."""
        calls = [call for call in self.calls.values() if call.context is not None]
        clients = {(call.context.identity.actor, call.context.session) for call in calls if call.context is not None}
        return calls[-1] if len(clients) == 1 else None

    def unreadable(self, token: str, error: Exception) -> None:
        """Fail the request with the id *token*, if it is in flight: its answer was dropped or is broken."""
        if (call := self.calls.get(token)) is not None:
            call.fail(error)

    def broken(self, data: bytes | bytearray) -> None:
        """Fail the request whose answer *data* is, if that shows an id: it is no valid JSON (UP-220)."""
        self.unreadable(answered_id(bytes(data[:SHOWN]), bytes(data[-SHOWN:])), Malformed(NOT_VALID))

    def close(self, how: str) -> None:
        """The connection is gone, and with it all requests that wait."""
        self.gone = how
        for call in self.calls.values():
            call.fail(Gone(how, carried=True))
        for question in self._questions.values():
            question.task.cancel()

    def _ask(self, question: Question) -> None:
        request_id = question.request_id
        if question.call is None:
            # It may be any call's, so the result of none is for other callers.
            for one in self.calls.values():
                if one.context is not None:
                    one.context.marks.questioned = True

        async def answer() -> None:
            try:
                reply = await _answer_to(self.name, question)
            except GatewayError as refused:
                # The person has answered, but the call may go on no longer.
                self._post(unanswered(question.request_id, question.method))
                call = question.call
                if call is not None and not call.settled:
                    call.fail(refused)
                    self._post({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": call.token}})
            else:
                self._post(reply)

        def over(_: object) -> None:
            del self._questions[request_id]

        self._questions[request_id] = question
        question.task = self.background.start(answer())
        # Not in the task itself: one that is cancelled before its first step never runs.
        question.task.add_done_callback(over)


async def _answer_to(name: str, question: Question) -> Mapping[str, Any]:
    """The reply to a request of a handshake-era server: the client's answer, or that nobody gave one: to decline is a
    person's to say. Raises GatewayError if the call may not go on."""
    call, rejected = question.call, False
    what = "a question" if question.method == ELICIT else question.method
    if call is None:
        why = "it is not known whose call it belongs to"
    elif call.caller.answers == "never":
        why = "the client of the call cannot be asked"
    elif not isinstance(question.params, Mapping):
        why = "it is not well-formed"
    else:
        try:
            return result(question.request_id, await call.caller.ask(question.method, question.params))
        except CannotAsk as unable:
            why, rejected = "the client of the call cannot answer it", unable.rejected
    log.warning("%s: %s of the server was not shown to anyone: %s", name, what, why)
    return unanswered(question.request_id, question.method, rejected=rejected)


def _actor_of(call: Call | None) -> str:
    """Empty where it is not known."""
    return "" if call is None or call.context is None else call.context.identity.actor


def result(request_id: int | str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Our answer to a request of the server."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}
