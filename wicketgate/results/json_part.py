"""Parts of a JSON artifact: keys of an object, values at a path (S0 §4.2, DESIGN §3 "Results").

What is not asked for is never built: each step parses one level and keeps the rest as it came.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from wicketgate.errors import ViewFailed
from wicketgate.results.bulk import SLICE, characters
from wicketgate.results.envelope import shorten
from wicketgate.results.json_path import Index, Key, Slice, Step, is_definite, path_text
from wicketgate.results.view import MAX_VIEW_BYTES, MAX_VIEW_CHARS, View, decoded, sound

# Up to here JSON that only Python writes (NaN) is read too, at the price of a full parse.
_LENIENT_BYTES = 1 << 20
_MAX_TRIES = 8


@dataclass(frozen=True, slots=True)
class Page:
    """Values one a line. *cut* is the character at which the only one goes on, if it does not fit."""

    content: str
    taken: int
    looked_at: int
    cut: int | None = None


def json_keys(data: bytes, keys: list[str], start: int) -> View:
    members = _members(data)
    if members is None:
        return View("", 0, "keys", None)
    picked = [
        f"  {json.dumps(key, ensure_ascii=False)}: {_indented(bytes(members[key]))}"
        for key in dict.fromkeys(keys)
        if key in members
    ]
    text = sound("{\n" + ",\n".join(picked) + "\n}" if picked else "{}")
    end = start + MAX_VIEW_CHARS
    following = {"type": "json_keys", "keys": keys, "start": end} if end < len(text) else None
    return View(text[start:end], len(members), "keys", following)


def json_path(data: bytes, path: str, steps: Sequence[Step], start: int, offset: int) -> View:
    """Values from the *start*-th on, the first from its character *offset* on.

    A path without slices and wildcards names one value; raises ViewFailed, with what is there, if there is none.
    """
    values = _walk(data, steps)
    if is_definite(steps):
        one = next(values, None)
        if one is None:
            raise ViewFailed(_nothing_at(data, steps))
        values = iter((one,))
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
    """The elements of a JSON array, or of the only array in a JSON object (structured content is often an object)."""
    if _first(data) == b"{":
        members = _members(data) or {}
        arrays = [raw for value in members.values() if _first(raw := bytes(value)) == b"["]
        return _elements(arrays[0]) if len(arrays) == 1 else None
    return _elements(data) if _first(data) == b"[" else None


def paged_values(values: Iterator[bytes], offset: int) -> Page:
    """As many as fit into an answer; of one that is longer, its part from *offset* on."""
    given: list[str] = []
    room = MAX_VIEW_CHARS
    looked_at = 0
    for value in values:
        looked_at += 1
        text, length = characters(_one_line(value), offset, room)
        if offset + len(text) < length:
            if given:
                break
            return Page(text, 0, looked_at, offset + len(text))
        given.append(text)
        room -= len(text) + 1
        offset = 0
        if room <= 0:
            break
    return Page("\n".join(given), len(given), looked_at)


def _walk(data: bytes, steps: Sequence[Step]) -> Iterator[bytes]:
    """The values at the end of *steps*, in order, each as it came."""
    if not steps:
        yield data.strip() if len(data) < SLICE else data
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
    """How far the path leads, and what there is."""
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
        keys = ", ".join(shorten(sound(key), 40) for key in islice(members, 20))
        return f"an object of {len(members):,} keys" + (f": {keys}" if keys else "")
    if (elements := _elements(value)) is not None:
        return f"a list of {len(elements):,}"
    return f"the value {shorten(decoded(value[:200]).strip(), 60)}"


def _members(data: bytes) -> dict[str, Any] | None:
    members: dict[str, Any] | None = _top_level(data, dict[str, msgspec.Raw])
    return members


def _elements(data: bytes) -> list[Any] | None:
    if _first(data) != b"[":
        return None
    if len(data) > 2 * SLICE and (sliced := _sliced_elements(data)) is not None:
        return sliced
    elements: list[Any] | None = _top_level(data, list[msgspec.Raw])
    return elements


def _sliced_elements(data: bytes) -> list[Any] | None:
    """The elements of a large array, parsed in slices, so that other threads get their turn between them.

    A slice ends behind what may be the end of an element. It was one if the slice is a valid array by itself. None
    if the array is not made of like elements, or is not JSON at all.
    """
    position = data.index(b"[") + 1
    closing = {b"{": b"},", b"[": b"],", b'"': b'",'}.get(_first(data[position : position + SLICE]), b",")
    elements: list[Any] = []
    tries = 0
    edge = position + SLICE
    while (edge := data.find(closing, edge)) >= 0:
        edge += len(closing) - 1
        try:
            elements += msgspec.json.decode(b"[" + data[position:edge] + b"]", type=list[msgspec.Raw])
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            tries += 1
            if tries > _MAX_TRIES:
                return None
            edge += 1
            continue
        position = edge + 1
        edge = position + SLICE
        tries = 0
    try:
        return elements + msgspec.json.decode(b"[" + data[position:], type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _top_level(data: bytes, kind: Any) -> Any:
    """The members of a JSON object or array as raw JSON, or None when the data is something else."""
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
    """A value that was written over several lines, on one; a very large one as it came."""
    if len(value) > MAX_VIEW_BYTES or b"\n" not in value:
        return value
    try:
        return msgspec.json.format(value, indent=-1)
    except msgspec.MsgspecError:
        return value


def _indented(raw: bytes) -> str:
    """A member as ``json.dumps(..., indent=2)`` writes it one level down; a very large one as it came."""
    if len(raw) <= _LENIENT_BYTES:
        try:
            return json.dumps(json.loads(raw), indent=2, ensure_ascii=False).replace("\n", "\n  ")
        except (ValueError, RecursionError):
            pass
    return decoded(raw)
