"""Artifacts in this process's memory, bounded in bytes and age (DESIGN §3 "Results").

An artifact that went out of bounds is gone: its handle is answered as one that never was, and running the tool again
brings it back under the same handle.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

from wicketgate.ports import Artifact, PutOutcome
from wicketgate.storage.artifact_bounds import MAX_AGE_S, MAX_BYTES, Bounds, Evicted, size_bytes


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
        # Every put goes to the end, so the order of ``_stored_at`` is the order of age.
        while self._stored_at and self._is_expired(oldest := next(iter(self._stored_at))):
            evicted.size_bytes += self._drop(*oldest)
            evicted.by_age += 1
        while self._total_bytes + needed_bytes > self._bounds.max_bytes:
            giver = max(
                self._held_bytes,
                key=lambda name: (self._held_bytes[name] + needed_bytes * (name == owner), name == owner, name),
            )
            evicted.size_bytes += self._drop(giver, next(iter(self._by_use[giver])))
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
