"""Envelopes within a number of tokens, and what texts cost a model (S0 §2.3, §4.2, DESIGN §3 "Results").

The cost of an envelope is that of its compact JSON, because a model reads that: a quote costs more there than in the
text. Of a long text only the beginning is counted, and the number says that it is an estimate.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.catalog.tokens import TokenCounter
from wicketgate.results.bulk import SLICE
from wicketgate.results.envelope import SUMMARY_CHARS, ArtifactRef, ResultEnvelope, shorten
from wicketgate.results.from_mcp import facts

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


@dataclass(frozen=True, slots=True)
class Shown:
    """*tokens* is the exact cost of the envelope."""

    envelope: ResultEnvelope
    tokens: int


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
) -> Shown:
    """Changes *envelope*, as S1 makes it of *text* and *structured*, so that it costs at most *budget*.

    Everything is given if it fits; a text longer than a summary goes on in a fact. Otherwise the summary is a head of
    the text, and short facts are given as far as they fit. Only ids may take the cost above the budget. *viewable*: the
    first artifact holds the whole, so that the summary may name it.
    """
    # Give everything, if that fits.
    envelope = replace(envelope, provenance=_provenance(envelope.provenance))
    whole = _whole(envelope, text, links, budget) if text or facts_are_whole else None
    if whole is not None and (cost := _cost(whole.as_dict(), tokens)) <= budget:
        return Shown(whole, cost)

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


def _trimmed(envelope: ResultEnvelope, budget: int, tokens: TokenCounter) -> Shown:
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
    return Shown(envelope, cost)


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
