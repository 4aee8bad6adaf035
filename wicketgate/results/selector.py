"""Selectors: the part of an artifact that ``tool_view`` shows (EXEC-33).

Positions count from 0, and ends are exclusive. Every view is bounded and holds the selector that goes on.

Rows of a table are lines of CSV, each answer with the header, which is no row, or elements of a JSON array. Rows can be
asked of any text, so quotes mean nothing: a line break inside a quoted field ends a row.
"""

import codecs
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from wicketgate.errors import ViewFailed
from wicketgate.results.bulk import characters
from wicketgate.results.envelope import shorten
from wicketgate.results.json_part import EXAMPLE, elements_of, json_keys, json_path, paged_values, parse_json_path
from wicketgate.results.view import (
    MAX_CONTEXT_LINES,
    MAX_PATTERN_CHARS,
    MAX_VIEW_CHARS,
    MediaPart,
    View,
    grep,
    line_count,
    line_ends,
    line_start,
    lines,
    next_page,
    whole_units,
)


def rows(data: bytes, start: int, end: int | None, offset: int) -> View:
    """Shows rows *start* to *end*. *offset* skips characters of the first one if it is an element of an array."""
    elements = elements_of(data)
    if elements is not None:
        return _json_rows(elements, start, end, offset)
    # The header is no row. Records of JSON Lines name their own fields.
    first = int(data[:1] not in (b"", b"{", b"["))
    header, _, cut = whole_units(data, 0, line_ends(data, 0, first), MAX_VIEW_CHARS // 2)
    total = line_count(data) - first
    if cut is not None and start == 0:
        return View(header, total, "rows", {"type": "head", "start": cut, "chars": MAX_VIEW_CHARS})
    # The page, in rows.
    stop = total if end is None else min(end, total)
    if start >= stop:
        content = "" if total or start else header
        return View(content, total, "rows", next_page("rows", start, end, stop, max(start, stop), total))
    header += "\n" * first
    # As many whole rows as fit beside it.
    begin = line_start(data, start + first)
    ends = line_ends(data, begin, stop - start)
    content, taken, cut = whole_units(data, begin, ends, MAX_VIEW_CHARS - len(header))
    if cut is not None:
        return View(header + content, total, "rows", {"type": "head", "start": cut, "chars": MAX_VIEW_CHARS})
    return View(header + content, total, "rows", next_page("rows", start, end, stop, start + taken, total))


def _json_rows(elements: Sequence[Any], start: int, end: int | None, offset: int) -> View:
    total = len(elements)
    stop = total if end is None else min(end, total)
    page = paged_values(map(bytes, elements[start:stop]), offset)
    following = next_page("rows", start, end, stop, start + page.taken, total)
    if page.cut is not None:
        following = {"type": "rows", "start": start, "offset": page.cut} | ({} if end is None else {"end": end})
    return View(page.content, total, "rows", following)


DEFAULT_HEAD_CHARS = 500
MAX_MEDIA_BYTES = 4 << 20
_MAX_HEX_BYTES = 4_096
_MAX_KEYS = 100
_MAX_KEY_CHARS = 2_000
# Beyond the end of any artifact, and small enough that sums of it remain valid indexes.
_FARTHEST = 1 << 60

FORMS = (
    '{"type":"head","start":0,"chars":500}',
    '{"type":"lines","start":0,"end":50}',
    '{"type":"rows","start":0,"end":20}',
    '{"type":"json_keys","keys":["a","b"],"start":0}',
    EXAMPLE,
    '{"type":"grep","pattern":"error","context":2,"ignore_case":true}',
)
_FIELDS = {
    "head": {"start", "chars"},
    "lines": {"start", "end"},
    "rows": {"start", "end", "offset"},
    "json_keys": {"keys", "start"},
    "json_path": {"path", "start", "offset"},
    "grep": {"pattern", "context", "ignore_case", "start"},
}


def select(data: bytes, media_type: str, selector: object) -> View:
    """Returns the part of *data* that *selector* names. Raises ViewFailed, with the valid forms, for a bad selector.

    ``head``: characters. ``lines``: whole lines. ``rows``: records of a table, with row 0 repeated on every later
    page; of a JSON array its elements, one a line. ``json_keys``: members of a JSON object, indented; ``start`` is a
    character of that text; other data raises ViewFailed. ``json_path``: the values at a path, one a line, from the
    ``start``-th on. ``grep``: lines that hold a text, from the ``start``-th on.

    An image or a sound of up to 4 MB is returned whole for every selector. Of other data that is no text, ``head``
    shows bytes in hexadecimal.
    """
    # Check the selector: its type, its fields, then each value where it is read.
    if not isinstance(selector, Mapping):
        raise _bad_selector("a selector is an object")
    kind = selector.get("type")
    if kind in ("wait", "cancel"):
        raise _bad_selector(f"{kind} is for handles that begin with 'call:'")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise _bad_selector("unknown selector type")
    if unknown := [key for key in selector if key != "type" and key not in _FIELDS[kind]]:
        raise _bad_selector(f"{kind} has no field {shorten(str(unknown[0]), 40)!r}")
    start = _count(selector, "start", 0)
    if not _is_text(data, media_type):
        return _without_text(data, media_type, kind, start, selector)
    # Text is viewed by kind.
    if kind in ("rows", "json_keys", "json_path") and data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]  # belongs neither to the JSON nor to the first field
    match kind:
        case "head":
            return _head(data, start, _count(selector, "chars", DEFAULT_HEAD_CHARS))
        case "lines":
            return lines(data, start, _end(selector))
        case "rows":
            return rows(data, start, _end(selector), _count(selector, "offset", 0))
        case "json_keys":
            return json_keys(data, _keys(selector), start)
        case "json_path":
            steps = parse_json_path(selector.get("path"))
            return json_path(data, str(selector["path"]), steps, start, _count(selector, "offset", 0))
        case _:
            return _grep(data, selector, start)


def _head(data: bytes, start: int, chars: int) -> View:
    content, total = characters(data, start, min(chars, MAX_VIEW_CHARS))
    end = start + min(chars, MAX_VIEW_CHARS)
    following = {"type": "head", "start": end, "chars": chars or DEFAULT_HEAD_CHARS}
    return View(content, total, "chars", following if end < total else None)


def _without_text(data: bytes, media_type: str, kind: str, start: int, selector: Mapping[Any, Any]) -> View:
    # A model can look at images and listen to sounds of a bounded size.
    media = _media_kind(media_type)
    if media is not None and 0 < len(data) <= MAX_MEDIA_BYTES:
        part = MediaPart(media, media_type.partition(";")[0].strip().lower(), data)
        return View(f"{media}, {part.media_type}, {len(data):,} bytes", len(data), "bytes", None, part)
    if kind != "head":
        raise ViewFailed(
            f"This artifact is {media_type}, {len(data):,} bytes: it has no text to view; "
            '{"type":"head"} shows bytes in hexadecimal.'
        )
    # Other bytes are shown in hexadecimal, page by page.
    count = min(_count(selector, "chars", DEFAULT_HEAD_CHARS), _MAX_HEX_BYTES)
    end = start + count
    following = {"type": "head", "start": end, "chars": count or DEFAULT_HEAD_CHARS}
    return View(data[start:end].hex(" ", 4), len(data), "bytes", following if end < len(data) else None)


def _grep(data: bytes, selector: Mapping[Any, Any], start: int) -> View:
    pattern, ignore_case = selector.get("pattern"), selector.get("ignore_case", False)
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATTERN_CHARS or "\n" in pattern:
        raise _bad_selector(
            f"pattern must be a text (no expression) on one line, of 1 to {MAX_PATTERN_CHARS} characters"
        )
    if not isinstance(ignore_case, bool):
        raise _bad_selector("ignore_case must be true or false")
    context = _count(selector, "context", 0)
    if context > MAX_CONTEXT_LINES:
        raise _bad_selector(f"context must be at most {MAX_CONTEXT_LINES}")
    return grep(data, pattern, ignore_case=ignore_case, context=context, start=start)


def _media_kind(media_type: str) -> Literal["image", "audio"] | None:
    match media_type.partition("/")[0].strip().lower():
        case "image":
            return "image"
        case "audio":
            return "audio"
        case _:
            return None


def _is_text(data: bytes, media_type: str) -> bool:
    major, _, minor = media_type.partition(";")[0].strip().lower().partition("/")
    if major == "text" or minor == "json" or minor.endswith(("+json", "+xml")):
        return True
    if major in ("image", "audio", "video", "font"):
        return False
    # Of any other type, data that begins as text is text.
    sample = data[:4096]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return b"\0" not in sample


def _count(selector: Mapping[Any, Any], field: str, default: int) -> int:
    value = selector.get(field, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _bad_selector(f"{field} must be an integer that is not negative")
    return min(value, _FARTHEST)


def _end(selector: Mapping[Any, Any]) -> int | None:
    return _count(selector, "end", 0) if "end" in selector else None


def _keys(selector: Mapping[Any, Any]) -> list[str]:
    keys = selector.get("keys")
    if not isinstance(keys, list) or len(keys) > _MAX_KEYS or not all(isinstance(key, str) for key in keys):
        raise _bad_selector(f"keys must be a list of at most {_MAX_KEYS} strings")
    if sum(map(len, keys)) > _MAX_KEY_CHARS:  # they come back in the answer
        raise _bad_selector(f"keys must not have more than {_MAX_KEY_CHARS:,} characters together")
    return keys


def _bad_selector(problem: str) -> ViewFailed:
    return ViewFailed(f"{problem}. Selectors: {', '.join(FORMS)}", details={"selectors": list(FORMS)})
