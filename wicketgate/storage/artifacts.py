"""Artifacts by actor and handle, in the store that all processes share (EXEC-28 to EXEC-32, EXEC-51).

Room is taken from the owner who holds most, counting what is being put. So an owner cannot push out what another keeps
within an equal share of the store, and a single owner may use all of it. Of one owner, the artifact that was put
longest ago is evicted first. An evicted artifact counts as never stored: running the tool again brings it back under
the same handle.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from wicketgate.errors import ViewFailed
from wicketgate.ports import Artifact, PutOutcome
from wicketgate.storage.core import DamagedRow
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.fail_modes import FailModes
from wicketgate.storage.measures import without_level
from wicketgate.storage.store import Full, Kind, Put, Store, StoreUnavailable

log = logging.getLogger("wicketgate.artifacts")

T = TypeVar("T")

MAX_BYTES = 256 * 1024 * 1024
MAX_AGE_S = 3600.0
# Counted for an entry beside its bytes and texts, so that a flood of empty artifacts is bounded too.
ENTRY_BYTES = 512
_CHARACTER_BYTES = 4
_HEAD_BYTES = 4
_LARGE_BYTES = 1024 * 1024
_PIECE_BYTES = 256 * 1024


class StoredArtifacts:
    """Implements ArtifactStore. *max_bytes* bounds the artifacts of all processes together: give each the same."""

    def __init__(
        self,
        store: Store,
        max_bytes: int = MAX_BYTES,
        max_age_s: float = MAX_AGE_S,
        fail: FailModes | None = None,
    ) -> None:
        self._store = store
        self._kind = Kind("artifact", most_bytes=max_bytes, gives="row")
        self._max_age_s = max_age_s
        self._fail = fail or FailModes()

    async def put(self, owner: str, artifact: Artifact) -> PutOutcome:
        size = size_bytes(artifact)
        # Others need room too.
        if size > self._kind.most_bytes // 2:
            log.warning("artifact of %d bytes is more than half of the store: not kept", len(artifact.data))
            return "too_large"
        data = await _copied(len(artifact.data), lambda: _packed(artifact))
        key = _key(owner, artifact.handle)
        try:
            await self._store.step([Put(self._kind, key, data, hashed(owner), life_s=self._max_age_s, size=size)])
        except (StoreUnavailable, Full) as error:
            level = without_level(self._fail, "artifacts")
            log.log(level, "artifact of %d bytes not kept: %s", len(artifact.data), error)
            return "failed"
        self._fail.answered("artifacts")
        return "kept"

    async def get(self, owner: str, handle: str) -> Artifact | None:
        key = _key(owner, handle)
        try:
            row = await self._store.get(self._kind, key)
        except StoreUnavailable as error:
            log.log(without_level(self._fail, "artifacts"), "artifact not read: %s", error)
            raise ViewFailed("The artifact cannot be read at the moment. Try again later.", path=handle) from None
        if row is None:
            return None
        data = row.data
        try:
            return await _copied(len(data), lambda: _unpacked(handle, data))
        except (ValueError, TypeError):
            DamagedRow(self._kind.name, key)
            raise ViewFailed("The artifact is damaged. Run the tool again.", path=handle) from None


def size_bytes(artifact: Artifact) -> int:
    """Returns the size that an artifact counts for in the store."""
    texts = len(artifact.handle) + len(artifact.media_type) + len(artifact.label)
    return ENTRY_BYTES + len(artifact.data) + _CHARACTER_BYTES * texts


def _key(owner: str, handle: str) -> str:
    return f"{hashed(owner)}.{hashed(handle)}"


def _packed(artifact: Artifact) -> bytes:
    """Returns the length of a head, the head as JSON, and the bytes."""
    head = packed([artifact.media_type, artifact.label, len(artifact.data)])
    return b"".join((len(head).to_bytes(_HEAD_BYTES), head, artifact.data))


def _unpacked(handle: str, data: bytes) -> Artifact:
    """Raises ValueError and TypeError for damaged *data*."""
    start = _HEAD_BYTES + int.from_bytes(data[:_HEAD_BYTES])
    media_type, label, length = unpacked(data[_HEAD_BYTES:start])
    if not isinstance(media_type, str) or not isinstance(label, str) or length != len(data) - start:
        raise ValueError("not an artifact")
    # In pieces, because a slice of many megabytes would hold the GIL.
    pieces = (data[at : at + _PIECE_BYTES] for at in range(start, len(data), _PIECE_BYTES))
    return Artifact(handle, media_type, label, b"".join(pieces))


async def _copied(size: int, copy: Callable[[], T]) -> T:
    """Returns what *copy* returns, which copies *size* bytes: large ones beside the event loop (EXEC-27)."""
    return copy() if size < _LARGE_BYTES else await asyncio.to_thread(copy)
