"""How the scripted model fills the arguments that a refused call taught it (DESIGN §3 "Schemas": ``details.expected``).

Each argument takes the first value of the message that fits its type, pattern, choices and name, and no value is
taken twice. What nothing fits stays out: a missing argument is told, never guessed.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from wicketgate.models.scripted.values import Values, read_values
from wicketgate.schemas.patterns import compile_pattern

_LINE = re.compile(r"(?P<shape>.*?)(?P<required>, required)?(?:, default .*?)?(?:: (?P<description>.*))?", re.S)
_CHOICE = re.compile(r"\"(?:[^\"\\]|\\.)*\"")
_OFFERED = re.compile(r"'([\w/-]{1,40})'")
_COUNTING = frozenset(
    ["amount", "count", "first", "last", "limit", "max", "maximum", "n", "number", "quantity", "results", "rows", "top"]
)
_MAX_PATTERN_TOKENS = 200
_MAX_TOKEN_CHARS = 64


@dataclass(frozen=True, slots=True)
class Wanted:
    """One line of ``details.expected``, read back. *choices* are the values of an enumeration."""

    name: str
    kinds: frozenset[str]
    required: bool
    pattern: str = ""
    choices: tuple[str, ...] = ()
    description: str = ""

    @property
    def words(self) -> frozenset[str]:
        """The parts of the name, in lower case: ``maxCount`` and ``max_count`` are both max and count."""
        return frozenset(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", self.name))


@dataclass(frozen=True, slots=True)
class Filling:
    """*missing* are the required arguments for which the message gives nothing."""

    arguments: dict[str, Any]
    missing: tuple[str, ...]


def read_expected(expected: Mapping[str, Any]) -> list[Wanted]:
    """The lines of ``details.expected``, in order; the line that counts those left out is skipped."""
    return [_wanted(name, str(line)) for name, line in expected.items() if name != "…"]


def fill_arguments(
    message: str, wanted: Iterable[Wanted], given: Mapping[str, Any], refused: Mapping[str, Any] | None = None
) -> Filling:
    """Arguments from *message*: what is *given* stays, the rest is found. A *refused* value is not tried again."""
    lines = list(wanted)
    search = _Search(read_values(message), dict(refused or {}))
    arguments = {line.name: given[line.name] for line in lines if line.name in given}
    for value in arguments.values():
        search.spend(value)
    # Required ones choose first, then those that can be told apart by more than their type.
    for line in sorted(lines, key=lambda one: (not one.required, not (one.choices or one.pattern))):
        if line.name in arguments:
            continue
        value = search.value_for(line)
        if value is not None:
            arguments[line.name] = value
            search.spend(value)
    missing = tuple(line.name for line in lines if line.required and line.name not in arguments)
    return Filling({line.name: arguments[line.name] for line in lines if line.name in arguments}, missing)


def _wanted(name: str, line: str) -> Wanted:
    match = _LINE.fullmatch(line)
    assert match is not None  # every part of the expression may be empty
    shape, description = match["shape"], match["description"] or ""
    kinds = frozenset(re.findall(r"\b(?:string|integer|number|boolean|array|object|any)\b", _CHOICE.sub("", shape)))
    pattern = ""
    if (start := shape.find("string matching ")) >= 0:
        pattern, kinds = shape[start + len("string matching ") :].removesuffix("|null"), frozenset(["string"])
    elif shape.startswith("array"):
        kinds = frozenset(["array"])
    elif shape.startswith("{"):
        kinds = frozenset(["object"])
    elif hint := re.search(r"\((email|date|uri|url|time)\)", shape):
        description = f"{description} ({hint[1]})"
    choices = _choices(shape) if not kinds else ()
    return Wanted(name, kinds, match["required"] is not None, pattern, choices, description)


def _choices(shape: str) -> tuple[Any, ...]:
    """The values in the shape that are JSON; what only looks like it is none."""
    choices = []
    for text in _CHOICE.findall(shape):
        with suppress(ValueError):
            choices.append(json.loads(text))
    return tuple(choices)


@dataclass(slots=True)
class _Search:
    values: Values
    refused: Mapping[str, Any]
    spent: set[Any] = field(default_factory=set)

    def spend(self, value: Any) -> None:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            self.spent.add(value)

    def value_for(self, line: Wanted) -> Any:
        """The first value that fits *line*, or None."""
        for value in self._candidates(line):
            if value not in self.spent and not (line.name in self.refused and self.refused[line.name] == value):
                return value
        if line.kinds == {"array"} and (items := self._items()):
            return items
        return self._truth() if line.kinds == {"boolean"} and line.required else None

    def _candidates(self, line: Wanted) -> Iterator[Any]:
        if line.choices:
            yield from self._named(line.choices)
        elif line.pattern:
            yield from self._matching(line.pattern)
        elif line.kinds & {"integer", "number"}:
            yield from self._numbers(line)
        elif line.kinds & {"string", "any"}:
            yield from self._strings(line)

    def _named(self, choices: Iterable[str]) -> Iterator[str]:
        """The choices that the text names, the longest first, so that ``not_paid`` is not read as ``paid``."""
        text = f" {' '.join(re.findall(r'[a-z0-9]+', self.values.text.lower()))} "
        for choice in sorted(choices, key=len, reverse=True):
            spelled = " ".join(re.findall(r"[a-z0-9]+", choice.lower()))
            if spelled and f" {spelled} " in text:
                yield choice

    def _matching(self, pattern: str) -> Iterator[str]:
        compiled = compile_pattern(pattern)
        if compiled is None:
            return
        for token in (*self.values.quoted, *self.values.tokens[:_MAX_PATTERN_TOKENS]):
            if len(token) <= _MAX_TOKEN_CHARS and compiled.search(token):
                yield token

    def _numbers(self, line: Wanted) -> Iterator[int | float]:
        named = line.words & {token.lower() for token in self.values.tokens}
        if line.required or named or line.words & _COUNTING:
            for number in self.values.numbers:
                if "number" in line.kinds or isinstance(number, int):
                    yield number

    def _strings(self, line: Wanted) -> Iterator[str]:
        values, words, hint = self.values, line.words, line.description.lower()
        if {"timezone", "zone", "tz"} & words or "iana" in hint:
            yield from self._zones(words)
            return
        if "time" in words or "hh:mm" in hint:
            yield from values.times
            return
        if {"email", "mail"} & words or "(email)" in hint:
            yield from values.emails
            return
        if {"url", "uri", "link"} & words or "(uri)" in hint or "(url)" in hint:
            yield from values.urls
            return
        if {"date", "day", "since", "until", "timestamp"} & words or "(date)" in hint:
            yield from values.dates
            return
        yield from self._said(line)
        if {"path", "repo", "repository", "dir", "directory", "folder", "file", "cwd"} & words:
            yield from values.paths
            return
        if {"revision", "commit", "sha", "ref", "target"} & words:
            yield from values.revisions
        if not line.required:
            return
        yield from self._named(_OFFERED.findall(line.description))
        yield from values.quoted
        if {"id", "key", "number", "code"} & words:
            yield from values.ids
        if {"query", "q", "search", "words", "text", "term", "keywords", "question", "name", "branch"} & words:
            yield from self._after(r"for|about|named|called")

    def _zones(self, words: frozenset[str]) -> Iterator[str]:
        """For a zone to convert from or into, the one after that word comes first."""
        zones = self.values.zones
        side = {"source": r"\bfrom\b", "target": r"\b(?:to|into|in)\b"}
        for word in words & side.keys():
            after = re.split(side[word], self.values.text, flags=re.I)[1:]
            yield from (zone for part in after for zone in read_values(part).zones[:1])
        yield from zones

    def _said(self, line: Wanted) -> Iterator[str]:
        """``branch name: main``, ``message is "Fix it"``: the argument's own name, then its value."""
        name = r"[ _-]?".join(map(re.escape, re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", line.name)))
        if name:
            found = re.search(
                rf"\b{name}\s*(?:(?::|=|\bis\b)\s*|(?=[\"“`]))(?:[\"“`]([^\"”`]+)[\"”`]|([^\s,;]+))",
                self.values.text,
                re.I,
            )
            if found:
                yield found[1] or found[2].rstrip(".!?")

    def _after(self, introduction: str) -> Iterator[str]:
        if found := re.search(rf"\b(?:{introduction})\s+(\S.*)", self.values.text, re.I | re.S):
            yield found[1].strip().strip("\"'“”`").rstrip(".!?")

    def _items(self) -> list[str]:
        named = [path for path in self.values.paths if path != "."] or list(self.values.quoted)
        return named or [token for token in self.values.tokens if re.fullmatch(r"[\w-]+(?:[./][\w-]+)+", token)]

    def _truth(self) -> bool | None:
        words = {token.lower() for token in self.values.tokens}
        no = words & {"no", "off", "not", "don't", "without", "unsubscribe", "disable", "false", "stop"}
        yes = words & {"yes", "on", "with", "subscribe", "enable", "true", "start"}
        return None if bool(no) == bool(yes) else bool(yes)
