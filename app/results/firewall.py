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
from app.results.bulk import count_chars, outweighs, utf8
from app.results.cost import TokenCount, count_json, count_tokens
from app.results.envelope import ArtifactRef, ResultEnvelope, shorten
from app.results.from_mcp import WHOLE_FACTS_CHARS, mcp_result_to_envelope
from app.results.inline import INLINE_TOKENS, choose_references, fit

_BULKY_UNITS = 4_096
_MAX_LINKS = 20
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
    inline_tokens: int = INLINE_TOKENS,
    digest: Callable[[bytes], str] = sha256_hex,
) -> Sealed:
    """The envelope for the model, and the artifacts to store, each handle once; never raises.

    Handles are ``<kind>:<tool_id>:<16 hex of digest>`` with kind text, structured_content, image, audio, resource,
    resource_link, malformed or index. The text comes first. *digest* gives hex of the bytes. *provenance* is added
    to the envelope's. The envelope, as compact JSON, costs at most *inline_tokens*, unless the ids in it alone cost
    more. Linear in the size of the result, with no long hold on the interpreter; only beginnings are counted.
    """
    read, binaries, text = mcp_result_to_envelope(result, tool_name)
    kept: dict[str, SealedArtifact] = {}

    def keep(kind: str, data: bytes, media_type: str, label: str) -> ArtifactRef:
        handle = f"{kind}:{tool_id}:{digest(data)[:16]}"
        return kept.setdefault(handle, SealedArtifact(ArtifactRef(handle, media_type, label, len(data)), data)).ref

    if text:
        keep("text", utf8(text), "text/plain", "full text")
    structured = b""
    for handle, (data, media_type, label) in binaries.items():
        kind = handle.removeprefix(f"mcp:{tool_name}:").partition(":")[0]
        keep(kind, data, media_type, label)
        if kind == "structured_content":
            structured = data

    refs = [artifact.ref for artifact in kept.values()]
    listed = choose_references(refs, inline_tokens, tokens)
    if len(listed) < len(refs):
        listing = json.dumps([ref.as_dict() for ref in refs], ensure_ascii=False).encode("utf-8", "replace")
        listed.append(keep("index", listing, "application/json", f"list of all {len(refs)} artifacts"))
    raw = count_tokens(text, tokens) if text else count_json(structured, tokens)
    fields = result if isinstance(result, Mapping) else {}
    shown = fit(
        replace(
            read, artifacts=tuple(listed), provenance={**read.provenance, "tool_id": tool_id, **(provenance or {})}
        ),
        text=text,
        structured=fields.get("structuredContent"),
        facts_are_whole=len(structured) <= WHOLE_FACTS_CHARS,
        links=_links(fields.get("content")),
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
