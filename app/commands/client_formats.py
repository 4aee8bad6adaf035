"""Reads the formats of clients' files, and sets one entry while every other byte stays (OPS-72).

JSON may hold comments and trailing commas, as editors allow them. They are blanked out by spaces of the same length, so
positions in what the parser reads are positions in the file. What comes out is read again: if anything but the wanted
entry differs, the edit is refused.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

from wicketgate.yaml_text import NotYaml, read_yaml

# No step back inside a string, and one that does not end takes the rest: the time is linear in the text.
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
_COMMENT = re.compile(rf"{_STRING}|(?P<comment>//[^\n\r]*|/\*(?:.*?\*/|(?P<open>.*+)))", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|(?P<comma>,)(?=\s*[}}\]])", re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)
# tomllib takes quadratic time for a name of many parts.
_MANY_PARTS = re.compile(r"""(?<![\w"'.-])(?:["']?[\w-]{1,100}["']?[ \t]{0,8}\.[ \t]{0,8}){64}""")
_MAX_ERROR_CHARS = 300


class FormatError(Exception):
    """The text cannot be read, or cannot be changed in one place only. The message follows the name of a file."""


def read_format(form: str, text: str, twice: list[str] | None = None) -> Any:
    """Reads *text* as ``json``, ``toml`` or ``yaml``; None if it holds no value. Raises FormatError.

    JSON may have comments and trailing commas. *twice* gets the names that one object of JSON has twice.
    """
    try:
        match form:
            case "toml" if _MANY_PARTS.search(text):
                raise FormatError("has a name of more than 64 parts")
            case "toml":
                return tomllib.loads(text)
            case "yaml":
                return read_yaml(text)
        if not (plain := _plain(text)).strip():
            return None
        return json.loads(plain, object_pairs_hook=partial(_unique, [] if twice is None else twice))
    except json.JSONDecodeError as error:
        raise FormatError(f"is not JSON: line {error.lineno}: {error.msg}") from None
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"is not TOML: {str(error)[:_MAX_ERROR_CHARS]}") from None
    except NotYaml as error:
        raise FormatError(f"cannot be read as YAML: {error}") from None
    except (ValueError, RecursionError):
        raise FormatError(f"cannot be read as {form.upper()}") from None


def _unique(twice: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(made := dict(pairs)) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice.extend(name for name in sorted(made) if counts[name] > 1)
    return made


def set_entry(form: str, text: str, path: Sequence[str], value: Any) -> str:
    """Sets the value at *path* of JSON or TOML, and makes the objects that lead to it. Raises FormatError."""
    root = read_format(form, text)
    if root is not None and not isinstance(root, dict):
        raise FormatError("holds no object")
    expected = deepcopy(root or {})
    inner = expected
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise FormatError(f"cannot be changed: {key} is not {'a table' if form == 'toml' else 'an object'}")
    is_there = path[-1] in inner
    inner[path[-1]] = value
    done = _set_toml(text, path, value, is_there) if form == "toml" else _set_json(text, path, value, root)
    return _checked(form, done, expected)


def add_json_item(text: str, key: str, item: Any) -> str:
    """Puts *item* into the list under *key*, or makes that list. Raises FormatError."""
    root = read_format("json", text)
    if not isinstance(root, dict) or key not in root:
        return _set_json(text, [key], [item], root)
    if not isinstance(root[key], list):
        raise FormatError(f"cannot be changed: {key} is not a list")
    document = _Json(text)
    done = document.insert(document.member(document.skip(0), key)[1], "", item)
    return _checked("json", done, {**root, key: [item, *root[key]]})


def _checked(form: str, text: str, expected: Any) -> str:
    """Returns *text* if it reads as *expected*."""
    same = False
    with suppress(FormatError):
        read, wanted = (json.dumps(each, default=str, sort_keys=True) for each in (read_format(form, text), expected))
        same = read == wanted
    if not same:
        raise FormatError("cannot be changed in one place only")
    return text


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# JSON


def _set_json(text: str, path: Sequence[str], value: Any, root: Any) -> str:
    if root is None:
        before = text if text.strip() else ""
        before += "" if not before or before.endswith("\n") else _newline(text)
        return before + _render(nested(path, value), "", "  ", _newline(text)) + _newline(text)
    document = _Json(text)
    at = document.skip(0)
    for depth, key in enumerate(path):
        start, inner, end = document.member(at, key)
        if not end:
            return document.insert(at, f"{_on_one_line(key)}: ", nested(path[depth + 1 :], value))
        at = inner
    indent = document.indent_of(start)
    written = _on_one_line(value) if indent is None else _render(value, indent, document.unit, _newline(text))
    return text[:at] + written + text[end:]


class _Member(NamedTuple):
    """*start* is that of the key; *value* and *end* enclose the value. All are 0 if there is no such member."""

    start: int = 0
    value: int = 0
    end: int = 0


class _Json:
    """A text that is known to be valid, with the positions of its parts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._plain = _plain(text)
        self._decode = json.JSONDecoder().raw_decode
        first = self.skip(self.skip(0) + 1)
        self.unit = (self.indent_of(first) if self._plain[first] == '"' else "") or "  "

    def skip(self, at: int) -> int:
        """Returns the position of the first character from *at* on that is no space and in no comment."""
        match = _SPACE.match(self._plain, at)
        assert match is not None
        return match.end()

    def member(self, at: int, wanted: str) -> _Member:
        """Returns the member of the object that begins at *at*. Raises FormatError if there are two."""
        found = _Member()
        at = self.skip(at + 1)
        while self._plain[at] != "}":
            start = at
            key, at = self._decode(self._plain, at)
            value = self.skip(self.skip(at) + 1)
            _, end = self._decode(self._plain, value)
            if key == wanted and found.end:
                line = self._text.count("\n", 0, start) + 1
                raise FormatError(f"cannot be changed: line {line}: {key} is given twice")
            found = _Member(start, value, end) if key == wanted else found
            at = self.skip(end)
            at = self.skip(at + 1) if self._plain[at] == "," else at
        return found

    def insert(self, at: int, name: str, value: Any) -> str:
        """Inserts the first part of the object or list that begins at *at*. *name* ends with a colon, or is empty."""
        newline, first = _newline(self._text), self.skip(at + 1)
        is_empty = self._plain[first] in "}]"
        indent = self._line_indent(at) + self.unit if is_empty else self.indent_of(first)
        if indent is None:
            written = f"{name}{_on_one_line(value)}," + ("" if self._text[at + 1].isspace() else " ")
        else:
            written = newline + indent + name + _render(value, indent, self.unit, newline) + ("" if is_empty else ",")
            if is_empty and "\n" not in self._text[at:first]:
                written += newline + self._line_indent(at)
        return self._text[: at + 1] + written + self._text[at + 1 :]

    def indent_of(self, at: int) -> str | None:
        """Returns the indentation of the line, or None if *at* is not the first on a line of its own."""
        start = self._text.rfind("\n", 0, at) + 1
        before = self._text[start:at]
        return before if start and not before.strip(" \t") else None

    def _line_indent(self, at: int) -> str:
        line = self._text[self._text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip(" \t"))]


def _plain(text: str) -> str:
    """Returns *text* with spaces in place of comments and trailing commas. Raises FormatError."""
    with suppress(ValueError, RecursionError):
        json.loads(text)  # a large file is most often plain, and the passes below take far longer
        return text

    def blank(match: re.Match[str]) -> str:
        if match["open"] is not None:
            line = text.count("\n", 0, match.start()) + 1
            raise FormatError(f"is not JSON: line {line}: a comment that does not end")
        return match.group() if match["comment"] is None else re.sub(r"[^\r\n]", " ", match["comment"])

    return _TRAILING_COMMA.sub(lambda match: " " if match["comma"] else match.group(), _COMMENT.sub(blank, text))


def nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _on_one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _render(value: Any, indent: str, unit: str, newline: str) -> str:
    """Returns *value* as people write it: lists of single values are on one line."""
    inner = indent + unit
    if isinstance(value, Mapping) and value:
        parts = [f"{_on_one_line(key)}: {_render(each, inner, unit, newline)}" for key, each in value.items()]
        left, right = "{}"
    elif isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value):
        parts, (left, right) = [_render(each, inner, unit, newline) for each in value], "[]"
    else:
        return _on_one_line(value)
    return f"{left}{newline}{inner}" + f",{newline}{inner}".join(parts) + f"{newline}{indent}{right}"


# TOML


def _set_toml(text: str, path: Sequence[str], table: Mapping[str, Any], is_there: bool) -> str:
    """A new table goes to the end of the file. One that is there is replaced if it has a header of its own."""
    import tomlkit  # here, because every command imports this module

    newline = _newline(text)
    written = tomlkit.dumps(nested(path, dict(table))).replace("\n", newline)
    if is_there:
        start, end = _toml_span(text, path)
        return text[:start] + written + text[end:]
    gap = "" if not text or text.endswith(newline * 2) else newline if text.endswith("\n") else newline * 2
    return text + gap + written


def _toml_span(text: str, path: Sequence[str]) -> tuple[int, int]:
    """Returns start and end of the table and the tables in it."""
    keys = r"\s*\.\s*".join(rf"(?:{re.escape(key)}|\"{re.escape(key)}\"|'{re.escape(key)}')" for key in path)
    ours = re.compile(rf"[ \t]*\[\s*{keys}\s*[\].]")
    headers = [*_toml_headers(text), len(text)]
    numbers = [number for number, at in enumerate(headers[:-1]) if ours.match(text, at)]
    if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise FormatError(f"cannot be changed: {'.'.join(path)} has no header of its own")
    start, end = headers[numbers[0]], headers[numbers[-1] + 1]
    # An empty line or a comment before the next header belongs to that header.
    lines = text[start:end].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        end -= len(lines.pop())
    return start, end


def _toml_headers(text: str) -> Iterator[int]:
    """Yields the positions of headers: lines that begin with a bracket, if the text before is complete by itself."""
    for match in _HEADER.finditer(text):
        with suppress(tomllib.TOMLDecodeError):
            tomllib.loads(text[: match.start()])
            yield match.start()
