"""Seen cards in a store that others share, and in this process alone while that is away (BROWSE-73).

What a session sees through this process is remembered here too, so that its cards stay as they were when the store goes
away. What it saw meanwhile is given to the store afterwards.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import TypeVar

from wicketgate.call_state import SessionStore, Step, StoreAway
from wicketgate.catalog.card import SeenCards
from wicketgate.storage.arrears import Arrears
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.memory_store import MemorySessionStore

T = TypeVar("T")

_MAX_OWED = 10_000


class OpenSessionStore:
    """Implements SessionStore, as *modes* decide over ``seen_cards``, and raises no StoreAway. *now* gives seconds on a
    clock that never goes back."""

    def __init__(self, shared: SessionStore, modes: FailModes, now: Callable[[], float]) -> None:
        self._shared = shared
        self._modes = modes
        self._own = MemorySessionStore(now)
        self._owed: OrderedDict[str, set[str]] = OrderedDict()
        self._arrears = Arrears(self._give, "cards shown while the store was away")

    async def update(self, session: str, ids: Collection[str], step: Step[T]) -> T:
        after = SeenCards()

        def noted(before: SeenCards) -> tuple[T, SeenCards]:
            nonlocal after
            result, after = step(before)
            return result, after

        try:
            if session in self._owed:
                await self._give_of(session)
            result = await self._shared.update(session, ids, noted)
        except StoreAway:
            return await self._update_here(session, ids, step)
        self._modes.answered("seen_cards")
        await self._own.update(session, ids, lambda before: (None, _joined(before, after)))
        return result

    async def aclose(self) -> None:
        await self._arrears.aclose()
        await self._shared.aclose()

    async def _update_here(self, session: str, ids: Collection[str], step: Step[T]) -> T:
        if self._modes.without("seen_cards") != "open":
            result, _ = step(SeenCards())
            return result
        result = await self._own.update(session, ids, step)
        self._owed.setdefault(session, set()).update(ids)
        if len(self._owed) > _MAX_OWED:
            self._owed.popitem(last=False)
        self._arrears.begin()
        return result

    async def _give(self) -> bool:
        for session in list(self._owed):
            try:
                await self._give_of(session)
            except StoreAway:
                return False
        return not self._owed

    async def _give_of(self, session: str) -> None:
        """Raises StoreAway, and then it is owed still."""
        ids = self._owed.pop(session, set())
        kept = self._own.seen(session).cards
        own = SeenCards({tool_id: kept[tool_id] for tool_id in ids if tool_id in kept})
        try:
            await self._shared.update(session, ids, lambda before: (None, _joined(before, own)))
        except BaseException:
            self._owed.setdefault(session, set()).update(ids)
            raise


def _joined(before: SeenCards, after: SeenCards) -> SeenCards:
    return SeenCards(MappingProxyType({**before.cards, **after.cards}))
