"""Which patterns of a foreign schema may be run, and on how long a text (DESIGN §3 "Schemas": bounded patterns).

``re`` backtracks, so ``^(a+)+$`` takes time exponential in the text. A pattern is accepted only if the steps are known
to be few: wherever it stands, the next character leaves it one way to go on (with at most one exception, outside of
which every loop still has one way). This is decided on the positions of the pattern (Glushkov's construction), with
character sets widened to ASCII and "everything else", and everything unusual refused: a refused pattern is reported
as unchecked, never as wrong.
"""

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from re import _constants, _parser  # type: ignore[attr-defined]  # the one parser that reads what re will run
from typing import Any

_MAX_PATTERN_CHARS = 500
_MAX_POSITIONS = 300
_MAX_COPIES = 64
_MAX_CONFLICTS = 2
# What following and compiling cost: entries of the follower lists, and code points of ranges (re walks through each).
_MAX_FOLLOWERS = 3_000
_MAX_RANGE_CHARS = 30_000
# Longest text by degree: the number of steps is at most about length ** degree, times the ways at one place.
_MAX_TEXT_CHARS = {1: 50_000, 2: 1_000, 3: 100, 4: 32}
# A step takes some 10 ns, and nothing can run beside a search.
_MAX_STEPS = 2_000_000

_OTHER = 1 << 128
_ANY = (1 << 129) - 1
_CATEGORIES = {
    "DIGIT": sum(1 << code for code in range(128) if chr(code).isdigit()),
    "SPACE": sum(1 << code for code in range(128) if chr(code).isspace()),
    "WORD": sum(1 << code for code in range(128) if chr(code).isalnum() or chr(code) == "_"),
}


@dataclass(frozen=True, slots=True)
class SafePattern:
    """*degree* is the power of the text's length that bounds the steps of a search; *ways* is what a step can cost."""

    compiled: re.Pattern[str]
    degree: int
    ways: int

    def search(self, text: str) -> bool | None:
        """Whether the pattern occurs in *text*; None when the text is too long to be searched."""
        return self.compiled.search(text) is not None if self._may_search(text) else None

    def steps(self, text: str) -> int:
        """An upper estimate of the work of a search."""
        return self._steps(text) if self._may_search(text) else 0

    def _may_search(self, text: str) -> bool:
        return len(text) <= _MAX_TEXT_CHARS[self.degree] and self._steps(text) <= _MAX_STEPS

    def _steps(self, text: str) -> int:
        return int(len(text) ** self.degree) * min(self.ways, len(text))


def safe_pattern(pattern: str) -> SafePattern | None:
    """The compiled pattern, or None when its time cannot be bounded or ``re`` does not read it."""
    if len(pattern) > _MAX_PATTERN_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parser.parse(pattern)
            if tree.state.flags != _PLAIN_FLAGS:
                return None
            positions = _Positions()
            start = positions.sequence(list(tree), None)
            # Only what has been found small is compiled.
            compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError, ValueError, _Unbounded):
        return None
    conflicts = positions.conflicts(start.first)
    if conflicts is None or conflicts > _MAX_CONFLICTS:
        return None
    if not positions.has_loops:
        # From each place in the text, no more steps than the pattern has.
        return SafePattern(compiled, 1, positions.count)
    anchored = bool(tree) and tree[0][0] is _constants.AT and str(tree[0][1]).startswith("AT_BEGINNING")
    return SafePattern(compiled, 1 + conflicts + (not anchored), positions.most_ways(start.first))


_PLAIN_FLAGS = _parser.parse("").state.flags


class _Unbounded(Exception):
    """The pattern has something whose cost is not known."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Part of a pattern: whether it can be empty, and the positions at which it can begin and end."""

    nullable: bool
    first: tuple[int, ...]
    last: tuple[int, ...]


_EMPTY = _Piece(True, (), ())


class _Positions:
    """One position for each character set of the pattern, and which positions can follow it.

    The same follower twice means two ways to read the same text, so followers are lists, not sets.
    """

    def __init__(self) -> None:
        self._sets: list[int] = []
        self._loops: list[int | None] = []
        self._followers: list[list[int]] = []
        self._loop_count = 0
        self._follower_room = _MAX_FOLLOWERS
        self._range_room = _MAX_RANGE_CHARS

    @property
    def has_loops(self) -> bool:
        return self._loop_count > 0

    @property
    def count(self) -> int:
        return len(self._sets)

    def most_ways(self, first: Sequence[int]) -> int:
        """The most positions that can come next at one place."""
        return max(len(first), *(len(followers) for followers in self._followers), 1)

    def sequence(self, items: Sequence[Any], loop: int | None) -> _Piece:
        whole = _EMPTY
        for item in items:
            whole = self._then(whole, self._piece(item, loop))
        return whole

    def conflicts(self, first: Sequence[int]) -> int | None:
        """Places where one character can go two ways; None if one is inside a loop, which can be exponential."""
        total = self._overlaps(first)
        for position, followers in enumerate(self._followers):
            loop = self._loops[position]
            inside = [each for each in followers if loop is not None and self._loops[each] == loop]
            if self._overlaps(inside):
                return None
            total += self._overlaps(followers)
        return total

    def _overlaps(self, positions: Sequence[int]) -> int:
        count = seen = 0
        for position in positions:
            count += bool(seen & self._sets[position])
            seen |= self._sets[position]
        return count

    def _then(self, one: _Piece, two: _Piece) -> _Piece:
        self._follow(one.last, two.first)
        return _Piece(
            one.nullable and two.nullable,
            one.first + two.first if one.nullable else one.first,
            one.last + two.last if two.nullable else two.last,
        )

    def _follow(self, ends: Sequence[int], nexts: Sequence[int]) -> None:
        self._follower_room -= len(ends) * len(nexts)
        if self._follower_room < 0:
            raise _Unbounded
        for position in ends:
            self._followers[position].extend(nexts)

    def _piece(self, item: Any, loop: int | None) -> _Piece:
        name, value = str(item[0]), item[1]
        match name:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                self._range_room -= _range_chars(name, value)
                if self._range_room < 0:
                    raise _Unbounded
                return self._position(_character_set(name, value), loop)
            case "AT":
                return _EMPTY
            case "SUBPATTERN":
                _, add_flags, del_flags, items = value
                if add_flags or del_flags:
                    raise _Unbounded
                return self.sequence(list(items), loop)
            case "BRANCH":
                return self._either([self.sequence(list(items), loop) for items in value[1]])
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, items = value
                return self._repeat(int(least), int(most), list(items), loop)
            case _:
                # Look-around, back references, conditions, atomic groups.
                raise _Unbounded

    def _position(self, characters: int, loop: int | None) -> _Piece:
        if len(self._sets) >= _MAX_POSITIONS:
            raise _Unbounded
        self._sets.append(characters)
        self._loops.append(loop)
        self._followers.append([])
        here = (len(self._sets) - 1,)
        return _Piece(False, here, here)

    def _either(self, pieces: Sequence[_Piece]) -> _Piece:
        if sum(piece.nullable for piece in pieces) > 1:
            raise _Unbounded
        return _Piece(
            any(piece.nullable for piece in pieces),
            tuple(position for piece in pieces for position in piece.first),
            tuple(position for piece in pieces for position in piece.last),
        )

    def _repeat(self, least: int, most: int, items: Sequence[Any], loop: int | None) -> _Piece:
        if least == most and most <= _MAX_COPIES:
            whole = _EMPTY
            for _ in range(most):
                whole = self._then(whole, self._required(items, loop))
            return whole
        if most > 1 and loop is None:
            self._loop_count += 1
            loop = self._loop_count
        # A counted repeat is taken as one without end: that can only add ways, never hide one.
        body = self._required(items, loop)
        if most > 1:
            self._follow(body.last, body.first)
        return _Piece(least == 0, body.first, body.last)

    def _required(self, items: Sequence[Any], loop: int | None) -> _Piece:
        body = self.sequence(items, loop)
        if body.nullable:
            # Nothing can be repeated in many ways.
            raise _Unbounded
        return body


def _character_set(name: str, value: Any) -> int:
    match name:
        case "LITERAL":
            return _bit(value)
        case "NOT_LITERAL":
            return _ANY & ~_bit(value) | _OTHER
        case "ANY":
            return _ANY
        case _:
            members = list(value)
            negated = bool(members) and str(members[0][0]) == "NEGATE"
            union = 0
            for kind, member in members[negated:]:
                union |= _member(str(kind), member)
            return _ANY & ~union | _OTHER if negated else union


def _range_chars(name: str, value: Any) -> int:
    if name != "IN":
        return 0
    return sum(member[1] - member[0] for kind, member in value if str(kind) == "RANGE")


def _member(kind: str, member: Any) -> int:
    match kind:
        case "LITERAL":
            return _bit(member)
        case "RANGE":
            low, high = member
            ascii_part = sum(1 << code for code in range(low, min(high, 127) + 1))
            return ascii_part | _OTHER if high > 127 else ascii_part
        case "CATEGORY":
            category = str(member).removeprefix("CATEGORY_")
            plain = _CATEGORIES.get(category.removeprefix("NOT_"))
            if plain is None:
                raise _Unbounded
            return _ANY & ~plain | _OTHER if category.startswith("NOT_") else plain | _OTHER
        case _:
            raise _Unbounded


def _bit(code: int) -> int:
    return 1 << code if code < 128 else _OTHER
