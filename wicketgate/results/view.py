"""What one ``tool_view`` answers: a bounded part of an artifact, how much there is, and how to go on (DESIGN §3)."""

from dataclasses import dataclass
from typing import Any, Literal

MAX_VIEW_CHARS = 20_000
# A character of UTF-8 has at most four bytes.
MAX_VIEW_BYTES = 4 * MAX_VIEW_CHARS


@dataclass(frozen=True, slots=True)
class MediaPart:
    """What goes back as MCP content of its own type, beside the description."""

    kind: Literal["image", "audio"]
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class View:
    """*content* has at most 20,000 characters of the *total* that there is, in *unit*.

    *unit* is chars, lines, rows, keys, values, matches or bytes. *next* is the selector that goes on where this
    answer ended, or None at the end.
    """

    content: str
    total: int
    unit: str
    next: dict[str, Any] | None
    media: MediaPart | None = None


def next_page(kind: str, start: int, end: int | None, stop: int, reached: int, total: int) -> dict[str, Any] | None:
    """Go on to where the caller wanted to get; once there, a page of the same size further."""
    if start >= total or (reached >= stop and stop >= total):
        return None
    if end is None:
        return {"type": kind, "start": reached}
    if reached < stop:
        return {"type": kind, "start": reached, "end": end}
    return {"type": kind, "start": max(stop, start), "end": max(stop, start) + max(end - start, 1)}


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def sound(text: str) -> str:
    """A lone surrogate, which a JSON escape can bring in, could not be sent on."""
    return text.encode("utf-8", "replace").decode()
