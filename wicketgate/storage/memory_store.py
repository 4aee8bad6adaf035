"""Artifacts and sessions in memory, and the bounds that every store of artifacts keeps (EXEC-30).

Room for artifacts is taken from the owner who holds most, counting what is being put. So no owner can push out what
another keeps within an equal share of the store, and a single owner may use all of it. Of one owner, the least recently
used artifact goes first. A dropped artifact counts as never stored: running the tool again brings it back under the
same handle.
"""

import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from wicketgate.call_state import Step
from wicketgate.catalog.card import SeenCards
from wicketgate.ports import Artifact, PutOutcome, owner_of

log = logging.getLogger("wicketgate.artifacts")

T = TypeVar("T")

MAX_BYTES = 256 * 1024 * 1024
MAX_AGE_S = 3600.0
# Counted for an entry beside its bytes and texts, so that a flood of empty artifacts is bounded too.
ENTRY_BYTES = 512
_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Bounds:
    max_bytes: int = MAX_BYTES
    max_age_s: float = MAX_AGE_S

    def refuses(self, artifact: Artifact) -> bool:
        """Returns true, and logs it, for an artifact of more than half of the store: others need room too."""
        if size_bytes(artifact) <= self.max_bytes // 2:
            return False
        log.warning("artifact of %d bytes is more than half of the store: not kept", len(artifact.data))
        return True


@dataclass(slots=True)
class Evicted:
    """Counts of what one put dropped."""

    by_age: int = 0
    for_space: int = 0
    size_bytes: int = 0

    def log(self, store: str) -> None:
        if self.by_age or self.for_space:
            log.info(
                "artifacts evicted: %d by age, %d for space, %d bytes",
                self.by_age,
                self.for_space,
                self.size_bytes,
                extra={"fields": {"store": store}},
            )


def size_bytes(artifact: Artifact) -> int:
    """Returns the size that an artifact counts for in every store."""
    texts = len(artifact.handle) + len(artifact.media_type) + len(artifact.label)
    return ENTRY_BYTES + len(artifact.data) + _CHARACTER_BYTES * texts


class MemoryArtifactStore:
    """Implements ArtifactStore. *now* gives seconds on a clock that never goes back. Use from one event loop only."""

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        max_age_s: float = MAX_AGE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = Bounds(max_bytes, max_age_s)
        self._now = now
        self._by_use: dict[str, OrderedDict[str, Artifact]] = {}
        self._held_bytes: dict[str, int] = {}
        self._total_bytes = 0
        self._stored_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def put(self, owner: str, artifact: Artifact) -> PutOutcome:
        if self._bounds.refuses(artifact):
            return "too_large"
        # The same again renews its age.
        if (owner, artifact.handle) in self._stored_at:
            self._drop(owner, artifact.handle)
        evicted = self._make_room(owner, size_bytes(artifact))
        self._by_use.setdefault(owner, OrderedDict())[artifact.handle] = artifact
        self._stored_at[owner, artifact.handle] = self._now()
        self._count(owner, size_bytes(artifact))
        evicted.log("memory")
        return "kept"

    async def get(self, owner: str, handle: str) -> Artifact | None:
        if (owner, handle) not in self._stored_at or self._is_expired((owner, handle)):
            return None
        self._by_use[owner].move_to_end(handle)
        return self._by_use[owner][handle]

    async def aclose(self) -> None:
        self._by_use.clear()
        self._held_bytes.clear()
        self._stored_at.clear()
        self._total_bytes = 0

    def _make_room(self, owner: str, needed_bytes: int) -> Evicted:
        evicted = Evicted()
        # ``_stored_at`` is in the order of age, because every put goes to its end.
        while self._stored_at and self._is_expired(oldest := next(iter(self._stored_at))):
            evicted.size_bytes += self._drop(*oldest)
            evicted.by_age += 1
        while self._total_bytes + needed_bytes > self._bounds.max_bytes:
            # The owner of the new artifact counts with its size, and first among equals.
            largest = max(
                self._held_bytes,
                key=lambda name: (self._held_bytes[name] + needed_bytes * (name == owner), name == owner, name),
            )
            evicted.size_bytes += self._drop(largest, next(iter(self._by_use[largest])))
            evicted.for_space += 1
        return evicted

    def _is_expired(self, key: tuple[str, str]) -> bool:
        return self._now() - self._stored_at[key] >= self._bounds.max_age_s

    def _drop(self, owner: str, handle: str) -> int:
        size = size_bytes(self._by_use[owner].pop(handle))
        del self._stored_at[owner, handle]
        self._count(owner, -size)
        if not self._by_use[owner]:
            del self._by_use[owner], self._held_bytes[owner]
        return size

    def _count(self, owner: str, change_bytes: int) -> None:
        self._held_bytes[owner] = self._held_bytes.get(owner, 0) + change_bytes
        self._total_bytes += change_bytes


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
    """Implements SessionStore for one process. *now* gives seconds on a clock that never goes back."""

    def __init__(self, now: Callable[[], float] = time.monotonic, bounds: SessionBounds = SESSION_BOUNDS) -> None:
        self._now = now
        self._bounds = bounds
        self._cards = 0
        self._by_actor: defaultdict[str, OrderedDict[str, None]] = defaultdict(OrderedDict)
        self._sessions: OrderedDict[str, tuple[float, SeenCards]] = OrderedDict()

    async def update(self, session: str, ids: Collection[str], step: Step[T]) -> T:
        result, seen = step(self._seen(session))
        self._keep(session, seen)
        return result

    def seen(self, session: str) -> SeenCards:
        """The cards that the session has seen; does not count as a use."""
        return self._seen(session)

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

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
