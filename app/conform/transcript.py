"""One exchange with an engine as it was seen, and its body read as a stream of server-sent events."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_SHOWN = 160

_FIELDS = frozenset({"event", "data", "id", "retry"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """*label* says what was asked. *broken* is why the body broke off, empty if it came to its end."""

    label: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    reads: int = 1
    broken: str = ""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_stream(self) -> bool:
        return self.status == 200 and self.media_type == "text/event-stream"


@dataclass(frozen=True, slots=True)
class Frame:
    """*data* is the decoded JSON, None if it was none; *raw* its text."""

    event: str
    data: Any
    raw: str


@dataclass(frozen=True, slots=True)
class Stream:
    """*syntax* holds what was wrong with the lines themselves. *broken* as of the exchange."""

    label: str
    frames: tuple[Frame, ...] = ()
    comments: int = 0
    syntax: tuple[str, ...] = ()
    broken: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    reads: int = 1


def read_stream(exchange: Exchange) -> Stream:
    """Never raises: whatever an engine may send is read as far as it can be."""
    syntax: list[str] = []
    try:
        text = exchange.body.decode()
    except UnicodeDecodeError:
        syntax.append("the stream is not UTF-8")
        text = exchange.body.decode(errors="replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text and not text.endswith("\n\n"):
        syntax.append(f"the last event is not ended by a blank line: {shown(text[-40:])}")
    frames: list[Frame] = []
    comments = 0
    for block in text.split("\n\n"):
        event, data = "", []
        for line in block.split("\n"):
            name, colon, value = line.partition(":")
            if not line:
                continue
            if not name and colon:
                comments += 1
            elif name not in _FIELDS:
                syntax.append(f"a line that is no field of an event: {shown(line)}")
            elif name == "event":
                event = value.removeprefix(" ")
            elif name == "data":
                data.append(value.removeprefix(" "))
        if not event and not data:
            continue
        if not event or len(data) != 1:
            syntax.append(f"an event needs one event line and one data line: {shown(block)}")
        raw = "\n".join(data)
        try:
            decoded = read_json(raw)
        except ValueError:
            decoded = None
            syntax.append(f"data is not JSON: {shown(raw)}")
        frames.append(Frame(event, decoded, raw))
    return Stream(
        exchange.label, tuple(frames), comments, tuple(syntax), exchange.broken, exchange.headers, exchange.reads
    )


def read_json(text: str | bytes) -> Any:
    """Strictly, as a browser would: NaN and infinity are none. Raises ValueError, whatever is wrong."""
    try:
        return json.loads(text, parse_constant=_no_json)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def shown(text: str) -> str:
    """For a report: in one line, and not all of it."""
    flat = ascii(text)
    return flat if len(flat) <= MAX_SHOWN else flat[:MAX_SHOWN] + "..."
