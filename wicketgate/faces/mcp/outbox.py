"""Notifications on their way to a client while its call runs."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

_MAX_WAITING = 1_000


class Outbox:
    """Writes one after another, so that none delays the tool server. They wait here, bounded, until the client has read
    the earlier ones."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque(maxlen=_MAX_WAITING)  # drops the oldest first
        self._writing: asyncio.Task[None] | None = None

    def put(self, write: Callable[[], Awaitable[None]]) -> None:
        self._waiting.append(write)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_out())

    async def close(self, *, written: bool) -> None:
        """*written*: not before all is written. Nothing is written afterwards."""
        if self._writing is None:
            return
        try:
            if written:
                await self._writing
        finally:
            self._writing.cancel()

    async def _write_out(self) -> None:
        while self._waiting:
            await self._waiting.popleft()()
