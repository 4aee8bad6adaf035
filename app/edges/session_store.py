"""Seen cards of browsing sessions, in memory (S0 §5): bounded in number, forgotten when long unused."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from app.catalog.cache_order import SeenCards, cache_order
from app.catalog.card import ChoiceCard


class MemorySessionStore:
    """Implements SessionStore. The oldest session goes when there are more than *max_sessions*."""

    def __init__(self, now: Callable[[], float], *, max_age_s: float = 3_600, max_sessions: int = 10_000) -> None:
        self._now = now
        self._max_age_s = max_age_s
        self._max_sessions = max_sessions
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
        self._sessions[session] = (self._now(), seen)
        self._sessions.move_to_end(session)
        while len(self._sessions) > self._max_sessions:
            self._sessions.popitem(last=False)
