"""Ranks tools by a query, best first; where nothing matches, nothing comes back.

A tool's score is the sum, over the terms of the query, of the term's rarity in the catalog times its impact in that
tool. An impact is the BM25 weight of a term over name, namespace, the operator's words, description and arguments. It
depends on that tool alone: lengths are measured against fixed ones, not against the catalog's average. So a refresh
costs what it changes, and the order of tools never matters.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from wicketgate.catalog.impacts import IDEAL_IMPACT, impacts_of
from wicketgate.catalog.learned_words import FixedWeights, Learned
from wicketgate.catalog.ranking import Addend, Asked, FactorName, Ranking, Reason
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
_FEW = 1_000  # scores are sorted faster than their largest are found
_NEXT_LOOK = 0.8
_EPSILON = 1e-9
_LEAST = 0.0001  # a score is never less

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


class _Wanted(NamedTuple):
    """One query term with its synonyms: the best of them counts. *bound* is the most that any tool can gain.

    *names* are the words of the *members*. *learned* is what tools gain by id that have nothing else of the term. Those
    that have *full* gain nothing by it.
    """

    term: str
    rarity: float
    names: tuple[str, ...]
    members: tuple[tuple[float, dict[str, float]], ...]
    bound: float
    size: int
    learned: Mapping[str, float]
    full: float


@dataclass(frozen=True, slots=True)
class _Scored:
    """Scores by tool id, and how they came about. *ideal* is what a tool made for the query would reach; *share* and
    *kind* are as in ``Router._again``; *first* are the tools that were ordered again, and *behind* the factor of all
    others. *parts* are by tool the request that counts for it beside the whole, and the scale of that one."""

    asked: Sequence[str]
    wanted: Sequence[_Wanted]
    ideal: float
    scores: Mapping[str, float]
    share: float = 0.0
    kind: str | None = None
    first: frozenset[str] | None = None
    behind: float = 1.0
    parts: Mapping[str, tuple[Sequence[_Wanted], float]] = field(default_factory=dict)

    def ranked(self, k: int) -> list[tuple[str, float]]:
        # Negated, so that plain tuples stand best first.
        chosen = sorted([(-score, tool_id) for tool_id, score in self.scores.items()])[:k]
        rounded = [(min(-_LEAST, round(score / self.ideal, 4)), tool_id) for score, tool_id in chosen]
        # Again after rounding, so that the order can be read off the scores (CARD-25).
        return [(tool_id, -score) for score, tool_id in sorted(rounded)]


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

        It ranks exactly as one built again. This Router stays as it is. Costs one shallow copy of the tables and the
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
                (touched.get(term) or touch(term))[item.id] = impact

        # A term that no tool has any more goes.
        postings = dict(self._postings)
        for term, by_id in touched.items():
            if by_id:
                postings[term] = _Postings(by_id, max(by_id.values()))
            else:
                postings.pop(term, None)
        return Router(postings, indexed)

    def work(self, query: str) -> int:
        """Returns the number of postings that the terms of *query* have: a bound on what ``route`` reads of them."""
        asked = _query_terms(query[:MAX_QUERY_CHARS])
        wanted = {*asked, *(other for term in asked for other in synonyms(term))}
        return sum(len(known.impacts) for term in wanted if (known := self._postings.get(term)))

    def route(
        self, query: str, k: int, visible: Visible | None = None, *, learned: Learned | None = None
    ) -> list[tuple[str, float]]:
        """At most *k* pairs of tool id and score, best first, equal scores by id.

        A score is above 0 and at most 1: the share of what a tool made for this query would reach. Tools that
        *visible* refuses are passed over, and do not take a place. *learned* words are added, weakly (BROWSE-43). Reads
        the first MAX_QUERY_CHARS characters.
        """
        found = self._scored(query, k, visible, learned)
        return found.ranked(k) if found else []

    def explained(
        self, query: str, k: int, visible: Visible | None = None, *, learned: Learned | None = None
    ) -> Ranking:
        """Return the same as ``route``, with the reasons. Counts and reasons are of visible tools."""
        asked = tuple(self._asked(term, visible) for term in _query_terms(query[:MAX_QUERY_CHARS]))
        found = self._scored(query, k, visible, learned)
        if found is None:
            return Ranking(asked)
        having = {
            tool_id
            for one in found.wanted
            for by_id in (*(impacts for _, impacts in one.members), one.learned)
            for tool_id in by_id
            if visible is None or visible(tool_id)
        }
        reasons = (self._reason(found, tool_id, score) for tool_id, score in found.ranked(k))
        return Ranking(asked, len(having), tuple(reasons))

    def _asked(self, term: str, visible: Visible | None) -> Asked:
        found_in = self._visible_with(term, visible)
        return Asked(term, found_in, self._rarity(self._postings[term]) if found_in else 0.0)

    def _visible_with(self, term: str, visible: Visible | None) -> int:
        known = self._postings.get(term)
        if known is None:
            return 0
        return len(known.impacts) if visible is None else sum(map(visible, known.impacts))

    def _reason(self, found: _Scored, tool_id: str, score: float) -> Reason:
        factors: dict[FactorName, float] = {}
        part, scale = found.parts.get(tool_id, ((), 0.0))
        if found.first is not None and tool_id not in found.first:
            factors["behind"] = found.behind
        elif not part:
            coverage, deed_factor = self._order_factors(found.wanted, [tool_id], found.share, found.kind)[tool_id]
            factors |= {"coverage": coverage} if coverage != 1.0 else {}
            factors |= {"other_deed": deed_factor} if deed_factor != 1.0 else {}
        whole = math.prod(factors.values()) / found.ideal
        addends = []
        for one in found.wanted:
            gain = _gain(one, tool_id)
            if not gain:
                continue
            if part:
                gain *= _part_factor(one, part, scale)
            plain = _gain(one._replace(learned={}), tool_id)
            having = [place for place, (_, impacts) in enumerate(one.members) if tool_id in impacts]
            best = max(having, key=lambda at: one.members[at][0] * one.members[at][1][tool_id], default=None)
            via, rarity, weight = "", one.rarity, 0.0
            if best is not None:
                rarity, impacts = one.members[best]
                via, weight = one.names[best], impacts[tool_id]
            learned = 1 - plain / _gain(one, tool_id)
            addends.append(Addend(one.term, via, rarity, weight, gain * whole, gain * whole * learned))
        return Reason(tool_id, score, tuple(addends), factors, tuple(one.term for one in part))

    def _scored(self, query: str, k: int, visible: Visible | None, learned: Learned | None) -> _Scored | None:
        """Scores of at least the *k* best tools; None if there is none."""
        # The terms that any tool has.
        query = query[:MAX_QUERY_CHARS]
        asked = _query_terms(query)
        visible = cache(visible) if visible else None
        find = cache(partial(self._find, visible=visible)) if visible else self._postings.get
        wanted = self._wanted(asked, find, learned, visible)
        if k <= 0 or not wanted:
            return None
        ideal = IDEAL_IMPACT * sum(self._rarity(find(term)) for term in asked)
        parts = _parts(query, wanted)
        kind = deed(asked[0]) if not parts else None
        share = _QUERY_SHARE if not parts and len(asked) >= _LONG_REQUEST else 0.0
        if not (parts or kind or share):
            return _Scored(asked, wanted, ideal, _best(wanted, k, visible, READ_POSTINGS))
        # More than the k best: which tools are ordered again does not depend on k.
        best = sorted(_best(wanted, max(k, _ORDERED_AGAIN), visible, READ_POSTINGS).items(), key=_best_first)
        first, rest = best[:_ORDERED_AGAIN], best[_ORDERED_AGAIN:]
        if not first:
            return None
        counted: Mapping[str, tuple[Sequence[_Wanted], float]] = {}
        if parts:
            scores, counted = _of_parts(wanted, parts, first, visible)
        else:
            scores = self._again(wanted, first, share, kind)
        # Those behind them keep their order, and stay behind.
        behind = min(scores.values()) / first[-1][1]
        again = frozenset(scores)
        scores.update({tool_id: behind * score for tool_id, score in rest if tool_id not in scores})
        return _Scored(asked, wanted, ideal, scores, share, kind, again, behind, counted)

    def _again(
        self, wanted: Sequence[_Wanted], first: Iterable[tuple[str, float]], share: float, kind: str | None
    ) -> dict[str, float]:
        """Scores of *first*, of which *share* hangs on how much of the request each tool has, and less for a name that
        says another deed than *kind*."""
        scores = dict(first)
        factors = self._order_factors(wanted, list(scores), share, kind)
        return {tool_id: scores[tool_id] * coverage * of_deed for tool_id, (coverage, of_deed) in factors.items()}

    def _order_factors(
        self, wanted: Sequence[_Wanted], tool_ids: Sequence[str], share: float, kind: str | None
    ) -> dict[str, tuple[float, float]]:
        """As in ``_again``, for coverage and for the deed of the name, by tool."""
        coverage = _shares_of_query(wanted, tool_ids, share) if share else [1.0] * len(tool_ids)
        deeds = [_OTHER_DEED if kind and self._does_other(tool_id, kind) else 1.0 for tool_id in tool_ids]
        return dict(zip(tool_ids, zip(coverage, deeds, strict=True), strict=True))

    def _does_other(self, tool_id: str, kind: str) -> bool:
        """Returns whether the name of a tool says other deeds and not *kind*."""
        found = self._indexed[tool_id]
        kinds = set(map(deed, found.terms[: found.named]))
        kinds.discard(None)
        return bool(kinds) and kind not in kinds

    def _find(self, term: str, visible: Visible) -> _Postings | None:
        """Returns the postings of *term*. A term that only hidden tools have is unknown, so no score depends on it."""
        known = self._postings.get(term)
        return known if known is None or any(map(visible, known.impacts)) else None

    def _wanted(
        self,
        asked: Sequence[str],
        find: Callable[[str], _Postings | None],
        learned: Learned | None,
        visible: Visible | None,
    ) -> list[_Wanted]:
        """The look-ups for the terms *asked*, the greatest bound first, so that a search can stop early."""
        found = []
        for term in asked:
            own = find(term)
            rarity = self._rarity(own)
            known = [(rarity, term, own)] if own else []
            for other in synonyms(term):
                if other not in asked and (postings := find(other)) is not None:
                    # Never worth more than the word itself, however rare.
                    known.append((_SYNONYM_WEIGHT * min(rarity, self._rarity(postings)), other, postings))
            taught = self._taught(term, rarity, learned, visible) if learned else {}
            if known or taught:
                full = _FULL * rarity
                bound = max((factor * postings.top for factor, _, postings in known), default=0.0)
                bound = _filled(bound, max(taught.values(), default=0.0), full)
                size = sum(len(postings.impacts) for _, _, postings in known) + len(taught)
                names, by_id = tuple(name for _, name, _ in known), tuple((f, p.impacts) for f, _, p in known)
                found.append(_Wanted(term, rarity, names, by_id, bound, size, taught, full))
        found.sort(key=lambda one: (-one.bound, one.term))
        return found

    def _taught(self, term: str, rarity: float, learned: Learned, visible: Visible | None) -> dict[str, float]:
        """The gain of tools of this catalog by the learned *term*; none of a hidden one, so no score tells of it."""
        return {
            tool_id: _LEARNED * rarity * weight
            for tool_id, weight in learned.weights(term).items()
            if tool_id in self._indexed and (visible is None or visible(tool_id))
        }

    def _rarity(self, known: _Postings | None) -> float:
        having = len(known.impacts) if known else 0
        return _rarity(len(self._indexed), having)


@lru_cache(maxsize=16_384)
def _rarity(tools: int, having: int) -> float:
    return float(math.log(1 + (tools - having + 0.5) / (having + 0.5)) ** _RARITY_POWER)


_NOTHING = _Indexed((), 0)


def weights_for(query: str, learned: Learned) -> Learned:
    """The words of *learned* at this moment for the terms of *query*, for a Router in another thread."""
    asked = _query_terms(query[:MAX_QUERY_CHARS])
    return FixedWeights({term: dict(learned.weights(term)) for term in asked})


def _best_first(pair: tuple[str, float]) -> tuple[float, str]:
    return -pair[1], pair[0]


@lru_cache(maxsize=16)  # one browse asks several times
def _query_terms(query: str) -> tuple[str, ...]:
    """Each term once. A query of nothing but small words is taken at its word: a tool may be called ``help``."""
    said = content_terms(query) or terms(query)
    # What is created is new anyway: in "create a new order" the word says nothing of the tool.
    if "new" in said:
        said = [term for before, term in zip(["", *said], said, strict=False) if term != "new" or not _creates(before)]
    return tuple(dict.fromkeys(said))[:MAX_QUERY_TERMS]


def _creates(term: str) -> bool:
    return term != "new" and deed(term) == "create"


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
) -> tuple[dict[str, float], dict[str, tuple[Sequence[_Wanted], float]]]:
    """Scores of *first*, the best tools for the whole, and of the best for each part; and by tool the part that counts
    for it, with its scale."""
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
    scores_by_tool: dict[str, float] = {}
    counted: dict[str, tuple[Sequence[_Wanted], float]] = {}
    for tool_id, score in found.items():
        of_part, at = max((scale * of[tool_id], -at) for at, (scale, of) in enumerate(zip(scales, sums, strict=True)))
        scores_by_tool[tool_id] = (1 - _PART_SHARE) * score + _PART_SHARE * of_part
        counted[tool_id] = parts[-at], scales[-at]
    return scores_by_tool, counted


def _part_factor(one: _Wanted, part: Sequence[_Wanted], scale: float) -> float:
    """The share of what *one* gains that counts, where *part* counts beside the whole."""
    return (1 - _PART_SHARE) + (_PART_SHARE * scale if one in part else 0.0)


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
    found: dict[str, float] = _contenders(scores, k, left, visible) if place < len(wanted) else scores
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
    few = len(scores) <= _FEW
    if visible is None:
        return sorted(scores.values())[-k] if few else heapq.nlargest(k, scores.values())[-1]
    most, by_score = _LOOK_PAST_HIDDEN * k, itemgetter(1)
    first = (
        sorted(scores.items(), key=by_score, reverse=True)[:most]
        if few
        else heapq.nlargest(most, scores.items(), by_score)
    )
    shown = [score for tool_id, score in first if visible(tool_id)]
    return shown[k - 1] if len(shown) >= k else 0.0


def _filled(gain: float, learned: float, full: float) -> float:
    """The gain of a tool by a term altogether; more of either never makes it less."""
    return gain + learned * (1 - gain / full) if gain < full else gain


def _add(one: _Wanted, scores: defaultdict[str, float]) -> None:
    if len(one.members) == 1 and not one.learned:
        ((factor, impacts),) = one.members
        if not scores:
            scores.update({tool_id: factor * impact for tool_id, impact in impacts.items()})
            return
        for tool_id, impact in impacts.items():
            scores[tool_id] += factor * impact
        return
    best: dict[str, float] = {}
    for factor, impacts in one.members:
        if not best:
            best = {tool_id: factor * impact for tool_id, impact in impacts.items()}
            continue
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


def _gain(one: _Wanted, tool_id: str) -> float:
    return _gains(one, {tool_id: 0.0}).get(tool_id, 0.0)


def _shares_of_query(wanted: Sequence[_Wanted], tool_ids: Sequence[str], share: float) -> list[float]:
    """1 for a tool with all of the terms, less by *share* for one with none; the rarer a term, the more it counts.

    A synonym covers a term in part only. A term that was only learned is none: learning moves no other tool.
    """
    whole, covered = 0.0, [0.0] * len(tool_ids)
    for one in wanted:
        if not one.members:
            continue
        whole += one.rarity
        first, *others = (impacts for _, impacts in one.members)
        as_first = one.rarity * (1.0 if one.members[0][0] == one.rarity else _SYNONYM_COVERS)
        for at, tool_id in enumerate(tool_ids):
            if tool_id in first:
                covered[at] += as_first
            elif others and any(tool_id in impacts for impacts in others):
                covered[at] += one.rarity * _SYNONYM_COVERS
    return [1 - share * (1 - each / whole) for each in covered] if whole else [1.0] * len(tool_ids)
