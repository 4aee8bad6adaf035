"""Results as they are kept and viewed: the archive of what is large, and the handles by which callers name it (EXEC-28,
EXEC-29)."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Hidden
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId, ToolNames, parse_tool_id, tool_names
from wicketgate.errors import CatalogError, ViewFailed
from wicketgate.gateway.options import TokenCost
from wicketgate.gateway.snapshot import Snapshot
from wicketgate.heavy_work import run_queued
from wicketgate.ports import Artifact, ArtifactStore, PutOutcome
from wicketgate.results.envelope import ResultEnvelope
from wicketgate.results.firewall import (
    MAX_LINK_CHARS,
    Sealed,
    SealedArtifact,
    is_bulky,
    is_very_bulky,
    resource_links,
    seal_result,
)
from wicketgate.results.selector import select
from wicketgate.results.view import View
from wicketgate.tokens import TokenCounter

_NOT_KEPT: Mapping[PutOutcome, str] = {
    "too_large": "larger than the store takes; ask the tool for less",
    "failed": "the store is out of order at the moment",
}


_PARTS_OF_A_FACT = 4


@dataclass(frozen=True, slots=True)
class Execution:
    """The envelope of a call, as compact JSON in *text* and as a model reads it in *page*; the cost of the page next to
    that of the raw result. *meta* is the ``_meta`` of the result, for the client and no model; empty if it is large.
    """

    envelope: ResultEnvelope
    cost: TokenCost
    text: str
    page: str
    meta: Mapping[str, Any] = field(default_factory=dict)


async def _sealed(seal: Callable[[], Sealed], result: Mapping[str, Any], owner: str) -> Sealed:
    """The result of *seal*, off the loop if it takes long: hashing alone takes half a millisecond a megabyte."""
    if not is_bulky(result):
        return seal()
    return await run_queued(seal, owner) if is_very_bulky(result) else await asyncio.to_thread(seal)


class NamedLink(NamedTuple):
    """The URI of a resource, its server, and the tool whose result named it."""

    uri: str
    server: str
    tool_id: str


class Archive:
    def __init__(self, artifacts: ArtifactStore, tokens: TokenCounter) -> None:
        self._artifacts = artifacts
        self._tokens = tokens

    async def keep(
        self,
        result: Mapping[str, Any],
        item: SelectableItem,
        owner: str,
        provenance: Mapping[str, Any],
        price: int = 0,
    ) -> Execution:
        """Seal an upstream's result and store its artifacts. Never fails: the tool has run, so its answer goes out.
        *price* as in TokenCost."""
        seal = partial(seal_result, result, item.id, item.upstream_name, self._tokens, provenance=provenance)
        sealed = await _sealed(seal, result, owner)
        # The first is what a model reads on in, so it is stored last: in a full store the others give way to it.
        parts = [artifact for artifact in reversed(sealed.artifacts) if not _is_index(artifact)]
        not_stored = await self._store(parts, owner)
        if not_stored:
            seal = partial(seal, not_stored=not_stored)
            sealed = await _sealed(seal, result, owner)
        # The index lists what was stored, so only the last envelope's own is the one to store.
        no_index = await self._store([artifact for artifact in sealed.artifacts if _is_index(artifact)], owner)
        if no_index:
            seal = partial(seal, not_stored={**not_stored, **no_index})
            sealed = await _sealed(seal, result, owner)
        for link in resource_links(result):
            await self._artifacts.put(owner, Artifact(f"link:{link}", "text/uri-list", item.server, item.id.encode()))
        cost = TokenCost(sealed.shown_tokens, sealed.raw.tokens, price)
        return Execution(sealed.envelope, cost, sealed.text, sealed.page)

    async def _store(self, artifacts: Sequence[SealedArtifact], owner: str) -> dict[str, str]:
        """Store them in this order. Returns by handle why one was not stored."""
        not_stored: dict[str, str] = {}
        for artifact in artifacts:
            ref = artifact.ref
            outcome = await self._artifacts.put(owner, Artifact(ref.handle, ref.media_type, ref.label, artifact.data))
            if outcome != "kept":
                not_stored[ref.handle] = _NOT_KEPT[outcome]
        return not_stored

    async def link(self, wanted: str, owner: str) -> NamedLink | None:
        """Returns the link in a result of *owner* that *wanted* names: its URI, or the fact that shows it (EXEC-81)."""
        for uri in (wanted, *wanted.removeprefix("link: ").split(" | ")[:_PARTS_OF_A_FACT]):
            if len(uri) <= MAX_LINK_CHARS and (kept := await self._artifacts.get(owner, f"link:{uri}")) is not None:
                return NamedLink(uri, kept.label, kept.data.decode())
        return None

    async def view(self, handle: str, selector: object, owner: str) -> View:
        """A bounded part of an artifact of *owner*. Raises ViewFailed."""
        artifact = await self._artifacts.get(owner, handle)
        if artifact is None:
            raise no_such_artifact(handle)
        return await part_of(artifact.data, artifact.media_type, selector, handle)


async def part_of(data: bytes, media_type: str, selector: object, handle: str) -> View:
    """Returns the part of *data*, which *handle* names, that *selector* names. Raises ViewFailed."""
    try:
        # Off the loop: an artifact can be large, and a selector reads as much of it as it must.
        return await asyncio.to_thread(select, data, media_type, selector)
    except ViewFailed as error:
        error.path = handle
        raise


def owner_of(handle: str, identity: Identity) -> str:
    """Returns the owner under which the artifact of *handle* is kept for *identity*: its actor. The answer of a program
    is made of any tools of its caller, so it is for callers with the same rights (EXEC-145)."""
    return owner_of_programs(identity) if handle_parts(handle)[1] == PROGRAM.id else identity.actor


def owner_of_programs(identity: Identity) -> str:
    """Returns the owner of the programs of *identity*: its actor with these rights, through this virtual gate."""
    rights = json.dumps([sorted(identity.permissions), sorted(identity.roles), identity.gate])
    return f"{identity.actor} {hashlib.sha256(rights.encode()).hexdigest()[:24]}"


def whole_handle(snapshot: Snapshot, access: AccessPolicy, handle: str, identity: Identity) -> str:
    """*handle* with the whole tool id in it, where version and hash are left out, and one tool that the caller may see
    is named so (CARD-34). An id that is whole may be that of a tool that is gone."""
    kind, tool_id, digest = handle_parts(handle)
    if "@" in tool_id or "#" in tool_id:
        return handle
    named = snapshot.named(tool_id, access, identity)
    return f"{kind}:{named[0]}:{digest}" if len(named) == 1 else handle


def may_view(catalog: Catalog, access: AccessPolicy, handle: str, identity: Identity) -> bool:
    """True if the caller may use the tool in the handle ``<kind>:<tool id>:<digest>``. The owner of an artifact may
    call with a narrower key than the one it was made with. Of a tool that is gone, only the name in the id is known."""
    if handle_parts(handle)[1] == PROGRAM.id:
        return True
    try:
        names = names_in(catalog, handle)
    except CatalogError:
        return False
    return not isinstance(access.decide(identity, names), Hidden)


def names_in(catalog: Catalog, handle: str) -> ToolNames:
    """The names of the tool in a handle. Raises CatalogError."""
    _, tool_id, _ = handle_parts(handle)
    item = catalog.get(tool_id)
    if item is not None:
        return item.names
    parts = parse_tool_id(tool_id)
    return tool_names(parts.namespace, parts.name)


def handle_parts(handle: str) -> tuple[str, str, str]:
    """Kind, tool id and digest of a handle."""
    kind, _, rest = handle.partition(":")
    tool_id, _, digest = rest.rpartition(":")
    return kind, tool_id, digest


def _is_index(artifact: SealedArtifact) -> bool:
    return artifact.ref.handle.startswith("index:")


CALL_HANDLE = "call"
"""The kind of handles of calls that outlive their requests (EXEC-47)."""


PROGRAM_HANDLE = "run"
"""The kind of handles of programs that go on without their request."""
PROGRAM = SelectableItem(
    ToolId("wicketgate:program#00000000"), "tool", "program", "", "wicketgate", upstream_name="tool_run"
)
"""Stands for the programs of models where the answer of a tool is kept."""


def no_such_call(handle: str) -> ViewFailed:
    """The same answer wherever ``no_such_artifact`` is one."""
    return ViewFailed("No such call, or its result has expired.", path=handle)


def no_such_artifact(handle: str) -> ViewFailed:
    """The same answer for an artifact that is not there, has expired, belongs to another actor, or comes from a tool
    that the caller may not use."""
    return ViewFailed("No such artifact, or it has expired. Run the tool again to get a new one.", path=handle)
