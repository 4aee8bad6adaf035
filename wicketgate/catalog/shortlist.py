"""The number of ranked tools that a browse shows, and the hint beside them (BROWSE-30 to BROWSE-33, CARD-32).

All is read from the scores of the best MOST_SHOWN tools that the caller may use. Each tool gets a share of the whole,
which falls exponentially with its distance from the best score; the distance that counts grows with the root of that
score. A clear winner has nearly all, twenty equal tools have a twentieth each. The constants were chosen on public
query sets; ``bench/shortlist_table.py`` shows what they give.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from wicketgate.catalog.card import CACHE_BREAKPOINT, HARD_CAP_TOKENS, ChoiceCard
from wicketgate.catalog.card_lines import MAX_HINT_CHARS, browse_lines
from wicketgate.tokens import TokenCounter

LEAST_SHOWN = 3
MOST_SHOWN = 20
NAMED_BEST = 3
NAMED_NAMESPACES = 4
HINT_TOKENS = 32
"""The most that an answer costs beside the 80 tokens of each card."""

_SPREAD = 0.1
_WORTH_SHOWING = 0.035
_CLEAR_SCORE = 0.08
_CLEAR_SHARE = 0.12

NO_CLEAR_MATCH = "No clear match."
NOTHING_MATCHES = "Nothing matches these words. Try other words, or browse '/' to see what there is."


def count_deserved(scores: Sequence[float]) -> int:
    """Returns the number of tools to show; *scores* are those of the best, descending.

    It is the number of those with a share of at least 3.5 %, and from 3 to 20 where there are as many.
    """
    shown = sum(share >= _WORTH_SHOWING for share in _shares(scores[:MOST_SHOWN]))
    return min(max(shown, LEAST_SHOWN), len(scores))


def is_clear(scores: Sequence[float]) -> bool:
    """Returns true if the best tool has a score and a share that right tools have; *scores* are descending."""
    return bool(scores) and scores[0] >= _CLEAR_SCORE and _shares(scores[:MOST_SHOWN])[0] >= _CLEAR_SHARE


def best_namespaces(scores: Sequence[float], namespaces: Sequence[str]) -> tuple[str, ...]:
    """Returns the namespaces whose tools have the largest shares together, at most four; *namespaces* are those of the
    tools with *scores*. Equal ones stand in alphabetical order."""
    together: defaultdict[str, float] = defaultdict(float)
    for share, namespace in zip(_shares(scores[:MOST_SHOWN]), namespaces, strict=False):
        together[namespace] += share
    return tuple(sorted(together, key=lambda name: (-together[name], name))[:NAMED_NAMESPACES])


def hints(best: Sequence[str], namespaces: Sequence[str] | None) -> Iterator[str]:
    """Gives the hint of an answer, the fullest form first, then with fewer and fewer names.

    *best* are ids to name, best first; *namespaces* are given, if only as none, where no tool is a clear match.
    """
    for ids in range(len(best), -1, -1):
        named = f"Best for this query: {', '.join(best[:ids])}." if ids else ""
        for places in range(-1 if namespaces is None else len(namespaces), -1, -1):
            yield f"{named} {_elsewhere((namespaces or ())[:places])}".lstrip()
        if named:
            yield named


def with_calls(forms: Iterator[str], calls: Iterator[str]) -> Iterator[str]:
    """Gives the first of *forms* with each of *calls* behind it, which say what the best tool takes, then *forms*."""
    first = next(forms, "")
    yield from (f"{first} {call}".lstrip() for call in calls)
    yield from chain([first] if first else [], forms)


def answer_text(
    cards: Sequence[ChoiceCard], forms: Iterator[str], tokens: TokenCounter, line_tokens: Callable[[ChoiceCard], int]
) -> tuple[str, str]:
    """Returns the text of an answer, and the hint that is its last line.

    The hint is the first of *forms* with which n cards take at most ``80 n + 32`` tokens, counted exactly; none if
    there is no such form. The marker of cache-stable order is no card here. *line_tokens*: as ``card.line_tokens``.
    """
    lines = browse_lines(cards)
    shown = len(cards) - (CACHE_BREAKPOINT in cards)
    room = HARD_CAP_TOKENS * shown + HINT_TOKENS - sum(map(line_tokens, cards))
    for form in forms:
        # No token is shorter than a byte, so most forms need not be counted.
        size_bytes = len(form.encode("utf-8", "surrogatepass"))
        if len(form) <= MAX_HINT_CHARS and (size_bytes <= room or tokens.count(form) <= room):
            return "\n".join(text for text in (lines, form) if text), form
    return lines, ""


def _elsewhere(namespaces: Sequence[str]) -> str:
    paths = ", ".join(f"/{namespace}" for namespace in namespaces)
    return f"{NO_CLEAR_MATCH} Try other words{f', look in {paths}' if paths else ''}, or browse '/'."


def _shares(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    best = scores[0]
    spread = _SPREAD * math.sqrt(best) or 1.0
    weights = [math.exp((score - best) / spread) for score in scores]
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]
