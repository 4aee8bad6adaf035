"""Rows of a table: records of CSV with its header, or elements of a JSON array (S0 §4.2, DESIGN §3 "Results").

A line break inside a quoted field does not end a record (RFC 4180). Since any text may be asked for rows, a quote
opens a field only right after a separator or at the start of a line, and one that is never closed opens nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from wicketgate.results.bulk import SLICE
from wicketgate.results.json_part import elements_of, paged_values
from wicketgate.results.lines import line_count, line_ends, line_start, whole_units
from wicketgate.results.view import MAX_VIEW_CHARS, View, next_page

_SEPARATORS = (b",", b";", b"\t", b"|")
_MAX_LINE_BYTES = 1 << 16


def rows(data: bytes, start: int, end: int | None, offset: int) -> View:
    """*offset* is how many characters of the first row, an element of an array, have been seen before."""
    elements = elements_of(data)
    if elements is not None:
        return _json_rows(elements, start, end, offset)
    inner = _inner_lines(data)
    total = line_count(data) - len(inner)
    stop = total if end is None else min(end, total)
    if start >= stop:
        return View("", total, "rows", next_page("rows", start, end, stop, max(start, stop), total))
    header = ""
    if start > 0 and data[:1] not in (b"{", b"["):  # records of JSON Lines name their own fields
        header = whole_units(data, 0, _record_ends(data, inner, 0, 1), MAX_VIEW_CHARS // 2)[0] + "\n"
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
    """For each line that goes on with a record: its number less the number of such lines before it.

    That never falls along the list, and is the number of the first record that begins after the line.
    """
    inner: list[int] = []
    pending: list[int] = []
    opened = False
    line = position = 0
    while position < len(data):
        # A block ends with a line, so that one without quotes is passed over at once.
        edge = data.find(b"\n", position + SLICE)
        block = data[position : edge if edge >= 0 else len(data)]
        position += len(block) + 1
        if not opened and b'"' not in block:
            line += block.count(b"\n") + 1
            continue
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
    """Whether *line* ends inside a quoted field."""
    if len(line) > _MAX_LINE_BYTES:
        return False
    inside = closed = False
    for number, text in enumerate(line.split(b'"')[:-1]):
        if inside:
            inside, closed = False, True
        else:
            # Right after a closing quote a quote is the second half of an escaped one.
            inside = text.endswith(_SEPARATORS) or (not text and (number == 0 or closed))
            closed = False
    return inside


def _line_of(inner: Sequence[int], record: int) -> int:
    return record + bisect_right(inner, record)


def _record_ends(data: bytes, inner: Sequence[int], start: int, stop: int, begin: int = 0) -> Iterator[int]:
    """Where the records *start* to *stop* end; *begin* is the byte at which the first of them begins."""
    line = _line_of(inner, start)
    last = _line_of(inner, start + 1) - 1
    for end in line_ends(data, begin, _line_of(inner, stop) - line):
        if line == last:
            yield end
            start += 1
            last = _line_of(inner, start + 1) - 1
        line += 1
