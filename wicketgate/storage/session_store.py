"""Seen cards of browsing sessions, in memory (S0 §5): bounded in number, forgotten when long unused."""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence

from wicketgate.catalog.card import ChoiceCard
from wicketgate.catalog.order import SeenCards, cache_order
from wicketgate.ports import owner_of


class MemorySessionStore:
    """Implements SessionStore. The session longest unused is dropped when there are more than *max_sessions*, or when
    they hold more than *max_cards* together (about 300 bytes each).

    Of an actor with more than *max_per_actor* sessions, that actor's oldest is dropped, so that invented names of
    sessions push out no other actor's.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        *,
        max_age_s: float = 3_600,
        max_sessions: int = 10_000,
        max_cards: int = 200_000,
        max_per_actor: int = 1_000,
    ) -> None:
        self._now = now
        self._max_age_s = max_age_s
        self._max_sessions = max_sessions
        self._max_cards = max_cards
        self._max_per_actor = max_per_actor
        self._cards = 0
        self._by_actor: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._sessions: OrderedDict[str, tuple[float, SeenCards]] = OrderedDict()

    def order(self, session: str, cards: Sequence[ChoiceCard]) -> tuple[ChoiceCard, ...]:
        ordered, seen = cache_order(self._seen(session), cards)
        self._keep(session, seen)
        return ordered

    def hydrated(self, session: str, tool_id: str) -> None:
        self._keep(session, self._seen(session).hydrated(tool_id))

    def _seen(self, session: str) -> SeenCards:
        used_at, seen = self._sessions.get(session, (self._now(), SeenCards()))
        return seen if self._now() - used_at <= self._max_age_s else SeenCards()

    def _keep(self, session: str, seen: SeenCards) -> None:
        self._forget(session)
        self._sessions[session] = (self._now(), seen)
        self._cards += len(seen.cards)
        # First the bound of the actor, then those of the store.
        own = self._by_actor[owner_of(session)]
        own[session] = None
        if len(own) > self._max_per_actor:
            self._forget(next(iter(own)))
        while len(self._sessions) > self._max_sessions or (self._cards > self._max_cards and len(self._sessions) > 1):
            self._forget(next(iter(self._sessions)))

    def _forget(self, session: str) -> None:
        if kept := self._sessions.pop(session, None):
            self._cards -= len(kept[1].cards)
            own = self._by_actor[owner_of(session)]
            del own[session]
            if not own:
                del self._by_actor[owner_of(session)]
