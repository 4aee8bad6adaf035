"""Artifacts in this process's memory, bounded in bytes and age (DESIGN §3 "Results").

An artifact that went out of bounds is gone: its handle is answered as one that never was, and running the tool again
brings it back under the same handle.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from app.gateway.ports import Artifact

log = logging.getLogger("wicketgate.artifacts")

MAX_BYTES = 256 * 1024 * 1024
MAX_AGE_S = 3600.0
# What an entry costs beside its data, so that a flood of empty artifacts is bounded too.
ENTRY_BYTES = 512

_Key = tuple[str, str]


class MemoryArtifactStore:
    """Implements ArtifactStore. The oldest go at *max_age_s*, the least recently used when bytes are short.

    *now* gives seconds on a clock that never goes back. Use from one event loop only.
    """

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        max_age_s: float = MAX_AGE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._now = now
        self._size_bytes = 0
        self._by_use: OrderedDict[_Key, Artifact] = OrderedDict()
        self._stored_at: OrderedDict[_Key, float] = OrderedDict()

    async def put(self, owner: str, artifact: Artifact) -> None:
        """Store, or store again, which renews the age. One larger than the whole store is not kept, and logged."""
        key = (owner, artifact.handle)
        self._drop(key)
        expired = self._expire()
        if _cost(artifact) > self._max_bytes:
            log.warning("artifact of %d bytes is larger than the store: not kept", len(artifact.data))
            return
        self._by_use[key] = artifact
        self._stored_at[key] = self._now()
        self._size_bytes += _cost(artifact)
        displaced = 0
        while self._size_bytes > self._max_bytes:
            self._drop(next(iter(self._by_use)))
            displaced += 1
        if expired or displaced:
            log.info(
                "artifacts evicted: %d by age, %d for space; %d left with %d bytes",
                expired,
                displaced,
                len(self._by_use),
                self._size_bytes,
            )

    async def get(self, owner: str, handle: str) -> Artifact | None:
        """The artifact, which counts as a use but does not renew its age; None if *owner* has no such handle."""
        key = (owner, handle)
        artifact = self._by_use.get(key)
        if artifact is None or self._is_expired(key):
            return None
        self._by_use.move_to_end(key)
        return artifact

    def _is_expired(self, key: _Key) -> bool:
        return self._now() - self._stored_at[key] >= self._max_age_s

    def _expire(self) -> int:
        """Every put goes to the end, so the order of ``_stored_at`` is the order of age."""
        count = 0
        while self._stored_at and self._is_expired(key := next(iter(self._stored_at))):
            self._drop(key)
            count += 1
        return count

    def _drop(self, key: _Key) -> None:
        artifact = self._by_use.pop(key, None)
        if artifact is not None:
            del self._stored_at[key]
            self._size_bytes -= _cost(artifact)


def _cost(artifact: Artifact) -> int:
    return len(artifact.data) + ENTRY_BYTES
