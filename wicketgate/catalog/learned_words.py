"""Words that led to a tool: counted for each actor, and turned into the weak weights that ``Router`` ranks with
(BROWSE-42 to BROWSE-50).

A word is taken up where the tool that was run had not stood first, and counted in every run from then on. Its weight is
the share of the tool's runs in which it stood, shrunk where runs are few, and less for a word of many tools. Counts
halve every 30 days.
"""

import heapq
import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

from wicketgate.catalog.words import content_terms

DAY_S = 86_400.0
HALF_LIFE_S = 30 * DAY_S

# Bounds of what is kept.
MAX_QUERY_CHARS = 4_096
MAX_QUERY_WORDS = 24
MAX_WORD_CHARS = 24
MAX_TOOL_WORDS = 48
MAX_ACTOR_TOOLS = 500
MAX_SIZE = 100_000
"""Of all actors together, in words; a tool counts as one word more."""
MAX_VOICES = 500
"""Of one word that count for others; the tools that most actors use it for come first."""
_LEAST_COUNT = 0.1

_SHRINK = 2.0
_RARITY_POWER = 2.0
_NO_WEIGHTS: Mapping[str, float] = MappingProxyType({})


class Learned(Protocol):
    """The weights that ranking reads."""

    def weights(self, term: str) -> Mapping[str, float]:
        """Weights of *term* by tool id, above 0 and at most 1. A tool may be one that is not there any more."""
        ...


@dataclass(frozen=True, slots=True)
class FixedWeights:
    """Implements Learned with the weights of a few terms as they were, for a thread beside the event loop."""

    by_term: Mapping[str, Mapping[str, float]]

    def weights(self, term: str) -> Mapping[str, float]:
        return self.by_term.get(term, {})


@dataclass(frozen=True, slots=True)
class Lesson:
    """A tool that was run with success, with the words of the browse that had shown it. *first*: it stood first."""

    actor: str
    tool_id: str
    words: tuple[str, ...]
    first: bool = False


_PIECE = re.compile(r"\S+")
_ASCII_PIECE = re.compile(r"[!-~]+")
_SUSPECT = re.compile(r"[\d@\\]|://|\S{41}")
_DIGIT = re.compile(r"\d")
_LONG_PIECE = 40
_NUMBERED_PIECE = 8
_NUMBERED_WORD = 4


def words_to_learn(query: str) -> tuple[str, ...]:
    """The stems of *query* that may be kept: no numbers, addresses, nor what looks like a key (BROWSE-50)."""
    said = query[:MAX_QUERY_CHARS]
    if not said.isascii():
        # An address in letters of full width is one too.
        said = unicodedata.normalize("NFKC", said)[:MAX_QUERY_CHARS]
    if _SUSPECT.search(said):
        said = " ".join(filter(None, map(_public_part, _PIECE.findall(said))))
    words = dict.fromkeys(term for term in content_terms(said) if _is_word(term))
    return tuple(words)[:MAX_QUERY_WORDS]


def _public_part(piece: str) -> str:
    """Empty for an address, and for what is too long or has digits in it, unless it is as short as ``s3``."""
    if "@" in piece or "://" in piece or "\\" in piece:
        return ""
    # In scripts without spaces a key stands right beside the words.
    return _ASCII_PIECE.sub(lambda found: " " if _may_be_key(found[0]) else found[0], piece)


def _may_be_key(piece: str) -> bool:
    return len(piece) > _LONG_PIECE or (len(piece) > _NUMBERED_PIECE and _DIGIT.search(piece) is not None)


def _is_word(term: str) -> bool:
    if _DIGIT.search(term):
        return len(term) <= _NUMBERED_WORD and any(map(str.isalpha, term))
    return len(term) <= MAX_WORD_CHARS


@dataclass(frozen=True, slots=True)
class ToolWords:
    """Counts of one actor's runs of one tool, and of those in which each word stood, as they were at the time *at*."""

    runs: float = 0.0
    counts: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0

    @property
    def size(self) -> int:
        return 1 + len(self.counts)

    def taught(self, words: Iterable[str], at: float, *, first: bool = False) -> "ToolWords":
        """With one run more. New words are taken up only where the tool had not stood *first*."""
        kept = self.kept(at)
        counts = {word: count * kept for word, count in self.counts.items() if count * kept >= _LEAST_COUNT}
        fresh = [word for word in words if not first or word in counts]
        for word in fresh:
            counts[word] = counts.get(word, 0.0) + 1.0
        if len(counts) > MAX_TOOL_WORDS:
            now_said = frozenset(fresh)
            best = heapq.nsmallest(
                MAX_TOOL_WORDS, counts.items(), key=lambda pair: (-pair[1], pair[0] not in now_said, pair[0])
            )
            counts = dict(best)
        return ToolWords(self.runs * kept + 1.0, counts, max(at, self.at))

    def kept(self, at: float) -> float:
        """The share of the counts that is left at the time *at*."""
        return float(0.5 ** (max(0.0, at - self.at) / HALF_LIFE_S))

    def share(self, word: str, at: float) -> float:
        """The share of the runs in which *word* stood, shrunk where they are few."""
        kept = self.kept(at)
        return self.counts.get(word, 0.0) * kept / (self.runs * kept + _SHRINK)

    def plain_share(self, word: str, at: float) -> float:
        """The share of the runs in which *word* stood; less where not even one is left of them."""
        kept = self.kept(at)
        return self.counts.get(word, 0.0) * kept / max(1.0, self.runs * kept)

    def presence(self, at: float) -> float:
        """1 for an actor that ran the tool; less where not even one run is left."""
        return min(1.0, self.runs * self.kept(at))


_UNKNOWN = ToolWords()


@dataclass(slots=True, eq=False, repr=False)
class ActorWords:
    """Implements Learned: what one actor's runs taught. Weights are those of the day that ``on`` was last given."""

    _tools: dict[str, ToolWords] = field(default_factory=dict)
    _by_word: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _weights: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _day: float = 0.0

    def get(self, tool_id: str) -> ToolWords:
        return self._tools.get(tool_id, _UNKNOWN)

    def put(self, tool_id: str, words: ToolWords) -> None:
        if tool_id not in self._tools:
            self._weights.clear()  # among more tools, each word is rarer
        former = self.get(tool_id)
        self._tools[tool_id] = words
        for word in former.counts:
            self._weights.pop(word, None)
            if word not in words.counts:
                left = tuple(other for other in self._by_word.pop(word) if other != tool_id)
                if left:
                    self._by_word[word] = left
        for word in words.counts:
            self._weights.pop(word, None)
            if word not in former.counts:
                self._by_word[word] = (*self._by_word.get(word, ()), tool_id)

    def has(self, word: str) -> bool:
        return word in self._by_word

    def on(self, at: float) -> "ActorWords":
        """Itself, with the weights of the day of *at*."""
        day = at - at % DAY_S
        if day != self._day:
            self._day = day
            self._weights.clear()
        return self

    def weights(self, term: str) -> Mapping[str, float]:
        if term not in self._by_word:
            return _NO_WEIGHTS
        known = self._weights.get(term)
        if known is None:
            rarity, tools = self._rarity(term), sorted(self._by_word[term])
            known = {tool_id: rarity * self._tools[tool_id].share(term, self._day) for tool_id in tools}
            self._weights[term] = known
        return known

    def voice(self, word: str, tool_id: str, at: float) -> float:
        """The weight that this actor gives to *word*, at most 1, however often it ran the tool."""
        return self._rarity(word) * self.get(tool_id).plain_share(word, at)

    def _rarity(self, word: str) -> float:
        """1 for a word of a single tool; less, the more of the actor's tools have it."""
        return _rarity(len(self._by_word.get(word, ())), len(self._tools))


@lru_cache(maxsize=16_384)
def _rarity(having: int, tools: int) -> float:
    return float((math.log1p(tools / having) / math.log1p(tools)) ** _RARITY_POWER) if having else 0.0


@dataclass(slots=True, eq=False, repr=False)
class SharedWords:
    """Implements Learned: what all actors taught together (BROWSE-46).

    Each actor has one voice among those who ran the tool, and the loudest is left out. So a word counts once two actors
    have used it, and what a single actor says alone is heard by nobody. Where *n* others ran the tool, one actor lifts
    a weight by at most 1 / (n + 2), and by nothing where none of them used the word. *actors* may grow; ``note`` is
    called for each change of what is in it.
    """

    _actors: Mapping[str, ActorWords]
    _of_tool: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _by_word: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    _present: dict[str, float] = field(default_factory=dict)
    _weights: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _day: float = 0.0

    def note(self, actor: str, tool_id: str, former: ToolWords, words: ToolWords) -> None:
        """Count in that *actor* has *words* for a tool now, and had the *former*."""
        if actor not in self._of_tool[tool_id]:
            self._of_tool[tool_id].add(actor)
            self._forget_weights(actor, tool_id)
        self._present.pop(tool_id, None)
        for word in former.counts:
            self._weights.pop(word, None)
            if word not in words.counts:
                self._forget(word, tool_id, actor)
        for word in words.counts:
            self._weights.pop(word, None)
            self._by_word.setdefault(word, {}).setdefault(tool_id, set()).add(actor)

    def on(self, at: float) -> "SharedWords":
        """Itself, with the weights of the day of *at*."""
        day = at - at % DAY_S
        if day != self._day:
            self._day = day
            self._weights.clear()
            self._present.clear()
        return self

    def weights(self, term: str) -> Mapping[str, float]:
        if term not in self._by_word:
            return _NO_WEIGHTS
        known = self._weights.get(term)
        if known is None:
            known = {tool_id: self._weight(term, tool_id, heard) for tool_id, heard in self._heard(term)}
            self._weights[term] = known
        return known

    def _heard(self, word: str) -> Iterator[tuple[str, Sequence[str]]]:
        """The tools for which at least two actors use *word*, those of most actors first, with the actors that are
        heard: MAX_VOICES in all, because a browse works this out."""
        said = [(tool_id, actors) for tool_id, actors in self._by_word[word].items() if len(actors) > 1]
        said.sort(key=lambda pair: (-len(pair[1]), pair[0]))
        room = MAX_VOICES
        for tool_id, actors in said:
            heard = heapq.nsmallest(room, actors) if len(actors) > room else list(actors)
            if len(heard) > 1:
                yield tool_id, heard
            room -= len(heard)
            if room <= 1:
                return

    def _forget_weights(self, actor: str, tool_id: str) -> None:
        """Forget those that one actor more for a tool changes: of that tool, and of the actor's words, which are rarer
        among more tools."""
        own = self._actors[actor]
        changed = [word for word, known in self._weights.items() if tool_id in known or own.has(word)]
        for word in changed:
            del self._weights[word]

    def _forget(self, word: str, tool_id: str, actor: str) -> None:
        tools = self._by_word[word]
        tools[tool_id].discard(actor)
        if not tools[tool_id]:
            del tools[tool_id]
        if not tools:
            del self._by_word[word]

    def _weight(self, word: str, tool_id: str, actors: Collection[str]) -> float:
        voices = sorted(self._actors[actor].voice(word, tool_id, self._day) for actor in actors)
        present = self._present.get(tool_id)
        if present is None:
            here = sorted(self._actors[actor].get(tool_id).presence(self._day) for actor in self._of_tool[tool_id])
            present = self._present[tool_id] = sum(here)
        return sum(voices[:-1]) / (present + 1.0)


@dataclass(slots=True, eq=False, repr=False)
class OwnAndShared:
    """Implements Learned: of what an actor taught and what all did, the greater weight counts."""

    _own: Learned
    _shared: Learned

    def weights(self, term: str) -> Mapping[str, float]:
        own, shared = self._own.weights(term), self._shared.weights(term)
        if not own or not shared:
            return own or shared
        return {tool_id: max(own.get(tool_id, 0.0), shared.get(tool_id, 0.0)) for tool_id in sorted({*own, *shared})}
