"""Runs the patterns of foreign schemas, which are ECMA-262, on RE2 (EXEC-39).

RE2 takes time linear in the text for every pattern, so no pattern and no text can hold the event loop. The two
languages are close but not the same: some letters have another meaning (``$``, ``\\s``, ``.``), and RE2 lacks
look-around and back references. Each pattern is therefore read by the grammar of ECMA-262 and written again. A pattern
without an equal meaning is not compiled: the caller reports it as unchecked, and never refuses a text because of it.

The meaning is that of the ``u`` flag, as JSON Schema recommends. A pattern that this flag does not allow is read as
without it, except where its author may have meant another language: ``\\A``, ``\\Z``, ``[[:alpha:]]`` or ``{,5}``.
"""

import re
import string
from dataclasses import dataclass
from typing import Any

_MAX_PATTERN_CHARS = 2_000
_MAX_COUNT = 1_000
# RE2 refuses to compile beyond this, after 5 ms at most. Each automaton of a search stays below it too.
_MAX_MEMORY_BYTES = 1 << 20
# Bytes of the text times instructions of the program. A search takes at most a nanosecond for each, nearly always far
# less. It cannot be interrupted.
_MAX_WORK = 20_000_000

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_Ranges = tuple[tuple[int, int], ...]
_DIGITS: _Ranges = ((0x30, 0x39),)
_WORD: _Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACES: _Ranges = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
    (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
_LINE_ENDS: _Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACES}
_SYNTAX = frozenset("^$\\.*+?()[]{}|/")
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}

# The general categories by their short names, and the scripts by their long ones: RE2 knows no other names. It has no
# unassigned code points, so `Cn` and `C` have no equal.
_CATEGORY = re.compile(r"[LMNPSZ][a-z]?|C[cfo]")
_SCRIPT = re.compile(r"(?!Any$)[A-Z][a-z_A-Z]{2,}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern.

    *size* is the number of instructions that one byte of a text may have to pass. A pattern *in_units* is valid only
    without the ``u`` flag, where a character beyond U+FFFF counts as two.
    """

    compiled: Any
    size: int
    in_units: bool

    def work(self, text: str) -> int:
        """Returns an upper bound of a search's time in about nanoseconds."""
        return len(text) * (1 if text.isascii() else 4) * self.size

    def search(self, text: str) -> bool | None:
        """Returns whether the pattern occurs in *text*; None if *text* is too long, or cannot be decided in RE2."""
        if self.work(text) > _MAX_WORK or (self.in_units and not text.isascii() and max(text) > "\uffff"):
            return None
        try:
            return self.compiled.search(text.encode()) is not None
        except UnicodeEncodeError:
            return None


def compile_pattern(pattern: str) -> Pattern | None:
    """Returns the compiled pattern; None if RE2 cannot express it, or only in a larger program than is allowed."""
    if len(pattern) > _MAX_PATTERN_CHARS:
        return None
    # Imported with the first pattern (OPS-374): with the C++ library below it, it takes more than two megabytes.
    import re2  # type: ignore[import-untyped]  # google-re2 ships no types

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        reader = _PatternReader(pattern)
        # Parentheses that do not match are left to RE2 to find, and limits of counts inside counts.
        compiled = re2.compile(reader.translate().encode(), options)
    except (_NoEqual, re2.error):
        return None
    return Pattern(compiled, max(compiled.programsize, 1), reader.in_units)


class _NoEqual(Exception):
    """A part of the pattern means nothing in ECMA-262, or nothing that RE2 can express."""


class _PatternReader:
    """Translates from left to right. Groups need no stack: each parenthesis is written where it was read."""

    def __init__(self, pattern: str) -> None:
        self.in_units = False
        self._text = pattern
        self._at = 0
        self._names: set[str] = set()
        self._in_code_points = not pattern.isascii() and max(pattern) > "\uffff"

    def translate(self) -> str:
        """Returns the pattern in RE2's syntax. Raises ``_NoEqual`` if that cannot be done with the same meaning."""
        out: list[str] = []
        # A quantifier may follow a character, a class or a group; never an assertion or another quantifier.
        may_repeat = False
        while self._at < len(self._text):
            char = self._next()
            match char:
                # Anchors, alternatives and the beginning of a group.
                case "^" | "$" | "|":
                    written, repeatable = {"^": r"\A", "$": r"\z", "|": "|"}[char], False
                case "(":
                    written, repeatable = self._group(), False
                case "\\" if self._take("b"):
                    written, repeatable = r"\b", False
                # Quantifiers.
                case "*" | "+" | "?":
                    written, repeatable = self._quantified(char, may_repeat), False
                case "{" if (counts := self._counts()) is not None:
                    written, repeatable = self._quantified(counts, may_repeat), False
                # The end of a group, a class or a single character.
                case ")":
                    written, repeatable = ")", True
                case _:
                    written, repeatable = self._atom(char), True
            out.append(written)
            may_repeat = repeatable
        if self.in_units and self._in_code_points:
            raise _NoEqual
        return "".join(out)

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise _NoEqual
        self._at += 1
        return self._text[self._at - 1]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> bool:
        found = self._text.startswith(expected, self._at)
        self._at += len(expected) * found
        return found

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise _NoEqual
        found = self._text[self._at : stop]
        self._at = stop + len(end)
        return found

    def _group(self) -> str:
        """Writes each group as one that does not capture, because a search has no use for captures."""
        if not self._take("?") or self._take(":"):
            return "(?:"
        # Look-around and flags have no equal. RE2 would take `(?P<name>`, which ECMA-262 does not know.
        if not self._take("<") or self._peek() in ("=", "!"):
            raise _NoEqual
        name = self._until(">")
        if name in self._names or not name.replace("$", "_").isidentifier():
            raise _NoEqual
        self._names.add(name)
        return "(?:"

    def _counts(self) -> str | None:
        """Reads ``n}``, ``n,}`` or ``n,m}``. Returns None if the brace before it is only a brace."""
        stop = self._text.find("}", self._at)
        least, comma, most = self._text[self._at : max(stop, self._at)].partition(",")
        if not least and comma and most.isdecimal():
            # "At most m" in other languages.
            raise _NoEqual
        if not (least.isascii() and least.isdecimal()) or not (most == "" or (most.isascii() and most.isdecimal())):
            return None
        self._at = stop + 1
        counts = [int(each) for each in (least, most) if each]
        if max(counts) > _MAX_COUNT or counts[0] > counts[-1]:
            raise _NoEqual
        return "{" + str(counts[0]) + comma + (str(counts[1]) if most else "") + "}"

    def _quantified(self, quantifier: str, may_repeat: bool) -> str:
        if not may_repeat:
            raise _NoEqual
        # A lazy quantifier finds the same texts.
        self._take("?")
        return quantifier

    def _atom(self, char: str) -> str:
        match char:
            case ".":
                return _written(_without(_LINE_ENDS))
            case "[":
                return self._class()
            case "\\":
                found = self._escape(in_class=False)
                return found if isinstance(found, str) else _written(found)
            case _:
                self.in_units |= char in "{}]"
                return _written(_one(char))

    def _class(self) -> str:
        if self._text.startswith("[:", self._at):
            raise _NoEqual
        negated = self._take("^")
        parts: list[str] = []
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            low = self._member()
            # A range stands between two single characters. Elsewhere the dash is one of the characters.
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member()
                if _is_single(low) and _is_single(high):
                    low = self._range(low, high)
                else:
                    self.in_units = True
                    ranges.append((0x2D, 0x2D))
                    parts.append(high) if isinstance(high, str) else ranges.extend(high)
            parts.append(low) if isinstance(low, str) else ranges.extend(low)
        # RE2 has no empty class: [] matches nothing, and [^] everything.
        if not parts and not ranges:
            return _written(((0, _LAST),) if negated else ())
        inner = "".join(_range(*each) for each in ranges) + "".join(parts)
        return f"[{'^' * negated}{inner}]"

    def _range(self, low: Any, high: Any) -> _Ranges:
        if low[0][0] > high[0][0]:
            raise _NoEqual
        return ((low[0][0], high[0][0]),)

    def _member(self) -> str | _Ranges:
        char = self._next()
        return self._escape(in_class=True) if char == "\\" else _one(char)

    def _escape(self, in_class: bool) -> str | _Ranges:
        """Returns the characters that an escape stands for: ranges, or a property as RE2 writes it."""
        char = self._next()
        following = self._peek()
        match char:
            # Classes of characters.
            case "d" | "w" | "s":
                return _CLASSES[char]
            case "D" | "W" | "S":
                return _without(_CLASSES[char.lower()])
            # Single characters by name.
            case "t" | "n" | "v" | "f" | "r":
                return ((_CONTROLS[char], _CONTROLS[char]),)
            case "b" if in_class:
                return ((0x08, 0x08),)
            case "0" if not following.isdecimal():
                return ((0, 0),)
            case "c" if following and following in string.ascii_letters:
                code = ord(self._next()) % 32
                return ((code, code),)
            # Single characters by number, properties, and escaped punctuation.
            case "x":
                return _code(self._hex(2))
            case "u":
                return _code(self._unicode())
            case "p" | "P":
                return self._property(char)
            case _ if char in string.punctuation or char == " ":
                self.in_units |= char not in _SYNTAX and not (in_class and char == "-")
                return _one(char)
        # Back references, `\\B` (which RE2 finds inside characters of several bytes) and unknown letters.
        raise _NoEqual

    def _hex(self, digits: int) -> int:
        found = self._text[self._at : self._at + digits]
        if len(found) < digits or not set(found) <= set(string.hexdigits):
            raise _NoEqual
        self._at += digits
        return int(found, 16)

    def _unicode(self) -> int:
        if self._take("{"):
            self._in_code_points = True
            found = self._until("}")
            if not found or not set(found) <= set(string.hexdigits):
                raise _NoEqual
            return int(found, 16)
        high = self._hex(4)
        # Two escapes can be the halves of one character.
        if 0xD800 <= high < 0xDC00 and self._take("\\u"):
            low = self._hex(4)
            if 0xDC00 <= low < 0xE000:
                self._in_code_points = True
                return 0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00
            raise _NoEqual
        return high

    def _property(self, letter: str) -> str | _Ranges:
        self._in_code_points = True
        if not self._take("{"):
            raise _NoEqual
        key, equals, value = self._until("}").partition("=")
        if key in ("Script", "sc") and equals:
            if _SCRIPT.fullmatch(value):
                return f"\\{letter}{{{value}}}"
        elif not equals or key in ("General_Category", "gc"):
            value = value if equals else key
            if _CATEGORY.fullmatch(value):
                return f"\\{letter}{{{value}}}"
            ranges = {"Any": ((0, _LAST),), "ASCII": ((0, 0x7F),)}.get(value) if not equals else None
            if ranges is not None:
                return ranges if letter == "p" else _without(ranges)
        raise _NoEqual


def _one(char: str) -> _Ranges:
    return _code(ord(char))


def _code(code: int) -> _Ranges:
    # Half a surrogate pair is matched differently with and without the `u` flag.
    if code in _SURROGATES or code > _LAST:
        raise _NoEqual
    return ((code, code),)


def _is_single(found: str | _Ranges) -> bool:
    return not isinstance(found, str) and len(found) == 1 and found[0][0] == found[0][1]


def _without(ranges: _Ranges) -> _Ranges:
    """Returns every code point outside of *ranges*, which are in order."""
    starts = [0, *(high + 1 for _, high in ranges)]
    ends = [*(low - 1 for low, _ in ranges), _LAST]
    return tuple((low, high) for low, high in zip(starts, ends, strict=True) if low <= high)


def _written(ranges: _Ranges) -> str:
    if not ranges:
        # The complement of everything matches nothing.
        return f"[^{_range(0, _LAST)}]"
    if _is_single(ranges):
        return _point(ranges[0][0])
    return "[" + "".join(_range(*each) for each in ranges) + "]"


def _range(low: int, high: int) -> str:
    return _point(low) if low == high else f"{_point(low)}-{_point(high)}"


def _point(code: int) -> str:
    return chr(code) if chr(code) in string.ascii_letters + string.digits else f"\\x{{{code:X}}}"
