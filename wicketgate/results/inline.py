"""How an envelope is kept within a number of tokens, and what it says of what it leaves out (DESIGN §3 "Results").

Counted is the compact JSON of the envelope, since that is what a model reads: a quote in a text costs more there than
in the text. Nothing longer than a few thousand characters is ever counted.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.catalog.tokens import TokenCounter
from wicketgate.results.bulk import SLICE
from wicketgate.results.cost import TokenCount
from wicketgate.results.envelope import SUMMARY_CHARS, ArtifactRef, ResultEnvelope, shorten
from wicketgate.results.from_mcp import facts

# Less than a second call with its own arguments and framing would cost.
INLINE_TOKENS = 500
MAX_REFS = 20
HEAD_CHARS = 340
_LABEL_CHARS = 80
_TOOL_CHARS = 200
# Hardly any text has more characters to a token; a longer one is not even counted.
_CHARS_A_TOKEN = 8
_NOTE_TOKENS = 60
_LEAST_HEAD_TOKENS = 16
_GOES_ON = " […goes on in facts]"
_MAX_NOTES = 20
_NOTES = ("content_annotations", "problems")


@dataclass(frozen=True, slots=True)
class Shown:
    """*tokens* is the exact cost of the envelope."""

    envelope: ResultEnvelope
    tokens: int


def choose_references(refs: Sequence[ArtifactRef], budget: int, tokens: TokenCounter) -> list[ArtifactRef]:
    """The first *refs*, as many as fit into two fifths of the budget; if not all, with room for one to a list."""
    room = budget * 2 // 5
    shown: list[ArtifactRef] = []
    for ref in refs[:MAX_REFS]:
        short = replace(ref, label=shorten(ref.label, _LABEL_CHARS))
        if len(refs) == 1 and _surely_within(short.as_dict(), room):
            return [short]
        cost = _cost(short.as_dict(), tokens)
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
    """*envelope* as S1 makes it of *text* and *structured*, changed so that it costs at most *budget*.

    Everything is given if it fits, a text longer than a summary with the help of a fact. Else the summary is a head
    of the text, and facts are given shortly and as far as they fit. Only ids may take the cost above the budget.
    *viewable*: the first artifact holds the whole, so that a summary may send the model there.
    """
    envelope = replace(envelope, provenance=_provenance(envelope.provenance))
    whole = _whole(envelope, text, links, budget) if text or facts_are_whole else None
    if whole is not None and (cost := _cost(whole.as_dict(), tokens)) <= budget:
        return Shown(whole, cost)

    room = budget - _cost(replace(envelope, summary="", facts=()).as_dict(), tokens)
    short = facts(structured, whole=False)
    if text:
        summary = _summary(text, room - min(_sum(short, tokens), room // 2), raw, viewable, tokens)
        room -= _cost(summary, tokens)
        given = envelope.facts if facts_are_whole and _sum(envelope.facts, tokens) <= room else short
    else:
        # Nothing but these facts is shown, and they did not all fit.
        note = _note(raw_chars, 1, raw, 0, viewable) if structured is not None else ""
        summary = shorten(envelope.summary, SUMMARY_CHARS - len(note)) + note
        room -= _cost(summary, tokens)
        given = short
    shown = replace(envelope, summary=summary, facts=_greedy([*given, *links], room, tokens))
    return _shaved(shown, budget, tokens)


def _whole(envelope: ResultEnvelope, text: str, links: Sequence[str], budget: int) -> ResultEnvelope | None:
    if len(text) <= SUMMARY_CHARS:
        return replace(envelope, facts=(*envelope.facts, *links))
    if len(text) > budget * _CHARS_A_TOKEN or envelope.facts:
        return None
    cut = SUMMARY_CHARS - len(_GOES_ON)
    rest = "[…] " + shorten(text[cut:], len(text))
    return replace(envelope, summary=shorten(text[:cut], cut) + _GOES_ON, facts=(rest, *links))


def _summary(text: str, room: int, raw: TokenCount, viewable: bool, tokens: TokenCounter) -> str:
    if len(text) <= SUMMARY_CHARS and _cost(text, tokens) <= room:
        return shorten(text, SUMMARY_CHARS)
    head = _head(text[:HEAD_CHARS], max(room - _NOTE_TOKENS, _LEAST_HEAD_TOKENS), tokens)
    newlines = sum(text.count("\n", at, at + SLICE) for at in range(len(head), len(text), SLICE))
    lines = newlines + (not text.endswith("\n"))
    left = TokenCount(max(raw.tokens - tokens.count(head), 0), raw.exact)
    return shorten(head, HEAD_CHARS) + _note(len(text) - len(head), lines, left, len(head), viewable)


def _note(chars: int, lines: int, left: TokenCount, start: int, viewable: bool) -> str:
    """At most 160 characters for anything below a terabyte."""
    counts = f"{chars:,} characters, {lines:,} lines" if lines > 1 else f"{chars:,} characters"
    selector = f'{{"type":"head","start":{start},"chars":4000}}'
    go_on = f"; go on: tool_view artifacts[0] {selector}" if viewable else ""
    return f"\n[… kept out: {counts}, {left} tokens{go_on}]"


def _head(text: str, room: int, tokens: TokenCounter) -> str:
    """A beginning of *text* that costs at most *room*, near the longest."""
    for _ in range(8):
        cost = _cost(text, tokens)
        if cost <= room:
            return text
        text = text[: len(text) * room // cost]
    return ""


def _greedy(candidates: Sequence[str], room: int, tokens: TokenCounter) -> tuple[str, ...]:
    """As many as fit, in order, and how many did not."""
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


def _shaved(envelope: ResultEnvelope, budget: int, tokens: TokenCounter) -> Shown:
    """Sums of parts are only nearly the cost of the whole; and long ids can leave no room at all."""
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
    """No token is less than a byte, and counting bytes costs next to nothing."""
    return len(_json(value).encode("utf-8", "surrogatepass")) <= room


def _cost(value: object, tokens: TokenCounter) -> int:
    return tokens.count(_json(value))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
