"""The cards that each browsing session has seen, in the memory of this process (BROWSE-20 to BROWSE-27)."""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from wicketgate.call_state import Step
from wicketgate.catalog.card import SeenCards
from wicketgate.ports import owner_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionBounds:
    """The session longest unused is dropped when there are more than *max_sessions*, or when they hold more than
    *max_cards* together (about 300 bytes each).

    Of an actor with more than *max_per_actor* sessions, that actor's oldest is dropped, so that invented names of
    sessions push out no other actor's.
    """

    max_age_s: float = 3_600
    max_sessions: int = 10_000
    max_cards: int = 200_000
    max_per_actor: int = 1_000


SESSION_BOUNDS = SessionBounds()


class MemorySessionStore:
    """Implements SessionStore. *now* gives seconds on a clock that never goes back."""

    def __init__(self, now: Callable[[], float] = time.monotonic, bounds: SessionBounds = SESSION_BOUNDS) -> None:
        self._now = now
        self._bounds = bounds
        self._cards = 0
        self._by_actor: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._sessions: OrderedDict[str, tuple[float, SeenCards]] = OrderedDict()

    def update(self, session: str, step: Step[T]) -> T:
        result, seen = step(self._seen(session))
        self._keep(session, seen)
        return result

    def _seen(self, session: str) -> SeenCards:
        used_at, seen = self._sessions.get(session, (self._now(), SeenCards()))
        return seen if self._now() - used_at <= self._bounds.max_age_s else SeenCards()

    def _keep(self, session: str, seen: SeenCards) -> None:
        self._forget(session)
        self._sessions[session] = (self._now(), seen)
        self._cards += len(seen.cards)
        # First the bound of the actor, then those of the store.
        own = self._by_actor[owner_of(session)]
        own[session] = None
        if len(own) > self._bounds.max_per_actor:
            self._forget(next(iter(own)))
        while len(self._sessions) > self._bounds.max_sessions or (
            self._cards > self._bounds.max_cards and len(self._sessions) > 1
        ):
            self._forget(next(iter(self._sessions)))

    def _forget(self, session: str) -> None:
        if kept := self._sessions.pop(session, None):
            self._cards -= len(kept[1].cards)
            own = self._by_actor[owner_of(session)]
            del own[session]
            if not own:
                del self._by_actor[owner_of(session)]
