"""What may happen once only, in memory: enough for one process."""

import heapq
from collections.abc import Callable

_MAX_KEPT = 100_000


class MemoryOnceStore:
    """Implements OnceStore. Full of what has not lapsed yet, it lets nothing more happen."""

    def __init__(self, now: Callable[[], float], *, max_kept: int = _MAX_KEPT) -> None:
        self._now = now
        self._max_kept = max_kept
        self._kept: set[str] = set()
        self._lapsing: list[tuple[float, str]] = []

    async def add(self, key: str, until: float) -> bool:
        now = self._now()
        while self._lapsing and self._lapsing[0][0] <= now:
            self._kept.discard(heapq.heappop(self._lapsing)[1])
        if key in self._kept or len(self._kept) >= self._max_kept:
            return False
        self._kept.add(key)
        heapq.heappush(self._lapsing, (until, key))
        return True

    async def aclose(self) -> None:
        """It holds nothing."""
