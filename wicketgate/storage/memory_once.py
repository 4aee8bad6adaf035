"""Keys that can be added once only, in memory: those of used approvals."""

import heapq
from collections.abc import Callable

_MAX_KEPT = 100_000


class MemoryOnceStore:
    """Implements OnceStore for one process. Full of keys that have not lapsed, it takes no further key."""

    def __init__(self, now: Callable[[], float], *, max_kept: int = _MAX_KEPT) -> None:
        self._now = now
        self._max_kept = max_kept
        self._kept: set[str] = set()
        self._by_end: list[tuple[float, str]] = []

    async def add(self, key: str, until: float) -> bool:
        # Keys that have lapsed make room.
        now = self._now()
        while self._by_end and self._by_end[0][0] <= now:
            self._kept.discard(heapq.heappop(self._by_end)[1])
        if key in self._kept or len(self._kept) >= self._max_kept:
            return False
        self._kept.add(key)
        heapq.heappush(self._by_end, (until, key))
        return True

    def kept(self) -> list[tuple[str, float]]:
        """The keys with their ends; some may have lapsed."""
        return [(key, until) for until, key in list(self._by_end)]

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""
