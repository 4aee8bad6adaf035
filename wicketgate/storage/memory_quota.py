"""Executions counted in memory (ACCESS-16)."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from wicketgate.call_state import WINDOW_S, Full, Window

_MAX_COUNTED = 10_000


class MemoryQuotaStore:
    """Implements QuotaStore for one process. *now* gives seconds on a clock that never goes back.

    Of more than *max_counted* windows, the one longest unused is forgotten first.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, *, max_counted: int = _MAX_COUNTED) -> None:
        self._now = now
        self._max_counted = max_counted
        self._taken: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    async def take(self, actor: str, windows: Sequence[Window], *, count: bool = True) -> Full | None:
        now = self._now()
        full: Full | None = None
        counted = []
        for window in windows:
            taken = self._window(actor, window.name, now)
            if len(taken) >= window.most:
                wait_s = taken[-window.most] + WINDOW_S - now if window.most else WINDOW_S
                if full is None or wait_s > full.retry_after_s:
                    full = Full(window, wait_s)
            counted.append(taken)
        if full is None and count:
            for taken in counted:
                taken.append(now)
        return full

    def note(self, actor: str, names: Iterable[str]) -> None:
        """Count an execution of this moment that another store admitted."""
        now = self._now()
        for name in names:
            self._window(actor, name, now).append(now)

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def _window(self, actor: str, name: str, now: float) -> deque[float]:
        window = self._taken.setdefault((actor, name), deque())
        self._taken.move_to_end((actor, name))
        while window and window[0] <= now - WINDOW_S:
            window.popleft()
        if len(self._taken) > self._max_counted:
            self._taken.popitem(last=False)
        return window
