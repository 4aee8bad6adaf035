"""Calls in tasks of their own, which may outlive the requests that began them (EXEC-44 to EXEC-46).

A call that its request waits for costs a task and no more. One that is to outlive its request takes a place first:
places are bounded in number, for each owner and in all, and the answer of an ended call holds its place until it was
given, or was kept long enough.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wicketgate.access.shares import RETRY_AFTER_S, full_scope
from wicketgate.errors import RateLimited, UpstreamLost, WicketgateError
from wicketgate.ports import AnswerTime, Caller

log = logging.getLogger("wicketgate.calls")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunningLimits:
    """*after_s*: so long a request waits for its call, and then leaves it running; 0: as long as the call takes.
    *most*: calls that have outlived their requests, the ended ones that were not asked for among them. *per_owner*:
    those of one owner; None shares the places by what each owner holds. *kept_s*: so long an ended one is kept."""

    after_s: float = 25.0
    most: int = 256
    per_owner: int | None = None
    kept_s: float = 900.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The last progress of a call in its server's own words."""

    progress: float
    total: float | None
    message: str | None


class AttendedCaller:
    """Implements Caller for a call whose client may leave, and come back with another request.

    What the server says goes to the client that waits now, and to nobody while none does. A question waits for the next
    one. What the client can answer is taken from the request that began the call.
    """

    def __init__(self, caller: Caller) -> None:
        self._first = caller
        self._present: Caller | None = caller
        self._came = asyncio.Event()
        self._came.set()
        self.last: Progress | None = None
        self.questions = 0
        """The number of questions that are not answered yet."""

    def attend(self, caller: Caller) -> None:
        """From now on *caller* is the one that waits."""
        # A caller of this kind is the client of another request: only the client itself is spoken to.
        self._present = caller._present if isinstance(caller, AttendedCaller) else caller
        self._came.set()

    def leave(self) -> None:
        """Nobody waits from now on."""
        self._present = None
        self._came.clear()

    @property
    def answers(self) -> AnswerTime:
        return self._first.answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._first.capabilities

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.last = Progress(progress, total, message)
        if self._present is not None:
            await self._present.progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        if self._present is not None:
            await self._present.log(level, data, logger)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.questions += 1
        try:
            while self._present is None:
                await self._came.wait()
            return await self._present.ask(method, params)
        finally:
            self.questions -= 1


class RunningCall(Generic[T]):
    """One call in a task of its own. *label* is the id of its tool, *began* seconds on the clock of its owner object,
    *key_id* the key that began it. *request* is what its owner object's user wants to know of it later."""

    def __init__(
        self,
        id: str,
        owner: str,
        label: str,
        began: float,
        task: "asyncio.Task[T]",
        *,
        key_id: str = "",
        caller: AttendedCaller | None = None,
        request: Any = None,
    ) -> None:
        self.id = id
        self.owner = owner
        self.label = label
        self.began = began
        self.key_id = key_id
        self.caller = caller
        self.request = request
        self.ended_at: float | None = None
        self.why = "it was cancelled"
        self._task = task

    @property
    def progress(self) -> Progress | None:
        """The last progress that its server has reported."""
        return None if self.caller is None else self.caller.last

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def settled(self, timeout_s: float | None) -> bool:
        """Wait for its end, for *timeout_s* at the longest; true if it has ended. Cancelling the waiter leaves the call
        alone."""
        if not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
        return self._task.done()

    def outcome(self) -> T:
        """The result of an ended call. Raises what it raised, and UpstreamLost for one that was cancelled."""
        if self._task.cancelled():
            raise UpstreamLost(
                f"The call was ended before its result came: {self.why}. Whether it took effect is not known.",
                path=self.label,
            )
        return self._task.result()

    def cancel(self, why: str = "") -> None:
        """End the call where it waits, upstream too. *why* completes "the call was ended: " for its owner."""
        if not self._task.done():
            self.why = why or self.why
            self._task.cancel()


class RunningCalls:
    """The calls of a runtime that are under way in tasks of their own, by owner. *now* is a clock in seconds; *new_id*
    gives each call its id, which says nothing."""

    def __init__(self, limits: RunningLimits, *, now: Callable[[], float], new_id: Callable[[], str]) -> None:
        self.limits = limits
        self._now = now
        self._new_id = new_id
        self._all: set[RunningCall[Any]] = set()
        self._held: dict[tuple[str, str], RunningCall[Any]] = {}
        self._by_owner: dict[str, int] = {}
        self._draining = False

    @property
    def held(self) -> int:
        """The number of calls that have outlived their requests and whose answers were not given."""
        self._forget_old()
        return len(self._held)

    def begin(
        self,
        owner: str,
        label: str,
        work: Coroutine[Any, Any, T],
        *,
        key_id: str = "",
        caller: AttendedCaller | None = None,
        request: Any = None,
    ) -> RunningCall[T]:
        """Start *work* for a request that waits for it. It takes no place, and must not be left without ``hold``: when
        the request ends, it is cancelled. *caller* is the one that *work* speaks to; the other arguments are as in
        RunningCall."""
        task = asyncio.get_running_loop().create_task(work, name=f"call of {label}")
        call = RunningCall(
            self._new_id(), owner, label, self._now(), task, key_id=key_id, caller=caller, request=request
        )
        self._all.add(call)
        task.add_done_callback(lambda _: self._ended(call))
        return call

    def start(
        self,
        owner: str,
        label: str,
        work: Coroutine[Any, Any, T],
        *,
        key_id: str = "",
        caller: AttendedCaller | None = None,
        request: Any = None,
    ) -> RunningCall[T]:
        """``begin`` and ``hold`` in one: start *work*, which may outlive its request. Raises RateLimited where no
        place is left; then *work* was not run."""
        try:
            self._check_room(owner)
        except RateLimited:
            work.close()
            raise
        call = self.begin(owner, label, work, key_id=key_id, caller=caller, request=request)
        self.hold(call)
        return call

    def hold(self, call: RunningCall[Any]) -> None:
        """Let *call* outlive its request, for ``get``. Raises RateLimited where no place is left; then the call goes
        on, and is still its request's."""
        if (call.owner, call.id) in self._held:
            return
        self._check_room(call.owner)
        self._held[call.owner, call.id] = call
        self._by_owner[call.owner] = self._by_owner.get(call.owner, 0) + 1

    def get(self, owner: str, id: str) -> RunningCall[Any] | None:
        """The call that is held under this id; None where *owner* has none. Another owner's does not exist."""
        self._forget_old()
        return self._held.get((owner, id))

    def drop(self, call: RunningCall[Any]) -> None:
        """Its answer was given, and nobody will ask again. Later calls do nothing."""
        if self._held.pop((call.owner, call.id), None) is None:
            return
        left = self._by_owner[call.owner] - 1
        if left:
            self._by_owner[call.owner] = left
        else:
            del self._by_owner[call.owner]

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """Cancel the held calls of this key, and forget them; returns their number."""
        ended = [call for call in self._held.values() if call.key_id == key_id]
        for call in ended:
            call.cancel("its key is no longer valid")
            self.drop(call)
        return {"calls": len(ended)}

    def begin_drain(self) -> None:
        """Let no more calls outlive their requests. Those that do are ended with their servers, or by ``aclose``."""
        self._draining = True

    async def aclose(self) -> None:
        """Cancel every call, and return when each has ended."""
        self._draining = True
        calls = list(self._all)
        for call in calls:
            call.cancel("the gate is being stopped")
        if tasks := [call._task for call in calls]:
            await asyncio.wait(tasks)
        self._held.clear()
        self._by_owner.clear()

    def _ended(self, call: RunningCall[Any]) -> None:
        self._all.discard(call)
        call.ended_at = self._now()
        # An answer that nobody fetches must not be kept for as long as nobody calls.
        if (call.owner, call.id) in self._held and not self._draining:
            asyncio.get_running_loop().call_later(self.limits.kept_s + 1, self._forget_old)
        if call._task.cancelled():
            return
        error = call._task.exception()
        if error is not None and not isinstance(error, WicketgateError):
            log.error("%s: the call failed", call.label, exc_info=error)

    def _forget_old(self) -> None:
        oldest = self._now() - self.limits.kept_s
        for call in [c for c in self._held.values() if c.ended_at is not None and c.ended_at <= oldest]:
            self.drop(call)

    def _check_room(self, owner: str) -> None:
        if self._draining:
            raise RateLimited("The gate is being stopped; no call can go on without its request.")
        self._forget_old()
        limits = self.limits
        held = self._by_owner.get(owner, 0)
        full = full_scope(held, len(self._held), limits.most, limits.per_owner)
        if full is not None:
            whose = "of this actor " if full == "actor" else ""
            raise RateLimited(
                f"Too many calls {whose}go on without a request. Ask for the results of those that have ended.",
                details={"scope": full, "retry_after_s": RETRY_AFTER_S},
            )
