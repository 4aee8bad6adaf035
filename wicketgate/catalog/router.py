"""Ranks tools by a query, best first; where nothing matches, nothing comes back.

A tool's score is the sum, over the terms of the query, of the term's rarity in the catalog times its impact in that
tool. An impact is the BM25 weight of a term over name, namespace, description and arguments. It depends on that tool
alone: lengths are measured against fixed ones, not against the catalog's average. So a refresh costs what it changes,
and the order of tools never matters.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, islice
from typing import Any, NamedTuple

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import Visible
from wicketgate.catalog.words import content_terms, requests, synonyms, terms

# Bounds of the query that is read. A longer one is read up to here, never refused.
MAX_QUERY_CHARS = 4_096
MAX_QUERY_TERMS = 48
MAX_REQUESTS = 8
MAX_POSTINGS = 60_000
"""Of a query made of common words only the rarest are looked up: it must not hold the event loop."""

_RARITY_POWER = 0.8  # softens the idf
_SYNONYM_WEIGHT = 0.3

# A query may ask for several things. Each part's best tool then counts beside the best for the whole, in full when
# the part weighs at least _FULL_PART of the whole, so that "please help me with a few tasks" brings nothing up.
_PART_SHARE = 0.5
_FULL_PART = 0.4
_POOL = 20
_WORTH_PRUNING = 100
_LOOK_PAST_HIDDEN = 4
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class _Postings:
    """The tools that have a term, by id, with its impact in each; *top* is the greatest."""

    impacts: dict[str, float]
    top: float


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One query term with its synonyms: the best of them counts. *bound* is the most that any tool can gain."""

    term: str
    members: tuple[tuple[float, dict[str, float]], ...]
    bound: float
    size: int


class Router:
    """An immutable index; ``updated`` gives another one and shares what did not change."""

    __slots__ = ("_postings", "_terms")

    def __init__(self, postings: Mapping[str, _Postings], terms_by_id: Mapping[str, tuple[str, ...]]) -> None:
        self._postings = postings
        self._terms = terms_by_id

    @classmethod
    def build(cls, items: Iterable[SelectableItem]) -> "Router":
        return cls({}, {}).updated((), items)

    def updated(self, removed: Iterable[str], added: Iterable[SelectableItem]) -> "Router":
        """A Router without the ids *removed* and with *added*; an id that is already there is replaced.

        It ranks exactly as one built anew. This Router stays as it is. Costs one shallow copy of the tables and the
        postings of the terms that the change touches.
        """
        terms_by_id = dict(self._terms)
        touched: dict[str, dict[str, float]] = {}

        def touch(term: str) -> dict[str, float]:
            by_id = touched.get(term)
            if by_id is None:
                known = self._postings.get(term)
                by_id = touched[term] = dict(known.impacts) if known else {}
            return by_id

        def drop(tool_id: str) -> None:
            for term in terms_by_id.pop(tool_id, ()):
                del touch(term)[tool_id]

        # Copy only the postings of terms that a tool loses or gains.
        for tool_id in removed:
            drop(tool_id)
        for item in added:
            drop(item.id)
            impacts = impacts_of(item)
            terms_by_id[item.id] = tuple(impacts)
            for term, impact in impacts.items():
                touch(term)[item.id] = impact

        # A term that no tool has any more goes.
        postings = dict(self._postings)
        for term, by_id in touched.items():
            if by_id:
                postings[term] = _Postings(by_id, max(by_id.values()))
            else:
                postings.pop(term, None)
        return Router(postings, terms_by_id)

    def route(self, query: str, k: int, visible: Visible | None = None) -> list[tuple[str, float]]:
        """At most *k* pairs of tool id and score, best first, equal scores by id.

        A score is above 0 and at most 1: the share of what a tool made for this query would reach. Tools that
        *visible* refuses are passed over, and do not take a place. Reads the first MAX_QUERY_CHARS characters.
        """
        # The terms that any tool has.
        query = query[:MAX_QUERY_CHARS]
        asked = _query_terms(query)
        wanted = self._wanted(asked)
        if k <= 0 or not wanted:
            return []
        # The best tools for the whole, or for the whole and its parts.
        visible = cache(visible) if visible else None
        parts = requests(query)[:MAX_REQUESTS]
        scores = _best(wanted, k, visible) if len(parts) < 2 else self._of_parts(wanted, parts, k, visible)
        ideal = IDEAL_IMPACT * sum(self._rarity(term) for term in asked)
        first = sorted(scores.items(), key=_best_first)[:k]
        # Again after rounding, so that the order can be read off the scores (CARD-25).
        return sorted(((tool_id, max(0.0001, round(score / ideal, 4))) for tool_id, score in first), key=_best_first)

    def _of_parts(
        self, whole: Sequence[_Wanted], parts: Sequence[str], k: int, visible: Visible | None
    ) -> dict[str, float]:
        """Scores of the best tools for the whole and of the best for each part."""
        pool = max(k, _POOL)
        asked = {one.term for one in whole}
        by_whole = _best(whole, pool, visible)
        top = max(by_whole.values(), default=0.0)
        scaled: list[tuple[float, Sequence[_Wanted]]] = []
        found = dict.fromkeys(by_whole)
        for part in parts:
            wanted = self._wanted([term for term in _query_terms(part) if term in asked])
            by_part = _best(wanted, pool, visible)
            if by_part:
                best = max(by_part.values())
                scaled.append((min(top / best, 1 / _FULL_PART), wanted))
                found.update(dict.fromkeys(by_part))
        return {
            tool_id: (1 - _PART_SHARE) * _score(whole, tool_id)
            + _PART_SHARE * max((scale * _score(wanted, tool_id) for scale, wanted in scaled), default=0.0)
            for tool_id in found
        }

    def _wanted(self, asked: Sequence[str]) -> list[_Wanted]:
        """The look-ups for the terms *asked*, the greatest bound first, so that a search can stop early."""
        found = []
        for term in asked:
            rarity = self._rarity(term)
            members = [(rarity, self._postings.get(term))]
            for other in synonyms(term):
                if other not in asked:
                    # Never worth more than the word itself, however rare.
                    members.append((_SYNONYM_WEIGHT * min(rarity, self._rarity(other)), self._postings.get(other)))
            known = [(factor, postings) for factor, postings in members if postings]
            if known:
                bound = max(factor * postings.top for factor, postings in known)
                size = sum(len(postings.impacts) for _, postings in known)
                found.append(_Wanted(term, tuple((f, p.impacts) for f, p in known), bound, size))
        found.sort(key=lambda one: (-one.bound, one.term))
        read = accumulate(one.size for one in found)
        return [
            one
            for place, (one, total) in enumerate(zip(found, read, strict=True))
            if not place or total <= MAX_POSTINGS
        ]

    def _rarity(self, term: str) -> float:
        known = self._postings.get(term)
        having = len(known.impacts) if known else 0
        idf = math.log(1 + (len(self._terms) - having + 0.5) / (having + 0.5))
        return float(idf**_RARITY_POWER)


def _best_first(pair: tuple[str, float]) -> tuple[float, str]:
    return -pair[1], pair[0]


def _query_terms(query: str) -> list[str]:
    """Each term once. A query of nothing but small words is taken at its word: a tool may be called ``help``."""
    return list(dict.fromkeys(content_terms(query) or terms(query)))[:MAX_QUERY_TERMS]


def _best(wanted: Sequence[_Wanted], k: int, visible: Visible | None) -> dict[str, float]:
    """At least the *k* best visible tools, with all that tie with the last, and their scores.

    Adds up term by term; once what is left cannot lift a tool not yet seen into the first *k*, only those seen are
    looked up in the rest. The sums are the same, in the same order, wherever that happens.
    """
    # *left* is the most that a tool can still gain.
    left = sum(one.bound for one in wanted)
    scores: defaultdict[str, float] = defaultdict(float)
    seen: dict[str, float] | None = None
    for one in wanted:
        if seen is None and one.size > _WORTH_PRUNING and len(scores) >= k:
            least = _kth(scores, k, visible)
            if least > left + _EPSILON:
                seen = {tool_id: score for tool_id, score in scores.items() if score + left >= least - _EPSILON}
        if seen is None:
            _add(one, scores)
        else:
            for tool_id in seen:
                seen[tool_id] += _gain(one, tool_id)
        left -= one.bound
    # Keep those that tie with the last, and of these the visible ones.
    found = scores if seen is None else seen
    least = _kth(found, k, visible)
    kept = {tool_id: score for tool_id, score in found.items() if score >= least}
    if visible is not None:
        kept = {tool_id: score for tool_id, score in kept.items() if visible(tool_id)}
    return kept


def _kth(scores: Mapping[str, float], k: int, visible: Visible | None) -> float:
    """A bound that the *k* best visible tools reach: the k-th score, or 0 when it would take long to find."""
    if len(scores) < k:
        return 0.0
    if visible is None:
        return heapq.nlargest(k, scores.values())[-1]
    first = heapq.nlargest(_LOOK_PAST_HIDDEN * k, scores.items(), key=lambda pair: pair[1])
    shown = [score for tool_id, score in first if visible(tool_id)]
    return shown[k - 1] if len(shown) >= k else 0.0


def _add(one: _Wanted, scores: defaultdict[str, float]) -> None:
    if len(one.members) == 1:
        ((factor, impacts),) = one.members
        for tool_id, impact in impacts.items():
            scores[tool_id] += factor * impact
        return
    best: dict[str, float] = {}
    for factor, impacts in one.members:
        for tool_id, impact in impacts.items():
            gain = factor * impact
            if gain > best.get(tool_id, 0.0):
                best[tool_id] = gain
    for tool_id, gain in best.items():
        scores[tool_id] += gain


def _gain(one: _Wanted, tool_id: str) -> float:
    gain = 0.0
    for factor, impacts in one.members:
        impact = impacts.get(tool_id)
        if impact is not None and factor * impact > gain:
            gain = factor * impact
    return gain


def _score(wanted: Sequence[_Wanted], tool_id: str) -> float:
    score = 0.0
    for one in wanted:
        score += _gain(one, tool_id)
    return score


# Bounds of the definition that is read. A larger one is read up to here, never refused.
MAX_NAME_CHARS = 256
MAX_DESCRIPTION_CHARS = 4_096
MAX_SCHEMA_NODES = 300
MAX_SCHEMA_DEPTH = 6
MAX_SCHEMA_CHARS = 8_192
MAX_ARGUMENT_CHARS = 512
MAX_ENUM_VALUES = 20


class _Field(NamedTuple):
    """*pivot* is the length in terms at which a hit counts its plain weight; *slope* how much longer ones lose."""

    weight: float
    slope: float
    pivot: float


_NAME = _Field(2.0, 0.5, 3)
_NAMESPACE = _Field(1.5, 0.3, 2)
_DESCRIPTION = _Field(1.0, 0.6, 20)
_ARGUMENTS = _Field(0.5, 0.75, 4)
_ARGUMENT_TEXTS = _Field(0.5, 0.9, 20)

_SATURATION = 2.0  # BM25's k1
_MATCH_BONUS = 0.2  # for every query term that a tool has at all
_NAME_BONUS = 1.0  # shared out over the terms of the name: twins differ in how much of the name was asked for
IDEAL_IMPACT = _SATURATION + 1 + _MATCH_BONUS + _NAME_BONUS
"""The greatest impact that a term can have."""

_GRAIN = 1024  # impacts are kept in 1024ths: some four thousand floats are shared by every posting


def impacts_of(item: SelectableItem) -> dict[str, float]:
    """The weight that each term of a tool adds to its score, before the term's rarity."""
    name = terms(_own_name(item)[:MAX_NAME_CHARS])
    argument_names, argument_texts = _schema_texts(item.args_schema)
    description = item.description if isinstance(item.description, str) else ""
    weights: defaultdict[str, float] = defaultdict(float)
    for field, found in (
        (_NAME, name),
        (_NAMESPACE, terms(item.namespace[:MAX_NAME_CHARS])),
        (_DESCRIPTION, content_terms(description[:MAX_DESCRIPTION_CHARS])),
        (_ARGUMENTS, content_terms(argument_names)),
        (_ARGUMENT_TEXTS, content_terms(argument_texts)),
    ):
        each = field.weight / (1 - field.slope + field.slope * len(found) / field.pivot)
        for term in found:
            weights[term] += each
    named = frozenset(name)
    return {term: _impact(weight, 1 / len(named) if term in named else 0.0) for term, weight in sorted(weights.items())}


def _impact(weight: float, share_of_name: float) -> float:
    saturated = weight * (_SATURATION + 1) / (weight + _SATURATION)
    return _LEVELS[round(_GRAIN * (saturated + _MATCH_BONUS + _NAME_BONUS * share_of_name))]


_LEVELS = tuple(level / _GRAIN for level in range(round(_GRAIN * IDEAL_IMPACT) + 1))


def _own_name(item: SelectableItem) -> str:
    """The upstream's spelling, whose capitals part words, without the namespace that it may repeat."""
    name, prefix = item.upstream_name, item.namespace
    if len(name) > len(prefix) + 1 and name.lower().startswith(prefix) and name[len(prefix)] in "._-/:":
        return name[len(prefix) + 1 :]
    return name


def _schema_texts(schema: object) -> tuple[str, str]:
    """Names of the arguments; descriptions and enum values at every level. Malformed parts are passed over.

    Reads the nearest MAX_SCHEMA_NODES schemas, down to MAX_SCHEMA_DEPTH, and MAX_SCHEMA_CHARS of text of each kind;
    ``$ref`` is not followed.
    """
    # Level by level, so that the nearest schemas count.
    names: list[str] = []
    texts: list[str] = []
    level: list[object] = [schema]
    nodes = 0
    for depth in range(MAX_SCHEMA_DEPTH):
        below: list[object] = []
        for node in level[: MAX_SCHEMA_NODES - nodes]:
            nodes += 1
            if not isinstance(node, Mapping):
                continue
            if depth:
                texts += _node_texts(node)
            # The schemas below: members, elements and alternatives.
            properties = node.get("properties")
            if isinstance(properties, Mapping):
                for name, child in islice(properties.items(), MAX_SCHEMA_NODES):
                    if not depth and isinstance(name, str):
                        names.append(name[:MAX_NAME_CHARS])
                    below.append(child)
            if "items" in node:
                below.append(node["items"])
            for key in ("anyOf", "oneOf", "allOf"):
                choices = node.get(key)
                if isinstance(choices, list):
                    below += choices[:MAX_SCHEMA_NODES]
        level = below
    return " ".join(names)[:MAX_SCHEMA_CHARS], " ".join(texts)[:MAX_SCHEMA_CHARS]


def _node_texts(node: Mapping[Any, Any]) -> list[str]:
    values = node.get("enum")
    found = values[:MAX_ENUM_VALUES] if isinstance(values, list) else []
    return [text[:MAX_ARGUMENT_CHARS] for text in [node.get("description"), *found] if isinstance(text, str)]
