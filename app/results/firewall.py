"""What of an upstream's result a model sees, and what is kept out of its context (S0 §4.2, DESIGN §3 "Results").

A short answer is given whole, so that it costs no second call; a long one is given as a head and counts. All of it is
always kept under content-addressed handles, so that an envelope's handle can only ever show its own data.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from app.results.envelope import SUMMARY_CHARS, ArtifactRef, ResultEnvelope, shorten
from app.results.from_mcp import mcp_result_to_envelope

# About 500 tokens: less than a second call with its own arguments and framing would cost.
INLINE_CHARS = 2_000
MAX_REFS = 20
BULKY_CHARS = 256_000
_HEAD_CHARS = 360
_MAX_ANNOTATIONS = 20


@dataclass(frozen=True, slots=True)
class SealedArtifact:
    """What the caller has to store so that ``ref.handle`` can be viewed."""

    ref: ArtifactRef
    data: bytes


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_bulky(result: object) -> bool:
    """Whether sealing takes long enough to be worth a thread; a guess, made without reading the content."""
    content = result.get("content") if isinstance(result, Mapping) else None
    parts = content if isinstance(content, list) else ()
    texts = (part.get(key) for part in parts if isinstance(part, Mapping) for key in ("text", "data"))
    nested = (part.get("resource") for part in parts if isinstance(part, Mapping))
    blobs = (resource.get(key) for resource in nested if isinstance(resource, Mapping) for key in ("text", "blob"))
    return sum(len(text) for text in (*texts, *blobs) if isinstance(text, str)) > BULKY_CHARS


def seal_result(
    result: object, tool_id: str, tool_name: str, digest: Callable[[bytes], str] = sha256_hex
) -> tuple[ResultEnvelope, list[SealedArtifact]]:
    """The envelope for the model, and the artifacts to store, each handle once; never raises.

    Handles are ``<kind>:<tool_id>:<16 hex of digest>`` with kind text, structured_content, image, audio, resource,
    resource_link, malformed or index. The text comes first. *digest* gives hex of the bytes. Linear in the size of
    the result, with no pass in Python over it: hashing is most of the time.
    """
    read, binaries, text = mcp_result_to_envelope(result, tool_name)
    kept: dict[str, SealedArtifact] = {}

    def keep(kind: str, data: bytes, media_type: str, label: str) -> None:
        handle = f"{kind}:{tool_id}:{digest(data)[:16]}"
        kept.setdefault(handle, SealedArtifact(ArtifactRef(handle, media_type, label, len(data)), data))

    if text:
        keep("text", text.encode("utf-8", "surrogatepass"), "text/plain", "full text")
    links = []
    for handle, (data, media_type, label) in binaries.items():
        kind = handle.removeprefix(f"mcp:{tool_name}:").partition(":")[0]
        keep(kind, data, media_type, label)
        if kind == "resource_link":
            links.append(shorten(f"link {label}: {data.decode('utf-8', 'replace')}", INLINE_CHARS // MAX_REFS))

    summary, rest = _summary(text, read.summary, structured=bool(read.facts))
    refs = [artifact.ref for artifact in kept.values()]
    if len(refs) > MAX_REFS:
        listing = json.dumps([ref.as_dict() for ref in refs], ensure_ascii=False).encode("utf-8", "replace")
        keep("index", listing, "application/json", f"list of all {len(refs)} artifacts")
        refs = [*refs[: MAX_REFS - 1], next(reversed(kept.values())).ref]
    provenance = {**read.provenance, "tool_id": tool_id}
    if "content_annotations" in provenance:
        provenance["content_annotations"] = provenance["content_annotations"][:_MAX_ANNOTATIONS]
    envelope = replace(
        read,
        summary=summary,
        facts=(*rest, *read.facts, *links[:MAX_REFS]),
        artifacts=tuple(refs),
        provenance=provenance,
    )
    return envelope, list(kept.values())


def _summary(text: str, short: str, *, structured: bool) -> tuple[str, tuple[str, ...]]:
    """The summary, and as a fact what does not fit into it of a text that is short enough to be given whole."""
    if len(text) <= SUMMARY_CHARS:
        return short, ()
    if len(text) <= INLINE_CHARS and not structured:
        note = " […goes on in facts]"
        cut = SUMMARY_CHARS - len(note)
        return shorten(text[:cut], cut) + note, ("[…] " + shorten(text[cut:], INLINE_CHARS),)
    lines = text.count("\n") + (not text.endswith("\n"))
    note = (
        f"\n[… {len(text):,} characters, {lines:,} lines; for the rest: tool_view artifacts[0] "
        f'with {{"type":"head","start":{_HEAD_CHARS},"chars":4000}}]'
    )
    return shorten(text[:_HEAD_CHARS], _HEAD_CHARS) + note, ()
