"""Blocking functions beside the event loop, in a bounded number of threads that never hold the process (UP-35).

A thread cannot be ended from outside. One whose caller has gone runs on, keeps the slot of its actor, and is counted.
"""

import asyncio
import contextvars
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from wicketgate.access.shares import full_scope
from wicketgate.fleet.slots import CallSlots

T = TypeVar("T")

_Job = Callable[[], None]


class NoThreadLeft(Exception):
    """Every thread that the actor may use runs a function whose caller no longer waits for it."""


class DaemonThreads:
    """At most *limit* threads, made when they are first needed, ended by ``close`` when they are idle. They are shared
    among actors as the slots of an upstream are (``fleet/slots.py``), or each actor gets at most *per_actor*."""

    def __init__(self, limit: int, name: str, per_actor: int | None = None) -> None:
        self._limit = limit
        self._name = name
        self._slots = CallSlots(limit, per_actor=per_actor)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0
        self.abandoned: Counter[str] = Counter()
        """By actor, the number of threads whose function runs though its caller has gone."""

    async def run(self, function: Callable[[], T], actor: str = "") -> T:
        """Returns what *function* returns in a copy of the caller's context, or raises what it raises.

        Waits for a free thread; raises NoThreadLeft at once if none can become free for *actor*. A caller that leaves
        early takes the function back only if it has not begun.
        """
        if full_scope(self.abandoned[actor], self.abandoned.total(), self._limit, self._slots.per_actor):
            raise NoThreadLeft
        if not self._slots.enter(actor):
            await self._slots.wait(actor)
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[bool, Any]] = loop.create_future()
        context = contextvars.copy_context()

        def ended(ok: bool, value: Any) -> None:
            self._idle += 1
            self._slots.leave(actor)
            if outcome.cancelled():
                self.abandoned -= Counter((actor,))
            else:
                outcome.set_result((ok, value))

        def job() -> None:
            # As a value, since a future cannot hold every exception (StopIteration).
            ending: tuple[bool, Any]
            try:
                ending = True, context.run(function)
            except Exception as error:
                ending = False, error
            except BaseException as error:
                # sys.exit() in a thread must not end the process that waits for it.
                ending = False, RuntimeError(type(error).__name__)
            try:
                loop.call_soon_threadsafe(ended, *ending)
            except RuntimeError:
                return  # the loop is closed: the process ends

        if self._idle:
            self._idle -= 1
        else:
            try:
                threading.Thread(target=self._work, name=f"{self._name} {self._threads + 1}", daemon=True).start()
            except RuntimeError:  # the system gives us no more of them at the moment
                self._slots.leave(actor)
                raise
            self._threads += 1
        self._jobs.put(job)
        try:
            ok, value = await outcome
        except asyncio.CancelledError:
            if outcome.cancelled():
                self.abandoned[actor] += 1
            raise
        if not ok:
            raise value
        result: T = value
        return result

    def close(self) -> None:
        """Ends idle threads now, the others with what they run."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it holds the arguments and the result
