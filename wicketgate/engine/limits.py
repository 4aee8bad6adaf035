"""How many streams run at once, and how a running one is stopped for shutdown (S3 "503", DESIGN §3 "The engine")."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

T = TypeVar("T")

EndReason = Literal["cancelled", "disconnected"]
"""``disconnected``: nobody is left to read. As metrics tell it; the stream itself says ``cancelled`` either way."""


class Interrupted(Exception):
    """The run was asked to end; nothing failed."""


class Interruption:
    """Ends one run where it waits, without a task or a queue of its own.

    The run awaits through ``wait``; ``request`` may come from anywhere on the loop. Whatever is awaited is
    cancelled, and ``wait`` raises Interrupted there and at every later call.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelled: asyncio.Task[Any] | None = None
        self._others_wishes = 0
        self.reason: EndReason | None = None
        """Why it was asked to end, first come; None while it was not."""

    def request(self, reason: EndReason = "cancelled") -> None:
        if self.reason is not None:
            return
        self.reason = reason
        if self._waiting is not None:
            self._waiting.cancel()
            self._cancelled = self._waiting

    async def wait(self, awaitable: Awaitable[T]) -> T:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        if self.reason is not None:
            # Not awaited at all: what is always ready at once would never be cancelled, and so go on for ever.
            close = getattr(awaitable, "close", None)  # a coroutine that is never awaited would complain
            if close is not None:
                close()
            raise Interrupted
        # What asyncio.timeout does, without its clock: this is passed for every token of a model. The loop is named
        # because finding it makes a system call.
        self._waiting = task = asyncio.current_task(self._loop)
        self._others_wishes = 0 if task is None else task.cancelling()
        try:
            return await awaitable
        except asyncio.CancelledError:
            # Somebody else's wish, if there is one besides ours, goes first.
            if self._cancelled is not None and self._take_back() <= self._others_wishes:
                raise Interrupted from None
            raise
        finally:
            self._waiting = None
            if self._cancelled is not None:
                # What was awaited came to its end all the same; the next wait tells.
                self._take_back()

    def _take_back(self) -> int:
        """Our wish to cancel; how many others are left."""
        task, self._cancelled = self._cancelled, None
        return 0 if task is None else task.uncancel()


class StreamLimit:
    """At most *most* streams at once; the next one is refused before its response starts.

    It knows every run that holds a place, so that all of them can be told to end.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: set[Place] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def active(self) -> int:
        return len(self._places)

    def enter(self) -> "Place | None":
        """Take a place; None when there is none."""
        if len(self._places) >= self._most:
            return None
        place = Place(self._leave)
        self._places.add(place)
        self._empty.clear()
        return place

    def end_all(self) -> None:
        """Every run that holds a place ends where it waits, with ``done`` (cancelled)."""
        for place in self._places:
            place.interruption.request()

    async def wait_empty(self) -> None:
        await self._empty.wait()

    def _leave(self, place: "Place") -> None:
        self._places.discard(place)
        if not self._places:
            self._empty.set()


class Place:
    """One stream's place, and the handle by which its run is ended."""

    __slots__ = ("_leave", "interruption")

    def __init__(self, leave: Callable[["Place"], None]) -> None:
        self._leave = leave
        self.interruption = Interruption()

    def leave(self) -> None:
        """The stream is over. Once more does nothing."""
        self._leave(self)
