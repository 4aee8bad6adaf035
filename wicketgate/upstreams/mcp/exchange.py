"""The I/O side of one connection: requests wait here for their answers, and each message is carried out as the session
has sorted it.

A server of the handshake era asks the client of a call while it runs (FACE-11, UP-100). The tasks of a connection end
with it, and its cleaning up is not broken off by a cancellation.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from wicketgate.answer_room import AnswerHold
from wicketgate.errors import GatewayError
from wicketgate.ports import CallContext, CannotAsk
from wicketgate.task_end import cancel_all
from wicketgate.upstreams.mcp.asking import ELICIT, unanswered
from wicketgate.upstreams.mcp.call import NOT_VALID, Call, Gone, Heard, Malformed
from wicketgate.upstreams.mcp.session import (
    CANCELLED,
    Announcement,
    AnswerTo,
    ConnectionState,
    Late,
    News,
    OutgoingRequest,
    OwnReply,
    Question,
    Sorted,
    Withdrawn,
    result,
)
from wicketgate.upstreams.mcp.wire import SHOWN, Message, answered_id

log = logging.getLogger("wicketgate.upstream")

UNASKED_A_SECOND = 5_000
UNASKED_AT_ONCE = 10_000
_LIGHT = 1
_HEAVY = 10
"""Measures of what a server may send beside its answers before it is read more slowly: so many notes, or a tenth of it
in messages that cause work."""
_BYTES_OF_ONE = 512

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


class Exchange:
    """The requests in flight on one connection, and the server's own requests and news.

    *announced* gets the notifications that are about the server itself; set it before the first is of interest.
    *heard* grows with everything that the server says on the connection, answers included.
    """

    def __init__(self, name: str, post: Post) -> None:
        self.announced: Heard = _unheard
        self.heard = 0
        self.background = Background()
        self.name = name
        self._post = post
        self._session = ConnectionState()
        self._questions: dict[int | str, asyncio.Task[None]] = {}
        self._gone: str | None = None

    def pass_on(self, methods: frozenset[str]) -> None:
        """Pass requests of the server by these *methods* on to clients from now on."""
        self._session.pass_on(methods)

    def new_call(self, context: CallContext | None, heard: Heard | None = None) -> Call:
        return Call(self._session.new_token(), context, heard)

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight."""
        return not self._session.calls

    def begin(self, call: Call) -> None:
        """Note that *call* is in flight from now on; always ``end`` it. Raises Gone."""
        if self._gone is not None:
            raise Gone(self._gone, carried=False)
        self._session.begin(call)

    def end(self, call: Call) -> None:
        """Note that *call* is over. If it was left early, the server is asked to cancel it, and no other one."""
        for question in self._session.end(call):
            # The person that was asked has no call any more.
            if self._questions[question.request_id].cancel():
                self._post(unanswered(question.request_id, question.method))
        if call.carried and call.cancellable and not call.settled:
            self._post({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": call.token}})

    async def request(self, outgoing: OutgoingRequest, call: Call, send: Send) -> dict[str, Any]:
        """The result of a request whose answer comes on the common stream. Raises Refused, Malformed, Gone."""
        self.begin(call)
        try:
            await send({"jsonrpc": "2.0", "id": call.token, "method": outgoing.method, "params": outgoing.params}, call)
            return await call.answer()
        finally:
            self.end(call)

    def take(self, message: Message, related: Call | None = None, hold: AnswerHold | None = None) -> int:
        """Carry out *message*, which came on the stream of *related* if that is given. Returns how much of the server's
        measure it uses up: nothing for an answer. What *hold* has for the message is passed on to its call."""
        self.heard += 1
        found = self._session.sort(message, related)
        if hold is not None and hold.bytes and isinstance(found, AnswerTo) and found.call.hold is not None:
            found.call.hold.keep(hold)
        return self._carry_out(found)

    def note_life(self) -> None:
        """Notes a sign of life of the server, or that it cannot give one because it is not read."""
        self.heard += 1

    def take_elsewhere(self, message: Message) -> int:
        """As ``take``, for messages on a stream of no request while callers read streams of their own."""
        self.heard += 1
        found = self._session.sort(message)
        weight = self._carry_out(found)
        if isinstance(found, News):
            self.background.start(found.call.pass_on())
        return weight

    def _carry_out(self, found: Sorted) -> int:
        match found:
            case AnswerTo(call, message):
                call.settle(message)
                return 0
            case News(call, method, params):
                call.note(method, params)
                return _LIGHT
            case Question():
                self._ask(found)
            case Withdrawn(request_id):
                self._questions[request_id].cancel()
                return _LIGHT
            case Announcement(method, params):
                self.announced(method, params)
            case OwnReply(message):
                self._post(message)
            case Late():
                return 0
            case _:
                return _LIGHT
        return _HEAVY

    def unreadable(self, token: str, error: Exception) -> None:
        """Fail the request with the id *token*, if it is in flight: its answer was dropped or is broken."""
        if (call := self._session.by_id(token)) is not None:
            call.fail(error)

    def broken(self, data: bytes | bytearray) -> None:
        """Fail the request whose answer *data* is, if that shows an id: it is no valid JSON (UP-220)."""
        self.unreadable(answered_id(bytes(data[:SHOWN]), bytes(data[-SHOWN:])), Malformed(NOT_VALID))

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

    def _ask(self, question: Question) -> None:
        request_id = question.request_id
        if question.call is None:
            # It may be any call's, so the result of none is for other callers.
            for one in self._session.calls:
                if one.context is not None:
                    one.context.marks.questioned = True

        async def answer() -> None:
            try:
                reply = await _answer_to(self.name, question)
            except GatewayError as refused:
                # The person has answered, but the call may go on no longer.
                self._post(unanswered(question.request_id, question.method))
                self._end_with(question.call, refused)
            else:
                self._post(reply)

        def over(_: object) -> None:
            self._session.answered(request_id)
            del self._questions[request_id]

        task = self._questions[request_id] = self.background.start(answer())
        # Not in the task itself: one that is cancelled before its first step never runs.
        task.add_done_callback(over)

    def _end_with(self, call: Call | None, error: Exception) -> None:
        """End *call* with *error*, at the server too."""
        if call is not None and not call.settled:
            call.fail(error)
            self._post({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": call.token}})


def _unheard(method: str, params: object) -> None:
    """Drops an announcement."""


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
