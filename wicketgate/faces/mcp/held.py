"""Calls that are held while a person answers: the client of the newer era has gone, and comes back with the answers.

A server of the handshake era asks in the middle of a call, where a client of 2026-07-28 can only be asked by an answer
to its request (``input_required``). So the call goes on in a task of its own, and the client's second attempt brings it
the answer and waits for what comes next (FACE-72 to FACE-79). A call that cannot be held is asked nothing.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from wicketgate.access.identity import Identity
from wicketgate.errors import InputRequired, RateLimited
from wicketgate.faces.mcp.caller import QUESTIONS
from wicketgate.faces.mcp.request import RpcError
from wicketgate.faces.mcp.sdk import imported
from wicketgate.gateway.running_calls import RunningCall, RunningCalls
from wicketgate.mcp_names import INTERNAL_ERROR
from wicketgate.ports import AnswerTime, Caller, CannotAsk, InputAnswers
from wicketgate.results.firewall import is_bulky

R = TypeVar("R")

_MAX_OPEN = 32
"""Questions of one call that wait at once."""
_MAX_ROUNDS = 8
_MESSAGE_CHARS = 500
_BYTES_OF_ONE = 60


class NotHeld(Exception):
    """A second attempt for a call that is not held, or no longer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The questions that a call waits for, by key as in ``inputRequests``; *id* is that of the call."""

    id: str
    requests: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[R]):
    value: R | None = None
    error: Exception | None = None

    def get(self) -> R:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class _Question:
    method: str
    params: Mapping[str, Any]
    answer: "asyncio.Future[Mapping[str, Any]]"


class Client(Caller, Protocol):
    """The client that waits for a held call."""

    def may_be_asked(self, method: str, params: Mapping[str, Any]) -> bool: ...


class HeldCaller:
    """Implements Caller for a client that is asked between two attempts. What the server says goes to the attempt that
    waits now, the newest one, and to nobody while none does."""

    def __init__(self, first: Client, hold: Callable[[], Awaitable[bool]], answer_s: float) -> None:
        """*hold* makes sure that the call outlives its request; false where that cannot be. A question is given up
        after *answer_s*."""
        self.answers: AnswerTime = first.answers
        self.capabilities = first.capabilities
        self._may_be_asked: Callable[[str, Mapping[str, Any]], bool] = first.may_be_asked
        self._present: list[Caller] = [first]
        self._hold = hold
        self._answer_s = answer_s
        self._keys = count(1)
        self._open: dict[str, _Question] = {}
        self._news = asyncio.Event()
        self._over = False
        self.has_no_request = False
        """True for a call that goes on as a task, whose client asks for its state."""
        self.message = ""
        """The last words of its server's progress."""
        self.tools: set[str] = set()
        """The ids of the tools that are called: one, or those of a batch."""
        self.changed = datetime.now(UTC)
        self.on_change: Callable[[bool], object] = lambda often: None
        """Called when another process has to know what has changed; with True for progress, which comes often."""
        self.last: tuple[float, float | None, str | None] | None = None
        """The last progress."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.last = progress, total, message
        if message:
            self.message, self.changed = message[:_MESSAGE_CHARS], datetime.now(UTC)
        self.on_change(True)
        if self._present:
            await self._present[-1].progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        if self._present:
            await self._present[-1].log(level, data, logger)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        await imported(QUESTIONS)
        if self._over or len(self._open) >= _MAX_OPEN or not self._may_be_asked(method, params):
            raise CannotAsk(method)
        # Its client may have had another question in the meantime.
        if not await self._hold() or self._over or len(self._open) >= _MAX_OPEN:
            raise CannotAsk(method)
        key = f"question-{next(self._keys)}"
        question = self._open[key] = _Question(method, params, asyncio.get_running_loop().create_future())
        self.tell()
        try:
            async with asyncio.timeout(self._answer_s):
                return await question.answer
        except TimeoutError:
            raise CannotAsk(method) from None
        finally:
            del self._open[key]
            self.on_change(False)

    def pending(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def page_done(self, elicitation_id: str) -> None:
        if self._present:
            await self._present[-1].page_done(elicitation_id)

    @property
    def attended(self) -> bool:
        return bool(self._present)

    def attend(self, caller: Caller) -> None:
        """*caller* waits from now on."""
        if caller not in self._present:
            self._present.append(caller)

    def leave(self, caller: Caller) -> None:
        """*caller* waits no more."""
        self._present.remove(caller)

    def open_for(self, caller: Client) -> Mapping[str, Mapping[str, Any]]:
        """The open questions, as ``inputRequests``. One that *caller* cannot answer is given up."""
        for key, question in self._open.items():
            if not caller.may_be_asked(question.method, question.params):
                self.settle(key, None)
        return self.open()

    def open(self) -> Mapping[str, Mapping[str, Any]]:
        """As ``open_for``, for nobody."""
        return {
            key: {"method": question.method, "params": dict(question.params)}
            for key, question in self._open.items()
            if not question.answer.done()
        }

    def take(self, responses: Mapping[str, Any]) -> None:
        """The client's answers, by key. What answers no open question, or in no valid way, is left out."""
        from wicketgate.faces.mcp.questions import answer_of

        for key, response in responses.items():
            question = self._open.get(key)
            if question is not None and (answer := answer_of(question.method, response)) is not None:
                self.settle(key, answer)

    def settle(self, key: str, answer: Mapping[str, Any] | None) -> None:
        """Answers an open question, or gives it up if *answer* is None."""
        question = self._open.get(key)
        if question is None or question.answer.done():
            return
        if answer is None:
            question.answer.set_exception(CannotAsk(question.method))
        else:
            question.answer.set_result(answer)
            self.changed = datetime.now(UTC)

    def give_up(self) -> None:
        """Ask no more, and wait for no answer: the server is told that nobody answered."""
        self._over = True
        for key in self._open:
            self.settle(key, None)

    def end(self) -> None:
        """The call has ended. Its first request, which may be large, is kept no longer."""
        self._over = True
        self._may_be_asked = lambda method, params: False
        self.tell()

    def become_task(self) -> None:
        """Its client asks for its state from now on."""
        self.has_no_request = True
        self.tell()

    async def news(self) -> None:
        """Return at the next question, or at the end of the call."""
        await self._news.wait()

    def tell(self) -> None:
        """Wake those that wait for news."""
        self.changed = datetime.now(UTC)
        self.on_change(False)
        self._news.set()
        self._news = asyncio.Event()


class HeldCall(Generic[R]):
    """A call that its client may come back to."""

    def __init__(self, identity: Identity, caller: HeldCaller, kept_s: float) -> None:
        """*kept_s*: so long its result is kept after its end."""
        self.identity = identity
        self.caller = caller
        self.created = datetime.now(UTC)
        self.running: RunningCall[_Outcome[R]]
        self._kept_s = kept_s

    @property
    def kept_s(self) -> float | None:
        """Seconds from its beginning for which it is kept; None while it runs."""
        ended_at = self.running.ended_at
        return None if ended_at is None else ended_at - self.running.began + self._kept_s

    def outcome(self) -> R:
        """The result of an ended call. Raises what it raised, and UpstreamLost if it was cancelled."""
        return self.running.outcome().get()


Run = Callable[[HeldCaller, InputAnswers | None], Awaitable[R]]


class HeldCalls:
    """The calls of one door that may be held. *running* bounds them in number; a question waits for *answer_s* at
    most."""

    def __init__(self, running: RunningCalls, answer_s: float, may_still_use: Callable[[str, Identity], bool]) -> None:
        self._running = running
        self.keep: Callable[[HeldCall[Any]], Awaitable[None]]
        """Shows a call to other processes; awaited before a client is given its id."""
        self._may_still_use = may_still_use
        self._answer_s = answer_s
        self._all: set[HeldCaller] = set()

    @property
    def after_s(self) -> float:
        """The time after which a call may go on without its request; 0: never."""
        return self._running.limits.after_s

    async def begin(
        self,
        caller: Client,
        identity: Identity,
        label: str,
        run: Run[R],
        *,
        given: InputAnswers | None = None,
        after_s: float | None = None,
    ) -> R | Asked | HeldCall[R]:
        """Run a call for *caller*, which waits, with the answers that were *given*. Returns its result, or its
        questions; or the call itself if it takes longer than *after_s*. Raises what it raises."""
        held = HeldCaller(caller, lambda: self._hold(call.running), self._answer_s)
        call: HeldCall[R] = HeldCall(identity, held, self._running.limits.kept_s)

        async def weighed() -> _Outcome[R]:
            outcome = await _work(held, run, given)
            if self._running.is_held(call.running) and is_bulky(outcome.value):
                call.running.bytes = await asyncio.to_thread(_bytes_of, outcome.value)
            return outcome

        call.running = self._running.begin(identity.actor, label, weighed(), key_id=identity.key_id, door=call)
        self._all.add(held)
        call.running.at_end(lambda: self._ended(held))
        return await self._wait(call, caller, after_s)

    async def resume(
        self,
        caller: Client,
        identity: Identity,
        id: str,
        responses: Mapping[str, Any],
        *,
        after_s: float | None = None,
    ) -> Any | Asked | HeldCall[Any]:
        """Give *responses* to the call *id*, and wait for what comes next, as ``begin``. Raises what the call raises,
        and NotHeld."""
        call = self.find(identity, id)
        if call is None:
            raise NotHeld
        call.caller.take(responses)
        return await self._wait(call, caller, after_s)

    def find(self, identity: Identity, id: str) -> HeldCall[Any] | None:
        """The call *id* of this actor, if it is held."""
        running = self._running.get(identity.actor, id)
        call = None if running is None else running.door
        # Another key of the same actor may be allowed less than the one that began the call.
        return call if isinstance(call, HeldCall) and call.identity == identity else None

    def task(self, identity: Identity, id: str) -> HeldCall[Any] | None:
        """As ``find``, for as long as its tool is not hidden from this caller (FACE-96)."""
        call = self.find(identity, id)
        return call if call is not None and self.may_use_all(call.caller.tools, identity) else None

    def may_use_all(self, tools: Iterable[str], identity: Identity) -> bool:
        """False if one of *tools* is hidden from this caller by now."""
        return all(self._may_still_use(tool_id, identity) for tool_id in tools)

    def shown(self, call: HeldCall[Any]) -> None:
        """Its state was given: if it has ended, another call may take its place."""
        if call.running.ended:
            self._running.give(call.running)

    def cancel(self, call: HeldCall[Any], why: str = "its client has cancelled it") -> None:
        """End it, for a client that asks no more: once it has ended, another call may take its place."""
        call.running.cancel(why)
        call.running.at_end(lambda: self._running.give(call.running))

    def give_up(self) -> None:
        """Ask no more: no answer can come."""
        for caller in self._all:
            caller.give_up()

    async def answered(self, poll_s: float = 0.05) -> None:
        """Return when no call waits for its client, nor a client for one."""
        while any(caller.attended or caller.open() for caller in self._all):  # noqa: ASYNC110  # at the end only
            await asyncio.sleep(poll_s)

    async def _wait(self, call: HeldCall[R], caller: Client, after_s: float | None) -> R | Asked | HeldCall[R]:
        held, loop = call.caller, asyncio.get_running_loop()
        ends_at = None if after_s is None else loop.time() + after_s
        held.attend(caller)
        try:
            while not call.running.ended:
                if held.open_for(caller):
                    await self.keep(call)
                    if requests := held.open_for(caller):
                        held.leave(caller)
                        return Asked(call.running.id, requests)
                    continue
                try:
                    async with asyncio.timeout_at(ends_at):
                        await held.news()
                except TimeoutError:
                    ends_at = None
                    # What ended at this very moment may be a question, which is no result of a task.
                    if not call.running.ended and await self._hold(call.running):
                        held.become_task()
                        await self.keep(call)
                        held.leave(caller)
                        return call
        except asyncio.CancelledError:
            held.leave(caller)
            # One who asks a second time is still there when the first is given up.
            if not held.attended:
                self.cancel(call, "its client has left")
            raise
        held.leave(caller)
        # Its client repeats the attempt if the answer is lost.
        self.shown(call)
        return call.outcome()

    async def _hold(self, call: RunningCall[Any]) -> bool:
        try:
            await self._running.hold(call)
        except RateLimited:
            return False
        if call.ended:
            self._running.drop(call)
        return not call.ended

    def _ended(self, held: HeldCaller) -> None:
        self._all.discard(held)
        held.end()


def _bytes_of(value: object) -> int:
    """About the memory that *value*, as decoded from JSON, takes."""
    size, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        size += _BYTES_OF_ONE
        match one:
            case str():
                size += sys.getsizeof(one)
            case Mapping():
                waiting.extend(one)
                waiting.extend(one.values())
            case list():
                waiting.extend(one)
    return size


async def _work(held: HeldCaller, run: Run[R], given: InputAnswers | None) -> _Outcome[R]:
    for _ in range(_MAX_ROUNDS):
        try:
            return _Outcome(await run(held, given))
        except InputRequired as question:
            # While a request waits, its answer is the question. Later it is put like one in the middle of a call.
            if not held.has_no_request:
                return _Outcome(error=question)
            try:
                given = await _answers(held, question)
            except CannotAsk as method:
                needs = f"The tool needs an answer to {method}, which this client cannot give."
                return _Outcome(error=RpcError(INTERNAL_ERROR, needs))
        except Exception as error:
            return _Outcome(error=error)
    return _Outcome(error=RpcError(INTERNAL_ERROR, "The tool asked for input again and again; it was given up."))


async def _answers(held: HeldCaller, question: InputRequired) -> InputAnswers:
    """The answers for another attempt. Raises CannotAsk for a question that cannot be cancelled either."""

    async def one(request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return await held.ask(request["method"], request.get("params") or {})
        except CannotAsk:
            if request["method"] != "elicitation/create":
                raise
            return {"action": "cancel"}

    answers = await asyncio.gather(*map(one, question.requests.values()))
    given = dict(zip(question.requests, answers, strict=True))
    return InputAnswers(given, question.request_state, question.definition, question.approval)
