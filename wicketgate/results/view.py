"""The result of one ``tool_view``: a bounded part of an artifact, the total, and the selector that goes on (EXEC-34).

Lines of text are viewed here, and those that hold a text. They are found on the bytes, because artifacts can be tens of
megabytes. The pattern of ``grep`` is plain text, not an expression, so the time is linear for any pattern and any data.
In a very long line, such as JSON without line breaks, the stretch around each match is shown by itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
    return content, 0, len(decode_text(data[:begin])) + room


def line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def line_start(data: bytes, line: int) -> int:
    """Returns the byte at which the *line*-th line begins; that line must exist.

    Newlines are counted by block, because a search for each line is slow over a million.
    """
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


MAX_PATTERN_CHARS = 200
MAX_CONTEXT_LINES = 10
MATCHES_A_PAGE = 50
_LONG_LINE_BYTES = 1_000
_AROUND_BYTES = 160
_NEIGHBOUR_BYTES = 300


@dataclass(frozen=True, slots=True)
class _Match:
    """The bytes from *start* to *end* are shown: a line, or a stretch of a long one. *at* is the match itself."""

    at: int
    start: int
    end: int
    is_whole_line: bool


def grep(data: bytes, pattern: str, *, ignore_case: bool, context: int, start: int) -> View:
    """Shows matches from the *start*-th on; *ignore_case* applies to ASCII letters.

    A line is ``12:text``, a neighbour ``11-text``, a stretch of a long line ``12@3456:text`` with the character at
    which its match begins. ``--`` stands between lines that are not neighbours, if neighbours were asked for.
    """
    needle = pattern.encode("utf-8", "surrogatepass")
    page, total = _matches(data, needle.lower() if ignore_case else needle, ignore_case, start)
    content, shown = _rendered(data, page, context)
    following: dict[str, Any] | None = None
    if start + shown < total:
        following = {"type": "grep", "pattern": pattern, "context": context, "start": start + shown}
        if ignore_case:
            following["ignore_case"] = True
    return View(content, total, "matches", following)


def _matches(data: bytes, needle: bytes, ignore_case: bool, start: int) -> tuple[list[_Match], int]:
    """Returns the matches of one page, and the number of all.

    Looks for line ends within a bounded distance of a match, so that many matches in one long line stay cheap.
    """
    page: list[_Match] = []
    total = position = 0
    length, size = len(needle), len(data)
    searched = data.lower() if ignore_case else data
    while (at := searched.find(needle, position)) >= 0:
        # The line around the match, if it is short enough to be shown whole.
        after = at + length
        begin = data.rfind(b"\n", max(at - _LONG_LINE_BYTES, 0), at) + 1
        end = data.find(b"\n", after, after + _LONG_LINE_BYTES)
        if end < 0 and after + _LONG_LINE_BYTES >= size:
            end = size
        is_whole_line = end >= 0 and (begin > 0 or at <= _LONG_LINE_BYTES)
        if not is_whole_line:
            begin = max(begin, at - _AROUND_BYTES, 0)
            end = after + _AROUND_BYTES if end < 0 else min(end, after + _AROUND_BYTES)
        # Matches outside the page are counted only. The search goes on after what is shown.
        if start <= total < start + MATCHES_A_PAGE:
            page.append(_Match(at, begin, end, is_whole_line))
        total += 1
        position = end + is_whole_line
    return page, total


def _rendered(data: bytes, matches: Sequence[_Match], context: int) -> tuple[str, int]:
    """Returns the text of as many matches as fit into a view, and their number."""
    shown: dict[tuple[int, int], str] = {}
    room = MAX_VIEW_CHARS
    line = chars = count = 0
    lines_to = chars_to = 0
    for match in matches:
        # Lines are counted from the previous match on.
        line += data.count(b"\n", lines_to, match.at)
        lines_to = match.at
        text = data[match.start : match.end].decode("utf-8", "ignore")
        entries: dict[tuple[int, int], str] = {}
        if match.is_whole_line:
            entries = dict(_neighbours(data, match, line, context))
            entries[line, 0] = f"{line}:{text}"
        else:
            # Characters are counted for long lines only, from the previous such match on.
            chars += len(decode_text(data[chars_to : match.at]))
            chars_to = match.at
            entries[line, match.at] = f"{line}@{chars}:…{text}…"
        # A page ends before the match that does not fit; the first is always shown.
        room -= sum(len(each) + 4 for each in entries.values())
        if room < 0 and count:
            break
        # A line that is a match itself replaces the same line as a neighbour.
        for place, entry in entries.items():
            if place not in shown or place == (line, 0):
                shown[place] = entry
        count += 1
    rendered: list[str] = []
    previous = None
    for place in sorted(shown):
        if context and previous is not None and place[0] > previous + 1:
            rendered.append("--")
        rendered.append(shown[place])
        previous = place[0]
    return "\n".join(rendered), count


def _neighbours(data: bytes, match: _Match, line: int, context: int) -> Iterator[tuple[tuple[int, int], str]]:
    """Yields the lines around a match, each cut at 300 bytes; stops in a direction at a very long line."""
    end = match.start - 1
    for number in range(line - 1, line - 1 - context, -1):
        if end < 0:
            break
        start = data.rfind(b"\n", max(end - _LONG_LINE_BYTES, 0), end) + 1
        is_cut = start == 0 and end > _LONG_LINE_BYTES
        yield (number, 0), f"{number}-{'…' if is_cut else _neighbour(data, start, end)}"
        if is_cut:
            break
        end = start - 1
    start = match.end + 1
    for number in range(line + 1, line + 1 + context):
        if start >= len(data):
            break
        end = data.find(b"\n", start, start + _LONG_LINE_BYTES)
        is_cut = end < 0 and start + _LONG_LINE_BYTES < len(data)
        yield (number, 0), f"{number}-{_neighbour(data, start, len(data) if end < 0 else end)}"
        if is_cut or end < 0:
            break
        start = end + 1


def _neighbour(data: bytes, start: int, end: int) -> str:
    text = data[start : min(end, start + _NEIGHBOUR_BYTES)].decode("utf-8", "ignore")
    return text + "…" if end - start > _NEIGHBOUR_BYTES else text
