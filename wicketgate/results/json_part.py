"""Parts of a JSON artifact: members of an object, values at a path (EXEC-33, EXEC-36).

A path has members, indexes, slices and ``*``, a part of RFC 9535. Filters, functions and recursive descent are left
out: they cost more than they give, and ``grep`` finds deep values. Each step parses one level only and keeps the values
below as raw JSON.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from wicketgate.errors import ViewFailed
from wicketgate.results.bulk import characters
from wicketgate.results.envelope import shorten
from wicketgate.results.view import MAX_VIEW_BYTES, MAX_VIEW_CHARS, View, decode_text, without_surrogates

EXAMPLE = '{"type":"json_path","path":"$.a[0].b"}'
HELP = "A path is $ and then steps: .name, ['any name'], [0], [-1], [0:10], [*] or .*"

_MAX_PATH_CHARS = 500
_MAX_STEPS = 50
# The group that matched last says which kind of step it is.
_STEP = re.compile(
    r"""\.(?:(?P<all>\*)|(?P<name>[^\s.\[\]'"*?@()$]+))"""
    r"""|\[\s*(?:(?P<every>\*)|(?P<index>-?\d{1,15})|(?P<start>-?\d{0,15})\s*:\s*(?P<end>-?\d{0,15})"""
    r"""|'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)")\s*\]"""
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Key:
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """A negative *number* counts from the end."""

    number: int


@dataclass(frozen=True, slots=True)
class Slice:
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class Every:
    """All members, or all elements."""


Step = Key | Index | Slice | Every


def parse_json_path(path: object) -> tuple[Step, ...]:
    """Reads the steps of *path*. Raises ViewFailed, whose text explains the valid steps."""
    if not isinstance(path, str) or not path.startswith("$") or len(path) > _MAX_PATH_CHARS:
        raise ViewFailed(f"path must be a string that begins with $, of at most {_MAX_PATH_CHARS} characters. {HELP}")
    # Each step begins where the last one ends.
    steps: list[Step] = []
    position = 1
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None or len(steps) == _MAX_STEPS:
            raise ViewFailed(f"path cannot be read from {shorten(path[position:], 40)!r} on. {HELP}")
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def is_definite(steps: Sequence[Step]) -> bool:
    """Returns true if the path leads to one value at most."""
    return all(isinstance(step, Key | Index) for step in steps)


def path_text(steps: Sequence[Step]) -> str:
    return "$" + "".join(map(_text, steps))


def _step(found: re.Match[str]) -> Step:
    match found.lastgroup:
        case "all" | "every":
            return Every()
        case "name":
            return Key(found["name"])
        case "index":
            return Index(int(found["index"]))
        case "single" | "double" as quoted:
            return Key(_unescaped(found[quoted]))
        case _:
            return Slice(_number(found["start"]), _number(found["end"]))


def _unescaped(name: str) -> str:
    """Reads the escapes of JSON; within single quotes a double quote needs none."""
    as_json = re.sub(r"\\.|\"", lambda each: {"\\'": "'", '"': '\\"'}.get(each[0], each[0]), name)
    try:
        return str(json.loads(f'"{as_json}"', strict=False))
    except ValueError:
        raise ViewFailed(f"path has a name that cannot be read: {shorten(name, 40)!r}. {HELP}") from None


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-") else None


def _text(step: Step) -> str:
    match step:
        case Key(name):
            return f".{name}" if _PLAIN.fullmatch(name) else f"[{json.dumps(name, ensure_ascii=False)}]"
        case Index(number):
            return f"[{number}]"
        case Slice(start, end):
            return f"[{'' if start is None else start}:{'' if end is None else end}]"
        case _:
            return "[*]"


# Up to this size JSON as only Python writes it (NaN) is read too, by a full parse.
_LENIENT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ValuePage:
    """Values, one a line. *cut* is the character at which the only value goes on, if it does not fit."""

    content: str
    taken: int
    looked_at: int
    cut: int | None = None


def json_keys(data: bytes, keys: list[str], start: int) -> View:
    """Shows these members of an object as indented JSON, from its character *start* on. Raises ViewFailed for other
    data."""
    members = _members(data)
    if members is None:
        raise ViewFailed("The artifact is not a JSON object. Read it with head, lines, rows, json_path or grep.")
    picked = [
        f"  {json.dumps(key, ensure_ascii=False)}: {_indented(bytes(members[key]))}"
        for key in dict.fromkeys(keys)
        if key in members
    ]
    text = without_surrogates("{\n" + ",\n".join(picked) + "\n}" if picked else "{}")
    end = start + MAX_VIEW_CHARS
    following = {"type": "json_keys", "keys": keys, "start": end} if end < len(text) else None
    return View(text[start:end], len(members), "keys", following)


def json_path(data: bytes, path: str, steps: Sequence[Step], start: int, offset: int) -> View:
    """Shows values from the *start*-th on, the first from its character *offset* on.

    A path without slices and wildcards names one value. If there is none, raises ViewFailed, whose text says how far
    the path leads.
    """
    # A path to one value has to lead somewhere; a path to several may find none.
    values = _walk(data, steps)
    if is_definite(steps):
        one = next(values, None)
        if one is None:
            raise ViewFailed(_nothing_at(data, steps))
        values = iter((one,))
    # The page, between the values before it and those behind, which are only counted.
    skipped = sum(1 for _ in islice(values, start))
    page = paged_values(values, offset)
    total = skipped + page.looked_at + sum(1 for _ in values)
    following: dict[str, Any] | None = None
    if page.cut is not None:
        following = {"type": "json_path", "path": path, "start": start, "offset": page.cut}
    elif start + page.taken < total:
        following = {"type": "json_path", "path": path, "start": start + page.taken}
    return View(page.content, total, "values", following)


def elements_of(data: bytes) -> Sequence[Any] | None:
    """Returns the elements of a JSON array, or of the only array in a JSON object, as structured content often is."""
    if _first(data) == b"{":
        members = _members(data) or {}
        arrays = [raw for value in members.values() if _first(raw := bytes(value)) == b"["]
        return _elements(arrays[0]) if len(arrays) == 1 else None
    return _elements(data) if _first(data) == b"[" else None


def paged_values(values: Iterator[bytes], offset: int) -> ValuePage:
    """Takes as many values as fit into a view; of one that is longer, the part from *offset* on."""
    given: list[str] = []
    room = MAX_VIEW_CHARS
    looked_at = 0
    for value in values:
        looked_at += 1
        # A value that does not fit goes onto the next page, or is cut if it is the only one.
        text, length = characters(_one_line(value), offset, room)
        if offset + len(text) < length:
            if given:
                break
            return ValuePage(text, 0, looked_at, offset + len(text))
        given.append(text)
        room -= len(text) + 1
        offset = 0
        if room <= 0:
            break
    return ValuePage("\n".join(given), len(given), looked_at)


def _walk(data: bytes, steps: Sequence[Step]) -> Iterator[bytes]:
    """Yields the values at the end of *steps*, in order, as raw JSON."""
    if not steps:
        yield data.strip()
        return
    step, rest = steps[0], steps[1:]
    match step:
        case Key(name):
            members = _members(data) if _first(data) == b"{" else None
            if members and name in members:
                yield from _walk(bytes(members[name]), rest)
        case Index(number):
            elements = _elements(data) or ()
            if -len(elements) <= number < len(elements):
                yield from _walk(bytes(elements[number]), rest)
        case Slice(start, end):
            for element in (_elements(data) or ())[start:end]:
                yield from _walk(bytes(element), rest)
        case _:
            every: Any = (_members(data) or {}).values() if _first(data) == b"{" else _elements(data) or ()
            for each in every:
                yield from _walk(bytes(each), rest)


def _nothing_at(data: bytes, steps: Sequence[Step]) -> str:
    """Says how far the path leads, and which value is there."""
    if _first(data) in (b"{", b"["):
        reached = 0
        value = data
        while (found := next(_walk(value, steps[reached : reached + 1]), None)) is not None:
            value = found
            reached += 1
        there = f"{shorten(path_text(steps[:reached]), 200)} is {_described(value)}"
        return f"Nothing at {shorten(path_text(steps), 200)}: {there}."
    return "This artifact is no JSON, so it has no paths; use head, lines, rows or grep."


def _described(value: bytes) -> str:
    if _first(value) == b"{" and (members := _members(value)) is not None:
        keys = ", ".join(shorten(without_surrogates(key), 40) for key in islice(members, 20))
        return f"an object of {len(members):,} keys" + (f": {keys}" if keys else "")
    if (elements := _elements(value)) is not None:
        return f"a list of {len(elements):,}"
    return f"the value {shorten(decode_text(value[:200]).strip(), 60)}"


def _members(data: bytes) -> dict[str, Any] | None:
    members: dict[str, Any] | None = _top_level(data, dict[str, msgspec.Raw])
    return members


def _elements(data: bytes) -> list[Any] | None:
    if _first(data) != b"[":
        return None
    elements: list[Any] | None = _top_level(data, list[msgspec.Raw])
    return elements


def _top_level(data: bytes, kind: Any) -> Any:
    """Returns the members of a JSON object or array as raw JSON; None for any other data."""
    # msgspec leaves each member as its bytes.
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    if len(data) > _LENIENT_BYTES:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if kind is list[msgspec.Raw]:
        return [json.dumps(each).encode() for each in value] if isinstance(value, list) else None
    return {key: json.dumps(each).encode() for key, each in value.items()} if isinstance(value, dict) else None


def _first(data: bytes) -> bytes:
    return data[:1] if data[:1] > b" " else data[:4096].lstrip()[:1]


def _one_line(value: bytes) -> bytes:
    """Writes a value on one line; a very large one stays as it came."""
    if len(value) > MAX_VIEW_BYTES or b"\n" not in value:
        return value
    try:
        return msgspec.json.format(value, indent=-1)
    except msgspec.MsgspecError:
        return value


def _indented(raw: bytes) -> str:
    """Writes a member as ``json.dumps(..., indent=2)`` does one level down; a very large one stays as it came."""
    if len(raw) <= _LENIENT_BYTES:
        try:
            return json.dumps(json.loads(raw), indent=2, ensure_ascii=False).replace("\n", "\n  ")
        except (ValueError, RecursionError):
            pass
    return decode_text(raw)
