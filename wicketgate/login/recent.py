"""An answer that is asked for at most every so many seconds, however many want to know it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

FRESH_S = 30.0
_FAILED_S = 5.0


class Recent(Generic[T]):
    """The answer of *ask* now or a moment ago: those who come together wait for one, and a failure is not tried again
    at once either. *clock* is monotonic, in seconds."""

    def __init__(self, ask: Callable[[], Awaitable[T]], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._asking: asyncio.Task[T] | None = None
        self._stale_at = 0.0

    async def get(self) -> T:
        """Raises as *ask* does."""
        asking = self._asking
        if asking is None or (asking.done() and (asking.cancelled() or self._clock() >= self._stale_at)):
            asking = self._asking = asyncio.create_task(self._asked(), name="question to an issuer")
            asking.add_done_callback(_looked_at)
        # Whoever leaves takes the answer from nobody.
        await asyncio.wait([asking])
        return asking.result()

    async def _asked(self) -> T:
        fresh_s = _FAILED_S
        try:
            answer = await self._ask()
            fresh_s = FRESH_S
        finally:
            self._stale_at = self._clock() + fresh_s
        return answer


def _looked_at(task: "asyncio.Task[T]") -> None:
    if not task.cancelled():
        task.exception()  # those who waited may have left
