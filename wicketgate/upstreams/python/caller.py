"""Sends progress and log messages of a running function to its caller: from any thread, in order (UP-34)."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from wicketgate.ports import CallContext, Caller
from wicketgate.tools import ToolContext

_LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})

_MAX_WAITING = 100
"""Messages that may wait for a caller that reads slowly. Later ones are dropped."""
_FINISH_S = 1.0

_Send = Callable[[], Awaitable[None]]


class CallerMessages:
    """The messages of one call. Nothing is started before the first one."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Send] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._over = False

    def context(self, call: CallContext) -> ToolContext:
        return ToolContext(
            call.identity.actor, call.correlation_id, self._progress, self._log, is_over=lambda: self._over
        )

    async def finish(self) -> None:
        """Wait until the messages are sent, so that they come before the result, unless the caller is too slow."""
        # The last message of a function on this loop is queued by the loop's next turn.
        await asyncio.sleep(0)
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=_FINISH_S)

    def close(self) -> None:
        self._over = True
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        numbers = [number for number in (progress, total) if number is not None]
        if all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
            self._post(partial(self._caller.progress, progress, total, None if message is None else str(message)))

    def _log(self, level: str, data: object, logger: str | None) -> None:
        try:
            plain: Any = to_jsonable_python(data, by_alias=True, inf_nan_mode="null", fallback=str)
        except (PydanticSerializationError, ValueError, TypeError):
            plain = "(what was logged here is not JSON)"
        self._post(partial(self._caller.log, level if level in _LEVELS else "info", plain, logger))

    def _post(self, send: _Send) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue, send)
        except RuntimeError:
            return  # the loop is closed, and the caller with it

    def _queue(self, send: _Send) -> None:
        if self._over or len(self._waiting) >= _MAX_WAITING:
            return
        self._waiting.append(send)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._waiting:
            await self._waiting.popleft()()
