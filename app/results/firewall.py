"""What of an upstream's result a model sees, and what is kept out of its context (S0 §4.2, DESIGN §3 "Results").

A short answer is given whole, so that it costs no second call; of a long one a head, with what was kept out and how
to read on. All of it is always kept under content-addressed handles, so that an envelope's handle can only ever show
its own data.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.catalog.tokens import TokenCounter
from app.results.bulk import count_chars, json_bytes, outweighs, utf8
from app.results.cost import TokenCount, count_json, count_tokens
from app.results.envelope import ArtifactRef, ResultEnvelope, shorten
from app.results.from_mcp import WHOLE_FACTS_CHARS, mcp_result_to_envelope
from app.results.inline import INLINE_TOKENS, choose_references, fit

_BULKY_UNITS = 4_096
_MAX_LINKS = 20
# Each is a write of its own to the store, and an entry among those of its owner.
_MAX_ARTIFACTS = 200
_LINK_CHARS = 300


@dataclass(frozen=True, slots=True)
class SealedArtifact:
    """What the caller has to store so that ``ref.handle`` can be viewed."""

    ref: ArtifactRef
    data: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """*shown_tokens* is what the envelope costs as JSON; *raw* what the result would have cost as it came.

    *raw* counts the texts, or the structured content of a result without any. Images, audio and blobs are left out,
    since what they cost is the model's own affair: the comparison never flatters us.
    """

    envelope: ResultEnvelope
    artifacts: tuple[SealedArtifact, ...]
    raw: TokenCount
    shown_tokens: int


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_bulky(result: object) -> bool:
    """Whether sealing takes long enough to be worth a thread; looks at 4,096 values or 64 KB at most."""
    return outweighs(result, _BULKY_UNITS)


def seal_result(
    result: object,
    tool_id: str,
    tool_name: str,
    tokens: TokenCounter,
    *,
    provenance: Mapping[str, Any] | None = None,
    not_stored: Mapping[str, str] | None = None,
    inline_tokens: int = INLINE_TOKENS,
    digest: Callable[[bytes], str] = sha256_hex,
) -> Sealed:
    """The envelope for the model, and the artifacts to store, each handle once; never raises.

    Handles are ``<kind>:<tool_id>:<16 hex of digest>`` with kind text, structured_content, image, audio, resource,
    resource_link, malformed, parts or index. The text comes first. The index lists what could be stored, so it differs
    with *not_stored*. *digest* gives hex of bytes: of the text and the
    structured content alone, of the others with what they are, for the same bytes under another name are another
    artifact. *provenance* is added to the envelope's. *not_stored* says by handle why an artifact could not be
    stored: it is not offered then, and a fact says why. The envelope, as compact JSON, costs at most *inline_tokens*,
    unless the ids in it alone cost more. Linear in the size of the result, with no long hold on the interpreter; only
    beginnings are counted.
    """
    read, binaries, text = mcp_result_to_envelope(result, tool_name)
    kept: dict[str, SealedArtifact] = {}

    def keep(kind: str, data: bytes, media_type: str, label: str) -> ArtifactRef:
        key = digest(data)
        if kind not in ("text", "structured_content"):
            key = digest(json.dumps([key, media_type, label]).encode())
        handle = f"{kind}:{tool_id}:{key[:16]}"
        return kept.setdefault(handle, SealedArtifact(ArtifactRef(handle, media_type, label, len(data)), data)).ref

    if text:
        keep("text", utf8(text), "text/plain", "full text")
    structured = b""
    for number, (handle, (data, media_type, label)) in enumerate(binaries.items()):
        kind = handle.removeprefix(f"mcp:{tool_name}:").partition(":")[0]
        if kind == "structured_content":
            structured = data
        elif number >= _MAX_ARTIFACTS:
            continue
        keep(kind, data, media_type, label)
    fields = result if isinstance(result, Mapping) else {}
    if len(binaries) > _MAX_ARTIFACTS and (parts := json_bytes(fields.get("content"))) is not None:
        keep("parts", parts, "application/json", f"all {len(binaries):,} parts, as they came")

    lost = not_stored or {}
    refs = [artifact.ref for handle, artifact in kept.items() if handle not in lost]
    listed = choose_references(refs, inline_tokens, tokens)
    if len(listed) < len(refs):
        listing = json.dumps([ref.as_dict() for ref in refs], ensure_ascii=False).encode("utf-8", "replace")
        index = keep("index", listing, "application/json", f"list of all {len(refs)} artifacts")
        if index.handle not in lost:
            listed.append(index)
    told = [
        f"{shorten(artifact.ref.label, 60)} ({artifact.ref.size_bytes:,} bytes) cannot be viewed: {lost[handle]}"
        for handle, artifact in kept.items()
        if handle in lost
    ]
    raw = count_tokens(text, tokens) if text else count_json(structured, tokens)
    shown = fit(
        replace(
            read,
            status="partial" if told and read.status == "ok" else read.status,
            artifacts=tuple(listed),
            provenance={**read.provenance, "tool_id": tool_id, **(provenance or {})},
        ),
        text=text,
        structured=fields.get("structuredContent"),
        facts_are_whole=len(structured) <= WHOLE_FACTS_CHARS,
        links=[*told, *_links(fields.get("content"))],
        viewable=not refs or refs[0] is next(iter(kept.values())).ref,
        raw=raw,
        raw_chars=len(text) or count_chars(structured),
        budget=inline_tokens,
        tokens=tokens,
    )
    return Sealed(shown.envelope, tuple(kept.values()), raw, shown.tokens)


def _links(content: Any) -> list[str]:
    """A link is of use only with its address, so that is a fact of its own."""
    links: list[str] = []
    for part in content if isinstance(content, list) else ():
        match part:
            case {"type": "resource_link", "uri": str(uri)}:
                details = [part.get("name"), uri, part.get("mimeType"), part.get("description")]
                known = (shorten(each, _LINK_CHARS) for each in details if isinstance(each, str) and each)
                links.append(f"link: {' | '.join(known)}")
        if len(links) == _MAX_LINKS:
            break
    return links
