"""How a read that takes too long is ended: its response is closed under it.

``asyncio.timeout`` around each read costs a fifth of reading a model's stream: it makes and cancels a timer for every
delta. Here one timer serves all reads of a stream; it looks at the deadline only when it fires.
"""

import asyncio
import math

import httpx


class ReadWatch:
    """Watches the reads of one response. After ``expired`` the read that was under way fails as if cut off."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._loop = asyncio.get_running_loop()
        self.read_by = math.inf
        """Infinite once the read is over: whatever the consumer does then takes as long as it takes."""
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def expired(self) -> bool:
        return self._closing is not None

    def begin(self, read_by: float) -> None:
        """A read begins that must be over at *read_by*, in the loop's time."""
        self.read_by = read_by
        if read_by < self._due:
            self._arm(read_by)

    async def aclose(self) -> None:
        """Stop watching, and close the response."""
        if self._timer is not None:
            self._timer.cancel()
        if self._closing is not None:
            await self._closing
        await self._response.aclose()

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._due = math.inf
        if self._loop.time() >= self.read_by:
            self._closing = self._loop.create_task(self._response.aclose())
        elif self.read_by < math.inf:
            self._arm(self.read_by)
