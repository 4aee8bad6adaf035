"""The stream's grammar: what holds for every stream of an engine, whatever was asked (S3 "Response: SSE Stream").

Pure checks. Each gives None where the stream has nothing that it could judge, else the faults it found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from app.conform.leaks import leaks
from app.conform.transcript import Frame, Stream, shown
from app.conform.verdict import Requirement, Verdict, judge, not_testable

Check = Callable[[Stream], list[str] | None]

EVENTS = ("text-delta", "tool-call", "tool-result", "done", "error")
ENDS = ("done", "error")
ERROR_CODES = ("provider_error", "tool_error", "context_overflow")

_SHAPES: Mapping[str, tuple[Mapping[str, type], ...]] = {
    "text-delta": ({"content": str},),
    "tool-call": ({"id": str, "name": str, "arguments": dict},),
    "tool-result": ({"id": str, "output": str}, {"id": str, "error": str}),
    "done": ({"finish_reason": str, "usage": dict}, {"finish_reason": str}),
    "error": ({"code": str, "message": str},),
}


def judge_streams(check: Check, streams: Sequence[Stream]) -> Verdict:
    """One verdict over all streams that were seen."""
    judged = 0
    faults: list[str] = []
    for stream in streams:
        found = check(stream)
        if found is not None:
            judged += 1
            faults += [f"{stream.label}: {fault}" for fault in found]
    if not judged:
        return not_testable("no stream had anything to judge")
    return judge(faults, f"{judged} streams")


def syntax(stream: Stream) -> list[str]:
    return list(stream.syntax)


def names(stream: Stream) -> list[str]:
    return [f"an event named {shown(frame.event)}" for frame in stream.frames if frame.event not in EVENTS]


def shapes(stream: Stream) -> list[str]:
    faults = []
    for frame in stream.frames:
        allowed = _SHAPES.get(frame.event, ())
        if allowed and not any(_fits(frame.data, shape) for shape in allowed):
            faults.append(f"{frame.event} with data {shown(frame.raw)}")
    return faults


def usage(stream: Stream) -> list[str] | None:
    counted = [frame.data["usage"] for frame in _of(stream, "done") if isinstance(frame.data.get("usage"), dict)]
    if not counted:
        return None
    wanted = ("prompt_tokens", "completion_tokens")
    return [f"usage {shown(str(item))}" for item in counted if not all(_is_count(item.get(name)) for name in wanted)]


def one_end(stream: Stream) -> list[str]:
    ends = [index for index, frame in enumerate(stream.frames) if frame.event in ENDS]
    if not ends:
        last = stream.frames[-1].event if stream.frames else "nothing"
        return [f"no done and no error; the last event was {shown(last)}"]
    if len(ends) > 1:
        return [f"{len(ends)} ends: {', '.join(stream.frames[index].event for index in ends)}"]
    if ends[0] != len(stream.frames) - 1:
        return [f"{shown(stream.frames[-1].event)} after {stream.frames[ends[0]].event}"]
    return []


def whole_body(stream: Stream) -> list[str]:
    return [f"the body broke off: {stream.broken}"] if stream.broken else []


def finish_reason(stream: Stream) -> list[str] | None:
    reasons = [frame.data.get("finish_reason") for frame in _of(stream, "done")]
    return [f"done with {reason!r}" for reason in reasons if reason in ("tool_calls", "", None)] if reasons else None


def error_codes(stream: Stream) -> list[str] | None:
    codes = [frame.data.get("code") for frame in _of(stream, "error")]
    return [f"error with code {shown(str(code))}" for code in codes if code not in ERROR_CODES] if codes else None


def error_texts(stream: Stream) -> list[str] | None:
    texts = [str(frame.data.get("message", "")) for frame in _of(stream, "error")]
    if not texts:
        return None
    return [f"{what} in {shown(text)}" for text in texts for what in leaks(text)]


def tool_pairs(stream: Stream) -> list[str] | None:
    """Unique ids, every result behind its call, and every call answered before ``done``."""
    asked: set[str] = set()
    answered: set[str] = set()
    faults: list[str] = []
    for frame in stream.frames:
        if frame.event not in ("tool-call", "tool-result") or not isinstance(frame.data, dict):
            continue
        call_id = str(frame.data.get("id"))
        seen = asked if frame.event == "tool-call" else answered
        if call_id in seen:
            faults.append(f"two {frame.event} events with the id {shown(call_id)}")
        if frame.event == "tool-result" and call_id not in asked:
            faults.append(f"a result before or without its call: {shown(call_id)}")
        seen.add(call_id)
    if not asked and not answered:
        return None
    if any(_of(stream, "done")) and asked - answered:
        faults.append(f"done without a result for {shown(sorted(asked - answered)[0])}")
    return faults


RULES: tuple[tuple[Requirement, Check], ...] = (
    (Requirement("S3 SSE Stream", "every event has one event line and one data line with JSON, in UTF-8"), syntax),
    (Requirement("S3 Events", "only text-delta, tool-call, tool-result, done and error"), names),
    (Requirement("E38", "data has exactly the contract's keys, of the contract's types"), shapes),
    (Requirement("E35", "usage counts tokens: prompt_tokens and completion_tokens"), usage),
    (Requirement("E37", "exactly one done or error, and nothing after it"), one_end),
    (Requirement("S3 stream closes", "the response body comes to its proper end"), whole_body),
    (Requirement("E39", "done says why the run ended, never tool_calls"), finish_reason),
    (Requirement("E76", "error codes are provider_error, tool_error and context_overflow"), error_codes),
    (Requirement("E75", "error texts hold no path, stack trace or credential"), error_texts),
    (Requirement("E44", "tool results are paired with their calls by id"), tool_pairs),
)


def _of(stream: Stream, event: str) -> Iterator[Frame]:
    return (frame for frame in stream.frames if frame.event == event and isinstance(frame.data, dict))


def _fits(data: Any, shape: Mapping[str, type]) -> bool:
    return (
        isinstance(data, dict)
        and data.keys() == shape.keys()
        and all(isinstance(data[name], kind) for name, kind in shape.items())
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
