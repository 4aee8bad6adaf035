"""What becomes of a result: sealed into an envelope, kept for its owner, viewed in parts (S0 §4.2, DESIGN §3)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.catalog.selectable import SelectableItem
from app.catalog.tokens import TokenCounter
from app.errors import ViewFailed
from app.gateway.meter import TokenCost
from app.gateway.ports import Artifact, ArtifactStore, PutOutcome
from app.results.envelope import ResultEnvelope
from app.results.firewall import SealedArtifact, is_bulky, seal_result
from app.results.selector import select
from app.results.view import View

_NOT_KEPT: Mapping[PutOutcome, str] = {
    "too_large": "larger than the store takes; ask the tool for less",
    "failed": "the store is out of order at the moment",
}


@dataclass(frozen=True, slots=True)
class Execution:
    """What a call gave, and what it cost the model beside what the raw result would have."""

    envelope: ResultEnvelope
    cost: TokenCost


class Archive:
    def __init__(self, artifacts: ArtifactStore, tokens: TokenCounter) -> None:
        self._artifacts = artifacts
        self._tokens = tokens

    async def keep(
        self, result: Mapping[str, Any], item: SelectableItem, owner: str, provenance: Mapping[str, Any]
    ) -> Execution:
        """Seal an upstream's result and store its artifacts. Never fails: the tool has run, so its answer goes out."""
        seal = partial(seal_result, result, item.id, item.upstream_name, self._tokens, provenance=provenance)
        # Off the loop: hashing alone takes half a millisecond a megabyte.
        offload = is_bulky(result)
        sealed = await asyncio.to_thread(seal) if offload else seal()
        # The first is what a model reads on in, so it is stored last: in a full store the others give way to it.
        parts = [artifact for artifact in reversed(sealed.artifacts) if not _is_index(artifact)]
        not_stored = await self._store(parts, owner)
        if not_stored:
            seal = partial(seal, not_stored=not_stored)
            sealed = await asyncio.to_thread(seal) if offload else seal()
        # The index lists what was stored, so only the last envelope's own is the one to store.
        no_index = await self._store([artifact for artifact in sealed.artifacts if _is_index(artifact)], owner)
        if no_index:
            seal = partial(seal, not_stored={**not_stored, **no_index})
            sealed = await asyncio.to_thread(seal) if offload else seal()
        return Execution(sealed.envelope, TokenCost(sealed.shown_tokens, sealed.raw.tokens))

    async def _store(self, artifacts: Sequence[SealedArtifact], owner: str) -> dict[str, str]:
        """Store them in this order. Returns by handle why one was not stored."""
        not_stored: dict[str, str] = {}
        for artifact in artifacts:
            ref = artifact.ref
            outcome = await self._artifacts.put(owner, Artifact(ref.handle, ref.media_type, ref.label, artifact.data))
            if outcome != "kept":
                not_stored[ref.handle] = _NOT_KEPT[outcome]
        return not_stored

    async def view(self, handle: str, selector: object, owner: str) -> View:
        """A bounded part of an artifact of *owner*. Raises ViewFailed."""
        artifact = await self._artifacts.get(owner, handle)
        if artifact is None:
            raise no_such_artifact(handle)
        try:
            # Off the loop: an artifact can be large, and a selector reads as much of it as it must.
            return await asyncio.to_thread(select, artifact.data, artifact.media_type, selector)
        except ViewFailed as error:
            error.path = handle
            raise


def _is_index(artifact: SealedArtifact) -> bool:
    return artifact.ref.handle.startswith("index:")


def no_such_artifact(handle: str) -> ViewFailed:
    """The one answer for what is not there, has expired, is another's, or is of a tool that the caller may not use."""
    return ViewFailed("No such artifact, or it has expired. Run the tool again to get a new one.", path=handle)
