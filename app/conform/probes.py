"""The checks that ask something of their own, in a table of requirements (S3; cases A, B, F).

A probe looks at answers only: what an engine does inside (whether it really cancelled its model) is out of its sight.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from app.conform import bodies
from app.conform.client import EngineClient
from app.conform.refusal import not_refused, shape_faults
from app.conform.transcript import Exchange, Stream, read_stream
from app.conform.verdict import Requirement, Verdict, failed, judge, not_testable, passed


@dataclass(frozen=True, slots=True)
class Session:
    """*plain* is the answer to the prompt, the measure for requests that must make no difference."""

    client: EngineClient
    prompt: str
    tool_prompt: str | None
    large_bytes: int
    plain: Stream
    again: Stream


Probe = Callable[[Session], Awaitable[Verdict]]


async def streams(session: Session) -> Verdict:
    head = session.plain.headers
    if "content-length" in head:
        return failed("the stream has a Content-Length, so it was collected before it was sent")
    return passed(head.get("content-type", ""))


async def incremental(session: Session) -> Verdict:
    if session.plain.reads > 1 or session.again.reads > 1:
        return passed(f"{max(session.plain.reads, session.again.reads)} reads")
    return not_testable("the answer came in one read; ask for a longer one with --prompt")


async def heartbeats(session: Session) -> Verdict:
    beats = sum(stream.comments for stream in session.client.streams())
    return passed(f"{beats} comment lines") if beats else not_testable("no answer took long enough for one")


async def refused(case: str, session: Session) -> Verdict:
    faults = []
    for label, content in bodies.REFUSED[case][1].items():
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        faults += not_refused(await session.client.send(label, raw), {400})
    return judge(faults, f"{len(bodies.REFUSED[case][1])} requests")


async def taken(case: str, session: Session) -> Verdict:
    faults = []
    for label, content in bodies.TAKEN[case][1].items():
        faults += _no_stream(await session.client.chat(label, content))
    return judge(faults)


async def unpaired(session: Session) -> Verdict:
    faults = []
    for label, content in bodies.UNPAIRED.items():
        exchange = await session.client.chat(label, content)
        if exchange.is_stream and _end(read_stream(exchange)) == "done":
            continue  # repaired
        faults += not_refused(exchange, {400})
    return judge(faults)


async def unauthorized(session: Session) -> Verdict:
    client = session.client
    if client.key is None:
        return not_testable("no --key was given")
    raw = json.dumps(bodies.body(session.prompt)).encode()
    attempts: Mapping[str, dict[str, str]] = {
        "no credential": {},
        "an empty bearer": {"Authorization": "Bearer"},
        "a wrong bearer": {"Authorization": "Bearer conform-wrong-credential"},
        "basic": {"Authorization": "Basic b3duZXI6eA=="},
        "a malformed cookie": {"Cookie": "a=%E0%A4%A"},
        "the credential as a cookie": {"Cookie": f"token={client.key}; session={client.key}"},
    }
    faults = []
    for label, headers in attempts.items():
        faults += not_refused(await client.send(label, raw, headers, authorized=False), {401})
    return judge(faults, f"{len(attempts)} attempts")


async def forged_identity(session: Session) -> Verdict:
    if session.client.key is None:
        return not_testable("no --key was given")
    raw = json.dumps(bodies.body(session.prompt)).encode()
    forged = {"X-Actor-ID": "root", "X-Actor-Permissions": "*", "X_Actor_ID": "root"}
    exchange = await session.client.send("identity headers alone", raw, forged, authorized=False)
    return judge(not_refused(exchange, {401}))


async def wrong_method(session: Session) -> Verdict:
    exchange = await session.client.send("GET /engine/chat", b"", method="GET")
    return judge(not_refused(exchange, {404, 405}), str(exchange.status))


async def wrong_path(session: Session) -> Verdict:
    raw = json.dumps(bodies.body(session.prompt)).encode()
    exchange = await session.client.send("POST /engine/other", raw, path="/engine/other")
    return judge(not_refused(exchange, {404}))


async def other_content_type(session: Session) -> Verdict:
    raw = json.dumps(bodies.body(session.prompt)).encode()
    exchange = await session.client.send("JSON as text/plain", raw, {"Content-Type": "text/plain"})
    if exchange.is_stream:
        return passed("taken")
    return judge(not_refused(exchange, {400, 415}), "refused")


async def large_body(session: Session) -> Verdict:
    raw = json.dumps({**bodies.body(session.prompt), "padding": "x" * session.large_bytes}).encode()
    exchange = await session.client.send(f"a body of {session.large_bytes} bytes", raw)
    if exchange.status == 0:
        return not_testable(f"the connection was closed before the answer could be read ({exchange.broken})")
    return judge(not_refused(exchange, {400, 413}), str(exchange.status))


async def triggers(session: Session) -> Verdict:
    faults = []
    for trigger in ("message", "webhook", "schedule"):
        exchange = await session.client.chat(f"trigger {trigger}", bodies.body(session.prompt, trigger=trigger))
        faults += _differs(session, exchange)
    return judge(faults, _how_compared(session))


async def unknown_fields(session: Session) -> Verdict:
    content = {**bodies.body(session.prompt, tools=["rm"], model="another-model"), **bodies.UNKNOWN_FIELDS}
    exchange = await session.client.chat("tools, model, temperature in the body", content)
    return judge(_differs(session, exchange), _how_compared(session))


async def correlation(session: Session) -> Verdict:
    ids = [f"conform.trace:{number}" for number in (1, 2)]
    answers = await asyncio.gather(
        *(session.client.chat(name, bodies.body(session.prompt, correlation_id=name)) for name in ids)
    )
    echoed = [answer.headers.get("x-correlation-id") for answer in answers]
    faults = [fault for answer in answers for fault in _no_stream(answer)]
    if not faults and echoed == [None, None]:
        return not_testable("the engine shows no X-Correlation-ID")
    faults += [f"{name} was answered as {other}" for name, other in zip(ids, echoed, strict=True) if name != other]
    return judge(faults, "two requests at once")


async def early_disconnect(session: Session) -> Verdict:
    if not await session.client.hang_up(bodies.body(session.prompt)):
        return failed("no stream to hang up on")
    after = await session.client.chat("after a client hung up", bodies.body(session.prompt))
    return judge(_no_stream(after), "it serves on; whether the model was cancelled cannot be seen from here")


async def tool_round_trip(session: Session) -> Verdict:
    if session.tool_prompt is None:
        return not_testable("no --tool-prompt was given")
    exchange = await session.client.chat("the tool prompt", bodies.body(session.tool_prompt))
    if faults := _no_stream(exchange):
        return judge(faults)
    stream = read_stream(exchange)
    events = [frame.event for frame in stream.frames]
    if "tool-call" not in events:
        return not_testable("the model called no tool")
    if "tool-result" not in events[events.index("tool-call") :]:
        return failed(f"a tool-call, then {', '.join(events[events.index('tool-call') + 1 :]) or 'nothing'}")
    return judge(
        [] if _end(stream) == "done" else [f"it ended with {_end(stream)}"], f"{events.count('tool-call')} calls"
    )


async def refusal_shapes(session: Session) -> Verdict:
    refusals = [exchange for exchange in session.client.exchanges if exchange.status >= 400]
    if not refusals:
        return not_testable("nothing was refused")
    return judge([fault for refusal in refusals for fault in shape_faults(refusal)], f"{len(refusals)} refusals")


async def no_credential_shown(session: Session) -> Verdict:
    key = session.client.key
    if key is None:
        return not_testable("no --key was given")
    return judge([f"{seen.label}: it is in the body" for seen in session.client.exchanges if key.encode() in seen.body])


PROBES: tuple[tuple[Requirement, Probe], ...] = (
    (Requirement("E01", "the answer is a stream, 200 text/event-stream"), streams),
    (Requirement("E30", "text is sent while the model speaks"), incremental),
    *((Requirement(case, text), partial(refused, case)) for case, (text, _) in bodies.REFUSED.items()),
    *((Requirement(case, text), partial(taken, case)) for case, (text, _) in bodies.TAKEN.items()),
    (Requirement("E13", "the trigger makes no difference"), triggers),
    (Requirement("E15", "tools and model in the body have no effect"), unknown_fields),
    (Requirement("E18", "without a valid credential it is 401"), unauthorized),
    (Requirement("E19", "identity headers of the client are no credential"), forged_identity),
    (Requirement("E22", "a wrong method is 405 or 404"), wrong_method),
    (Requirement("E23", "a wrong path is 404"), wrong_path),
    (Requirement("E24", "JSON under another content type is taken, or refused properly"), other_content_type),
    (Requirement("E25", "a body over any sensible limit (20 MB) is refused with 413 or 400"), large_body),
    (Requirement("E27", "calls without results, and results without calls, are refused or repaired"), unpaired),
    (Requirement("E41", "a tool is called, answered, and the run comes to done"), tool_round_trip),
    (Requirement("E86", "a client may hang up at any time"), early_disconnect),
    (Requirement("E88", "requests at once are kept apart, each with its correlation id"), correlation),
    (Requirement("E40", "comment lines keep a waiting stream alive"), heartbeats),
    (Requirement("E29", "every refusal is {code, message} as JSON, without paths or stack traces"), refusal_shapes),
    (Requirement("S3 Security", "the credential is in no answer"), no_credential_shown),
)


def _no_stream(exchange: Exchange) -> list[str]:
    if exchange.is_stream:
        return []
    return [f"{exchange.label}: {exchange.status or exchange.broken} {exchange.media_type}, not a stream"]


def _end(stream: Stream) -> str:
    return stream.frames[-1].event if stream.frames else "nothing"


def _differs(session: Session, exchange: Exchange) -> list[str]:
    """From the plain answer: in every frame, or, where the model's answers differ by themselves, in their form."""
    if faults := _no_stream(exchange):
        return faults
    stream = read_stream(exchange)
    if _repeatable(session):
        return [] if stream.frames == session.plain.frames else [f"{exchange.label}: another answer than without it"]
    same_end = _end(stream) in (_end(session.plain), _end(session.again))
    return [] if same_end else [f"{exchange.label}: ended with {_end(stream)}"]


def _repeatable(session: Session) -> bool:
    return session.plain.frames == session.again.frames


def _how_compared(session: Session) -> str:
    return "frame by frame" if _repeatable(session) else "by how they end: the model's answers differ by themselves"
