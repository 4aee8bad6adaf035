"""Rows of a table: records of CSV with its header, or elements of a JSON array (S0 §4.2, DESIGN §3 "Results").

A line break inside a quoted field does not end a record (RFC 4180). Rows can be asked of any text, so a quote opens a
field only right after a separator or at the start of a line, and only if it is closed later. The module ``csv`` keeps
neither rule and does not say at which byte a record begins.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from wicketgate.results.bulk import SLICE
from wicketgate.results.json_part import elements_of, paged_values
from wicketgate.results.view import (
    MAX_VIEW_CHARS,
    View,
    line_count,
    line_ends,
    line_start,
    next_page,
    whole_units,
)

_SEPARATORS = (b",", b";", b"\t", b"|")
_MAX_LINE_BYTES = 1 << 16


def rows(data: bytes, start: int, end: int | None, offset: int) -> View:
    """Shows rows *start* to *end*. *offset* skips characters of the first one if it is an element of an array."""
    elements = elements_of(data)
    if elements is not None:
        return _json_rows(elements, start, end, offset)
    # The page, in records.
    inner = _inner_lines(data)
    total = line_count(data) - len(inner)
    stop = total if end is None else min(end, total)
    if start >= stop:
        return View("", total, "rows", next_page("rows", start, end, stop, max(start, stop), total))
    # Every later page repeats the header. Records of JSON Lines name their own fields.
    header = ""
    if start > 0 and data[:1] not in (b"{", b"["):
        header = whole_units(data, 0, _record_ends(data, inner, 0, 1), MAX_VIEW_CHARS // 2)[0] + "\n"
    # As many whole records as fit beside it.
    begin = line_start(data, _line_of(inner, start))
    ends = _record_ends(data, inner, start, stop, begin)
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


def _inner_lines(data: bytes) -> list[int]:
    """Lists the lines that continue a record: for each, its number less the number of such lines before it.

    That is the number of the first record that begins after the line, so the list is sorted.
    """
    inner: list[int] = []
    pending: list[int] = []
    opened = False
    line = position = 0
    while position < len(data):
        # Blocks end at line ends, so that a block without quotes is skipped at once.
        edge = data.find(b"\n", position + SLICE)
        block = data[position : edge if edge >= 0 else len(data)]
        position += len(block) + 1
        if not opened and b'"' not in block:
            line += block.count(b"\n") + 1
            continue
        # An odd number of quotes opens a field or closes the open one. The lines between are kept as pending, and
        # count only once the field is closed.
        for text in block.split(b"\n"):
            if opened:
                pending.append(line)
            if text.count(b'"') % 2:
                if opened:
                    inner += [number - at for at, number in enumerate(pending, len(inner))]
                    pending.clear()
                    opened = False
                else:
                    opened = _opens_a_field(text)
            line += 1
    return inner


def _opens_a_field(line: bytes) -> bool:
    """Returns true if *line* ends inside a quoted field."""
    if len(line) > _MAX_LINE_BYTES:
        return False
    inside = closed = False
    for number, text in enumerate(line.split(b'"')[:-1]):
        if inside:
            inside, closed = False, True
        else:
            # A quote right after a closing one is the second half of an escaped quote.
            inside = text.endswith(_SEPARATORS) or (not text and (number == 0 or closed))
            closed = False
    return inside


def _line_of(inner: Sequence[int], record: int) -> int:
    """Returns the line at which a record begins."""
    return record + bisect_right(inner, record)


def _record_ends(data: bytes, inner: Sequence[int], start: int, stop: int, begin: int = 0) -> Iterator[int]:
    """Yields the ends of the records *start* to *stop*; the first of them begins at the byte *begin*."""
    line = _line_of(inner, start)
    last = _line_of(inner, start + 1) - 1
    for end in line_ends(data, begin, _line_of(inner, stop) - line):
        if line == last:
            yield end
            start += 1
            last = _line_of(inner, start + 1) - 1
        line += 1
