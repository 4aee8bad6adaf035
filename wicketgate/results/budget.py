"""The budget of an envelope, and what of a result is given within it (EXEC-25, EXEC-57, EXEC-58).

An envelope's cost is that of its compact JSON, because a model reads that: a quote costs more there than in the text.
Counting is most of the work that a result makes, so only what may pass the budget is counted. Of a long text only the
beginning is, and the number says that it is an estimate.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from wicketgate.results.bulk import count_json_chars
from wicketgate.results.envelope import SUMMARY_CHARS, WHOLE_FACTS_CHARS, ArtifactRef, ResultEnvelope, facts, shorten
from wicketgate.results.page import GOES_ON, REST, json_text, result_page
from wicketgate.tokens import TokenCounter, estimate_tokens

# Less than a second call would cost with its arguments and framing.
INLINE_TOKENS = 500
# Counting so much takes a hundred microseconds.
COUNTED_CHARS = 1_000
# As much of a longer text tells about how dear it is.
_SAMPLE_CHARS = 300
MAX_REFS = 20
HEAD_CHARS = 340
_LABEL_CHARS = 80
_TOOL_CHARS = 200
# Hardly any text has more characters to a token, so a longer one is not counted.
_CHARS_A_TOKEN = 8
_NOTE_TOKENS = 60
_LEAST_HEAD_TOKENS = 16
_MAX_NOTES = 20
_NOTES = ("content_annotations", "problems")


@dataclass(frozen=True, slots=True)
class TokenCount:
    """*exact* is false for an estimate: only a beginning was counted, or nothing."""

    tokens: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.tokens:,}" if self.exact else f"about {self.tokens:,}"


# Between these two characters cl100k_base parts every text, whatever stands around them.
CUT = re.compile(r"[A-Za-z](?=[\s!-@\[-`{-~])", re.ASCII)
_CUT_WITHIN = 100


def count_tokens(text: str, tokens: TokenCounter) -> TokenCount:
    """Counts exactly up to 1,000 characters, and estimates a longer text from its first 300."""
    return _count_head(text[:COUNTED_CHARS], len(text), tokens)


def count_json(data: bytes, tokens: TokenCounter) -> TokenCount:
    """As ``count_tokens``, for JSON in UTF-8."""
    return _count_head(data[:COUNTED_CHARS].decode("utf-8", "ignore"), len(data), tokens)


def _count_head(head: str, length: int, tokens: TokenCounter) -> TokenCount:
    if length <= COUNTED_CHARS:
        return TokenCount(tokens.count(head), True)
    # A piece of a word at the end would make it dearer than it is.
    cut = CUT.search(head, _SAMPLE_CHARS, _SAMPLE_CHARS + _CUT_WITHIN)
    chars = _SAMPLE_CHARS if cut is None else cut.end()
    return TokenCount(round(tokens.count(head[:chars]) * length / chars), False)


@dataclass(frozen=True, slots=True)
class Counted:
    """*tokens* is the exact number of the whole if it *fits* a limit. Otherwise it is about that of the first *chars*
    characters."""

    fits: bool
    tokens: int
    chars: int


def count_within(text: str, limit: int, tokens: TokenCounter) -> Counted:
    """Counts *text* if it has no more than *limit* tokens; otherwise reads on little beyond those."""
    counted = start = 0
    exact = True
    while start < len(text) and counted <= (limit if exact else 2 * limit):
        # The tokens of pieces are those of the whole where all cuts are such as the table makes itself.
        end = min(start + COUNTED_CHARS, len(text))
        if end < len(text):
            cut = CUT.search(text, end, end + _CUT_WITHIN)
            exact = exact and cut is not None
            end = end if cut is None else cut.end()
        counted += tokens.count(text[start:end])
        start = end
    if start == len(text) and not exact:
        counted = tokens.count(text)
    return Counted(start == len(text) and counted <= limit, counted, start)


def choose_references(refs: Sequence[ArtifactRef], budget: int, tokens: TokenCounter) -> list[ArtifactRef]:
    """Takes the first *refs* that fit into two fifths of the budget. If not all do, leaves room for one to a list."""
    # The rest of the budget belongs to the text and the facts.
    room = budget * 2 // 5
    shown: list[ArtifactRef] = []
    for ref in refs[:MAX_REFS]:
        short = replace(ref, label=shorten(ref.label, _LABEL_CHARS))
        # Most results have one reference, whose bytes tell that it fits without counting tokens.
        if len(refs) == 1 and _surely_within(json_text(short.as_dict()), room):
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


@dataclass(frozen=True, slots=True)
class Fitted:
    """An envelope within its budget, as compact JSON in *text* and as a model reads it in *page*. *shown_tokens* are
    those of the page, an estimate unless it was near the budget; *raw* is the cost of the result as it came."""

    envelope: ResultEnvelope
    text: str
    page: str
    shown_tokens: int
    raw: TokenCount


@dataclass(frozen=True, slots=True)
class Unfitted:
    """The parts of a result that an envelope may give. *structured* is the value and *written* its JSON, *links* are
    more facts. *viewable*: the first artifact holds the whole, so that the summary may name it."""

    text: str
    structured: object
    written: bytes
    links: Sequence[str]
    viewable: bool

    @property
    def facts_are_whole(self) -> bool:
        return len(self.written) <= WHOLE_FACTS_CHARS

    def raw(self, tokens: TokenCounter) -> TokenCount:
        """The cost of the result."""
        return count_tokens(self.text, tokens) if self.text else count_json(self.written, tokens)


def fit_whole(envelope: ResultEnvelope, parts: Unfitted, budget: int, tokens: TokenCounter) -> Fitted | None:
    """Returns *envelope* with all of *parts* on its page; None if that costs more than *budget*."""
    if len(parts.text) + len(parts.written) > budget * _CHARS_A_TOKEN:
        return None
    summary, given = envelope.summary, [*envelope.facts, *parts.links]
    # A text that is longer than a summary goes on in the first fact.
    if len(parts.text) > SUMMARY_CHARS:
        cut = SUMMARY_CHARS - len(GOES_ON)
        given.insert(0, REST + shorten(parts.text[cut:], len(parts.text)))
        summary = shorten(parts.text[:cut], cut) + GOES_ON
    # In a program's own results there may be lone surrogates, such as those of file names.
    structured = msgspec.json.decode(parts.written.decode("utf-8", "replace")) if parts.written else None
    whole = replace(envelope, summary=summary, facts=tuple(given), structured_content=structured)
    page = result_page(body := whole.as_dict())
    length = len(parts.text) or len(parts.written)
    if _surely_within(page, budget):
        raw = TokenCount(estimate_tokens(length), False)
        return Fitted(whole, json_text(body), page, estimate_tokens(len(page)), raw)
    counted = count_within(page, budget, tokens)
    if not counted.fits:
        return None
    # The result's share of the page, which was counted.
    raw = TokenCount(round(counted.tokens * length / len(page)), False)
    return Fitted(whole, json_text(body), page, counted.tokens, raw)


def fit(envelope: ResultEnvelope, parts: Unfitted, budget: int, tokens: TokenCounter) -> Fitted:
    """Returns *envelope*, as it was made of *parts*, changed to cost at most *budget* as JSON; its page costs less.

    The summary is a head of the text, and short facts are given as far as they fit. Only ids may take the cost above
    the budget.
    """
    # A head of the text comes first, with all facts: most results leave room for them.
    raw = parts.raw(tokens)
    given = envelope.facts if parts.facts_are_whole else facts(parts.structured, whole=False)
    shown = _all_facts(envelope, parts, given, raw, budget, tokens)
    if shown is not None and (counted := count_within(text := json_text(shown.as_dict()), budget, tokens)).fits:
        return _fitted(shown, text, counted.tokens, raw)

    # Where they do not, facts take at most half of the room from the text.
    room = budget - _cost(replace(envelope, summary="", facts=()).as_dict(), tokens)
    short = facts(parts.structured, whole=False)
    if parts.text:
        summary = _summary(parts, room - min(_sum(short, tokens), room // 2), raw, tokens)
        room -= _cost(summary, tokens)
        given = envelope.facts if parts.facts_are_whole and _sum(envelope.facts, tokens) <= room else short
    else:
        summary = _without_text(envelope, parts, raw)
        room -= _cost(summary, tokens)
        given = short
    # The rest of the room goes to facts and links, in order.
    shown = replace(envelope, summary=summary, facts=_fitting_facts([*given, *parts.links], room, tokens))
    shown, text, cost = _trimmed(shown, budget, tokens)
    return _fitted(shown, text, cost, raw)


def _fitted(envelope: ResultEnvelope, text: str, cost: int, raw: TokenCount) -> Fitted:
    page = result_page(envelope.as_dict())
    return Fitted(envelope, text, page, round(cost * len(page) / len(text)), raw)


def _all_facts(
    envelope: ResultEnvelope,
    parts: Unfitted,
    given: Sequence[str],
    raw: TokenCount,
    budget: int,
    tokens: TokenCounter,
) -> ResultEnvelope | None:
    """Returns the envelope with the longest head and all facts; None if it is not worth being counted."""
    if sum(map(len, given)) + sum(map(len, parts.links)) > 2 * budget or 0 < len(parts.text) <= SUMMARY_CHARS:
        return None
    if parts.text:
        summary = _with_note(parts, parts.text[:HEAD_CHARS], raw, tokens)
    else:
        summary = _without_text(envelope, parts, raw)
    return replace(envelope, summary=summary, facts=(*given, *parts.links))


def _without_text(envelope: ResultEnvelope, parts: Unfitted, raw: TokenCount) -> str:
    """The facts are all there is, and the summary says that some are left out."""
    if parts.structured is None:
        return shorten(envelope.summary, SUMMARY_CHARS)
    note = _note(count_json_chars(parts.written), 1, raw, 0, parts.viewable)
    return shorten(envelope.summary, SUMMARY_CHARS - len(note)) + note


def _summary(parts: Unfitted, room: int, raw: TokenCount, tokens: TokenCounter) -> str:
    text = parts.text
    if len(text) <= SUMMARY_CHARS and _cost(text, tokens) <= room:
        return shorten(text, SUMMARY_CHARS)
    # A head that leaves room for the note, and the note that counts the rest.
    head = _head(text[:HEAD_CHARS], max(room - _NOTE_TOKENS, _LEAST_HEAD_TOKENS), tokens)
    return _with_note(parts, head, raw, tokens)


def _with_note(parts: Unfitted, head: str, raw: TokenCount, tokens: TokenCounter) -> str:
    text = parts.text
    lines = text.count("\n", len(head)) + (not text.endswith("\n"))
    shown = tokens.count(head) if raw.exact else round(raw.tokens * len(head) / len(text))
    left = TokenCount(max(raw.tokens - shown, 0), raw.exact)
    return shorten(head, HEAD_CHARS) + _note(len(text) - len(head), lines, left, len(head), parts.viewable)


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


def _trimmed(envelope: ResultEnvelope, budget: int, tokens: TokenCounter) -> tuple[ResultEnvelope, str, int]:
    """Drops facts, notes and text until the envelope fits: its cost is only nearly the sum of its parts. Returns it
    with its JSON and cost."""
    while (cost := tokens.count(text := json_text(envelope.as_dict()))) > budget:
        if envelope.facts:
            envelope = replace(envelope, facts=envelope.facts[:-1])
        elif envelope.provenance.keys() & set(_NOTES):
            kept = {key: value for key, value in envelope.provenance.items() if key not in _NOTES}
            envelope = replace(envelope, provenance=kept)
        elif len(envelope.summary) > 20:
            envelope = replace(envelope, summary=shorten(envelope.summary, len(envelope.summary) * 3 // 4))
        else:
            break
    return envelope, text, cost


def bounded_provenance(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Returns *provenance* with a short name of its tool, and so many notes that an envelope can hold the rest."""
    bounded = {**provenance, "tool": shorten(provenance["tool"], _TOOL_CHARS)}
    for key in _NOTES:
        notes = bounded.get(key, [])
        if len(notes) > _MAX_NOTES:
            bounded[key] = notes[:_MAX_NOTES]
            bounded[f"{key}_left_out"] = len(notes) - _MAX_NOTES
    return bounded


def _sum(candidates: Sequence[str], tokens: TokenCounter) -> int:
    return sum(_cost(candidate, tokens) + 1 for candidate in candidates)


def _surely_within(text: str, room: int) -> bool:
    """Returns true if *text* has no more bytes than *room*, because no token is shorter than a byte."""
    return len(text) <= room and (text.isascii() or len(text.encode("utf-8", "surrogatepass")) <= room)


def _cost(value: object, tokens: TokenCounter) -> int:
    return tokens.count(json_text(value))
