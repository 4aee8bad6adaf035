"""Shares the event loop among requests: many that are ready at once take turns, so that no turn of the loop is long
(OPS-41).

A turn of the loop runs all that is ready. With 512 calls ready, each of a millisecond, everything else waits for half a
second, and a probe of health, which takes three turns, for more. Here the steps of requests (from one wait to the
next) that are ready beyond a few milliseconds in one turn wait in a line, first come first served, and a few more run
in each turn. A request that comes alone never waits.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, TypeVar, cast

T = TypeVar("T")

_TURN_S = 0.010
"""The share of a turn that the steps of requests may take. Half of it is aimed at."""
_UNNOTICED_S = 0.001
_MOST_AT_ONCE = 256

UNPACED = frozenset({"/healthz", "/readyz"})
"""The paths of requests that do not stand in the line."""

_paced: ContextVar[bool] = ContextVar("paced", default=False)


class Pace:
    """The line of one event loop. Its methods are called on that loop."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._spent_s = 0.0
        self._turning = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._at_once = 8

    @property
    def waiting(self) -> int:
        """The number of steps in the line."""
        return len(self._waiting)

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Paces the tasks that paced requests start, from now on. A loop with a task factory of its own keeps it; then
        only the requests themselves are paced."""
        if loop.get_task_factory() is None:
            loop.set_task_factory(cast(Any, self._make_task))

    async def run(self, work: Awaitable[T]) -> T:
        """Awaits *work* and all tasks that it starts, paced."""
        before = _paced.set(True)
        try:
            return await _Steps(work, self)
        finally:
            _paced.reset(before)

    def begin_turns(self) -> None:
        """Looks after the line from the next turn of the loop on."""
        self._turning = True
        asyncio.get_running_loop().call_soon(self._turn)

    def place(self) -> "asyncio.Future[None]":
        """Returns what a step that may not run now has to wait for."""
        place = _Place(loop=asyncio.get_running_loop())
        self._waiting.append(place)
        return place

    def _turn(self) -> None:
        """Begins a new turn of the loop, and lets as many run as fill half of its share."""
        if self._spent_s > _TURN_S / 2:
            self._at_once = max(self._at_once // 2, 1)
        else:
            self._at_once = min(self._at_once * 2, _MOST_AT_ONCE)
        self._spent_s = 0.0
        woken = 0
        while self._waiting and woken < self._at_once:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                woken += 1
        # After those just woken.
        self._turning = bool(self._waiting)
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **options: Any
    ) -> "asyncio.Task[T]":
        if _paced.get() and isinstance(coro, CoroutineType):
            coro = _as_coroutine(_TaskSteps(coro, self))
        return asyncio.Task(coro, loop=loop, **options)


async def _as_coroutine(steps: "_TaskSteps[T]") -> T:
    return await steps


class _Place(asyncio.Future[None]):
    """A place in the line. A cancellation does not end it: the task gets it when its turn has come. So a thousand that
    are cancelled at once do not run at once, and none that asks again and again loses its turn."""

    def cancel(self, msg: Any = None) -> bool:
        return False


class _Steps(Awaitable[T]):
    """Runs an awaitable step by step. Between the end of a wait and the next step stands the line."""

    def __init__(self, work: Awaitable[T], pace: Pace) -> None:
        self._work = work
        self._pace = pace

    def __await__(self) -> Generator[Any, Any, T]:
        # Every step of every request passes here, so the line is asked without calls where there is none.
        pace, now, waiting = self._pace, self._pace._now, self._pace._waiting
        work = self._work.__await__()
        error: BaseException | None = None
        cancelled: asyncio.CancelledError | None = None
        begun, waits_for = False, None
        while True:
            # The wait, and then the line, also after a wait that ended with an error: hundreds may fail at once. What
            # is thrown in either belongs to the work.
            try:
                if begun:
                    yield waits_for
            except BaseException as thrown:
                error = thrown
            try:
                if (waiting or pace._spent_s >= _TURN_S) and not isinstance(error, GeneratorExit):
                    yield from pace.place()
            except asyncio.CancelledError as thrown:
                if begun:
                    error = thrown
                else:
                    cancelled = thrown
            except BaseException as thrown:
                error = thrown
            # A step, to the next wait.
            begun, began = True, now()
            try:
                waits_for = next(work) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                error = None
                pace._spent_s += now() - began
                if pace._spent_s > _UNNOTICED_S and not pace._turning:
                    pace.begin_turns()
            # Without the line the work would have begun before it was cancelled, and what it was given is its own to
            # free. So it is cancelled where it waits first.
            if cancelled is not None and (task := asyncio.current_task()) is not None:
                task.cancel(*cancelled.args)
                task.uncancel()  # it was counted before
                cancelled = None


class _TaskSteps(_Steps[T]):
    """The steps of a task, which may be cancelled before its first one. Then its coroutine is left as it was made, and
    Python would warn that nobody has awaited it (OPS-361)."""

    _work: "CoroutineType[Any, Any, T]"

    def __del__(self) -> None:
        self._work.close()
