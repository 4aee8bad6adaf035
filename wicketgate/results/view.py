"""The result of one ``tool_view``: a bounded part of an artifact, the total, and the selector that goes on (DESIGN §3).

Lines of text are viewed here. They are found on the bytes, because artifacts can be tens of megabytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from wicketgate.results.bulk import count_chars, count_newlines

MAX_VIEW_CHARS = 20_000
# A character of UTF-8 has at most four bytes.
MAX_VIEW_BYTES = 4 * MAX_VIEW_CHARS
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image or a sound, returned as MCP content of its own type beside the description."""

    kind: Literal["image", "audio"]
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class View:
    """*content* has at most 20,000 characters. *total* counts what the artifact holds, in *unit*.

    *unit* is chars, lines, rows, keys, values, matches or bytes. *next* is the selector that goes on where this view
    ends; None at the end of the artifact.
    """

    content: str
    total: int
    unit: str
    next: dict[str, Any] | None
    media: MediaPart | None = None


def next_page(kind: str, start: int, end: int | None, stop: int, reached: int, total: int) -> dict[str, Any] | None:
    """Returns the selector that goes on to the caller's *end*; from there on, for a page of the same size."""
    # Nothing is left.
    if start >= total or (reached >= stop and stop >= total):
        return None
    if end is None:
        return {"type": kind, "start": reached}
    # The page ended early, because it was full.
    if reached < stop:
        return {"type": kind, "start": reached, "end": end}
    return {"type": kind, "start": max(stop, start), "end": max(stop, start) + max(end - start, 1)}


def lines(data: bytes, start: int, end: int | None) -> View:
    """Shows whole lines. A line longer than a view is cut, and read on by characters."""
    total = line_count(data)
    stop = total if end is None else min(end, total)
    begin = line_start(data, start) if start < stop else 0
    ends = line_ends(data, begin, max(stop - start, 0))
    content, taken, cut = whole_units(data, begin, ends, MAX_VIEW_CHARS)
    if cut is not None:
        return View(content, total, "lines", {"type": "head", "start": cut, "chars": MAX_VIEW_CHARS})
    return View(content, total, "lines", next_page("lines", start, end, stop, max(start, start + taken), total))


def whole_units(data: bytes, begin: int, ends: Iterable[int], room: int) -> tuple[str, int, int | None]:
    """Takes the units that end at *ends*, the first from *begin* on, while they fit into *room* characters.

    Returns their text and number. If not even the first fits, it is cut: then the third value is the character of the
    artifact at which it goes on.
    """
    # No more bytes are decoded than fit, because a unit may be the whole artifact.
    position = begin
    taken = length = 0
    for end in ends:
        length += len(decode_text(data[position : min(end, position + MAX_VIEW_BYTES + 4)])) + (taken > 0)
        if length > room:
            break
        position = end + 1
        taken += 1
    if taken:
        return decode_text(data[begin : position - 1]), taken, None
    if not length:
        return "", 0, None
    # Not even one unit fits.
    content = decode_text(data[begin : begin + MAX_VIEW_BYTES + 4])[:room]
    return content, 0, count_chars(data[:begin]) + room


def line_count(data: bytes) -> int:
    return count_newlines(data) + (not data.endswith(b"\n") and data != b"")


def line_start(data: bytes, line: int, position: int = 0) -> int:
    """Returns the byte at which the *line*-th line after *position* begins; that line must exist.

    Newlines are counted by block, because a search for each line is slow over a million.
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
    """Yields the ends of *count* lines, the first of which begins at *position*."""
    for _ in range(count):
        end = data.find(b"\n", position)
        if end < 0:
            yield len(data)
            return
        yield end
        position = end + 1


def decode_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which a JSON escape can produce, because they cannot be encoded."""
    return text.encode("utf-8", "replace").decode()
