"""Sealing of results: what a model sees, and what is kept out of its context (EXEC-25, EXEC-26).

A short result is shown whole, unchanged, and not kept. Of a long one the model sees a head, which says what is left
out and how to read on; ``budget`` decides how much. The whole is kept under content-addressed handles, so that the
handle of an envelope can only ever show its own data.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.results.budget import (
    INLINE_TOKENS,
    Fitted,
    TokenCount,
    Unfitted,
    bounded_provenance,
    choose_references,
    fit,
    fit_whole,
)
from wicketgate.results.bulk import json_bytes, outweighs, seems_to_outweigh, utf8
from wicketgate.results.envelope import ArtifactRef, Binary, ResultEnvelope, mcp_result_to_envelope, shorten
from wicketgate.tokens import TokenCounter

_BULKY_UNITS = 4_096
_VERY_BULKY_UNITS = 65_536
_MAX_LINKS = 20
# Each artifact is a write of its own to the store, and an entry among those of its owner.
_MAX_ARTIFACTS = 200
MAX_LINK_CHARS = 300


@dataclass(frozen=True, slots=True)
class SealedArtifact:
    """Bytes that the caller has to store, so that ``ref.handle`` can be viewed."""

    ref: ArtifactRef
    data: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """*text* is the envelope as compact JSON, *page* what a model reads of it, which costs *shown_tokens*; *raw* is the
    cost of the result as it came. The budget is exact, these two need not be (EXEC-58).

    *raw* is that of the texts, or the structured content of a result without any. Images, audio and blobs are left out,
    because their cost depends on the model: the comparison never flatters us.
    """

    envelope: ResultEnvelope
    artifacts: tuple[SealedArtifact, ...]
    raw: TokenCount
    shown_tokens: int
    text: str
    page: str


_Fit = Callable[[ResultEnvelope, Unfitted, int, TokenCounter], Fitted | None]
_NOTHING: Binary = (b"", "", "")


def is_bulky(result: object) -> bool:
    """Returns true if sealing takes long enough to be worth a thread; looks at 4,096 values or 64 KB at most."""
    return outweighs(result, _BULKY_UNITS)


def is_very_bulky(result: object) -> bool:
    """Returns true for some 65,536 values or 1 MB, which are sealed one at a time."""
    return seems_to_outweigh(result, _VERY_BULKY_UNITS)


def seal_result(
    result: object,
    tool_id: str,
    tool_name: str,
    tokens: TokenCounter,
    *,
    provenance: Mapping[str, Any] | None = None,
    not_stored: Mapping[str, str] | None = None,
    inline_tokens: int = INLINE_TOKENS,
) -> Sealed:
    """Makes the envelope for the model, and the artifacts to store, each handle once; never raises.

    Handles are ``<kind>:<tool_id>:<16 hex>`` with kind text, structured_content, image, audio, resource,
    resource_link, malformed, parts or index. The text comes first. *provenance* is added to the envelope's.
    *not_stored* says by handle why an artifact could not be stored: then it is not offered, a fact says why, and the
    index leaves it out. The envelope, as compact JSON, costs at most *inline_tokens*, unless the ids in it alone cost
    more. The time is linear in the size of the result.
    """
    read, binaries, text = mcp_result_to_envelope(result, tool_name)
    fields = result if isinstance(result, Mapping) else {}
    content, prefix = fields.get("content"), f"mcp:{tool_name}:"
    read = replace(read, provenance=bounded_provenance({**read.provenance, "tool_id": tool_id, **(provenance or {})}))
    structured, _, _ = binaries.get(f"{prefix}structured_content", _NOTHING)
    links = _links(content)

    def sealed(kept: _Artifacts, fit: _Fit) -> Sealed | None:
        listed, unavailable = _refer(kept, not_stored or {}, inline_tokens, tokens)
        artifacts = tuple(kept.by_handle.values())
        status = "partial" if unavailable and read.status == "ok" else read.status
        viewable = not artifacts or (not_stored or {}).get(artifacts[0].ref.handle) is None
        fitted = fit(
            replace(read, status=status, artifacts=tuple(listed)),
            Unfitted(text, fields.get("structuredContent"), structured, [*unavailable, *links], viewable),
            inline_tokens,
            tokens,
        )
        if fitted is None:
            return None
        return Sealed(fitted.envelope, artifacts, fitted.raw, fitted.shown_tokens, fitted.text, fitted.page)

    # What fits is shown whole, and only parts that are no text are kept.
    off_page = {handle: part for handle, part in binaries.items() if not _on_page(handle, prefix, content)}
    count_of_links = sum(handle.startswith(f"{prefix}resource_link:") for handle in binaries)
    if max(len(off_page), count_of_links) <= _MAX_LINKS:
        kept = _Artifacts(tool_id)
        _keep_parts(kept, "", off_page, prefix)
        if (whole := sealed(kept, fit_whole)) is not None:
            return whole

    # Otherwise every part becomes an artifact. Very many parts become one artifact that holds them all.
    kept = _Artifacts(tool_id)
    _keep_parts(kept, text, binaries, prefix)
    if len(binaries) > _MAX_ARTIFACTS and (parts := json_bytes(content)) is not None:
        kept.add("parts", parts, "application/json", f"all {len(binaries):,} parts, as they came")
    made = sealed(kept, fit)
    assert made is not None
    return made


def _refer(
    kept: "_Artifacts", lost: Mapping[str, str], inline_tokens: int, tokens: TokenCounter
) -> tuple[list[ArtifactRef], list[str]]:
    """Returns references to the artifacts that can be viewed, as far as the budget allows, then to an index of all, and
    facts about those that cannot be."""
    refs = [artifact.ref for handle, artifact in kept.by_handle.items() if handle not in lost]
    listed = choose_references(refs, inline_tokens, tokens)
    if len(listed) < len(refs):
        listing = json.dumps([ref.as_dict() for ref in refs], ensure_ascii=False).encode("utf-8", "replace")
        index = kept.add("index", listing, "application/json", f"list of all {len(refs)} artifacts")
        if index.handle not in lost:
            listed.append(index)
    unavailable = [
        f"{shorten(artifact.ref.label, 60)} ({artifact.ref.size_bytes:,} bytes) cannot be viewed: {lost[handle]}"
        for handle, artifact in kept.by_handle.items()
        if handle in lost
    ]
    return listed, unavailable


def _on_page(handle: str, prefix: str, content: object) -> bool:
    """Returns true for a part of a result that the page of a whole result shows: structured content, the text of an
    embedded resource, a link."""
    kind, _, index = handle.removeprefix(prefix).partition(":")
    if kind == "resource" and isinstance(content, list):
        part = content[int(index)]
        return "text" in part["resource"]
    return kind in ("structured_content", "resource_link")


class _Artifacts:
    """The artifacts of one result, by handle, in the order of their parts."""

    def __init__(self, tool_id: str) -> None:
        self._tool_id = tool_id
        self.by_handle: dict[str, SealedArtifact] = {}

    def add(self, kind: str, data: bytes, media_type: str, label: str) -> ArtifactRef:
        key = hashlib.sha256(data).hexdigest()
        # The same bytes under another name or type are a different artifact, except where the kind says both.
        if kind not in ("text", "structured_content"):
            key = hashlib.sha256(json.dumps([key, media_type, label]).encode()).hexdigest()
        handle = f"{kind}:{self._tool_id}:{key[:16]}"
        added = SealedArtifact(ArtifactRef(handle, media_type, label, len(data)), data)
        return self.by_handle.setdefault(handle, added).ref


def _keep_parts(kept: _Artifacts, text: str, binaries: Mapping[str, Binary], prefix: str) -> None:
    """Adds the text, the structured content and the first of the other binaries."""
    if text:
        kept.add("text", utf8(text), "text/plain", "full text")
    for number, (handle, (data, media_type, label)) in enumerate(binaries.items()):
        kind = handle.removeprefix(prefix).partition(":")[0]
        if kind == "structured_content" or number < _MAX_ARTIFACTS:
            kept.add(kind, data, media_type, label)


def resource_links(result: Mapping[str, Any]) -> list[str]:
    """Returns the URIs of the links that facts show whole."""
    content = result.get("content")
    links = [
        uri
        for part in (content if isinstance(content, list) else ())
        if isinstance(part, Mapping) and part.get("type") == "resource_link" and isinstance(uri := part.get("uri"), str)
    ]
    return [uri for uri in links[:_MAX_LINKS] if len(uri) <= MAX_LINK_CHARS]


def _links(content: Any) -> list[str]:
    """Writes each resource link as a fact: a link is of use only with its address."""
    links: list[str] = []
    for part in content if isinstance(content, list) else ():
        match part:
            case {"type": "resource_link", "uri": str(uri)}:
                details = [part.get("name"), uri, part.get("mimeType"), part.get("description")]
                known = (shorten(each, MAX_LINK_CHARS) for each in details if isinstance(each, str) and each)
                links.append(f"link: {' | '.join(known)}")
        if len(links) == _MAX_LINKS:
            break
    return links
