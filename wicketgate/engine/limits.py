"""The number of streams at once, and the ways to stop a running one (CHAT-22, CHAT-78)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from wicketgate.gateway.lifecycle import Lifecycle

T = TypeVar("T")

EndReason = Literal["cancelled", "disconnected"]
"""``disconnected``: no reader is left. Only metrics tell the two apart; the stream says ``cancelled`` either way."""


class Interrupted(Exception):
    """The run was asked to end; nothing failed."""


class Interruption:
    """Ends one run where it waits, without a task or a queue of its own.

    The run awaits through ``wait``; ``request`` may come from anywhere on the loop. It cancels the current wait, and
    ``wait`` raises Interrupted there and at every later call.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelled: asyncio.Task[Any] | None = None
        self._others_requests = 0
        self.reason: EndReason | None = None
        """The reason of the first request; None before it."""

    def request(self, reason: EndReason = "cancelled") -> None:
        if self.reason is not None:
            return
        self.reason = reason
        # A run that does not wait now finds the reason at its next wait.
        if self._waiting is not None:
            self._waiting.cancel()
            self._cancelled = self._waiting

    async def wait(self, awaitable: Awaitable[T]) -> T:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self.reason is not None:
            # Not awaited at all: an awaitable that is always ready would never be cancelled, and the run never end.
            close = getattr(awaitable, "close", None)  # a coroutine that is never awaited would warn
            if close is not None:
                close()
            raise Interrupted
        # The method of asyncio.timeout, without its clock, because every token of a model passes here. The loop is
        # given because finding it makes a system call.
        self._waiting = task = asyncio.current_task(self._loop)
        self._others_requests = 0 if task is None else task.cancelling()
        try:
            return await awaitable
        except asyncio.CancelledError:
            # A cancellation by others, if there is one besides ours, takes precedence.
            if self._cancelled is not None and self._withdraw() <= self._others_requests:
                raise Interrupted from None
            raise
        finally:
            self._waiting = None
            if self._cancelled is not None:
                # The awaitable completed in spite of the cancellation; the next wait raises.
                self._withdraw()

    def _withdraw(self) -> int:
        """Withdraw our cancellation; return how many remain."""
        task, self._cancelled = self._cancelled, None
        return 0 if task is None else task.uncancel()


class Place:
    """One stream's place, and the handle by which its run is ended. A run and its readers share one."""

    __slots__ = ("_free", "holders", "interruption")

    def __init__(self, free: Callable[["Place"], None]) -> None:
        self._free = free
        self.holders = 1
        self.interruption = Interruption()

    def share(self) -> None:
        self.holders += 1

    def leave(self) -> None:
        """Give up one share. The last one frees the place; later calls do nothing."""
        if self.holders:
            self.holders -= 1
            if not self.holders:
                self._free(self)


class StreamLimit:
    """Admits at most *most* streams at once; the next one is refused before its response starts."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: set[Place] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def active(self) -> int:
        return len(self._places)

    def enter(self) -> Place | None:
        """Take a place; None if all are taken."""
        if len(self._places) >= self._most:
            return None
        place = Place(self._free)
        self._places.add(place)
        self._empty.clear()
        return place

    def end_all(self) -> None:
        """End every run that holds a place where it waits, with ``done`` (cancelled)."""
        for place in self._places:
            place.interruption.request()

    async def wait_empty(self) -> None:
        await self._empty.wait()

    def _free(self, place: Place) -> None:
        self._places.discard(place)
        if not self._places:
            self._empty.set()


class Drain:
    """Stops upstreams and streams in order: none are new, those that run go on for a while, then each ends properly."""

    def __init__(self, lifecycle: Lifecycle, streams: StreamLimit) -> None:
        self._lifecycle = lifecycle
        self._streams = streams
        self._followers: list[Callable[[], None]] = []

    def follow(self, step: Callable[[], None]) -> None:
        """Call *step* when the drain begins."""
        self._followers.append(step)

    def begin(self, drain_s: float) -> None:
        """Take nothing new from now on. Streams that still run after *drain_s* end with ``done`` (cancelled).

        A second call may shorten the time.
        """
        for step in self._followers:
            step()
        self._lifecycle.stop_after(drain_s)
        asyncio.get_running_loop().call_later(drain_s, self._streams.end_all)

    async def wait(self) -> None:
        """Return when the last stream is over, detached runs among them."""
        await self._streams.wait_empty()
