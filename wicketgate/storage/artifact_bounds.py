"""What a store of artifacts holds at most, and who gives way when it is full (DESIGN §3 "Results"), for every store.

Room is taken from the owner who holds most, counting what is being put. So nobody can push out what another keeps
within an equal share of the store, and an actor who is alone may use all of it. Of one owner, the least recently used
goes first.
"""

import logging
from dataclasses import dataclass

from wicketgate.ports import Artifact

log = logging.getLogger("wicketgate.artifacts")

MAX_BYTES = 256 * 1024 * 1024
MAX_AGE_S = 3600.0
# What an entry costs beside its bytes and texts, so that a flood of empty artifacts is bounded too.
ENTRY_BYTES = 512
_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Bounds:
    max_bytes: int = MAX_BYTES
    max_age_s: float = MAX_AGE_S

    def refuses(self, artifact: Artifact) -> bool:
        """Whether it is more than half of the store: even one that fits must leave room for others. Logged."""
        if size_bytes(artifact) <= self.max_bytes // 2:
            return False
        log.warning("artifact of %d bytes is more than half of the store: not kept", len(artifact.data))
        return True


@dataclass(slots=True)
class Evicted:
    """What one put pushed out."""

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
    """What it counts for, in every store alike."""
    texts = len(artifact.handle) + len(artifact.media_type) + len(artifact.label)
    return ENTRY_BYTES + len(artifact.data) + _CHARACTER_BYTES * texts
