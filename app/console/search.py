"""A search as a model makes it, with the reasons for the place of each tool (OPS-228, OPS-229)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from wicketgate.catalog.card import CACHE_BREAKPOINT, ChoiceCard, render_card
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.ranking import Addend, Ranking, Reason
from wicketgate.catalog.shortlist import MOST_SHOWN
from wicketgate.catalog.words import terms
from wicketgate.gateway.browsing import Browse
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.tokens import estimate_tokens

MAX_QUERY_CHARS = 500
MAX_HITS = 50
_MOST_WORDS = 100
_WORD = re.compile(r"\S+")


async def search(
    runtime: ProxyRuntime, query: str, limit: int, context: CallContext, *, sent: bool
) -> Mapping[str, Any]:
    """The answer to *query*, of at most *limit* tools.

    *sent*: as it is sent to a model in the session of *context*, which remembers it where cache-stable order is on;
    otherwise best first, without a trace.
    """
    await runtime.browsing.prepare(context)
    browse, ranking = await (runtime.browsing.query_explained if sent else runtime.browsing.preview)(query, context)
    if limit > MOST_SHOWN:
        # Not merely longer: a router asked for more tools may rank some of the first otherwise.
        ranking = await runtime.browsing.rank_explained(query, limit, context)
    catalog = runtime.catalog()
    shown = [card for card in browse.cards if card != CACHE_BREAKPOINT]
    words = list(_words(query, ranking))
    hits = _sent_hits(browse, ranking, shown) if sent else _ranked_hits(catalog, ranking, limit)
    return {
        "query": query,
        "words": words,
        "matched": ranking.matched,
        "shown": len(shown),
        "text": browse.text,
        "tokens": runtime.tokens.count(browse.text) if browse.text else 0,
        "naive_tokens": estimate_tokens(browse.spared_chars),
        "cache_stable": runtime.browsing.is_stable(context),
        "hits": [_hit(runtime, catalog, card, seen, reason, words) for card, seen, reason in hits],
    }


_Hit = tuple[ChoiceCard, bool, Reason | None]
"""A card as it is shown, true if the session had it before, and why it ranks."""


def _ranked_hits(catalog: Catalog, ranking: Ranking, limit: int) -> Iterator[_Hit]:
    for reason in ranking.reasons[:limit]:
        if reason.tool_id in catalog.items:
            yield catalog.card(reason.tool_id, reason.score), False, reason


def _sent_hits(browse: Browse, ranking: Ranking, shown: Sequence[ChoiceCard]) -> Iterator[_Hit]:
    reasons = {reason.tool_id: reason for reason in ranking.reasons}
    for card in shown:
        yield card, card.id in browse.seen, reasons.get(card.id)


def _hit(
    runtime: ProxyRuntime,
    catalog: Catalog,
    card: ChoiceCard,
    seen: bool,
    reason: Reason | None,
    words: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    item = catalog.items.get(card.id)
    line = render_card(replace(card, score=None))
    fields = catalog.fields_of(card.id)
    parts = [_part(addend, fields, words) for addend in reason.addends] if reason else []
    return {
        "id": card.id,
        "name": card.name,
        "namespace": card.namespace,
        "about": card.description,
        "score": reason.score if reason else None,
        "sent_score": card.score,
        "seen": seen,
        "card": {"text": line, "tokens": runtime.tokens.count(line)},
        "definition_tokens": estimate_tokens(catalog.chars_of(card.id)),
        "writes": True if item is None else item.side_effects,
        "parts": sorted(parts, key=lambda part: len(words) if part["word"] is None else part["word"]),
        "factors": dict(reason.factors) if reason else {},
        "request": [place for place, word in enumerate(words) if set(word["terms"]) & set(reason.part)]
        if reason
        else [],
    }


def _part(addend: Addend, fields: Mapping[str, Sequence[str]], words: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    word = next((place for place, word in enumerate(words) if addend.term in word["terms"]), None)
    return {
        "word": word,
        "term": addend.term,
        "via": addend.via,
        "fields": [*fields.get(addend.via, ()), *(["learned"] if addend.learned > 0 else [])],
        "rarity": round(addend.rarity, 4),
        "weight": round(addend.weight, 4),
        "adds": round(addend.adds, 6),
        "learned": round(addend.learned, 6),
    }


def _words(query: str, ranking: Ranking) -> Iterator[dict[str, Any]]:
    """The words of the query as they were written. An idle one says nothing of any tool."""
    asked = {each.term: each for each in ranking.asked}
    for word in _WORD.findall(query)[:_MOST_WORDS]:
        found = [asked[term] for term in dict.fromkeys(terms(word)) if term in asked]
        yield {
            "text": word,
            "terms": [each.term for each in found],
            "found_in": max((each.found_in for each in found), default=0),
            "rarity": round(max((each.rarity for each in found), default=0.0), 4),
            "idle": not found,
        }
