"""Reads YAML as JSON values by the core schema of YAML 1.2, from the parser's events (OPS-20).

PyYAML's C loader builds nodes by recursion in C, so a hundred thousand open brackets end the process. Reading its
events does not. They come from libyaml where PyYAML was built with it, as its wheels are. Only ``true`` and ``false``
are booleans; ``on``, ``no``, dates, infinity and NaN are text. Tags are ignored. ``<<`` merges as in YAML 1.1, because
people write it. Keys become text."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import yaml

_MAX_CHARS = 16 * 1024 * 1024
_MAX_DEPTH = 200
_MAX_EVENTS = 2_000_000
# Values that aliases repeat count each time, because a few lines can repeat a little very often.
_MAX_VALUES = 2_000_000
PARSER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(r"[-+]?[0-9]{1,300}")
_OTHER_BASE = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,300}|[0-9]{1,300}(?:\.[0-9]{0,300})?)(?:[eE][-+]?[0-9]{1,5})?")
_BEGINS_NUMBER = "+-.0123456789"
_WORDS: dict[str, Any] = {"~": None}
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

_TEXT_TAG = "tag:yaml.org,2002:str"
_NO_KEY = object()


class NotYaml(ValueError):
    """The text cannot be read, or exceeds the bounds. The message names line and column, and quotes nothing of the
    document but a repeated key."""

    def __init__(self, problem: str, mark: Any = None) -> None:
        super().__init__(f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem)


def read_yaml(text: str, *, strict: bool = False, parser: type[Any] = PARSER) -> Any:
    """Returns the first document in *text*, None for an empty one. Values that an alias repeats are shared.

    *strict* refuses constructs that a person cannot have meant: a key given twice, a tag, a second document. *parser*
    is a loader of PyYAML; from each come the same values (OPS-365). Raises NotYaml.
    """
    if len(text) > _MAX_CHARS:
        raise NotYaml(f"more than {_MAX_CHARS // 1024 // 1024} Mi characters")
    try:
        reading = parser(text)
        try:
            # As yaml.parse, which asks for each event twice.
            return _Builder(strict).build(iter(reading.get_event, None))
        finally:
            reading.dispose()
    except yaml.MarkedYAMLError as error:
        raise NotYaml(*_explained(error, text)) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = _Mark(before.count("\n"), len(before) - before.rfind("\n") - 1)
        raise NotYaml("not valid YAML: a control character", mark) from None
    except (yaml.YAMLError, UnicodeError):
        raise NotYaml("not valid YAML") from None


def write_yaml(value: Any) -> str:
    """Returns *value* as YAML that this reader and readers of version 1.1 read back unchanged."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**20)


class _Dumper(yaml.SafeDumper):
    """Quotes texts that either version reads as numbers."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"^(?:{_INTEGER.pattern}|{_OTHER_BASE.pattern}|{_FLOAT.pattern})$"), None
)


class _Mark(NamedTuple):
    line: int
    column: int


# By words of the parser, what is wrong and how to mend it.
_MENDS = (
    ("mapping values", "this line is not indented as the one before it, or that one lacks its ': '"),
    ("unknown escape", "in double quotes a backslash begins an escape; put the text in single quotes"),
    ("cannot start any token", "a text that begins with this character needs quotes"),
    ("alphabetic or numeric", "a text that begins with * or & needs quotes"),
    ("sequence entries", "a list cannot begin behind a key; begin it on the next line, or write [a, b]"),
    ("end of stream", "the quoted text that begins here does not end"),
    ("could not find expected ':'", "a key without ': '"),
    ("expected ','", "a comma is missing, or the bracket of line {begin} is not closed"),
    ("node content", "a value is missing, or a bracket is not closed"),
    ("expected key", "this line is not indented as those before it, or a quoted text has ended early"),
    ("expected '-'", "this line is not indented as the entries before it"),
    ("expected <block end>", "this line is not indented as those before it, or a quoted text has ended early"),
)
_AT_THE_BEGINNING = ("end of stream", "could not find expected ':'")


def _explained(error: yaml.MarkedYAMLError, text: str) -> tuple[str, Any]:
    """Returns the problem in words that quote nothing of the document, and its place."""
    problem, mark = error.problem or "", _in_text(error.problem_mark, text)
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "not valid YAML: a tab; indent with blanks only", mark
    if "mapping values" in problem and ": " in line[: mark.column]:
        return "not valid YAML: a second ': ' in one line; begin a new line below the key, or quote the text", mark
    for words, mend in _MENDS:
        if words in problem:
            if words in _AT_THE_BEGINNING and error.context_mark:
                mark = error.context_mark
            begin = error.context_mark.line + 1 if error.context_mark else 1
            return f"not valid YAML: {mend.format(begin=begin)}", mark
    return "not valid YAML", mark


def _in_text(mark: Any, text: str) -> Any:
    """Returns *mark* within *text*. The parser names a line after the last one when the end is missing."""
    lines = text.splitlines()
    return _Mark(len(lines) - 1, len(lines[-1])) if mark and lines and mark.line >= len(lines) else mark


class _Open:
    """A collection that is not complete: the key that waits for its value, the marks of its own keys, and the number of
    values so far."""

    __slots__ = ("anchor", "holder", "key", "merges", "own_keys", "values")

    def __init__(self, holder: Any, anchor: str | None) -> None:
        self.holder = holder
        self.anchor = anchor
        self.key: Any = _NO_KEY
        self.own_keys: dict[str, Any] = {}
        self.merges = False
        self.values = 1


class _Builder:
    def __init__(self, strict: bool) -> None:
        self._strict = strict
        # By anchor, the value and the number of values in it.
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._stack: list[_Open] = []
        self._root: Any = None
        self._documents = 0

    def build(self, events: Iterable[Any]) -> Any:
        stack, scalar = self._stack, yaml.ScalarEvent
        for number, event in enumerate(events):
            if number > _MAX_EVENTS or len(stack) > _MAX_DEPTH:
                raise NotYaml("too large or too deep", event.start_mark)
            # By type, the most frequent first: a list of ten thousand keys is more than a hundred thousand events.
            kind = type(event)
            values = 1
            if kind is scalar:
                value, anchor, tag = event.value, event.anchor, event.tag
                if tag is not None:
                    self._check_tag(event)
                if not event.style and tag != _TEXT_TAG:
                    value = _plain(value)
                if stack and anchor is None:
                    # Nearly every event is a key or a value of a mapping, so what ``_put`` does with one stands here.
                    into = stack[-1]
                    if into.key is not _NO_KEY and not into.merges:
                        into.holder[into.key], into.key = value, _NO_KEY
                        into.values += 1
                    elif (
                        type(into.holder) is dict
                        and type(value) is str
                        and value != "<<"
                        and value not in into.own_keys
                        and into.key is _NO_KEY
                    ):
                        into.own_keys[value] = event.start_mark
                        into.key = value
                        into.values += 1
                        into.merges = False
                    else:
                        self._put(into, value, 1, event)
                    continue  # the number of events bounds what was not counted
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._check_tag(event)
                stack.append(_Open({} if kind is yaml.MappingStartEvent else [], event.anchor))
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                done = stack.pop()
                value, anchor, values = done.holder, done.anchor, done.values
            elif kind is yaml.AliasEvent:
                (value, values), anchor = self._meant(event), None
            elif kind is yaml.DocumentStartEvent and self._is_second(event):
                break
            else:
                continue
            # The value is complete: keep it under its anchor, and put it where it belongs.
            if anchor is not None:
                self._anchors[anchor] = (value, values)
            if stack:
                self._put(stack[-1], value, values, event)
            else:
                self._root = value
        return self._root

    def _is_second(self, document: Any) -> bool:
        self._documents += 1
        if self._documents > 1:
            self._refuse_if_strict("a second document", document)
        return self._documents > 1

    def _meant(self, alias: Any) -> tuple[Any, int]:
        # An anchor is known only when its value is complete, so that no value can hold itself.
        if alias.anchor not in self._anchors:
            raise NotYaml("an alias of nothing", alias.start_mark)
        return self._anchors[alias.anchor]

    def _put(self, into: _Open, value: Any, values: int, event: Any) -> None:
        # A collection holds as many values as its members together.
        into.values += values
        if into.values > _MAX_VALUES:
            raise NotYaml(f"more than {_MAX_VALUES:,} values", event.start_mark)
        key = into.key
        if key is _NO_KEY:
            if type(into.holder) is list:
                into.holder.append(value)
            else:
                self._put_key(into, value, event)
            return
        into.key = _NO_KEY
        if into.merges and isinstance(value, dict | list):
            for merged in value if isinstance(value, list) else [value]:
                if isinstance(merged, dict):
                    into.holder.update({name: each for name, each in merged.items() if name not in into.holder})
        else:
            into.holder[key] = value

    def _put_key(self, into: _Open, value: Any, event: Any) -> None:
        if type(value) is not str:
            if isinstance(value, dict | list):
                raise NotYaml("a key that is not a single value", event.start_mark)
            value = _key(value)
        into.key = value
        if value in into.own_keys:
            mend = "; put what stands under both under that one" if len(self._stack) == 1 else "; keep one of them"
            line = into.own_keys[value].line + 1
            self._refuse_if_strict(f"the key {value!r} is given twice: line {line} has it too{mend}", event)
        into.own_keys[value] = event.start_mark
        # A quoted "<<" is a key like any other.
        into.merges = value == "<<" and not getattr(event, "style", None)

    def _check_tag(self, event: Any) -> None:
        if event.tag not in (None, "!", _TEXT_TAG):
            self._refuse_if_strict("tags such as '!name' are not read", event)

    def _refuse_if_strict(self, problem: str, event: Any) -> None:
        if self._strict:
            raise NotYaml(problem, event.start_mark)


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _plain(text: str) -> Any:
    """Returns the value of a scalar without quotes."""
    if text[:1] not in _BEGINS_NUMBER:
        return _WORDS.get(text, text)
    if not text:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text
