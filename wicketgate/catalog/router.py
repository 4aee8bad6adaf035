"""Ranks tools by a query, best first; where nothing matches, nothing comes back.

A tool's score is the sum, over the terms of the query, of the term's rarity in the catalog times its impact in that
tool. An impact is the BM25 weight of a term over name, namespace, the operator's words, description and arguments. It
depends on that tool alone: lengths are measured against fixed ones, not against the catalog's average. So a refresh
costs what it changes, and the order of tools never matters.
"""

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from wicketgate.catalog.learned_words import Learned
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import Visible
from wicketgate.catalog.words import content_terms, deed, requests, synonyms, terms

# Bounds of the query that is read. A longer one is read up to here, never refused.
MAX_QUERY_CHARS = 4_096
MAX_QUERY_TERMS = 48
MAX_REQUESTS = 8
READ_POSTINGS = 2_000
MAX_POSTINGS = 60_000
"""A query must not hold the event loop: of its words the rarest are read, and the others are looked up in the tools
that these found. What comes behind MAX_POSTINGS is read only so."""
_MAX_LOOKED_UP = 300

_RARITY_POWER = 0.8  # softens the idf
_SYNONYM_WEIGHT = 0.3

# A query may ask for several things. Each part's best tool then counts beside the best for the whole, in full when
# the part weighs at least _FULL_PART of the whole, so that "please help me with a few tasks" brings nothing up.
_PART_SHARE = 0.5
_FULL_PART = 0.4
_POOL_OF_PART = 20

# The sum rewards a few rare words of a long request as much as the whole of it, so the first are ordered again. In a
# short request nearly every word must be there to come first, and the rarest is the one that was meant.
_ORDERED_AGAIN = 20
_LONG_REQUEST = 6
_QUERY_SHARE = 0.4  # of a score hangs on how much of the query the tool has
_SYNONYM_COVERS = 0.5
_OTHER_DEED = 0.85  # a factor for a name whose verb is of another kind: "delete" where something is to be created
_LOOK_PAST_HIDDEN = 4
_NEXT_LOOK = 0.8
_EPSILON = 1e-9

# Learned words fill up what a definition lacks. One that stood in every run counts as much as a mention in the
# description, and nothing is added where the definition itself gives _FULL.
_LEARNED = 1.0
_FULL = 2.0


Said = Mapping[str, Sequence[str]]
"""The operator's words of tools, by id; most tools have none."""


@dataclass(frozen=True, slots=True)
class _Postings:
    """The tools that have a term, by id, with its impact in each; *top* is the greatest."""

    impacts: dict[str, float]
    top: float


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One query term with its synonyms: the best of them counts. *bound* is the most that any tool can gain.

    *learned* is what tools gain by id that have nothing else of the term. Those that have *full* gain nothing by it.
    """

    term: str
    rarity: float
    members: tuple[tuple[float, dict[str, float]], ...]
    bound: float
    size: int
    learned: Mapping[str, float]
    full: float


class _Indexed(NamedTuple):
    """The terms of one tool; the first *named* are those of its name, in their order."""

    terms: tuple[str, ...]
    named: int


class Router:
    """An immutable index; ``updated`` gives another one and shares what did not change."""

    __slots__ = ("_indexed", "_postings")

    def __init__(self, postings: Mapping[str, _Postings], indexed: Mapping[str, _Indexed]) -> None:
        self._postings = postings
        self._indexed = indexed

    @classmethod
    def build(cls, items: Iterable[SelectableItem], said: Said | None = None) -> "Router":
        return cls({}, {}).updated((), items, said)

    def updated(self, removed: Iterable[str], added: Iterable[SelectableItem], said: Said | None = None) -> "Router":
        """A Router without the ids *removed* and with *added*; an id that is already there is replaced. *said* are the
        operator's words of tools, by id.

        It ranks exactly as one built anew. This Router stays as it is. Costs one shallow copy of the tables and the
        postings of the terms that the change touches.
        """
        indexed = dict(self._indexed)
        touched: dict[str, dict[str, float]] = {}

        def touch(term: str) -> dict[str, float]:
            by_id = touched.get(term)
            if by_id is None:
                known = self._postings.get(term)
                by_id = touched[term] = dict(known.impacts) if known else {}
            return by_id

        def drop(tool_id: str) -> None:
            for term in indexed.pop(tool_id, _NOTHING).terms:
                del touch(term)[tool_id]

        # Copy only the postings of terms that a tool loses or gains.
        for tool_id in removed:
            drop(tool_id)
        for item in added:
            drop(item.id)
            impacts, named = impacts_of(item, said.get(item.id, ()) if said else ())
            indexed[item.id] = _Indexed(tuple(impacts), named)
            for term, impact in impacts.items():
                touch(term)[item.id] = impact

        # A term that no tool has any more goes.
        postings = dict(self._postings)
        for term, by_id in touched.items():
            if by_id:
                postings[term] = _Postings(by_id, max(by_id.values()))
            else:
                postings.pop(term, None)
        return Router(postings, indexed)

    def route(
        self, query: str, k: int, visible: Visible | None = None, *, learned: Learned | None = None
    ) -> list[tuple[str, float]]:
        """At most *k* pairs of tool id and score, best first, equal scores by id.

        A score is above 0 and at most 1: the share of what a tool made for this query would reach. Tools that
        *visible* refuses are passed over, and do not take a place. *learned* words are added, weakly (BROWSE-43). Reads
        the first MAX_QUERY_CHARS characters.
        """
        # The terms that any tool has.
        query = query[:MAX_QUERY_CHARS]
        asked = _query_terms(query)
        visible = cache(visible) if visible else None
        wanted = self._wanted(asked, learned, visible)
        if k <= 0 or not wanted:
            return []
        parts = _parts(query, wanted)
        kind = deed(asked[0]) if not parts else None
        share = _QUERY_SHARE if not parts and len(asked) >= _LONG_REQUEST else 0.0
        if not (parts or kind or share):
            scores = _best(wanted, k, visible, READ_POSTINGS)
        else:
            # More than the k best: which tools are ordered again does not depend on k.
            best = sorted(_best(wanted, max(k, _ORDERED_AGAIN), visible, READ_POSTINGS).items(), key=_best_first)
            first, rest = best[:_ORDERED_AGAIN], best[_ORDERED_AGAIN:]
            if not first:
                return []
            scores = _of_parts(wanted, parts, first, visible) if parts else self._again(wanted, first, share, kind)
            # Those behind them keep their order, and stay behind.
            behind = min(scores.values()) / first[-1][1]
            scores.update({tool_id: behind * score for tool_id, score in rest if tool_id not in scores})
        ideal = IDEAL_IMPACT * sum(self._rarity(term) for term in asked)
        chosen = sorted(scores.items(), key=_best_first)[:k]
        # Again after rounding, so that the order can be read off the scores (CARD-25).
        return sorted(((tool_id, max(0.0001, round(score / ideal, 4))) for tool_id, score in chosen), key=_best_first)

    def _again(
        self, wanted: Sequence[_Wanted], first: Iterable[tuple[str, float]], share: float, kind: str | None
    ) -> dict[str, float]:
        """Scores of *first*, of which *share* hangs on how much of the request each tool has, and less for a name that
        says another deed than *kind*."""
        return {
            tool_id: score
            * (_share_of_query(wanted, tool_id, share) if share else 1.0)
            * (_OTHER_DEED if kind and self._does_other(tool_id, kind) else 1.0)
            for tool_id, score in first
        }

    def _does_other(self, tool_id: str, kind: str) -> bool:
        """Returns whether the name of a tool says other deeds and not *kind*."""
        found = self._indexed[tool_id]
        kinds = {deed(term) for term in found.terms[: found.named]} - {None}
        return bool(kinds) and kind not in kinds

    def _wanted(self, asked: Sequence[str], learned: Learned | None, visible: Visible | None) -> list[_Wanted]:
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
            taught = self._taught(term, rarity, learned, visible) if learned else {}
            if known or taught:
                full = _FULL * rarity
                bound = max((factor * postings.top for factor, postings in known), default=0.0)
                bound = _filled(bound, max(taught.values(), default=0.0), full)
                size = sum(len(postings.impacts) for _, postings in known) + len(taught)
                by_id = tuple((f, p.impacts) for f, p in known)
                found.append(_Wanted(term, rarity, by_id, bound, size, taught, full))
        found.sort(key=lambda one: (-one.bound, one.term))
        return found

    def _taught(self, term: str, rarity: float, learned: Learned, visible: Visible | None) -> dict[str, float]:
        """The gain of tools of this catalog by the learned *term*; none of a hidden one, so no score tells of it."""
        return {
            tool_id: _LEARNED * rarity * weight
            for tool_id, weight in learned.weights(term).items()
            if tool_id in self._indexed and (visible is None or visible(tool_id))
        }

    def _rarity(self, term: str) -> float:
        known = self._postings.get(term)
        having = len(known.impacts) if known else 0
        idf = math.log(1 + (len(self._indexed) - having + 0.5) / (having + 0.5))
        return float(idf**_RARITY_POWER)


_NOTHING = _Indexed((), 0)


def _best_first(pair: tuple[str, float]) -> tuple[float, str]:
    return -pair[1], pair[0]


def _query_terms(query: str) -> list[str]:
    """Each term once. A query of nothing but small words is taken at its word: a tool may be called ``help``."""
    said = content_terms(query) or terms(query)
    # What is created is new anyway: in "create a new order" the word says nothing of the tool.
    asked = [term for before, term in zip([None, *said], said, strict=False) if not _is_idle(before, term)]
    return list(dict.fromkeys(asked))[:MAX_QUERY_TERMS]


def _is_idle(before: str | None, term: str) -> bool:
    return term == "new" and before is not None and before != "new" and deed(before) == "create"


def _parts(query: str, whole: Sequence[_Wanted]) -> list[Sequence[_Wanted]]:
    """Of *whole* what each request in *query* asks for; nothing where there are not several that ask for anything."""
    texts = requests(query)[:MAX_REQUESTS]
    if len(texts) < 2:
        return []
    asked = [frozenset(_query_terms(text)) for text in texts]
    found = ([one for one in whole if one.term in terms_of_part] for terms_of_part in asked)
    parts: list[Sequence[_Wanted]] = [part for part in found if part]
    return parts if len(parts) > 1 else []


def _of_parts(
    whole: Sequence[_Wanted],
    parts: Sequence[Sequence[_Wanted]],
    first: Sequence[tuple[str, float]],
    visible: Visible | None,
) -> dict[str, float]:
    """Scores of *first*, the best tools for the whole, and of the best for each part."""
    top = first[0][1]
    scales: list[float] = []
    found = dict.fromkeys((tool_id for tool_id, _ in first), 0.0)
    for part in parts:
        scores = _best(part, _POOL_OF_PART, visible, READ_POSTINGS // len(parts))
        by_part = sorted(scores.items(), key=_best_first)[:_POOL_OF_PART]
        scales.append(min(top / by_part[0][1], 1 / _FULL_PART) if by_part else 0.0)
        found.update(dict.fromkeys((tool_id for tool_id, _ in by_part), 0.0))
    # Each term is looked up once, for the whole and for all parts that it stands in.
    sums = [dict(found) for _ in parts]
    for one in whole:
        gains = _gains(one, found)
        for scores in (found, *(score for score, part in zip(sums, parts, strict=True) if one in part)):
            for tool_id, gain in gains.items():
                scores[tool_id] += gain
    return {
        tool_id: (1 - _PART_SHARE) * score
        + _PART_SHARE * max(scale * scores[tool_id] for scale, scores in zip(scales, sums, strict=True))
        for tool_id, score in found.items()
    }


def _best(wanted: Sequence[_Wanted], k: int, visible: Visible | None, room: int) -> dict[str, float]:
    """At least the *k* best visible tools, with all that tie with the last, and their scores.

    Adds up term by term until what is left cannot lift a tool not yet seen into the first *k*, or *room* postings are
    read; the rest is looked up in those seen. The sums are the same, in the same order, wherever that happens.
    """
    # *left* is the most that a tool can still gain.
    left = sum(one.bound for one in wanted)
    scores: defaultdict[str, float] = defaultdict(float)
    read = reached = 0.0
    due = left
    place = 0
    for place, one in enumerate(wanted):
        read += one.size
        if read > room and place and (read > MAX_POSTINGS or _enough(scores, k, visible)):
            break
        # No tool has reached more than *reached*; to find the k-th takes a while, so not for every term.
        if reached > left and left < due and len(scores) >= k:
            if _kth(scores, k, visible) > left + _EPSILON:
                break
            due = left * _NEXT_LOOK
        _add(one, scores)
        left -= one.bound
        reached += one.bound
    else:
        place = len(wanted)
    found: dict[str, float] = _contenders(scores, k, left, visible)
    for one in wanted[place:]:
        for tool_id, gain in _gains(one, found).items():
            found[tool_id] += gain
        left -= one.bound
        if len(found) > 2 * k:
            found = _contenders(found, k, left, visible)
    # Keep those that tie with the last, and of these the visible ones.
    least = _kth(found, k, visible)
    kept = {tool_id: score for tool_id, score in found.items() if score >= least}
    if visible is not None:
        kept = {tool_id: score for tool_id, score in kept.items() if visible(tool_id)}
    return kept


def _enough(scores: Mapping[str, float], k: int, visible: Visible | None) -> bool:
    found = scores if visible is None else filter(visible, scores)
    return sum(1 for _ in islice(found, k)) == k


def _contenders(scores: Mapping[str, float], k: int, left: float, visible: Visible | None) -> dict[str, float]:
    """Those that can still come among the *k* best visible ones with what is *left*; of too many the best."""
    least = _kth(scores, k, visible) - left - _EPSILON
    found = {tool_id: score for tool_id, score in scores.items() if score >= least} if least > 0 else dict(scores)
    most = max(k, _MAX_LOOKED_UP)
    if left <= _EPSILON or len(found) <= most:
        return found
    shown = found.items() if visible is None else ((tool_id, s) for tool_id, s in found.items() if visible(tool_id))
    return dict(heapq.nsmallest(most, shown, key=_best_first))


def _kth(scores: Mapping[str, float], k: int, visible: Visible | None) -> float:
    """A bound that the *k* best visible tools reach: the k-th score, or 0 when it would take long to find."""
    if len(scores) < k:
        return 0.0
    if visible is None:
        return heapq.nlargest(k, scores.values())[-1]
    first = heapq.nlargest(_LOOK_PAST_HIDDEN * k, scores.items(), key=lambda pair: pair[1])
    shown = [score for tool_id, score in first if visible(tool_id)]
    return shown[k - 1] if len(shown) >= k else 0.0


def _filled(gain: float, learned: float, full: float) -> float:
    """The gain of a tool by a term altogether; more of either never makes it less."""
    return gain + learned * (1 - gain / full) if gain < full else gain


def _add(one: _Wanted, scores: defaultdict[str, float]) -> None:
    if len(one.members) == 1 and not one.learned:
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
    for tool_id, learned in one.learned.items():
        best[tool_id] = _filled(best.get(tool_id, 0.0), learned, one.full)
    for tool_id, gain in best.items():
        scores[tool_id] += gain


def _gains(one: _Wanted, among: Mapping[str, float]) -> dict[str, float]:
    """The gain of each tool *among* these that gains anything."""
    best: dict[str, float] = {}
    for factor, impacts in one.members:
        for tool_id in impacts.keys() & among.keys():
            gain = factor * impacts[tool_id]
            if gain > best.get(tool_id, 0.0):
                best[tool_id] = gain
    for tool_id in one.learned.keys() & among.keys():
        best[tool_id] = _filled(best.get(tool_id, 0.0), one.learned[tool_id], one.full)
    return best


def _share_of_query(wanted: Sequence[_Wanted], tool_id: str, share: float) -> float:
    """1 for a tool with all of the terms, less by *share* for one with none; the rarer a term, the more it counts.

    A synonym covers a term in part only. A term that was only learned is none: learning moves no other tool.
    """
    whole = covered = 0.0
    for one in wanted:
        if not one.members:
            continue
        whole += one.rarity
        if tool_id in one.members[0][1]:
            covered += one.rarity * (1.0 if one.members[0][0] == one.rarity else _SYNONYM_COVERS)
        elif any(tool_id in impacts for _, impacts in one.members[1:]):
            covered += one.rarity * _SYNONYM_COVERS
    return 1 - share * (1 - covered / whole) if whole else 1.0


# Bounds of the definition that is read. A larger one is read up to here, never refused.
MAX_NAME_CHARS = 256
MAX_DESCRIPTION_CHARS = 4_096
MAX_SAID_CHARS = 16_384
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
_SAID = _Field(2.0, 0.2, 4)  # without the bonus of a name
_DESCRIPTION = _Field(1.0, 0.6, 20)
_ARGUMENTS = _Field(0.5, 0.75, 4)
_ARGUMENT_TEXTS = _Field(0.5, 0.9, 20)

_SATURATION = 2.0  # BM25's k1
_MATCH_BONUS = 0.2  # for every query term that a tool has at all
_NAME_BONUS = 1.0  # shared out over the terms of the name: twins differ in how much of the name was asked for
IDEAL_IMPACT = _SATURATION + 1 + _MATCH_BONUS + _NAME_BONUS
"""The greatest impact that a term can have."""

_GRAIN = 1024  # impacts are kept in 1024ths: some four thousand floats are shared by every posting


def impacts_of(item: SelectableItem, said: Sequence[str] = ()) -> tuple[dict[str, float], int]:
    """The weight that each term of a tool adds to its score, before the term's rarity, and the number of terms of its
    name, which come first; *said* are texts of the operator."""
    name = terms(_own_name(item)[:MAX_NAME_CHARS])
    argument_names, argument_texts = _schema_texts(item.args_schema)
    description = item.description if isinstance(item.description, str) else ""
    weights: defaultdict[str, float] = defaultdict(float)
    for field, found in (
        (_NAME, name),
        (_NAMESPACE, _namespace_terms(item)),
        (_SAID, _said_terms(said)),
        (_DESCRIPTION, content_terms(description[:MAX_DESCRIPTION_CHARS])),
        (_ARGUMENTS, content_terms(argument_names)),
        (_ARGUMENT_TEXTS, content_terms(argument_texts)),
    ):
        each = field.weight / (1 - field.slope + field.slope * len(found) / field.pivot)
        for term in found:
            weights[term] += each
    named = frozenset(name)
    each_of_name = 1 / max(1, len(named))
    impacts = {term: _impact(weight, each_of_name if term in named else 0.0) for term, weight in weights.items()}
    return impacts, len(named)


def _impact(weight: float, share_of_name: float) -> float:
    saturated = weight * (_SATURATION + 1) / (weight + _SATURATION)
    return _LEVELS[round(_GRAIN * (saturated + _MATCH_BONUS + _NAME_BONUS * share_of_name))]


_LEVELS = tuple(level / _GRAIN for level in range(round(_GRAIN * IDEAL_IMPACT) + 1))


def _said_terms(said: Sequence[str]) -> list[str]:
    """Each term once: ``git log`` and ``git history`` say no more of git than one of them."""
    if not said:
        return []
    text = "\n".join(said)[:MAX_SAID_CHARS]
    return list(dict.fromkeys(content_terms(text) or terms(text)))


def _own_name(item: SelectableItem) -> str:
    """The upstream's spelling, whose capitals part words, without the namespace that it may repeat."""
    name, prefix = item.upstream_name, item.namespace
    if len(name) > len(prefix) + 1 and name.lower().startswith(prefix) and name[len(prefix)] in "._-/:":
        return name[len(prefix) + 1 :]
    return name


def _namespace_terms(item: SelectableItem) -> list[str]:
    """Those of the namespace, and the parts of the configured name, of the tool's own prefix and of what the server
    calls itself where that spells it."""
    plain = _letters(item.namespace)
    found = terms(item.namespace[:MAX_NAME_CHARS])
    for spelling in (item.server, _PREFIX_END.split(item.upstream_name, maxsplit=1)[0], *item.spellings):
        if spelling != item.namespace and _letters(spelling) == plain:
            found += terms(spelling[:MAX_NAME_CHARS])
    return list(dict.fromkeys(found))


def _letters(name: str) -> str:
    return _NO_LETTERS.sub("", name.lower())


_PREFIX_END = re.compile(r"[.:/]")
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


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
