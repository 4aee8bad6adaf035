"""How many streams run at once, and how a running one is stopped for shutdown (S3 "503", DESIGN §3 "The engine")."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The run was asked to end; nothing failed."""


class Interruption:
    """Ends one run where it waits, without a task or a queue of its own.

    The run awaits through ``wait``; ``request`` may come from anywhere on the loop. Whatever is awaited is
    cancelled, and ``wait`` raises Interrupted there and at every later call.
    """

    def __init__(self) -> None:
        self._requested = False
        self._waiting: asyncio.Timeout | None = None

    def request(self) -> None:
        self._requested = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def wait(self, awaitable: Awaitable[T]) -> T:
        if self._requested:
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
            if self._requested:
                raise Interrupted from None
            raise
        finally:
            self._waiting = None


class StreamLimit:
    """At most *most* streams at once; the next one is refused before its response starts."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.active = 0

    def enter(self) -> bool:
        """Take a place; False when there is none."""
        if self.active >= self._most:
            return False
        self.active += 1
        return True

    def leave(self) -> None:
        self.active -= 1
