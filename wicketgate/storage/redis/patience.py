"""A bound on a wait for Redis that does not count the time in which this process itself stood."""

import asyncio
from types import TracebackType

_TICKS = 4


class Patience:
    """Ends its body with TimeoutError as ``asyncio.timeout`` does. The time is counted in parts, each from when the
    loop came to it: of a pause of the loop, or of the machine, one part counts, and answers that came meanwhile are
    read."""

    def __init__(self, limit_s: float) -> None:
        self._part_s = limit_s / _TICKS
        self._left = _TICKS
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._timer = asyncio.get_running_loop().call_later(self._part_s, self._tick)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._left -= 1
        if self._left:
            self._timer = loop.call_later(self._part_s, self._tick)
        else:
            self._timeout.reschedule(loop.time())
