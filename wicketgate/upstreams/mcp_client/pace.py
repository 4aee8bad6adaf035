"""How much a server may say unasked before it is read more slowly: a flood costs the others nothing (W-ISOLATION)."""

from collections.abc import Callable


class Pace:
    """*burst* at once, *rate* a second after that. *now* is a clock in seconds."""

    def __init__(self, rate: float, burst: float, now: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._now = now
        self._left = burst
        self._at = now()

    def take(self, weight: float = 1) -> float:
        """Seconds to wait before the next; 0 while there is something left."""
        now = self._now()
        self._left = min(self._left + (now - self._at) * self._rate, self._burst) - weight
        self._at = now
        return max(0.0, -self._left / self._rate)
