"""Where the lines of a large text are, found on its bytes, and as many whole ones as fit into an answer."""

from collections.abc import Iterable, Iterator

from wicketgate.results.bulk import count_chars, count_newlines
from wicketgate.results.view import MAX_VIEW_BYTES, MAX_VIEW_CHARS, View, decoded, next_page

_BLOCK_BYTES = 1 << 16


def lines(data: bytes, start: int, end: int | None) -> View:
    total = line_count(data)
    stop = total if end is None else min(end, total)
    begin = line_start(data, start) if start < stop else 0
    ends = line_ends(data, begin, max(stop - start, 0))
    content, taken, cut = whole_units(data, begin, ends, MAX_VIEW_CHARS)
    if cut is not None:
        return View(content, total, "lines", {"type": "head", "start": cut, "chars": MAX_VIEW_CHARS})
    return View(content, total, "lines", next_page("lines", start, end, stop, max(start, start + taken), total))


def whole_units(data: bytes, begin: int, ends: Iterable[int], room: int) -> tuple[str, int, int | None]:
    """What lies from *begin* to each of *ends* in turn as far as it fits into *room* characters, and how many did.

    When not even the first fits it is cut; then the third value is the character at which it goes on.
    """
    position = begin
    taken = length = 0
    for end in ends:
        length += len(decoded(data[position : min(end, position + MAX_VIEW_BYTES + 4)])) + (taken > 0)
        if length > room:
            break
        position = end + 1
        taken += 1
    if taken:
        return decoded(data[begin : position - 1]), taken, None
    if not length:
        return "", 0, None
    content = decoded(data[begin : begin + MAX_VIEW_BYTES + 4])[:room]
    return content, 0, count_chars(data[:begin]) + room


def line_count(data: bytes) -> int:
    return count_newlines(data) + (not data.endswith(b"\n") and data != b"")


def line_start(data: bytes, line: int, position: int = 0) -> int:
    """The byte at which the *line*-th line after *position*, which exists, begins.

    Block-wise, because one find a line is slow over a million.
    """
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


def line_ends(data: bytes, position: int, count: int) -> Iterator[int]:
    for _ in range(count):
        end = data.find(b"\n", position)
        if end < 0:
            yield len(data)
            return
        yield end
        position = end + 1
