"""Sealing of results: what a model sees, and what is kept out of its context (EXEC-25, EXEC-26).

A short result is given whole, so that it costs no second call. Of a long one the model sees a head, which says what is
left out and how to read on. The whole is always kept under content-addressed handles, so that the handle of an envelope
can only ever show its own data.

An envelope has a budget of tokens. Its cost is that of its compact JSON, because a model reads that: a quote costs more
there than in the text. Of a long text only the beginning is counted, and the number says that it is an estimate.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.results.bulk import SLICE, count_chars, json_bytes, outweighs, utf8
from wicketgate.results.envelope import (
    SUMMARY_CHARS,
    WHOLE_FACTS_CHARS,
    ArtifactRef,
    Binary,
    ResultEnvelope,
    facts,
    mcp_result_to_envelope,
    shorten,
)
from wicketgate.tokens import TokenCounter

# Less than a second call would cost with its arguments and framing.
INLINE_TOKENS = 500
# Counting so much takes half a millisecond at most.
COUNTED_CHARS = 6_000
MAX_REFS = 20
HEAD_CHARS = 340
_LABEL_CHARS = 80
_TOOL_CHARS = 200
# Hardly any text has more characters to a token, so a longer one is not counted.
_CHARS_A_TOKEN = 8
_NOTE_TOKENS = 60
_LEAST_HEAD_TOKENS = 16
_GOES_ON = " […goes on in facts]"
_MAX_NOTES = 20
_NOTES = ("content_annotations", "problems")


@dataclass(frozen=True, slots=True)
class TokenCount:
    """*exact* is false if only the beginning was counted, and the rest estimated from it."""

    tokens: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.tokens:,}" if self.exact else f"about {self.tokens:,}"


def count_tokens(text: str, tokens: TokenCounter) -> TokenCount:
    """Counts exactly up to 6,000 characters, and estimates the rest of a longer text from those."""
    return _count_head(text[:COUNTED_CHARS], len(text), tokens)


def count_json(data: bytes, tokens: TokenCounter) -> TokenCount:
    """As ``count_tokens``, for JSON in UTF-8."""
    return _count_head(data[:COUNTED_CHARS].decode("utf-8", "ignore"), len(data), tokens)


def _count_head(head: str, length: int, tokens: TokenCounter) -> TokenCount:
    counted = tokens.count(head)
    if length <= COUNTED_CHARS:
        return TokenCount(counted, True)
    return TokenCount(round(counted * length / COUNTED_CHARS), False)


def choose_references(refs: Sequence[ArtifactRef], budget: int, tokens: TokenCounter) -> list[ArtifactRef]:
    """Takes the first *refs* that fit into two fifths of the budget. If not all do, leaves room for one to a list."""
    # The rest of the budget belongs to the text and the facts.
    room = budget * 2 // 5
    shown: list[ArtifactRef] = []
    for ref in refs[:MAX_REFS]:
        short = replace(ref, label=shorten(ref.label, _LABEL_CHARS))
        # Most results have one reference, whose bytes tell that it fits without counting tokens.
        if len(refs) == 1 and _surely_within(short.as_dict(), room):
            return [short]
        cost = _cost(short.as_dict(), tokens)
        # The first reference is always shown, with a shorter label if need be.
        if cost > room and not shown:
            short = replace(ref, label=shorten(ref.label, 16))
        elif cost > room:
            break
        room -= cost
        shown.append(short)
    return shown[:-1] if 1 < len(shown) < len(refs) else shown


def fit(
    envelope: ResultEnvelope,
    *,
    text: str,
    structured: object,
    facts_are_whole: bool,
    links: Sequence[str],
    raw: TokenCount,
    raw_chars: int,
    viewable: bool,
    budget: int,
    tokens: TokenCounter,
) -> tuple[ResultEnvelope, int]:
    """Returns *envelope*, as it was made of *text* and *structured*, changed to cost at most *budget*; and its cost.

    Everything is given if it fits; a text longer than a summary goes on in a fact. Otherwise the summary is a head of
    the text, and short facts are given as far as they fit. Only ids may take the cost above the budget. *viewable*: the
    first artifact holds the whole, so that the summary may name it.
    """
    # Give everything, if that fits.
    envelope = replace(envelope, provenance=_provenance(envelope.provenance))
    whole = _whole(envelope, text, links, budget) if text or facts_are_whole else None
    if whole is not None and (cost := _cost(whole.as_dict(), tokens)) <= budget:
        return whole, cost

    # Otherwise a head of the text comes first. Facts take at most half of the room from it.
    room = budget - _cost(replace(envelope, summary="", facts=()).as_dict(), tokens)
    short = facts(structured, whole=False)
    if text:
        summary = _summary(text, room - min(_sum(short, tokens), room // 2), raw, viewable, tokens)
        room -= _cost(summary, tokens)
        given = envelope.facts if facts_are_whole and _sum(envelope.facts, tokens) <= room else short
    else:
        # Without a text the facts are all there is, and the summary says that some are left out.
        note = _note(raw_chars, 1, raw, 0, viewable) if structured is not None else ""
        summary = shorten(envelope.summary, SUMMARY_CHARS - len(note)) + note
        room -= _cost(summary, tokens)
        given = short
    # The rest of the room goes to facts and links, in order.
    shown = replace(envelope, summary=summary, facts=_fitting_facts([*given, *links], room, tokens))
    return _trimmed(shown, budget, tokens)


def _whole(envelope: ResultEnvelope, text: str, links: Sequence[str], budget: int) -> ResultEnvelope | None:
    """Returns the envelope with the whole text; None if it cannot fit."""
    # A short text is the summary.
    if len(text) <= SUMMARY_CHARS:
        return replace(envelope, facts=(*envelope.facts, *links))
    if len(text) > budget * _CHARS_A_TOKEN or envelope.facts:
        return None
    # A longer one goes on in the first fact.
    cut = SUMMARY_CHARS - len(_GOES_ON)
    rest = "[…] " + shorten(text[cut:], len(text))
    return replace(envelope, summary=shorten(text[:cut], cut) + _GOES_ON, facts=(rest, *links))


def _summary(text: str, room: int, raw: TokenCount, viewable: bool, tokens: TokenCounter) -> str:
    if len(text) <= SUMMARY_CHARS and _cost(text, tokens) <= room:
        return shorten(text, SUMMARY_CHARS)
    # A head that leaves room for the note, and the note that counts the rest.
    head = _head(text[:HEAD_CHARS], max(room - _NOTE_TOKENS, _LEAST_HEAD_TOKENS), tokens)
    newlines = sum(text.count("\n", at, at + SLICE) for at in range(len(head), len(text), SLICE))
    lines = newlines + (not text.endswith("\n"))
    left = TokenCount(max(raw.tokens - tokens.count(head), 0), raw.exact)
    return shorten(head, HEAD_CHARS) + _note(len(text) - len(head), lines, left, len(head), viewable)


def _note(chars: int, lines: int, left: TokenCount, start: int, viewable: bool) -> str:
    """Says how much is left out, in at most 160 characters for anything below a terabyte."""
    counts = f"{chars:,} characters, {lines:,} lines" if lines > 1 else f"{chars:,} characters"
    selector = f'{{"type":"head","start":{start},"chars":4000}}'
    go_on = f"; go on: tool_view artifacts[0] {selector}" if viewable else ""
    return f"\n[… kept out: {counts}, {left} tokens{go_on}]"


def _head(text: str, room: int, tokens: TokenCounter) -> str:
    """Returns a beginning of *text* that costs at most *room*, nearly the longest one."""
    # Cutting in proportion comes near in a few rounds.
    for _ in range(8):
        cost = _cost(text, tokens)
        if cost <= room:
            return text
        text = text[: len(text) * room // cost]
    return ""


def _fitting_facts(candidates: Sequence[str], room: int, tokens: TokenCounter) -> tuple[str, ...]:
    """Takes as many as fit, in order, and then says how many do not."""
    more = "({} more facts)"
    taken: list[str] = []
    if _sum(candidates, tokens) <= room:
        return tuple(candidates)
    room -= _cost(more.format(len(candidates)), tokens) + 1
    for candidate in candidates:
        room -= _cost(candidate, tokens) + 1
        if room < 0:
            break
        taken.append(candidate)
    return (*taken, more.format(len(candidates) - len(taken)))


def _trimmed(envelope: ResultEnvelope, budget: int, tokens: TokenCounter) -> tuple[ResultEnvelope, int]:
    """Drops facts, notes and text until the envelope fits: its cost is only nearly the sum of its parts."""
    while (cost := _cost(envelope.as_dict(), tokens)) > budget:
        if envelope.facts:
            envelope = replace(envelope, facts=envelope.facts[:-1])
        elif envelope.provenance.keys() & set(_NOTES):
            kept = {key: value for key, value in envelope.provenance.items() if key not in _NOTES}
            envelope = replace(envelope, provenance=kept)
        elif len(envelope.summary) > 20:
            envelope = replace(envelope, summary=shorten(envelope.summary, len(envelope.summary) * 3 // 4))
        else:
            break
    return envelope, cost


def _provenance(provenance: Any) -> dict[str, Any]:
    bounded = {**provenance, "tool": shorten(provenance["tool"], _TOOL_CHARS)}
    for key in _NOTES:
        notes = bounded.get(key, [])
        if len(notes) > _MAX_NOTES:
            bounded[key] = notes[:_MAX_NOTES]
            bounded[f"{key}_left_out"] = len(notes) - _MAX_NOTES
    return bounded


def _sum(candidates: Sequence[str], tokens: TokenCounter) -> int:
    return sum(_cost(candidate, tokens) + 1 for candidate in candidates)


def _surely_within(value: object, room: int) -> bool:
    """Returns true if *value* has no more bytes than *room*, because no token is shorter than a byte."""
    return len(_json(value).encode("utf-8", "surrogatepass")) <= room


def _cost(value: object, tokens: TokenCounter) -> int:
    return tokens.count(_json(value))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_BULKY_UNITS = 4_096
_VERY_BULKY_UNITS = 65_536
_MAX_LINKS = 20
# Each artifact is a write of its own to the store, and an entry among those of its owner.
_MAX_ARTIFACTS = 200
_LINK_CHARS = 300


@dataclass(frozen=True, slots=True)
class SealedArtifact:
    """Bytes that the caller has to store, so that ``ref.handle`` can be viewed."""

    ref: ArtifactRef
    data: bytes


@dataclass(frozen=True, slots=True)
class Sealed:
    """*shown_tokens* is the cost of the envelope as JSON; *raw* that of the result as it came.

    *raw* counts the texts, or the structured content of a result without any. Images, audio and blobs are left out,
    because their cost depends on the model: the comparison never flatters us.
    """

    envelope: ResultEnvelope
    artifacts: tuple[SealedArtifact, ...]
    raw: TokenCount
    shown_tokens: int


def is_bulky(result: object) -> bool:
    """Returns true if sealing takes long enough to be worth a thread; looks at 4,096 values or 64 KB at most."""
    return outweighs(result, _BULKY_UNITS)


def is_very_bulky(result: object) -> bool:
    """Returns true for more than 65,536 values or 1 MB, which are sealed one at a time."""
    return outweighs(result, _VERY_BULKY_UNITS)


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
    lost = not_stored or {}

    # Every part becomes an artifact. Very many parts become one artifact that holds them all.
    kept = _Artifacts(tool_id)
    structured = _keep_parts(kept, text, binaries, f"mcp:{tool_name}:")
    if len(binaries) > _MAX_ARTIFACTS and (parts := json_bytes(fields.get("content"))) is not None:
        kept.add("parts", parts, "application/json", f"all {len(binaries):,} parts, as they came")

    # The envelope refers to those that can be viewed, as far as its budget allows; an index lists them all.
    refs = [artifact.ref for handle, artifact in kept.by_handle.items() if handle not in lost]
    listed = choose_references(refs, inline_tokens, tokens)
    if len(listed) < len(refs):
        listing = json.dumps([ref.as_dict() for ref in refs], ensure_ascii=False).encode("utf-8", "replace")
        index = kept.add("index", listing, "application/json", f"list of all {len(refs)} artifacts")
        if index.handle not in lost:
            listed.append(index)
    artifacts = tuple(kept.by_handle.values())
    unavailable = [
        f"{shorten(artifact.ref.label, 60)} ({artifact.ref.size_bytes:,} bytes) cannot be viewed: "
        f"{lost[artifact.ref.handle]}"
        for artifact in artifacts
        if artifact.ref.handle in lost
    ]

    # Then text and facts go in as far as they fit.
    raw = count_tokens(text, tokens) if text else count_json(structured, tokens)
    shown, shown_tokens = fit(
        replace(
            read,
            status="partial" if unavailable and read.status == "ok" else read.status,
            artifacts=tuple(listed),
            provenance={**read.provenance, "tool_id": tool_id, **(provenance or {})},
        ),
        text=text,
        structured=fields.get("structuredContent"),
        facts_are_whole=len(structured) <= WHOLE_FACTS_CHARS,
        links=[*unavailable, *_links(fields.get("content"))],
        viewable=not refs or refs[0] is artifacts[0].ref,
        raw=raw,
        raw_chars=len(text) or count_chars(structured),
        budget=inline_tokens,
        tokens=tokens,
    )
    return Sealed(shown, artifacts, raw, shown_tokens)


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


def _keep_parts(kept: _Artifacts, text: str, binaries: Mapping[str, Binary], prefix: str) -> bytes:
    """Adds the text and the first binaries. Returns the structured content, empty without any."""
    if text:
        kept.add("text", utf8(text), "text/plain", "full text")
    structured = b""
    for number, (handle, (data, media_type, label)) in enumerate(binaries.items()):
        kind = handle.removeprefix(prefix).partition(":")[0]
        if kind == "structured_content":
            structured = data
        elif number >= _MAX_ARTIFACTS:
            continue
        kept.add(kind, data, media_type, label)
    return structured


def _links(content: Any) -> list[str]:
    """Writes each resource link as a fact: a link is of use only with its address."""
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
