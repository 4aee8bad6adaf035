"""Observations and their report: one exchange with an engine, its body read as server-sent events, the verdicts.

Pure: nothing here or in the grammar touches the network, so that any bytes can be judged in a test.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

MAX_EXCERPT = 160

_MARKS = {"pass": "pass", "fail": "FAIL", "not-testable": "----"}
_FIELDS = frozenset({"event", "data", "id", "retry"})

Status = Literal["pass", "fail", "not-testable"]


class Verdict(NamedTuple):
    """The outcome of one check. *seen* is what was observed: enough to find a failure, otherwise a word."""

    status: Status
    seen: str = ""


def judge(faults: Sequence[str], seen: str = "") -> Verdict:
    """A pass without faults, otherwise a failure that shows the first fault and counts the others."""
    if not faults:
        return Verdict("pass", seen)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return Verdict("fail", faults[0] + more)


def not_testable(why: str) -> Verdict:
    return Verdict("not-testable", why)


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict about one requirement. *id* names the clause: ``CHAT-28``."""

    id: str
    requirement: str
    status: Status
    seen: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """*unfinished* is the reason why the examination was given up before its end, empty otherwise."""

    url: str
    findings: Sequence[Finding]
    unfinished: str = ""

    @property
    def conforms(self) -> bool:
        """True if nothing failed and the examination reached its end; what could not be tested does not count against
        the engine."""
        return not self.unfinished and all(finding.status != "fail" for finding in self.findings)

    def lines(self) -> Iterator[str]:
        width = max(len(finding.id) for finding in self.findings)
        for finding in self.findings:
            seen = f"  [{finding.seen}]" if finding.seen else ""
            yield f"{_MARKS[finding.status]}  {finding.id.ljust(width)}  {finding.requirement}{seen}"
        counted = Counter(finding.status for finding in self.findings)
        yield f"{counted['pass']} passed, {counted['fail']} failed, {counted['not-testable']} not testable"
        if self.unfinished:
            yield f"FAIL  {self.unfinished}"

    def as_dict(self) -> dict[str, Any]:
        findings = [asdict(finding) for finding in self.findings]
        return {"url": self.url, "conforms": self.conforms, "findings": findings, "unfinished": self.unfinished}


@dataclass(frozen=True, slots=True)
class Transcript:
    """One request and its answer. *label* names the request; *broken* says why the body broke off, if it did."""

    label: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    broken: str = ""

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_stream(self) -> bool:
        return self.status == 200 and self.media_type == "text/event-stream"


class Frame(NamedTuple):
    """One event. *data* is the decoded JSON, None if *raw* is not JSON."""

    event: str
    data: Any
    raw: str


@dataclass(frozen=True, slots=True)
class EventStream:
    """The events of one answer. *syntax* holds the faults of the lines themselves."""

    source: Transcript
    frames: tuple[Frame, ...]
    syntax: tuple[str, ...]

    @property
    def end(self) -> str:
        return self.frames[-1].event if self.frames else "nothing"


def read_stream(transcript: Transcript) -> EventStream:
    """Reads any bytes as far as they make sense; never raises."""
    syntax: list[str] = []
    try:
        text = transcript.body.decode()
    except UnicodeDecodeError:
        syntax.append("the stream is not UTF-8")
        text = transcript.body.decode(errors="replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if text and not text.endswith("\n\n"):
        syntax.append(f"the last event is not ended by a blank line: {excerpt(text[-40:])}")
    frames: list[Frame] = []
    for block in text.split("\n\n"):
        # Sort the lines of one event by their field.
        event, data = "", []
        for line in filter(None, block.split("\n")):
            name, _, value = line.partition(":")
            if name not in _FIELDS and line[0] != ":":
                syntax.append(f"a line that is no field of an event: {excerpt(line)}")
            elif name == "event":
                event = value.removeprefix(" ")
            elif name == "data":
                data.append(value.removeprefix(" "))
        if not event and not data:
            continue
        # The contract is narrower than SSE: one event line and one data line, which holds JSON.
        if not event or len(data) != 1:
            syntax.append(f"an event needs one event line and one data line: {excerpt(block)}")
        raw = "\n".join(data)
        try:
            decoded = read_json(raw)
        except (ValueError, RecursionError):
            decoded = None
            syntax.append(f"data is not JSON: {excerpt(raw)}")
        frames.append(Frame(event, decoded, raw))
    return EventStream(transcript, tuple(frames), tuple(syntax))


def read_json(text: str | bytes) -> Any:
    """Reads JSON as strictly as a browser: NaN and infinity are refused. Raises ValueError or RecursionError."""
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def excerpt(text: str) -> str:
    """The text for a report: in ASCII, on one line, bounded."""
    flat = ascii(text)
    return flat if len(flat) <= MAX_EXCERPT else flat[:MAX_EXCERPT] + "..."
