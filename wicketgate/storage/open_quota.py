"""Executions counted in a store that others share, and by this process alone while that is away (ACCESS-94).

What the shared store admits is counted here too, so that in any case no actor gets more than its limit of this process.
What was counted here while it was away is given to it afterwards.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from wicketgate.call_state import WINDOW_S, Full, QuotaStore, StoreAway, Window
from wicketgate.errors import NotAdmitted
from wicketgate.storage.arrears import Arrears
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.memory_quota import MemoryQuotaStore

log = logging.getLogger("wicketgate.quota")

_MAX_OWED = 10_000


@dataclass(frozen=True, slots=True)
class Taken:
    """An execution that was counted in the windows of *names*, *ago_s* seconds ago. Given twice under one *mark*, it
    counts once where the store can tell."""

    names: tuple[str, ...]
    ago_s: float
    mark: str


class SharedQuota(QuotaStore, Protocol):
    async def give(self, actor: str, taken: Sequence[Taken]) -> None:
        """Count what was admitted without this store. Raises StoreAway."""
        ...


class OpenQuotaStore:
    """Implements QuotaStore, as *modes* decide over ``quotas``. *now* gives seconds on a clock that never goes back."""

    def __init__(self, shared: SharedQuota, modes: FailModes, now: Callable[[], float]) -> None:
        self._shared = shared
        self._modes = modes
        self._now = now
        self._own = MemoryQuotaStore(now)
        # The newest ones: what is older lapses first.
        self._owed: deque[tuple[float, str, tuple[str, ...], str]] = deque(maxlen=_MAX_OWED)
        self._arrears = Arrears(self._give, "quotas counted while the store was away")
        self._away = False

    async def take(self, actor: str, windows: Sequence[Window], *, count: bool = True) -> Full | None:
        try:
            full = await self._shared.take(actor, windows, count=count)
        except StoreAway as away:
            return await self._take_here(actor, windows, away, count=count)
        self._modes.answered("quotas")
        self._away = False
        if full is None and count:
            self._own.note(actor, [window.name for window in windows])
        return full

    async def aclose(self) -> None:
        await self._arrears.aclose()
        await self._shared.aclose()

    async def _take_here(self, actor: str, windows: Sequence[Window], away: StoreAway, *, count: bool) -> Full | None:
        mode = self._modes.without("quotas")
        if not self._away:
            outcome = "each process counts its own meanwhile" if mode == "open" else "nothing that has a quota runs"
            log.error("executions cannot be counted for all processes: %s; %s", away, outcome)
        self._away = True
        if mode != "open":
            raise NotAdmitted("Quotas cannot be counted at the moment, so nothing that has one can run.")
        full = await self._own.take(actor, windows, count=count)
        if full is None and count:
            names = tuple(window.name for window in windows)
            self._owed.append((self._now(), actor, names, secrets.token_hex(8)))
            self._arrears.begin()
        return full

    async def _give(self) -> bool:
        now = self._now()
        while self._owed and self._owed[0][0] <= now - WINDOW_S:
            self._owed.popleft()
        by_actor: dict[str, list[Taken]] = {}
        for at, actor, names, mark in self._owed:
            by_actor.setdefault(actor, []).append(Taken(names, now - at, mark))
        for actor, taken in by_actor.items():
            try:
                await self._shared.give(actor, taken)
            except StoreAway:
                break
            # What was counted meanwhile stays owed.
            given = {each.mark for each in taken}
            self._owed = deque((each for each in self._owed if each[3] not in given), maxlen=_MAX_OWED)
        return not self._owed
