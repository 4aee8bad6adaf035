"""The rules for every stream and every refusal of an engine, whatever the request was (CHAT-25 to CHAT-35).

Pure checks. A rule gives None for a stream that holds nothing it could judge, otherwise the faults that it found.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from app.conform.transcript import (
    EventStream,
    Frame,
    Transcript,
    Verdict,
    excerpt,
    judge,
    not_testable,
    read_json,
    read_stream,
)

Rule = Callable[[EventStream], list[str] | None]

ENDS = ("done", "error")
ERROR_CODES = ("provider_error", "tool_error", "context_overflow")

_SHAPES: Mapping[str, tuple[Mapping[str, type], ...]] = {
    "text-delta": ({"content": str},),
    "tool-call": ({"id": str, "name": str, "arguments": dict},),
    "tool-result": ({"id": str, "output": str}, {"id": str, "error": str}),
    "done": ({"finish_reason": str, "usage": dict}, {"finish_reason": str}),
    "error": ({"code": str, "message": str},),
}

# Signs of our insides in a text for a client (EXEC-13).
_LEAKS = {
    "a stack trace": re.compile(
        r"Traceback \(most recent|File \"[^\"]+\", line \d|\n\s+at \S+ ?\("
        r"|\bgoroutine \d+ \[|\.(?:py|js|ts|go|rs|java):\d+"
    ),
    "a path": re.compile(
        r"(?<![\w/])/(?:home|root|usr|srv|var|etc|opt|tmp|app|mnt|data|Users|workspace)/[\w.-]"
        r"|\b[A-Za-z]:\\[\w.-]|site-packages|node_modules"
    ),
    "a credential": re.compile(
        r"\b(?:sk|pk|rk|ghp|xox[bp]|wg)[-_][A-Za-z0-9_-]{6,}|\bBearer [A-Za-z0-9._~+/-]{8,}|\beyJ[\w-]{10,}\."
    ),
    "an exception": re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b: |\bECONN[A-Z]+\b|\berrno\b", re.ASCII),
}


def judge_streams(rule: Rule, streams: Sequence[EventStream]) -> Verdict:
    """One verdict of a rule over all streams."""
    found = [(stream.source.label, faults) for stream in streams if (faults := rule(stream)) is not None]
    if not found:
        return not_testable("no stream had anything to judge")
    return judge([f"{label}: {fault}" for label, faults in found for fault in faults], f"{len(found)} streams")


def unexpected(answer: Transcript, wanted: str) -> list[str]:
    """A fault unless the answer is one of the words *wanted*: a status, ``stream``, or the last event of a stream."""
    seen = {"stream", read_stream(answer).end} if answer.is_stream else {str(answer.status)}
    if not seen.isdisjoint(wanted.split()):
        return []
    return [f"{answer.label}: {answer.status or answer.broken} {answer.media_type} instead of {wanted}"]


def refusal_faults(answer: Transcript) -> list[str]:
    """The faults of a refusal's body, which must be ``{code, message}`` as JSON without leaks (CHAT-23)."""
    asked = f"{answer.label}: {answer.status}"
    try:
        body = read_json(answer.body)
    except (ValueError, RecursionError):
        body = None
    if answer.media_type != "application/json" or not _fits(body, {"code": str, "message": str}) or "" in body.values():
        shown = excerpt(answer.body.decode(errors="replace"))
        return [f"{asked} {answer.media_type} with a body that is not {{code, message}} as JSON: {shown}"]
    return [f"{asked}: {leak}" for leak in _leaks(body["message"])]


def _syntax(stream: EventStream) -> list[str]:
    return list(stream.syntax)


def _collected(stream: EventStream) -> list[str]:
    collected = "content-length" in stream.source.headers
    return ["it has a Content-Length, so it was collected before it was sent"] if collected else []


def _names(stream: EventStream) -> list[str]:
    return [f"an event named {excerpt(frame.event)}" for frame in stream.frames if frame.event not in _SHAPES]


def _shapes(stream: EventStream) -> list[str]:
    return [
        f"{frame.event} with data {excerpt(frame.raw)}"
        for frame in stream.frames
        if frame.event in _SHAPES and not any(_fits(frame.data, shape) for shape in _SHAPES[frame.event])
    ]


def _usage(stream: EventStream) -> list[str] | None:
    counted = [frame.data["usage"] for frame in _of(stream, "done") if isinstance(frame.data.get("usage"), dict)]
    faults = [
        f"usage {excerpt(str(usage))}"
        for usage in counted
        for count in (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        if type(count) is not int or count < 0
    ]
    return faults if counted else None


def _one_end(stream: EventStream) -> list[str]:
    ends = [frame.event for frame in stream.frames if frame.event in ENDS]
    if len(ends) == 1 and stream.end in ENDS:
        return []
    return [f"its ends are {', '.join(ends) or 'none'}; the last event was {excerpt(stream.end)}"]


def _whole_body(stream: EventStream) -> list[str]:
    return [f"the body broke off: {stream.source.broken}"] if stream.source.broken else []


def _finish_reason(stream: EventStream) -> list[str] | None:
    reasons = [frame.data.get("finish_reason") for frame in _of(stream, "done")]
    return [f"done with {reason!r}" for reason in reasons if reason in ("tool_calls", "", None)] if reasons else None


def _error_codes(stream: EventStream) -> list[str] | None:
    codes = [frame.data.get("code") for frame in _of(stream, "error")]
    return [f"error with code {excerpt(str(code))}" for code in codes if code not in ERROR_CODES] if codes else None


def _error_texts(stream: EventStream) -> list[str] | None:
    texts = [str(frame.data.get("message", "")) for frame in _of(stream, "error")]
    return [leak for text in texts for leak in _leaks(text)] if texts else None


def _tool_pairs(stream: EventStream) -> list[str] | None:
    """Checks for unique ids, every result after its call, and every call answered before ``done``."""
    seen: dict[str, set[str]] = {"tool-call": set(), "tool-result": set()}
    faults: list[str] = []
    for frame in stream.frames:
        if frame.event not in seen or not isinstance(frame.data, dict):
            continue
        call_id = str(frame.data.get("id"))
        if call_id in seen[frame.event]:
            faults.append(f"two {frame.event} events with the id {excerpt(call_id)}")
        if frame.event == "tool-result" and call_id not in seen["tool-call"]:
            faults.append(f"a result before or without its call: {excerpt(call_id)}")
        seen[frame.event].add(call_id)
    unanswered = sorted(seen["tool-call"] - seen["tool-result"])
    if unanswered and any(_of(stream, "done")):
        faults.append(f"done without a result for {excerpt(unanswered[0])}")
    return faults if any(seen.values()) else None


RULES: tuple[tuple[str, str, Rule], ...] = (
    ("CHAT-1", "the answer is a stream, 200 text/event-stream", _collected),
    ("CHAT-25", "every event has one event line and one data line with JSON, in UTF-8", _syntax),
    ("CHAT-26", "only text-delta, tool-call, tool-result, done and error", _names),
    ("CHAT-29", "data has exactly the contract's keys, of the contract's types", _shapes),
    ("CHAT-34", "usage counts tokens: prompt_tokens and completion_tokens", _usage),
    ("CHAT-28", "exactly one done or error, and nothing after it", _one_end),
    ("CHAT-27", "the response body comes to its proper end", _whole_body),
    ("CHAT-33", "done says why the run ended, never tool_calls", _finish_reason),
    ("CHAT-37", "error codes are provider_error, tool_error and context_overflow", _error_codes),
    ("CHAT-36", "error texts hold no path, stack trace or credential", _error_texts),
    ("CHAT-44", "tool results are paired with their calls by id", _tool_pairs),
)


def _of(stream: EventStream, event: str) -> Iterator[Frame]:
    return (frame for frame in stream.frames if frame.event == event and isinstance(frame.data, dict))


def _fits(data: Any, shape: Mapping[str, type]) -> bool:
    return (
        isinstance(data, dict)
        and data.keys() == shape.keys()
        and all(isinstance(data[name], kind) for name, kind in shape.items())
    )


def _leaks(text: str) -> list[str]:
    return [f"{sign} in {excerpt(text)}" for sign, pattern in _LEAKS.items() if pattern.search(text)]
