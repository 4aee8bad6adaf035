"""The examination of an engine: the prompt twice, every probe, then the grammar over all streams.

A probe looks only at answers. The inside of an engine (for example the end of a cancelled model call) is out of sight.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from app.conform.client import MAX_ALL_BYTES, PATH, EngineClient, TooMuch
from app.conform.grammar import RULES, judge_streams, refusal_faults, unexpected
from app.conform.transcript import EventStream, Finding, Report, Verdict, judge, not_testable, read_stream

NO_KEY = "no --key was given"
_LARGE = 20_000_000
"""Bytes that an engine must find too many for a body."""

_SILENCE_S = 60.0
"""The longest silence that is accepted: the contract has comment lines for a stream that waits."""

_numbers = itertools.count(1)


class CannotExamine(Exception):
    """No engine there answers. The text says what to do."""


Probe = Callable[[EngineClient], Awaitable[Verdict]]


async def examine(
    url: str,
    key: str | None = None,
    *,
    prompt: str = "hi",
    tool_prompt: str | None = None,
    deadline_s: float = 900.0,
) -> Report:
    """Examine the engine whose root is *url*, with some forty requests. Raises CannotExamine.

    *deadline_s* bounds the whole examination; what was not seen by then is not testable, and the report unfinished.
    """
    try:
        urlsplit(url).port  # noqa: B018 - for its check
    except ValueError as error:
        raise CannotExamine(f"No answer from {url}: {error}") from None
    if key is not None and not (key.isascii() and key.isprintable()):
        raise CannotExamine("The key holds a character that a header cannot have, perhaps a line end")
    async with httpx.AsyncClient(timeout=_SILENCE_S, trust_env=False, follow_redirects=False) as http:
        engine = EngineClient(http, url.rstrip("/").removesuffix(PATH), key, prompt, tool_prompt)
        findings: list[Finding] = []
        unfinished = ""
        try:
            async with asyncio.timeout(deadline_s):
                engine.plain, engine.again = await _plain_answer(engine), await _plain_answer(engine)
                for case, text, probe in PROBES:
                    findings.append(Finding(case, text, *await probe(engine)))
        except TimeoutError:
            unfinished = f"not examined to the end within {deadline_s:g} s; give more time with --deadline"
        except TooMuch:
            unfinished = f"not examined to the end: its answers have more than {MAX_ALL_BYTES:,} bytes together"
        # What was not reached, and the grammar over all that was read.
        findings += [Finding(case, text, *not_testable("not reached")) for case, text, _ in PROBES[len(findings) :]]
        streams = [read_stream(each) for each in engine.transcripts if each.is_stream]
        findings += [Finding(case, text, *judge_streams(rule, streams)) for case, text, rule in RULES]
        return Report(engine.url, findings, unfinished)


async def _plain_answer(engine: EngineClient) -> EventStream:
    """The answer to the bare prompt. There is nothing to examine without it."""
    answer = await engine.send(asking(engine.prompt))
    if not answer.status:
        raise CannotExamine(f"No answer from {engine.url}: {answer.broken}")
    if not answer.is_stream:
        got = f"{answer.status} {answer.media_type}, not a stream"
        raise CannotExamine(f"{engine.url} answered a good request with {got}; --key gives a credential")
    return read_stream(answer)


def asking(prompt: Any, **metadata: Any) -> dict[str, Any]:
    """A good request with a correlation id of its own."""
    return with_messages({"role": "user", "content": prompt}, **metadata)


def with_messages(*messages: Any, **metadata: Any) -> dict[str, Any]:
    return {"messages": messages, "metadata": {"correlation_id": f"conform-{next(_numbers)}", **metadata}}


def each(wanted: str, *bodies: Any, headers: Sequence[Mapping[str, str]] = ({},), **options: Any) -> Probe:
    """A probe that sends each of *bodies* with each of *headers*, which is answered as *wanted* (``unexpected``).
    *options* are those of ``EngineClient.send``."""

    async def probe(engine: EngineClient) -> Verdict:
        if engine.key is None and any("Authorization" in given for given in headers):
            return not_testable(NO_KEY)
        answers = [await engine.send(content, given, **options) for content in bodies for given in headers]
        return judge([fault for answer in answers for fault in unexpected(answer, wanted)], f"{len(answers)} requests")

    return probe


def no_difference(fields: Mapping[str, Any], *metadata: Mapping[str, Any]) -> Probe:
    """A probe that sends the prompt with *fields*, once with each of *metadata*. The answers must be as the plain one:
    frame by frame if the model repeats itself, otherwise by the last event."""

    async def probe(engine: EngineClient) -> Verdict:
        answers = [await engine.send({**asking(engine.prompt, **each), **fields}) for each in metadata]
        faults = [fault for answer in answers for fault in unexpected(answer, "stream")]
        repeats = engine.plain.frames == engine.again.frames
        known = (engine.plain.frames,) if repeats else (engine.plain.end, engine.again.end)
        for stream in map(read_stream, answers):
            if (stream.frames if repeats else stream.end) not in known:
                faults.append(f"{stream.source.label}: another answer than without it")
        return judge(faults, "frame by frame" if repeats else "by their ends: the model's answers differ by themselves")

    return probe


async def large_body(engine: EngineClient) -> Verdict:
    answer = await engine.send({**asking(engine.prompt), "padding": "x" * _LARGE})
    if answer.status == 0:
        return not_testable(f"the connection was closed before the answer could be read ({answer.broken})")
    return judge(unexpected(answer, "413 or 400"), str(answer.status))


async def correlation(engine: EngineClient) -> Verdict:
    ids = [f"conform.trace:{number}" for number in (1, 2)]
    answers = await asyncio.gather(*(engine.send(asking(engine.prompt, correlation_id=name)) for name in ids))
    echoed = [answer.headers.get("x-correlation-id") for answer in answers]
    faults = [fault for answer in answers for fault in unexpected(answer, "stream")]
    if not faults and echoed == [None, None]:
        return not_testable("the engine shows no X-Correlation-ID")
    faults += [f"{name} was answered as {other}" for name, other in zip(ids, echoed, strict=True) if name != other]
    return judge(faults, "two requests at once")


async def early_disconnect(engine: EngineClient) -> Verdict:
    left = await engine.send(asking(engine.prompt), leave=True)
    after = await engine.send(asking(engine.prompt))
    faults = unexpected(left, "stream") + unexpected(after, "stream")
    return judge(faults, "it serves on; whether the model was cancelled cannot be seen from here")


async def tool_round_trip(engine: EngineClient) -> Verdict:
    if engine.tool_prompt is None:
        return not_testable("no --tool-prompt was given")
    answer = await engine.send(asking(engine.tool_prompt))
    if answer.is_stream and not any(frame.event == "tool-call" for frame in read_stream(answer).frames):
        return not_testable("the model called no tool")
    return judge(unexpected(answer, "done"))


async def refusal_shapes(engine: EngineClient) -> Verdict:
    refusals = [answer for answer in engine.transcripts if answer.status >= 400]
    if not refusals:
        return not_testable("nothing was refused")
    return judge([fault for refusal in refusals for fault in refusal_faults(refusal)], f"{len(refusals)} refusals")


async def no_credential_shown(engine: EngineClient) -> Verdict:
    key = engine.key
    if key is None:
        return not_testable(NO_KEY)
    showing = [answer for answer in engine.transcripts if key.encode() in answer.body]
    return judge([f"{answer.label}: it is in the body" for answer in showing])


_USER = {"role": "user", "content": "hi"}
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_AS_TEXT = ({"Content-Type": "text/plain"},)
_META = {"correlation_id": "conform-0"}
_TRIGGERS = [{"trigger": name} for name in ("message", "webhook", "schedule")]
_OTHER_MODEL = {
    "tools": [{"type": "function", "function": {"name": "rm", "parameters": {"type": "object"}}}],
    "model": "another-model",
    "temperature": 2,
    "max_tokens": 1,
}

_METADATA = [
    {"messages": [_USER], "metadata": metadata}
    for metadata in ("x", [1], {}, {"correlation_id": ""}, {"correlation_id": 7})
]
_MALFORMED = ({"content": "hi"}, {"role": "user"}, 5)
_UNPAIRED = (
    with_messages(_USER, {"role": "tool", "content": "x"}),
    with_messages(_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}, _USER),
)
_NO_QUESTION = (
    with_messages(_USER, {"role": "assistant", "content": "and"}),
    with_messages({"role": "system", "content": "Say hello."}),
)
_NONE = {"Authorization": ""}
_BAD_CREDENTIALS = (
    _NONE,
    *({"Authorization": value} for value in ("Bearer", "Bearer conform-wrong-credential", "Basic b3duZXI6eA==")),
    *({**_NONE, "Cookie": value} for value in ("a=%E0%A4%A", "token={key}; session={key}")),
)
_IDENTITY = {**_NONE, "X-Actor-ID": "root", "X-Actor-Permissions": "*", "X_Actor_ID": "root"}

# The last three judge everything that was seen before them.
PROBES: tuple[tuple[str, str, Probe], ...] = (
    ("CHAT-2", "a body that is not JSON is 400", each("400", b"{bad", b'{"messages": [{"role": "user"')),
    ("CHAT-3", "a body that is not an object is 400", each("400", [], "x", b"", None)),
    ("CHAT-4", "missing messages are 400", each("400", {}, {"metadata": _META})),
    ("CHAT-5", "an empty list of messages is 400", each("400", with_messages())),
    ("CHAT-6", "messages that are not a list are 400", each("400", {"messages": "hi", "metadata": _META})),
    ("CHAT-6", "malformed messages are 400", each("400", *map(with_messages, _MALFORMED))),
    ("CHAT-7", "an unknown role is 400", each("400", with_messages({**_USER, "role": "robot"}))),
    ("CHAT-8", "content that is no text is 400", each("400", asking(5), asking(None))),
    ("CHAT-10", "missing metadata is 400: the correlation id is required", each("400", {"messages": [_USER]})),
    ("CHAT-11", "metadata without a usable correlation id is 400", each("400", *_METADATA)),
    ("CHAT-12", "an unknown trigger is 400", each("400", asking("hi", trigger="cron"))),
    ("CHAT-14", "client_context that is not an object is 400", each("400", asking("hi", client_context=5))),
    ("CHAT-9", "empty content is taken", each("stream", asking(""))),
    ("CHAT-14", "client_context is taken", each("stream", asking("hi", client_context={"path": "/f"}))),
    ("CHAT-17", "an assistant's message last, or a system message alone, is passed on", each("stream", *_NO_QUESTION)),
    ("CHAT-13", "the trigger makes no difference", no_difference({}, *_TRIGGERS)),
    ("CHAT-15", "tools and model in the body have no effect", no_difference(_OTHER_MODEL, {"tools": ["rm"]})),
    ("ACCESS-1", "without a valid credential it is 401", each("401", asking("hi"), headers=_BAD_CREDENTIALS)),
    ("ACCESS-2", "identity headers of the client are no credential", each("401", asking("hi"), headers=(_IDENTITY,))),
    ("CHAT-18", "a wrong method is 405 or 404", each("405 or 404", b"", method="GET")),
    ("CHAT-19", "a wrong path is 404", each("404", asking("hi"), path="/engine/other")),
    ("CHAT-20", "JSON as text is taken or refused", each("stream or 400 or 415", asking("hi"), headers=_AS_TEXT)),
    ("CHAT-21", "a body over any sensible limit (20 MB) is refused with 413 or 400", large_body),
    ("CHAT-16", "calls without results, and the reverse, are refused or repaired", each("400 or done", *_UNPAIRED)),
    ("CHAT-42", "a tool is called, answered, and the run comes to done", tool_round_trip),
    ("CHAT-72", "a client may hang up at any time", early_disconnect),
    ("CHAT-38", "requests at once are kept apart, each with its correlation id", correlation),
    ("CHAT-23", "every refusal is {code, message} as JSON, without paths or stack traces", refusal_shapes),
    ("CHAT-39", "the credential is in no answer", no_credential_shown),
)
