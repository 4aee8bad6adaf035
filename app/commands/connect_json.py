"""Puts one member into a JSON file that a person keeps, and leaves every other byte as it is (OPS-72).

The file may hold comments and trailing commas, as editors allow them. They are blanked out by spaces of the same
length, so positions in what the parser reads are positions in the file. What comes out is read again: if anything but
the wanted member differs, the edit is refused.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# No step back inside a string, and one that does not end takes the rest: the time is linear in the text.
_STRING = r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
_COMMENT = re.compile(rf"{_STRING}|(?P<comment>//[^\n\r]*|/\*(?:.*?\*/|(?P<open>.*+)))", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|(?P<comma>,)(?=\s*[}}\]])", re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_LINE_SPACE = re.compile(r"[ \t]*")


class NotEditable(Exception):
    """The file cannot be read, or cannot be changed in one place only. The text gives the reason, with the line."""


def read_json(text: str) -> Any:
    """Reads JSON with comments and trailing commas; None for a text without a value. Raises NotEditable."""
    try:
        return json.loads(text)  # a large file is most often plain, and the passes below take far longer
    except (ValueError, RecursionError):
        return _parse(_without_comments(text))


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """Sets the member at *path*, and makes the objects that lead to it. Raises NotEditable."""
    root = read_json(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if root is None:
        before = text if text.strip() else ""
        before += "" if not before or before.endswith("\n") else newline
        return before + _render(_nested(path, value), "", "  ", newline) + newline
    if not isinstance(root, dict):
        raise NotEditable("it holds no object")
    inner: Any = (expected := root)
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise NotEditable(f"{key} is not an object")
    inner[path[-1]] = value

    document = _Document(text)
    place = document.root()
    for depth, key in enumerate(path):
        spans = [member for member in document.members(place) if member.key == key]
        if len(spans) > 1:
            raise NotEditable(f"line {_line(text, spans[1].start)}: {key} is given twice")
        if not spans:
            done = document.insert(place, path[depth], _nested(path[depth + 1 :], value))
            break
        if depth == len(path) - 1:
            done = document.replace(spans[0], value)
            break
        place = spans[0].value
    return _checked(done, expected)


def append_item(text: str, key: str, item: Any) -> str:
    """Appends *item* to the list under *key* of the whole, or makes that list. Raises NotEditable."""
    root = read_json(text)
    if not isinstance(root, dict) or key not in root:
        return set_member(text, [key], [item])
    if not isinstance(root[key], list):
        raise NotEditable(f"{key} is not a list")
    document = _Document(text)
    spans = [member for member in document.members(document.root()) if member.key == key]
    if len(spans) > 1:
        raise NotEditable(f"line {_line(text, spans[1].start)}: {key} is given twice")
    root[key].append(item)
    return _checked(document.insert(spans[0].value, None, item), root)


def render_json(value: Any) -> str:
    """Returns *value* as people write it: two spaces, lists of single values on one line."""
    return _render(value, "", "  ", "\n")


@dataclass(frozen=True, slots=True)
class _Member:
    """*start* is that of the key, or of an item; *value* and *end* enclose the value."""

    key: str | None
    start: int
    value: int
    end: int


class _Document:
    """A text that is known to be valid, with the positions of its parts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._commas, self._plain = _blanked(text)
        self._decoder = json.JSONDecoder()
        self._members: dict[int, list[_Member]] = {}
        self._newline = "\r\n" if "\r\n" in text else "\n"
        first = next(iter(self.members(self.root())), None)
        own = self._indent_of(first.start) if first else ""
        self._unit = own or "  "

    def root(self) -> int:
        return self._skip(0)

    def members(self, at: int) -> list[_Member]:
        """The members of the object, or items of the list, that begins at *at*."""
        if at not in self._members:
            self._members[at] = self._read_members(at)
        return self._members[at]

    def _read_members(self, at: int) -> list[_Member]:
        closing = "}" if self._plain[at] == "{" else "]"
        found: list[_Member] = []
        at = self._skip(at + 1)
        while self._plain[at] != closing:
            start, key = at, None
            if closing == "}":
                key, at = self._decoder.raw_decode(self._plain, at)
                at = self._skip(self._skip(at) + 1)
            _, end = self._decoder.raw_decode(self._plain, at)
            found.append(_Member(key, start, at, end))
            at = self._skip(end)
            if self._plain[at] == ",":
                at = self._skip(at + 1)
        return found

    def replace(self, member: _Member, value: Any) -> str:
        indent = self._indent_of(member.start)
        written = _on_one_line(value) if indent is None else _render(value, indent, self._unit, self._newline)
        return self._text[: member.value] + written + self._text[member.end :]

    def insert(self, at: int, key: str | None, value: Any) -> str:
        """Inserts after the last part of the object or list that begins at *at*."""
        name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
        members = self.members(at)
        if members and (indent := self._indent_of(members[-1].start)) is not None:
            written = self._newline + indent + name + _render(value, indent, self._unit, self._newline)
            return self._after(members[-1].end, written)
        if members:
            return self._after(members[-1].end, f" {name}{_on_one_line(value)}")
        # Nothing but space and comments in it.
        outer = self._line_indent(at)
        indent = outer + self._unit
        closing = self._skip(at + 1)
        inside = self._text[at + 1 : closing].rstrip(" \t\r\n")
        here = at + 1 + len(inside)
        written = self._newline + indent + name + _render(value, indent, self._unit, self._newline)
        if "\n" not in self._text[here:closing]:
            written += self._newline + outer
        return self._text[:here] + written + self._text[here:]

    def _after(self, end: int, written: str) -> str:
        """Puts *written* behind the part that ends at *end*, its comma, and the comment on its line."""
        comma = self._skip_in(self._commas, end)
        has_comma = self._commas[comma] == ","
        after = comma + 1 if has_comma else end
        if written.startswith(("\r", "\n")):
            after = self._after_comments(after)
        return self._text[:end] + ("" if has_comma else ",") + self._text[end:after] + written + self._text[after:]

    def _after_comments(self, at: int) -> int:
        """The end of the comments that follow on the same line: they belong to the part before them."""
        here = at
        while (space := _LINE_SPACE.match(self._text, here)) and (comment := _COMMENT.match(self._text, space.end())):
            if comment["comment"] is None or "\n" in comment.group():
                break
            at = here = comment.end()
        return at

    def _skip(self, at: int) -> int:
        return self._skip_in(self._plain, at)

    def _skip_in(self, text: str, at: int) -> int:
        match = _SPACE.match(text, at)
        assert match is not None
        return match.end()

    def _indent_of(self, at: int) -> str | None:
        """The indentation of the line, if nothing stands on it before *at*."""
        start = max(self._text.rfind("\n", 0, at), self._text.rfind("\r", 0, at)) + 1
        before = self._text[start:at]
        return before if start and not before.strip(" \t") else None

    def _line_indent(self, at: int) -> str:
        start = max(self._text.rfind("\n", 0, at), self._text.rfind("\r", 0, at)) + 1
        match = _LINE_SPACE.match(self._text, start)
        return match.group() if match else ""


def _checked(text: str, expected: Any) -> str:
    """Returns *text* if it reads as *expected*, in the same order."""
    try:
        same = json.dumps(read_json(text)) == json.dumps(expected)
    except NotEditable:
        same = False
    if not same:
        raise NotEditable("it cannot be changed in one place only")
    return text


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _blanked(text: str) -> tuple[str, str]:
    """Returns *text* without comments, and without trailing commas too. Plain JSON is returned as it is."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        commented = _without_comments(text)
        return commented, _without_trailing_commas(commented)
    return text, text


def _without_comments(text: str) -> str:
    def blank(match: re.Match[str]) -> str:
        if match["open"] is not None:
            raise NotEditable(f"line {_line(text, match.start())}: a comment that does not end")
        comment = match["comment"]
        return match.group() if comment is None else re.sub(r"[^\r\n]", " ", comment)

    return _COMMENT.sub(blank, text)


def _without_trailing_commas(text: str) -> str:
    return _TRAILING_COMMA.sub(lambda match: " " if match["comma"] else match.group(), text)


def _parse(commented: str) -> Any:
    plain = _without_trailing_commas(commented)
    if not plain.strip():
        return None
    try:
        return json.loads(plain)
    except json.JSONDecodeError as error:
        raise NotEditable(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise NotEditable("it cannot be read as JSON") from None


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _on_one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _render(value: Any, indent: str, unit: str, newline: str) -> str:
    inner = indent + unit
    if isinstance(value, Mapping) and value:
        members = (
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_render(each, inner, unit, newline)}"
            for key, each in value.items()
        )
        return "{" + newline + f",{newline}".join(members) + newline + indent + "}"
    nested = isinstance(value, list) and any(isinstance(each, Mapping | list) for each in value)
    if nested:
        items = (inner + _render(each, inner, unit, newline) for each in value)
        return "[" + newline + f",{newline}".join(items) + newline + indent + "]"
    return _on_one_line(value)
