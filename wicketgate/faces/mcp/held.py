"""Calls that are held while a person answers: the client of the newer era has gone, and comes back with the answers.

A server of the handshake era asks in the middle of a call, where a client of 2026-07-28 can only be asked by an answer
to its request (``input_required``). So the call goes on in a task of its own, and the client's second attempt brings it
the answer and waits for what comes next (FACE-72 to FACE-79). A call that cannot be held is asked nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

from wicketgate.access.identity import Identity
from wicketgate.errors import RateLimited
from wicketgate.faces.mcp.caller import ClientCaller, answer_of
from wicketgate.gateway.running_calls import RunningCall, RunningCalls
from wicketgate.ports import AnswerTime, Caller, CannotAsk

R = TypeVar("R")

_MAX_OPEN = 32
"""Questions of one call that wait at once."""


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


class HeldCaller:
    """Implements Caller for a client that is asked between two attempts. What the server says goes to the attempt that
    waits now, the newest one, and to nobody while none does."""

    def __init__(self, first: ClientCaller, hold: Callable[[], bool], answer_s: float) -> None:
        """*hold* makes sure that the call outlives its request; false where that cannot be. A question is given up
        after *answer_s*."""
        self._first = first
        self._present: list[ClientCaller] = [first]
        self._hold = hold
        self._answer_s = answer_s
        self._keys = count(1)
        self._open: dict[str, _Question] = {}
        self._news: set[asyncio.Future[None]] = set()
        self._over = False

    @property
    def answers(self) -> AnswerTime:
        return self._first.answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._first.capabilities

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._present:
            await self._present[-1].progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        if self._present:
            await self._present[-1].log(level, data, logger)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._over or len(self._open) >= _MAX_OPEN or not self._first.may_be_asked(method, params):
            raise CannotAsk(method)
        if not self._hold():
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

    @property
    def attended(self) -> bool:
        return bool(self._present)

    def attend(self, caller: ClientCaller) -> None:
        """*caller* waits from now on."""
        if caller not in self._present:
            self._present.append(caller)

    def leave(self, caller: ClientCaller) -> None:
        """*caller* waits no more."""
        self._present.remove(caller)

    def open_for(self, caller: ClientCaller) -> Mapping[str, Mapping[str, Any]]:
        """The open questions, as ``inputRequests``. One that *caller* cannot answer is given up."""
        for question in self._open.values():
            if not question.answer.done() and not caller.may_be_asked(question.method, question.params):
                question.answer.set_exception(CannotAsk(question.method))
        return {
            key: {"method": question.method, "params": dict(question.params)}
            for key, question in self._open.items()
            if not question.answer.done()
        }

    def take(self, responses: Mapping[str, Any]) -> None:
        """The client's answers, by key. What answers no open question, or in no valid way, is left out."""
        for key, response in responses.items():
            question = self._open.get(key)
            if question is None or question.answer.done():
                continue
            if (answer := answer_of(question.method, response)) is not None:
                question.answer.set_result(answer)

    def give_up(self) -> None:
        """Ask no more, and wait for no answer: the server is told that nobody answered."""
        self._over = True
        for question in self._open.values():
            if not question.answer.done():
                question.answer.set_exception(CannotAsk(question.method))

    async def news(self) -> None:
        """Return at the next question, or at the end of the call."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._news.add(waiter)
        try:
            await waiter
        finally:
            self._news.discard(waiter)

    def tell(self) -> None:
        """Wake those that wait for news."""
        for waiter in self._news:
            if not waiter.done():
                waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class _Held:
    """What a call keeps for its client's later requests."""

    identity: Identity
    caller: HeldCaller


class HeldCalls:
    """The calls of one door that may be held. *running* bounds them in number; a question waits for *answer_s* at
    most."""

    def __init__(self, running: RunningCalls, answer_s: float) -> None:
        self._running = running
        self._answer_s = answer_s
        self._all: set[HeldCaller] = set()

    async def begin(
        self, caller: ClientCaller, identity: Identity, label: str, run: Callable[[Caller], Awaitable[R]]
    ) -> R | Asked:
        """Run a call for *caller*, which waits; returns its result, or its questions. Raises what it raises."""
        held = HeldCaller(caller, lambda: self._hold(call), self._answer_s)

        async def work() -> _Outcome[R]:
            try:
                return _Outcome(await run(held))
            except Exception as error:
                return _Outcome(error=error)

        call: RunningCall[_Outcome[R]] = self._running.begin(
            identity.actor, label, work(), key_id=identity.key_id, request=_Held(identity, held)
        )
        self._all.add(held)
        call.at_end(lambda: self._ended(held))
        return await self._wait(call, held, caller)

    async def resume(
        self, caller: ClientCaller, identity: Identity, id: str, responses: Mapping[str, Any]
    ) -> Any | Asked:
        """Give *responses* to the call *id*, and wait for what comes next: its result, or further questions. Raises
        what the call raises, and NotHeld."""
        call = self._running.get(identity.actor, id)
        held = None if call is None else call.request
        # Another key of the same actor may be allowed less than the one that began the call.
        if call is None or not isinstance(held, _Held) or held.identity != identity:
            raise NotHeld
        held.caller.take(responses)
        return await self._wait(call, held.caller, caller)

    def give_up(self) -> None:
        """Ask no more: no answer can come."""
        for caller in self._all:
            caller.give_up()

    async def _wait(self, call: "RunningCall[_Outcome[R]]", held: HeldCaller, caller: ClientCaller) -> R | Asked:
        held.attend(caller)
        try:
            while not call.ended:
                if requests := held.open_for(caller):
                    held.leave(caller)
                    return Asked(call.id, requests)
                await held.news()
        except asyncio.CancelledError:
            held.leave(caller)
            # One who asks a second time is still there when the first is given up.
            if not held.attended:
                call.cancel("its client has left")
                self._running.drop(call)
            raise
        held.leave(caller)
        self._running.drop(call)
        return call.outcome().get()

    def _hold(self, call: RunningCall[Any]) -> bool:
        try:
            self._running.hold(call)
        except RateLimited:
            return False
        return True

    def _ended(self, held: HeldCaller) -> None:
        self._all.discard(held)
        held.tell()
