"""Which part of an artifact ``tool_view`` shows (S0 §4.2, DESIGN §3 "Results").

Positions count from 0 and ends are exclusive. Every answer is bounded and says how to go on. Artifacts can be tens of
megabytes, so lines are found on the bytes and JSON is parsed no deeper than its top level.
"""

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from app.errors import ViewFailed
from app.results.envelope import shorten

MAX_VIEW_CHARS = 20_000
DEFAULT_HEAD_CHARS = 500
_MAX_KEYS = 100
_BLOCK_BYTES = 1 << 16
# A character of UTF-8 has at most four bytes.
_MAX_VIEW_BYTES = 4 * MAX_VIEW_CHARS
# Up to here JSON that only Python writes (NaN) is read too, at the price of a full parse.
_LENIENT_BYTES = 1 << 20

FORMS = (
    '{"type":"head","start":0,"chars":500}',
    '{"type":"lines","start":0,"end":50}',
    '{"type":"rows","start":0,"end":20}',
    '{"type":"json_keys","keys":["a","b"],"start":0}',
)
_FIELDS = {
    "head": {"start", "chars"},
    "lines": {"start", "end"},
    "rows": {"start", "end"},
    "json_keys": {"keys", "start"},
}


@dataclass(frozen=True, slots=True)
class View:
    """*content* has at most 20,000 characters of the *total* that there is, in *unit* (chars, lines, rows or keys).

    *next* is the selector that goes on where this answer ended, or None at the end.
    """

    content: str
    total: int
    unit: str
    next: dict[str, Any] | None


def select(data: bytes, media_type: str, selector: object) -> View:
    """The part of *data* that *selector* names. Raises ViewFailed, with the valid forms, for any other selector.

    ``head``: characters. ``lines``: whole lines. ``rows``: lines of a table, its first line (row 0) repeated on every
    later page; of a JSON array, its elements, one a line. ``json_keys``: these members of a JSON object, indented,
    where ``start`` is a character of that text; empty when the data is no JSON object.
    """
    if not isinstance(selector, Mapping):
        raise _refused("a selector is an object")
    kind = selector.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise _refused("unknown selector type")
    if unknown := [key for key in selector if key != "type" and key not in _FIELDS[kind]]:
        raise _refused(f"{kind} has no field {shorten(str(unknown[0]), 40)!r}")
    if not _is_text(data, media_type):
        raise ViewFailed(f"This artifact is {media_type}, {len(data):,} bytes: it has no text to view.")
    start = _count(selector, "start", 0)
    match kind:
        case "head":
            return _head(data, start, _count(selector, "chars", DEFAULT_HEAD_CHARS))
        case "lines":
            return _lines(data, start, _end(selector))
        case "rows":
            return _rows(data, start, _end(selector))
        case _:
            return _json_keys(data, _keys(selector), start)


def _head(data: bytes, start: int, chars: int) -> View:
    end = start + min(chars, MAX_VIEW_CHARS)
    if data.isascii():
        content, total = data[start:end].decode("ascii"), len(data)
    else:
        text = _decode(data)
        content, total = text[start:end], len(text)
    following = {"type": "head", "start": end, "chars": chars or DEFAULT_HEAD_CHARS}
    return View(content, total, "chars", following if end < total else None)


def _lines(data: bytes, start: int, end: int | None) -> View:
    total = _line_count(data)
    stop = total if end is None else min(end, total)
    content, reached, cut = _whole_lines(data, start, stop, MAX_VIEW_CHARS)
    if cut is not None:
        return View(content, total, "lines", {"type": "head", "start": cut, "chars": MAX_VIEW_CHARS})
    return View(content, total, "lines", _next_page("lines", start, end, stop, reached, total))


def _rows(data: bytes, start: int, end: int | None) -> View:
    elements = _elements(data)
    if elements is not None:
        return _json_rows(elements, start, end)
    total = _line_count(data)
    stop = total if end is None else min(end, total)
    header = ""
    if start > 0 and start < stop:
        header = _whole_lines(data, 0, 1, MAX_VIEW_CHARS // 2)[0] + "\n"
    content, reached, cut = _whole_lines(data, start, stop, MAX_VIEW_CHARS - len(header))
    if cut is not None:
        return View(header + content, total, "rows", {"type": "head", "start": cut, "chars": MAX_VIEW_CHARS})
    return View(header + content, total, "rows", _next_page("rows", start, end, stop, reached, total))


def _json_rows(elements: list[Any], start: int, end: int | None) -> View:
    """An element longer than a whole answer is cut, and says so by its ``…``; ``head`` reads it in full."""
    total = len(elements)
    stop = total if end is None else min(end, total)
    rows: list[str] = []
    room = MAX_VIEW_CHARS
    for element in elements[start:stop]:
        row = _sound(bytes(element)[: _MAX_VIEW_BYTES + 4].decode("utf-8", "replace"))
        if len(row) >= room:
            if not rows:
                rows.append(shorten(row, MAX_VIEW_CHARS))
            break
        rows.append(row)
        room -= len(row) + 1
    return View("\n".join(rows), total, "rows", _next_page("rows", start, end, stop, start + len(rows), total))


def _json_keys(data: bytes, keys: list[str], start: int) -> View:
    members = _top_level(data, dict[str, msgspec.Raw])
    if members is None:
        return View("", 0, "keys", None)
    picked = [
        f"  {json.dumps(key, ensure_ascii=False)}: {_indented(bytes(members[key]))}"
        for key in dict.fromkeys(keys)
        if key in members
    ]
    text = _sound("{\n" + ",\n".join(picked) + "\n}" if picked else "{}")
    end = start + MAX_VIEW_CHARS
    following = {"type": "json_keys", "keys": keys, "start": end} if end < len(text) else None
    return View(text[start:end], len(members), "keys", following)


def _indented(raw: bytes) -> str:
    """A member as ``json.dumps(..., indent=2)`` writes it one level down; a very large one as it came."""
    if len(raw) <= _LENIENT_BYTES:
        try:
            return json.dumps(json.loads(raw), indent=2, ensure_ascii=False).replace("\n", "\n  ")
        except (ValueError, RecursionError):
            pass
    return _decode(raw)


def _next_page(kind: str, start: int, end: int | None, stop: int, reached: int, total: int) -> dict[str, Any] | None:
    """Go on to where the caller wanted to get; once there, a page of the same size further."""
    if start >= total or (reached >= stop and stop >= total):
        return None
    if end is None:
        return {"type": kind, "start": reached}
    if reached < stop:
        return {"type": kind, "start": reached, "end": end}
    return {"type": kind, "start": max(stop, start), "end": max(stop, start) + max(end - start, 1)}


def _whole_lines(data: bytes, start: int, stop: int, room: int) -> tuple[str, int, int | None]:
    """Lines *start* to *stop* as far as they fit into *room* characters, and the first line left out.

    A line that does not fit even alone is cut; then the third value is the character at which it goes on.
    """
    if start >= stop:
        return "", max(start, stop), None
    begin = position = _line_start(data, start)
    reached = start
    length = 0
    for line_end in _line_ends(data, begin, stop - start):
        length += len(_decode(data[position : min(line_end, position + _MAX_VIEW_BYTES + 4)])) + (reached > start)
        if length > room:
            break
        position = line_end + 1
        reached += 1
    if reached > start:
        return _decode(data[begin : position - 1]), reached, None
    content = _decode(data[begin : begin + _MAX_VIEW_BYTES + 4])[:room]
    return content, start, len(_decode(data[:begin])) + room


def _line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def _line_start(data: bytes, line: int) -> int:
    """The byte at which *line*, which exists, begins; block-wise, because one find a line is slow over a million."""
    position = 0
    while line:
        block_end = position + _BLOCK_BYTES
        inside = data.count(b"\n", position, block_end)
        if inside < line:
            line -= inside
            position = block_end
            continue
        for _ in range(line):
            position = data.index(b"\n", position) + 1
        return position
    return position


def _line_ends(data: bytes, position: int, lines: int) -> Iterator[int]:
    for _ in range(lines):
        end = data.find(b"\n", position)
        if end < 0:
            yield len(data)
            return
        yield end
        position = end + 1


def _elements(data: bytes) -> list[Any] | None:
    """The elements of a JSON array, or of the only array in a JSON object (structured content is always an object)."""
    first = data[:_BLOCK_BYTES].lstrip()[:1]
    if first == b"{":
        members: dict[str, Any] = _top_level(data, dict[str, msgspec.Raw]) or {}
        arrays = [raw for value in members.values() if (raw := bytes(value)).lstrip()[:1] == b"["]
        if len(arrays) != 1:
            return None
        data = arrays[0]
    elif first != b"[":
        return None
    elements: list[Any] | None = _top_level(data, list[msgspec.Raw])
    return elements


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


def _is_text(data: bytes, media_type: str) -> bool:
    major, _, minor = media_type.partition(";")[0].strip().lower().partition("/")
    if major == "text" or minor == "json" or minor.endswith(("+json", "+xml")):
        return True
    if major in ("image", "audio", "video", "font"):
        return False
    # Whatever else is said about it, it is text if it begins as text.
    sample = data[:4096]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return b"\0" not in sample


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _sound(text: str) -> str:
    """A lone surrogate, which a JSON escape can bring in, could not be sent on."""
    return text.encode("utf-8", "replace").decode()


def _count(selector: Mapping[Any, Any], field: str, default: int) -> int:
    value = selector.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _refused(f"{field} must be an integer that is not negative")
    return value


def _end(selector: Mapping[Any, Any]) -> int | None:
    return _count(selector, "end", 0) if "end" in selector else None


def _keys(selector: Mapping[Any, Any]) -> list[str]:
    keys = selector.get("keys")
    if not isinstance(keys, list) or len(keys) > _MAX_KEYS or not all(isinstance(key, str) for key in keys):
        raise _refused(f"keys must be a list of at most {_MAX_KEYS} strings")
    return keys


def _refused(problem: str) -> ViewFailed:
    return ViewFailed(f"{problem}. Selectors: {', '.join(FORMS)}", details={"selectors": list(FORMS)})
