"""The examination of an engine: the prompt twice, every probe, then the grammar over all streams.

A probe looks only at answers. The inside of an engine (for example the end of a cancelled model call) is out of sight.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from app.conform.client import MAX_ALL_BYTES, PATH, EngineClient, TooMuch
from app.conform.grammar import RULES, judge_streams, not_refused, refusal_faults
from app.conform.transcript import EventStream, Finding, Report, Transcript, Verdict, judge, not_testable, read_stream

NO_KEY = "no --key was given"

_numbers = itertools.count(1)


class CannotExamine(Exception):
    """No engine there answers. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Session:
    """*plain* and *again* are the answers to the bare prompt, with which later answers are compared."""

    client: EngineClient
    prompt: str
    tool_prompt: str | None
    large_bytes: int
    plain: EventStream
    again: EventStream

    def differences(self, answer: Transcript) -> list[str]:
        """Compare with the plain answer: frame by frame if the model repeats itself, otherwise by the last event."""
        if not answer.is_stream:
            return no_stream(answer)
        stream = read_stream(answer)
        if self._repeatable:
            return [] if stream.frames == self.plain.frames else [f"{answer.label}: another answer than without it"]
        same_end = stream.end in (self.plain.end, self.again.end)
        return [] if same_end else [f"{answer.label}: ended with {stream.end}"]

    def judge_differences(self, answers: list[Transcript]) -> Verdict:
        compared = "frame by frame" if self._repeatable else "by how they end: the model's answers differ by themselves"
        return judge([fault for answer in answers for fault in self.differences(answer)], compared)

    @property
    def _repeatable(self) -> bool:
        return self.plain.frames == self.again.frames


Probe = Callable[[Session], Awaitable[Verdict]]
Check = Callable[[Transcript], list[str]]


async def examine(
    url: str,
    key: str | None = None,
    *,
    prompt: str = "hi",
    tool_prompt: str | None = None,
    timeout_s: float = 60.0,
    deadline_s: float = 900.0,
    large_bytes: int = 20_000_000,
) -> Report:
    """Examine the engine whose root is *url*, with some forty requests. Raises CannotExamine.

    *deadline_s* bounds the whole examination; what was not seen by then is not testable, and the report unfinished.
    *large_bytes* is the size of the body that the engine must find too large.
    """
    _check_arguments(url, key)
    async with httpx.AsyncClient(timeout=timeout_s, trust_env=False, follow_redirects=False) as http:
        client = EngineClient(http, url.rstrip("/").removesuffix(PATH), key, timeout_s)
        findings: list[Finding] = []
        unfinished = ""
        try:
            async with asyncio.timeout(deadline_s):
                first = [await _plain_answer(client, prompt) for _ in range(2)]
                session = Session(client, prompt, tool_prompt, large_bytes, *first)
                for case, text, probe in PROBES:
                    findings.append(Finding(case, text, *await probe(session)))
        except TimeoutError:
            unfinished = f"not examined to the end within {deadline_s:g} s; give more time with --deadline"
        except TooMuch:
            unfinished = f"not examined to the end: its answers have more than {MAX_ALL_BYTES:,} bytes together"
        # What was not reached, and the grammar over all that was read.
        findings += [Finding(case, text, *not_testable("not reached")) for case, text, _ in PROBES[len(findings) :]]
        streams = client.streams()
        findings += [Finding(case, text, *judge_streams(rule, streams)) for case, text, rule in RULES]
        return Report(client.url, findings, unfinished)


def _check_arguments(url: str, key: str | None) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise CannotExamine("The URL must be the root of an engine, such as http://127.0.0.1:8080")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise CannotExamine("The key holds a character that a header cannot have, perhaps a line end")


async def _plain_answer(client: EngineClient, prompt: str) -> EventStream:
    """The answer to the bare prompt. There is nothing to examine without it."""
    answer = await client.send("the prompt", asking(prompt))
    if answer.is_stream and answer.broken.startswith("not at its end"):
        raise CannotExamine(f"The answer of {client.url} was {answer.broken}; give more time with --timeout")
    if answer.is_stream:
        return read_stream(answer)
    if answer.status == 0:
        raise CannotExamine(f"No answer from {client.url}: {answer.broken}")
    if answer.status in (401, 403):
        raise CannotExamine(f"{client.url} refused the credential ({answer.status}); give one with --key")
    raise CannotExamine(
        f"{client.url} answered a good request with {answer.status} {answer.media_type}, not with a stream"
    )


def asking(prompt: str, **metadata: Any) -> dict[str, Any]:
    """A good request with a correlation id of its own."""
    return with_messages({"role": "user", "content": prompt}, **metadata)


def with_messages(*messages: Any, **metadata: Any) -> dict[str, Any]:
    return {"messages": messages, "metadata": {"correlation_id": f"conform-{next(_numbers)}", **metadata}}


def each(check: Check, requests: Mapping[str, Any], **options: Any) -> Probe:
    """A probe that sends each body, by label, and checks its answer. *options* are those of ``EngineClient.send``."""

    async def probe(session: Session) -> Verdict:
        answers = [await session.client.send(label, content, **options) for label, content in requests.items()]
        seen = f"{len(answers)} requests" if len(answers) > 1 else str(answers[0].status)
        return judge([fault for answer in answers for fault in check(answer)], seen)

    return probe


def no_stream(answer: Transcript) -> list[str]:
    if answer.is_stream:
        return []
    return [f"{answer.label}: {answer.status or answer.broken} {answer.media_type}, not a stream"]


def refused(*statuses: int) -> Check:
    return lambda answer: not_refused(answer, statuses)


def taken_or_refused(answer: Transcript) -> list[str]:
    return [] if answer.is_stream else not_refused(answer, {400, 415})


def repaired_or_refused(answer: Transcript) -> list[str]:
    return [] if answer.is_stream and read_stream(answer).end == "done" else not_refused(answer, {400})


def without_credential(attempts: Mapping[str, Mapping[str, str]]) -> Probe:
    """A probe that sends a good request with the headers of each attempt. ``{key}`` in a header is the credential."""

    async def probe(session: Session) -> Verdict:
        client, faults = session.client, []
        if client.key is None:
            return not_testable(NO_KEY)
        for label, headers in attempts.items():
            sent = {name: value.replace("{key}", client.key) for name, value in headers.items()}
            answer = await client.send(label, asking(session.prompt), headers=sent, authorized=False)
            faults += not_refused(answer, {401})
        return judge(faults, f"{len(attempts)} attempts")

    return probe


async def collected(session: Session) -> Verdict:
    head = session.plain.source.headers
    faults = ["the stream has a Content-Length, so it was collected before it was sent"]
    return judge(faults if "content-length" in head else [], head.get("content-type", ""))


async def incremental(session: Session) -> Verdict:
    reads = max(session.plain.source.reads, session.again.source.reads)
    if reads > 1:
        return judge([], f"{reads} reads")
    return not_testable("the answer came in one read; ask for a longer one with --prompt")


async def heartbeats(session: Session) -> Verdict:
    beats = sum(stream.comments for stream in session.client.streams())
    return judge([], f"{beats} comment lines") if beats else not_testable("no answer took long enough for one")


async def large_body(session: Session) -> Verdict:
    content = {**asking(session.prompt), "padding": "x" * session.large_bytes}
    answer = await session.client.send(f"a body of {session.large_bytes} bytes", content)
    if answer.status == 0:
        return not_testable(f"the connection was closed before the answer could be read ({answer.broken})")
    return judge(not_refused(answer, {400, 413}), str(answer.status))


async def triggers(session: Session) -> Verdict:
    bodies = {name: asking(session.prompt, trigger=name) for name in ("message", "webhook", "schedule")}
    return session.judge_differences([await session.client.send(f"trigger {name}", bodies[name]) for name in bodies])


async def unknown_fields(session: Session) -> Verdict:
    content = {
        **asking(session.prompt, tools=["rm"], model="another-model"),
        "tools": [{"type": "function", "function": {"name": "rm", "parameters": {"type": "object"}}}],
        "model": "another-model",
        "temperature": 2,
        "max_tokens": 1,
    }
    return session.judge_differences([await session.client.send("tools, model, temperature in the body", content)])


async def correlation(session: Session) -> Verdict:
    ids = [f"conform.trace:{number}" for number in (1, 2)]
    bodies = [asking(session.prompt, correlation_id=name) for name in ids]
    answers = await asyncio.gather(*map(session.client.send, ids, bodies))
    echoed = [answer.headers.get("x-correlation-id") for answer in answers]
    faults = [fault for answer in answers for fault in no_stream(answer)]
    if not faults and echoed == [None, None]:
        return not_testable("the engine shows no X-Correlation-ID")
    faults += [f"{name} was answered as {other}" for name, other in zip(ids, echoed, strict=True) if name != other]
    return judge(faults, "two requests at once")


async def early_disconnect(session: Session) -> Verdict:
    if not await session.client.hang_up(asking(session.prompt)):
        return judge(["no stream to hang up on"])
    after = await session.client.send("after a client hung up", asking(session.prompt))
    return judge(no_stream(after), "it serves on; whether the model was cancelled cannot be seen from here")


async def tool_round_trip(session: Session) -> Verdict:
    if session.tool_prompt is None:
        return not_testable("no --tool-prompt was given")
    answer = await session.client.send("the tool prompt", asking(session.tool_prompt))
    if not answer.is_stream:
        return judge(no_stream(answer))
    stream = read_stream(answer)
    events = [frame.event for frame in stream.frames]
    if "tool-call" not in events:
        return not_testable("the model called no tool")
    after = events[events.index("tool-call") + 1 :]
    if "tool-result" not in after:
        return judge([f"a tool-call, then {', '.join(after) or 'nothing'}"])
    return judge([] if stream.end == "done" else [f"it ended with {stream.end}"], f"{events.count('tool-call')} calls")


async def refusal_shapes(session: Session) -> Verdict:
    refusals = [answer for answer in session.client.transcripts if answer.status >= 400]
    if not refusals:
        return not_testable("nothing was refused")
    return judge([fault for refusal in refusals for fault in refusal_faults(refusal)], f"{len(refusals)} refusals")


async def no_credential_shown(session: Session) -> Verdict:
    key = session.client.key
    if key is None:
        return not_testable(NO_KEY)
    showing = [answer for answer in session.client.transcripts if key.encode() in answer.body]
    return judge([f"{answer.label}: it is in the body" for answer in showing])


_USER = {"role": "user", "content": "hi"}
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_META = {"correlation_id": "conform-0"}


_REFUSED = {
    "CHAT-2": "a body that is not JSON is 400",
    "CHAT-3": "a body that is not an object is 400",
    "CHAT-4": "missing messages are 400",
    "CHAT-5": "an empty list of messages is 400",
    "CHAT-6": "messages that are malformed are 400",
    "CHAT-7": "an unknown role is 400",
    "CHAT-8": "content that is neither a text nor text parts is 400",
    "CHAT-10": "missing metadata is 400: the correlation id is required",
    "CHAT-11": "metadata without a usable correlation id is 400",
    "CHAT-12": "an unknown trigger is 400",
    "CHAT-14": "client_context that is not an object is 400",
}
_ACCEPTED = {
    "CHAT-9": "empty content is taken",
    "E14b": "client_context is taken, whatever it holds",
    "CHAT-17": "an assistant's message last, or a system message alone, is passed on",
}
# Bytes are sent as they are, everything else as JSON.
_BODIES: tuple[tuple[str, str, Any], ...] = (
    ("CHAT-2", "{bad", b"{bad"),
    ("CHAT-2", "a cut body", b'{"messages": [{"role": "user"'),
    ("CHAT-3", "an array", []),
    ("CHAT-3", "a string", "x"),
    ("CHAT-3", "an empty body", b""),
    ("CHAT-3", "null", None),
    ("CHAT-4", "no messages", {}),
    ("CHAT-4", "only metadata", {"metadata": _META}),
    ("CHAT-5", "no message", with_messages()),
    ("CHAT-6", "messages as text", {"messages": "hi", "metadata": _META}),
    ("CHAT-6", "a number for a message", with_messages(5)),
    ("CHAT-6", "no role", with_messages({"content": "hi"})),
    ("CHAT-6", "no content", with_messages({"role": "user"})),
    ("CHAT-7", "role robot", with_messages({"role": "robot", "content": "hi"})),
    ("CHAT-8", "content 5", with_messages({"role": "user", "content": 5})),
    ("CHAT-8", "content null", with_messages({"role": "user", "content": None})),
    ("CHAT-10", "no metadata", {"messages": [_USER]}),
    ("CHAT-11", "metadata as text", {"messages": [_USER], "metadata": "x"}),
    ("CHAT-11", "metadata as a list", {"messages": [_USER], "metadata": [1]}),
    ("CHAT-11", "empty metadata", {"messages": [_USER], "metadata": {}}),
    ("CHAT-11", "an empty correlation id", with_messages(_USER, correlation_id="")),
    ("CHAT-11", "a number for a correlation id", with_messages(_USER, correlation_id=7)),
    ("CHAT-12", "trigger cron", asking("hi", trigger="cron")),
    ("CHAT-14", "client_context 5", asking("hi", client_context=5)),
    ("CHAT-9", "content ''", asking("")),
    ("E14b", "a context", asking("hi", client_context={"path": "/f"})),
    ("CHAT-17", "assistant last", with_messages(_USER, {"role": "assistant", "content": "and"})),
    ("CHAT-17", "system alone", with_messages({"role": "system", "content": "Say hello."})),
)
_UNPAIRED = {
    "a tool message without tool_call_id": with_messages(_USER, {"role": "tool", "content": "x"}),
    "calls without results": with_messages(_USER, {"role": "assistant", "content": "", "tool_calls": [_CALL]}, _USER),
}
_BAD_CREDENTIALS = {
    "no credential": {},
    "an empty bearer": {"Authorization": "Bearer"},
    "a wrong bearer": {"Authorization": "Bearer conform-wrong-credential"},
    "basic": {"Authorization": "Basic b3duZXI6eA=="},
    "a malformed cookie": {"Cookie": "a=%E0%A4%A"},
    "the credential as a cookie": {"Cookie": "token={key}; session={key}"},
}
_IDENTITY = {"identity headers alone": {"X-Actor-ID": "root", "X-Actor-Permissions": "*", "X_Actor_ID": "root"}}
_AS_TEXT = {"Content-Type": "text/plain"}


def _bodies(wanted: str) -> Mapping[str, Any]:
    return {label: body for case, label, body in _BODIES if case == wanted}


# The last three judge everything that was seen before them.
PROBES: tuple[tuple[str, str, Probe], ...] = (
    ("CHAT-1", "the answer is a stream, 200 text/event-stream", collected),
    ("CHAT-30", "text is sent while the model speaks", incremental),
    *((case, text, each(refused(400), _bodies(case))) for case, text in _REFUSED.items()),
    *((case, text, each(no_stream, _bodies(case))) for case, text in _ACCEPTED.items()),
    ("CHAT-13", "the trigger makes no difference", triggers),
    ("CHAT-15", "tools and model in the body have no effect", unknown_fields),
    ("ACCESS-1", "without a valid credential it is 401", without_credential(_BAD_CREDENTIALS)),
    ("ACCESS-2", "identity headers of the client are no credential", without_credential(_IDENTITY)),
    ("CHAT-18", "a wrong method is 405 or 404", each(refused(404, 405), {"GET /engine/chat": b""}, method="GET")),
    ("CHAT-19", "a wrong path is 404", each(refused(404), {"POST /engine/other": asking("hi")}, path="/engine/other")),
    (
        "CHAT-20",
        "JSON under another content type is taken, or refused properly",
        each(taken_or_refused, {"JSON as text/plain": asking("hi")}, headers=_AS_TEXT),
    ),
    ("CHAT-21", "a body over any sensible limit (20 MB) is refused with 413 or 400", large_body),
    (
        "CHAT-16",
        "calls without results, and results without calls, are refused or repaired",
        each(repaired_or_refused, _UNPAIRED),
    ),
    ("CHAT-42", "a tool is called, answered, and the run comes to done", tool_round_trip),
    ("CHAT-72", "a client may hang up at any time", early_disconnect),
    ("CHAT-38", "requests at once are kept apart, each with its correlation id", correlation),
    ("CHAT-35", "comment lines keep a waiting stream alive", heartbeats),
    ("CHAT-23", "every refusal is {code, message} as JSON, without paths or stack traces", refusal_shapes),
    ("CHAT-39", "the credential is in no answer", no_credential_shown),
)
