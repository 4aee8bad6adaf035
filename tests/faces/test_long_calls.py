"""Handles of calls that take longer than clients wait, in the gateway face (EXEC-47, EXEC-48, FACE-68 to FACE-71)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.test_running_calls import held
from tests.support.audit_memory import AuditMemory
from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import InputRequired, UpstreamTimeout
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.surface import SurfaceResult
from wicketgate.gateway.audit import Attached, Auditor
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.running_calls import AttendedCaller, RunningLimits
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext, InputAnswers
from wicketgate.upstreams.embedded import StubUpstream

AFTER_S = 0.01
"""Calls of these tests outlive it, since they wait for an event."""
TOOLS = ("slow", "other")


class Server:
    """A server whose calls wait until they are told to end."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.end = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.answers: list[Any] = []
        self.error: Exception | None = None
        self.question: Mapping[str, Any] | None = None
        self.more = ""

    async def call(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self.begun.set()
        try:
            await context.caller.progress(3, 10, "indexing")
            if context.answers is None:
                await self.end.wait()
            else:
                self.answers.append(context.answers.responses)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self.question is not None:
            self.answers.append(await context.caller.ask("elicitation/create", self.question))
        if self.error is not None and context.answers is None:
            raise self.error
        said = f"{name} done with {dict(arguments)}{self.more}"
        return {"content": [{"type": "text", "text": said}], "_meta": {"a/b": 1}}


class Gate:
    """A gateway face over one server, for clients that come with a request each."""

    def __init__(self, server: Server, auditor: Auditor | None = None, **limits: Any) -> None:
        self.server = server
        definitions = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        running = RunningLimits(**{"after_s": AFTER_S, **limits})
        upstream = StubUpstream(definitions, server.call, name="shop")
        self.runtime = ProxyRuntime(upstream, RuntimeOptions(auditor=auditor, running=running))
        self.face = GatewayFace(self.runtime)

    async def execute(self, context: CallContext, tool_id: str = "shop:slow") -> SurfaceResult:
        return await self.face.call("tool_execute", {"tool_id": tool_id, "args": {"n": 1}}, context)

    async def view(self, handle: str, context: CallContext, kind: str = "wait", **fields: Any) -> SurfaceResult:
        return await self.face.call("tool_view", {"handle": handle, "selector": {"type": kind, **fields}}, context)


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    made = Gate(Server())
    await made.runtime.refresh_catalog()
    yield made
    await made.runtime.aclose()


def request(caller: RecordingCaller | None = None, actor: str = "ann", *permissions: str) -> CallContext:
    """The context of a request of its own, whose client is *caller*."""
    identity = Identity(actor, permissions or ("*",))
    return CallContext(identity, "trace", "session", AttendedCaller(caller or RecordingCaller()))


async def handle_of(gate: Gate, context: CallContext | None = None) -> str:
    running = await gate.execute(context or request())
    assert running.structured["status"] == "running"
    return str(running.structured["handle"])


@requirement("FACE-68")
async def test_a_call_that_takes_longer_gives_a_handle_and_the_next_step(gate: Gate) -> None:
    running = await gate.execute(request())
    body = dict(running.structured)
    tool_id = body["provenance"]["tool_id"]
    assert not running.is_error
    assert body.pop("handle").startswith(f"call:{tool_id}:")
    assert tool_id.startswith("shop:slow#")
    assert body == {
        "status": "running",
        "summary": "The tool has run for 0 s and continues. Get its result with tool_view: handle and the selector in "
        "next.",
        "facts": ["progress: 3 of 10: indexing"],
        "artifacts": [],
        "provenance": {"tool_id": tool_id},
        "next": {"type": "wait", "timeout_s": AFTER_S},
    }
    assert not gate.server.cancelled.is_set()


@requirement("FACE-68")
async def test_a_call_in_time_and_one_whose_caller_cannot_come_back_have_no_handle(gate: Gate) -> None:
    engine = asyncio.ensure_future(gate.execute(replace(request(), caller=RecordingCaller())))
    await gate.server.begun.wait()
    handle = await handle_of(gate)
    assert not engine.done()
    gate.server.end.set()
    whole = (await engine).structured
    in_time = (await gate.execute(request())).structured
    assert whole == in_time == (await gate.view(handle, request())).structured
    assert whole["status"] == "ok" and "handle" not in whole
    never = Gate(Server(), after_s=0)
    await never.runtime.refresh_catalog()
    call = asyncio.ensure_future(never.execute(request()))
    await never.server.begun.wait()
    assert never.runtime.running.held == 0
    never.server.end.set()
    assert (await call).structured == whole


@requirement("FACE-69")
async def test_a_wait_gives_the_result_as_the_call_would_have(gate: Gate) -> None:
    handle = await handle_of(gate)
    client = RecordingCaller()
    assert (await gate.view(handle, request(client), timeout_s=0)).structured["handle"] == handle
    waiting = asyncio.ensure_future(gate.view(handle, request(client)))
    gate.server.end.set()
    done = await waiting
    assert done.structured["status"] == "ok"
    assert done.structured["summary"] == "slow done with {'n': 1}"
    assert done.meta == {"a/b": 1}
    assert done.cost.naive > 0
    # An answer that was lost on its way can be asked for again.
    again = await gate.view(handle, request())
    assert (again.structured, again.shown) == (done.structured, "slow done with {'n': 1}")


@requirement("FACE-69")
async def test_a_call_that_fails_later_gives_its_error(gate: Gate) -> None:
    gate.server.error = UpstreamTimeout("shop did not answer within 30 s.")
    handle = await handle_of(gate)
    gate.server.end.set()
    failed = await gate.view(handle, request())
    assert failed.is_error
    assert failed.structured["error"] == "UPSTREAM_TIMEOUT"
    assert failed.structured["path"].startswith("shop:slow#")
    assert (await gate.view(handle, request())).structured == failed.structured


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        ({"type": "head"}, "a handle of a call takes only these selectors"),
        ("wait", "a handle of a call takes only these selectors"),
        ({"type": "wait", "seconds": 1}, "wait has no field 'seconds'"),
        ({"type": "wait", "timeout_s": -1}, "timeout_s must be a number"),
        ({"type": "wait", "timeout_s": True}, "timeout_s must be a number"),
        ({"type": "wait", "timeout_s": float("nan")}, "timeout_s must be a number"),
        ({"type": "cancel", "timeout_s": 1}, "cancel has no field"),
    ],
)
@requirement("FACE-69")
async def test_another_selector_is_refused_with_those_that_apply(gate: Gate, selector: object, problem: str) -> None:
    handle = await handle_of(gate)
    refused = await gate.face.call("tool_view", {"handle": handle, "selector": selector}, request())
    assert refused.structured["error"] == "VIEW_FAILED"
    assert refused.structured["message"].startswith(problem)
    assert refused.structured["details"]["selectors"][0] == '{"type":"wait","timeout_s":20}'


@requirement("FACE-69")
async def test_the_selectors_of_a_call_are_none_of_an_artifact(gate: Gate) -> None:
    gate.server.end.set()
    gate.server.more = " and more" * 1_000
    done = await gate.execute(request())
    refused = await gate.view(done.structured["artifacts"][0]["handle"], request())
    assert refused.structured["message"].startswith("wait is for handles that begin with 'call:'")


@requirement("FACE-70")
async def test_cancel_ends_the_call_at_its_server(gate: Gate) -> None:
    handle = await handle_of(gate)
    cancelled = await gate.view(handle, request(), "cancel")
    assert gate.server.cancelled.is_set()
    assert cancelled.structured["summary"].startswith("The call was cancelled.")
    later = await gate.view(handle, request())
    assert later.structured["error"] == "UPSTREAM_ERROR"
    assert "it was cancelled" in later.structured["message"]
    # There is nothing left to cancel, so the answer is what the call has ended with.
    assert (await gate.view(handle, request(), "cancel")).structured == later.structured


@requirement("FACE-70")
async def test_a_client_that_leaves_before_the_handle_ends_the_call_and_one_that_leaves_a_wait_does_not() -> None:
    gate = Gate(Server(), after_s=60)
    await gate.runtime.refresh_catalog()
    first = asyncio.ensure_future(gate.execute(request()))
    await gate.server.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert gate.server.cancelled.is_set()
    assert gate.runtime.running.held == 0

    server = gate.server
    server.cancelled.clear()
    call = await held(gate.runtime.running, "ann", gate.runtime.whole_id("shop:slow", request()), server.end.wait())
    handle = f"call:{call.label}:{call.id}"
    waits = [asyncio.ensure_future(gate.view(handle, request())) for _ in range(2)]
    await asyncio.sleep(0)
    waits[0].cancel()
    await asyncio.wait(waits[:1])
    assert waits[0].cancelled() and not call.ended
    waits[1].cancel()
    await gate.runtime.aclose()


@requirement("FACE-71")
async def test_a_question_goes_to_the_client_that_waits_and_is_waited_for() -> None:
    server = Server()
    server.question = {"message": "Which shop?"}
    gate = Gate(server)
    await gate.runtime.refresh_catalog()
    handle = await handle_of(gate, request(RecordingCaller("now")))
    person = RecordingCaller("now")
    waiting = asyncio.ensure_future(gate.view(handle, request(person), timeout_s=0))
    server.end.set()
    await person.asking.wait()
    assert not waiting.done()
    waiting.cancel()
    await person.given_up.wait()
    answering = RecordingCaller("now", {"action": "accept", "content": {"shop": "Basel"}})
    done = await gate.view(handle, request(answering))
    while done.structured["status"] == "running":
        done = await gate.view(handle, request(answering))
    assert done.structured["status"] == "ok"
    assert server.answers == [{"action": "accept", "content": {"shop": "Basel"}}]
    await gate.runtime.aclose()


@requirement("FACE-71")
async def test_a_question_for_later_is_answered_with_a_second_view(gate: Gate) -> None:
    gate.server.error = InputRequired({"shop": {"method": "elicitation/create", "params": {"message": "?"}}}, "s1")
    handle = await handle_of(gate, request(RecordingCaller("later")))
    gate.server.end.set()
    with pytest.raises(InputRequired) as question:
        await gate.view(handle, request(RecordingCaller("later")))
    # Asked again without an answer, it is the same question.
    with pytest.raises(InputRequired):
        await gate.view(handle, request(RecordingCaller("later")))
    answers = InputAnswers({"shop": {"action": "accept"}}, "s1", question.value.definition)
    done = await gate.view(handle, replace(request(RecordingCaller("later")), answers=answers))
    assert done.structured["status"] == "ok"
    assert gate.server.answers == [{"shop": {"action": "accept"}}]
    assert (await gate.view(handle, request())).structured["error"] == "VIEW_FAILED"


@requirement("EXEC-47")
async def test_a_handle_is_good_for_its_actor_and_for_as_long_as_the_tool_may_be_used(gate: Gate) -> None:
    handle = await handle_of(gate)
    slow, other = (gate.runtime.whole_id(f"shop:{name}", request()) for name in TOOLS)
    wrong_tool = handle.replace(slow, other)
    gone = [
        await gate.view(handle, request(None, "bob")),
        await gate.view(handle, request(None, "ann", "tools:shop:other")),
        await gate.view(wrong_tool, request()),
        await gate.view("call:shop:slow:nothing", request()),
        await gate.view("call:", request()),
    ]
    assert {answer.structured["message"] for answer in gone} == {"No such call, or its result has expired."}
    short = f"call:shop:slow:{handle.rpartition(':')[2]}"
    assert (await gate.view(short, request())).structured["handle"] == handle
    gate.runtime.access = AccessPolicy([AccessRule("shop:slow", visibility="internal")])
    assert (await gate.view(handle, request())).structured["error"] == "VIEW_FAILED"
    assert not gate.server.cancelled.is_set()


@requirement("EXEC-48")
async def test_without_a_place_a_call_goes_on_with_its_request() -> None:
    gate = Gate(Server(), most=1)
    await gate.runtime.refresh_catalog()
    handle = await handle_of(gate)
    second = asyncio.ensure_future(gate.execute(request()))
    await asyncio.wait([second], timeout=5 * AFTER_S)
    assert not second.done()
    gate.server.end.set()
    assert (await second).structured["status"] == "ok"
    assert (await gate.view(handle, request())).structured["status"] == "ok"
    await gate.runtime.aclose()


@requirement("EXEC-47")
async def test_a_call_has_one_record_when_it_has_ended_and_each_view_of_it_one() -> None:
    sink = AuditMemory()
    gate = Gate(Server(), Auditor([Attached("memory", sink)], wall_clock=lambda: 0.0))
    await gate.runtime.refresh_catalog()
    handle = await handle_of(gate)
    await gate.view(handle, request())
    await gate.view(handle, request(None, "bob"))
    gate.server.end.set()
    while (await gate.view(handle, request())).structured["status"] == "running":
        pass
    told = [(record.operation, record.actor, record.outcome) for record in sink.records if record.phase == "end"]
    assert told[:2] == [("view", "ann", "allowed"), ("view", "bob", "invalid")]
    assert told.count(("execute", "ann", "allowed")) == 1
    await gate.runtime.aclose()
