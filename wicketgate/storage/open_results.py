"""Results kept in a store that others share, and by this process alone while that is away (EXEC-55)."""

from collections.abc import Callable, Mapping
from typing import Any

from wicketgate.call_state import Found, Key, ResultStore, StoreAway
from wicketgate.storage.arrears import Arrears
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.memory_results import MemoryResultStore


class OpenResultStore:
    """Implements ResultStore, as *modes* decide over ``cached_results``, and raises no StoreAway. *now* gives seconds
    on a clock that never goes back.

    What this process kept meanwhile is dropped when the store is back, because another process may have cleared it.
    Where the store was to be cleared meanwhile, none of its results is given before that was done.
    """

    def __init__(self, shared: ResultStore, modes: FailModes, now: Callable[[], float]) -> None:
        self._shared = shared
        self._modes = modes
        self._own = MemoryResultStore(now)
        self._away = False
        self._to_clear = False
        self._arrears = Arrears(self._clear_shared, "results to be cleared")

    async def get(self, key: Key) -> Found:
        if not self._to_clear or await self._clear_shared():
            try:
                found = await self._shared.get(key)
            except StoreAway:
                pass
            else:
                self._modes.answered("cached_results")
                if self._away:
                    self._away = False
                    await self._own.clear()
                return Found(found.result, (self._shared, found.since))
        self._away = True
        if self._modes.without("cached_results") != "open":
            return Found(None, None)
        found = await self._own.get(key)
        return Found(found.result, (self._own, found.since))

    async def put(self, key: Key, result: Mapping[str, Any], ttl_s: float, since: object) -> None:
        match since:
            case (self._own, own):
                await self._own.put(key, result, ttl_s, own)
            case (_, shared) if not self._to_clear:
                try:
                    await self._shared.put(key, result, ttl_s, shared)
                except StoreAway:
                    self._modes.without("cached_results")

    async def clear(self) -> None:
        await self._own.clear()
        self._to_clear = True
        if not await self._clear_shared():
            self._arrears.begin()

    async def aclose(self) -> None:
        await self._arrears.aclose()
        await self._shared.aclose()

    async def _clear_shared(self) -> bool:
        try:
            await self._shared.clear()
        except StoreAway:
            return False
        self._to_clear = False
        return True
