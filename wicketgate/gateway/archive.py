"""The archive of results: sealed into envelopes, kept for their owners, viewed in parts (S0 §4.2)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Hidden
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tokens import TokenCounter
from wicketgate.catalog.tool_id import parse_tool_id
from wicketgate.errors import CatalogError, ViewFailed
from wicketgate.gateway.meter import TokenCost
from wicketgate.ports import Artifact, ArtifactStore, PutOutcome
from wicketgate.results.envelope import ResultEnvelope
from wicketgate.results.firewall import SealedArtifact, is_bulky, seal_result
from wicketgate.results.selector import select
from wicketgate.results.view import View

_NOT_KEPT: Mapping[PutOutcome, str] = {
    "too_large": "larger than the store takes; ask the tool for less",
    "failed": "the store is out of order at the moment",
}


@dataclass(frozen=True, slots=True)
class Execution:
    """The envelope of a call, and what it cost the model beside the cost of the raw result."""

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


def may_view(access: AccessPolicy, handle: str, identity: Identity) -> bool:
    """True if the caller may use the tool in the handle ``<kind>:<tool id>:<digest>``. The owner of an artifact may
    call with a narrower key than the one it was made with."""
    try:
        parts = parse_tool_id(handle.partition(":")[2].rpartition(":")[0])
    except CatalogError:
        return False
    return not isinstance(access.decide(identity, parts.namespace, parts.name), Hidden)


def _is_index(artifact: SealedArtifact) -> bool:
    return artifact.ref.handle.startswith("index:")


def no_such_artifact(handle: str) -> ViewFailed:
    """The same answer for an artifact that is not there, has expired, belongs to another actor, or comes from a tool
    that the caller may not use."""
    return ViewFailed("No such artifact, or it has expired. Run the tool again to get a new one.", path=handle)
