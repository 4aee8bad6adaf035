"""Results kept in memory, to be given again (EXEC-16)."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from wicketgate.call_state import Found, Key

MAX_RESULTS = 1_000


class MemoryResultStore:
    """Implements ResultStore. *now* gives seconds on a clock that never goes back.

    Of more than *max_results* the oldest is evicted first. Bytes are not counted: the caller keeps bulky results out.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, *, max_results: int = MAX_RESULTS) -> None:
        self._now = now
        self._max_results = max_results
        self._results: OrderedDict[Key, tuple[float, Mapping[str, Any]]] = OrderedDict()
        self._cleared = 0

    def get(self, key: Key) -> Found:
        kept = self._results.get(key)
        if kept is None:
            return Found(None, self._cleared)
        fresh_until, result = kept
        if self._now() >= fresh_until:
            del self._results[key]
            return Found(None, self._cleared)
        return Found(result, self._cleared)

    def put(self, key: Key, result: Mapping[str, Any], ttl_s: float, since: int) -> None:
        if since != self._cleared:
            return
        self._results[key] = (self._now() + ttl_s, result)
        self._results.move_to_end(key)
        while len(self._results) > self._max_results:
            self._results.popitem(last=False)

    def clear(self) -> None:
        self._results.clear()
        self._cleared += 1
