"""How many streams run at once, and how a running one is stopped for shutdown (S3 "503", DESIGN §3 "The engine")."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

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
        self._waiting: asyncio.Timeout | None = None
        self.reason: EndReason | None = None
        """Why it was asked to end, first come; None while it was not."""

    def request(self, reason: EndReason = "cancelled") -> None:
        if self.reason is not None:
            return
        self.reason = reason
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def wait(self, awaitable: Awaitable[T]) -> T:
        if self.reason is not None:
            # Not awaited at all: what is always ready at once would never be cancelled, and so go on for ever.
            close = getattr(awaitable, "close", None)  # a coroutine that is never awaited would complain
            if close is not None:
                close()
            raise Interrupted
        try:
            # A timeout without a deadline is the cheapest scope that another task can end from outside.
            async with asyncio.timeout(None) as self._waiting:
                return await awaitable
        except TimeoutError:
            if self.reason is not None:
                raise Interrupted from None
            raise
        finally:
            self._waiting = None


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
