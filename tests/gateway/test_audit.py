"""One record of every call, on every exit, and nothing without a record where it must be kept (ACCESS-23 to
ACCESS-27)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from tests.support.audit_memory import AuditMemory
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import (
    ApprovalRequired,
    ArgsInvalid,
    Forbidden,
    GatewayError,
    HydrateFailed,
    RateLimited,
    UpstreamError,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.fleet.member import Member, MultiplexUpstream, UpstreamLimits
from wicketgate.gateway.audit import Attached, Auditor, AuditRecord
from wicketgate.gateway.call_memory import arguments_digest
from wicketgate.gateway.options import CallPolicy, RetryPolicy, RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugin_api import Block, Request, Result, SecurityPlugin
from wicketgate.plugins.filters import PiiConfig, PiiFilter
from wicketgate.ports import Artifact, CallContext, PutOutcome
from wicketgate.storage.memory_store import MemoryArtifactStore
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner_1", ("*",)), "req_1", "s")
READER = CallContext(Identity("reader_1", ("tools:other:*",)), "req_2", "s")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
BOUND_S = 30.0
READ_ONLY = RuntimePolicies(default_call=CallPolicy(read_only=["*"]))
"""With these a call leaves one record: it needs no intent."""


class Server(StubUpstream):
    def __init__(self, outcome: object) -> None:
        tools = [{"name": "echo", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}]
        super().__init__(tools, self._answer, name="raw")
        self.outcome = outcome
        self.reached = asyncio.Event()
        self.said = "bob@example.com"

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self.reached.set()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome == "wait":
            await asyncio.Event().wait()
        return {"content": [{"type": "text", "text": self.said}], "isError": self.outcome == "error"}


@pytest.fixture
def sink() -> AuditMemory:
    return AuditMemory()


async def runtime_over(
    server: Server | MultiplexUpstream,
    *sinks: Attached,
    plugins: PluginChain | None = None,
    **policies: Any,
) -> tuple[ProxyRuntime, str]:
    times = iter(range(1_000_000))
    call_policy = CallPolicy(retry=RetryPolicy(attempts=1), cached_tools=["*"], read_only=["*"])
    runtime = ProxyRuntime(
        server,
        RuntimeOptions(
            RuntimePolicies(default_call=call_policy, **policies),
            auditor=Auditor(sinks, wall_clock=lambda: 1_000.0),
            now=lambda: float(next(times)),
            plugins=plugins,
        ),
    )
    await runtime.refresh_catalog()
    return runtime, next(iter(runtime.catalog().items))


@requirement("ACCESS-23")
@pytest.mark.parametrize(
    ("outcome", "told", "legs", "code"),
    [
        ("ok", "allowed", ("ok", "ok", "ok"), ""),
        ("error", "allowed", ("ok", "ok", "error"), ""),
        (UpstreamError("refused"), "failed", ("ok", "error", "none"), "UPSTREAM_ERROR"),
        (UpstreamTimeout("late"), "failed", ("timeout", "none", "none"), "UPSTREAM_TIMEOUT"),
        (UpstreamLost("gone"), "failed", ("lost", "none", "none"), "UPSTREAM_ERROR"),
        (
            UpstreamRefused("no", code=-32000, refusal="no"),
            "failed",
            ("ok", "error", "none"),
            "UPSTREAM_ERROR",
        ),
        (UpstreamUnavailable("down"), "failed", ("unavailable", "none", "none"), "UPSTREAM_UNAVAILABLE"),
    ],
    ids=["ok", "tool-error", "error", "timeout", "lost", "refused", "unavailable"],
)
async def test_a_call_that_was_made_says_how_transport_protocol_and_tool_went(
    sink: AuditMemory, outcome: object, told: str, legs: tuple[str, str, str], code: str
) -> None:
    runtime, tool_id = await runtime_over(Server(outcome), Attached("memory", sink))
    try:
        await runtime.execute(tool_id, {"text": "hi"}, OWNER)
    except GatewayError as error:
        assert error.code == code
    (record,) = sink.records
    assert (record.outcome, (record.transport, record.protocol, record.tool), record.code) == (told, legs, code)
    assert (record.actor, record.correlation_id, record.tool_id, record.server) == ("owner_1", "req_1", tool_id, "raw")
    assert record.arguments == arguments_digest({"text": "hi"})
    assert 0 < record.upstream_ms < record.duration_ms


@requirement("ACCESS-30")
@pytest.mark.parametrize(
    ("args", "context", "options", "error", "told"),
    [
        ({}, OWNER, {}, ArgsInvalid, "invalid"),
        ({"text": "hi"}, READER, {}, HydrateFailed, "denied"),
        ({"text": "hi"}, OWNER, {"per_actor": 0}, RateLimited, "denied"),
        (
            {"text": "hi"},
            OWNER,
            {"access": AccessPolicy([AccessRule("raw:echo", approval="always")])},
            ApprovalRequired,
            "approval_required",
        ),
    ],
    ids=["invalid", "hidden", "quota", "approval"],
)
async def test_a_call_that_was_not_made_says_why_and_reached_nothing(
    sink: AuditMemory,
    args: dict[str, Any],
    context: CallContext,
    options: dict[str, Any],
    error: type[GatewayError],
    told: str,
) -> None:
    server = Server("ok")
    runtime, tool_id = await runtime_over(server, Attached("memory", sink), **options)
    with pytest.raises(error):
        await runtime.execute(tool_id, args, context)
    (record,) = sink.records
    assert (record.outcome, record.code, record.transport) == (told, error.code, "none")
    assert server.calls == []


async def test_an_id_that_is_nowhere_is_invalid_and_noted_in_part(sink: AuditMemory) -> None:
    runtime, _ = await runtime_over(Server("ok"), Attached("memory", sink))
    with pytest.raises(HydrateFailed):
        await runtime.execute("x" * 100_000, {}, OWNER)
    assert (sink.records[0].outcome, len(sink.records[0].tool_id)) == ("invalid", 300)


@requirement("ACCESS-23")
async def test_a_call_that_is_cancelled_is_recorded_all_the_same(sink: AuditMemory) -> None:
    server = Server("wait")
    runtime, tool_id = await runtime_over(server, Attached("memory", sink))
    call = asyncio.create_task(runtime.execute(tool_id, {"text": "hi"}, OWNER))
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while not sink.records:  # the record is written by a task of its own
            await asyncio.sleep(0)
    assert sink.records[0].outcome == "cancelled"


@requirement("ACCESS-30")
async def test_a_call_that_is_cancelled_while_it_waits_for_a_place_reached_nothing(sink: AuditMemory) -> None:
    server = Server("wait")
    member = Member(server, UpstreamLimits(max_concurrent=1))
    runtime, tool_id = await runtime_over(MultiplexUpstream([member]), Attached("memory", sink))
    running = asyncio.create_task(runtime.execute(tool_id, {"text": "hi"}, OWNER))
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        waiting = asyncio.create_task(runtime.execute(tool_id, {"text": "hi"}, OWNER))
        while not member.state().queued:
            await asyncio.sleep(0)
        for call in (waiting, running):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        while len(sink.records) < 2:  # the records are written by tasks of their own
            await asyncio.sleep(0)
    legs = [(record.outcome, record.transport, record.protocol, record.tool) for record in sink.records]
    assert legs == [("cancelled", "none", "none", "none"), ("cancelled", "ok", "none", "none")]


@requirement("ACCESS-30")
async def test_a_call_that_is_cancelled_between_attempts_that_never_left_reached_nothing(sink: AuditMemory) -> None:
    server = Server(UpstreamUnavailable("away"))
    patient = {"raw": CallPolicy(retry=RetryPolicy(attempts=2, base_s=60, max_s=60), read_only=["*"])}
    runtime, tool_id = await runtime_over(server, Attached("memory", sink), calls=patient)
    call = asyncio.create_task(runtime.execute(tool_id, {"text": "hi"}, OWNER))
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while not sink.records:
            await asyncio.sleep(0)
    assert (sink.records[0].outcome, sink.records[0].transport) == ("cancelled", "none")


@requirement("ACCESS-30")
async def test_a_call_that_a_resting_server_never_got_reached_nothing(sink: AuditMemory) -> None:
    server = Server(UpstreamTimeout("late"))
    member = Member(server, UpstreamLimits(breaker=BreakerPolicy(1, 10.0, 60.0)), now=lambda: 0.0)
    runtime, tool_id = await runtime_over(MultiplexUpstream([member]), Attached("memory", sink))
    for kind in (UpstreamTimeout, UpstreamUnavailable):
        with pytest.raises(kind):
            await runtime.execute(tool_id, {"text": "hi"}, OWNER)
    assert len(server.calls) == 1
    record = sink.records[1]
    assert (record.outcome, record.code) == ("failed", "UPSTREAM_UNAVAILABLE")
    assert (record.transport, record.protocol, record.tool) == ("unavailable", "none", "none")


@requirement("ACCESS-30")
async def test_a_call_that_got_no_place_reached_nothing(sink: AuditMemory) -> None:
    server = Server("wait")
    member = Member(server, UpstreamLimits(max_concurrent=1, max_queued=0))
    runtime, tool_id = await runtime_over(MultiplexUpstream([member]), Attached("memory", sink))
    running = asyncio.create_task(runtime.execute(tool_id, {"text": "hi"}, OWNER))
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        with pytest.raises(RateLimited):
            await runtime.execute(tool_id, {"text": "hi"}, OWNER)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    record = sink.records[0]
    assert (record.outcome, record.code) == ("denied", "RATE_LIMITED")
    assert (record.transport, record.protocol, record.tool) == ("none", "none", "none")


class Gate(AuditMemory):
    """Becomes ready, and writes, only when *gate* is set; notes that it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event = asyncio.Event()
        self.asked = asyncio.Event()
        self.wrote = asyncio.Event()

    async def ready(self) -> None:
        self.asked.set()
        await self.gate.wait()

    async def write(self, record: AuditRecord) -> None:
        await super().write(record)
        self.wrote.set()


@requirement("ACCESS-30")
async def test_a_cancelled_call_ends_at_once_and_every_sink_gets_its_record() -> None:
    slow, other = Gate(), Gate()
    other.gate.set()
    slow.gate.set()
    server = Server("wait")
    runtime, tool_id = await runtime_over(server, Attached("slow", slow), Attached("other", other, critical=False))
    call = asyncio.create_task(runtime.execute(tool_id, {"text": "hi"}, OWNER))
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        slow.gate.clear()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert slow.records == [], "the caller did not wait for the sink"
        slow.gate.set()
        await slow.wrote.wait()
        await other.wrote.wait()
    (record,) = slow.records
    assert other.records == [record]
    assert (record.outcome, record.code, record.actor, record.tool_id) == ("cancelled", "", "owner_1", tool_id)
    assert (record.transport, record.protocol, record.tool) == ("ok", "none", "none"), "nothing was answered"
    assert record.arguments == arguments_digest({"text": "hi"})
    assert 0 < record.upstream_ms < record.duration_ms


@requirement("ACCESS-30")
async def test_a_call_that_is_cancelled_before_the_log_is_ready_is_recorded_and_reached_nothing() -> None:
    slow, other = Gate(), Gate()
    other.gate.set()
    server = Server("ok")
    runtime, tool_id = await runtime_over(server, Attached("slow", slow), Attached("other", other, critical=False))
    call = asyncio.create_task(runtime.execute(tool_id, {"text": "hi"}, OWNER))
    with anyio.fail_after(BOUND_S):
        await slow.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        slow.gate.set()
        await slow.wrote.wait()
        await other.wrote.wait()
    (record,) = slow.records
    assert other.records == [record]
    assert (record.outcome, record.transport, record.tool_id) == ("cancelled", "none", tool_id)
    assert server.calls == []


@requirement("ACCESS-30")
async def test_a_call_that_is_cancelled_after_its_answer_says_that_there_was_one(sink: AuditMemory) -> None:
    class NeverStored(MemoryArtifactStore):
        async def put(self, owner: str, artifact: Artifact) -> PutOutcome:
            storing.set()
            await asyncio.Event().wait()
            return "failed"

    storing = asyncio.Event()
    auditor = Auditor([Attached("memory", sink)], wall_clock=lambda: 0.0)
    server = Server("ok")
    server.said *= 1_000
    runtime = ProxyRuntime(server, RuntimeOptions(READ_ONLY, NeverStored(), auditor=auditor))
    await runtime.refresh_catalog()
    call = asyncio.create_task(runtime.execute(next(iter(runtime.catalog().items)), {"text": "hi"}, OWNER))
    with anyio.fail_after(BOUND_S):
        await storing.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await auditor.aclose()
    (record,) = sink.records
    assert (record.outcome, record.transport, record.protocol, record.tool) == ("cancelled", "ok", "ok", "none")


class NothingOut(SecurityPlugin):
    async def on_result(self, request: Request, result: Result) -> Block:
        return Block("not today")


@requirement("ACCESS-30")
@pytest.mark.parametrize("outcome", ["ok", UpstreamRefused("no", code=-32000, refusal="no")], ids=["result", "error"])
async def test_an_answer_that_a_plugin_withholds_was_an_answer(sink: AuditMemory, outcome: object) -> None:
    plugins = PluginChain({GLOBAL: [Installed("nothing_out", NothingOut(None))]}, now=lambda: 0.0)
    runtime, tool_id = await runtime_over(Server(outcome), Attached("memory", sink), plugins=plugins)
    with pytest.raises(Forbidden):
        await runtime.execute(tool_id, {"text": "hi"}, OWNER)
    (record,) = sink.records
    assert (record.outcome, record.transport, record.protocol, record.tool) == ("denied", "ok", "ok", "none")


async def allowed() -> None:
    """As long as it lasts."""


@requirement("ACCESS-23")
async def test_a_resource_that_was_read_is_recorded_as_answered(sink: AuditMemory) -> None:
    async def send(request: Request, context: CallContext) -> Mapping[str, Any]:
        return {"contents": []}

    runtime, _ = await runtime_over(Server("ok"), Attached("memory", sink))
    request = Request("req_1", "resources/read", "raw", "file:///a", {}, OWNER.identity)
    await runtime.pass_on(request, OWNER, "read", send, "raw+file:///a", allowed)
    (record,) = sink.records
    assert (record.operation, record.outcome) == ("read", "allowed")
    assert (record.transport, record.protocol, record.tool) == ("ok", "ok", "ok")


@requirement("ACCESS-30")
@pytest.mark.parametrize(("left", "transport"), [(False, "none"), (True, "ok")])
async def test_a_read_that_is_cancelled_is_recorded_by_how_far_it_got(
    sink: AuditMemory, left: bool, transport: str
) -> None:
    waits = asyncio.Event()

    async def send(request: Request, context: CallContext) -> Mapping[str, Any]:
        context.marks.left = left
        waits.set()
        await asyncio.Event().wait()
        raise AssertionError

    runtime, _ = await runtime_over(Server("ok"), Attached("memory", sink))
    request = Request("req_1", "resources/read", "raw", "file:///a", {}, OWNER.identity)
    reading = asyncio.create_task(runtime.pass_on(request, OWNER, "read", send, "raw+file:///a", allowed))
    with anyio.fail_after(BOUND_S):
        await waits.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        while not sink.records:
            await asyncio.sleep(0)
    (record,) = sink.records
    assert (record.outcome, record.transport, record.protocol) == ("cancelled", transport, "none")


@requirement("ROUTE-27", "ACCESS-24")
async def test_what_a_plugin_found_is_noted_by_kind_and_no_value_is(sink: AuditMemory) -> None:
    plugins = PluginChain({GLOBAL: [Installed("pii_filter", PiiFilter(PiiConfig()))]}, now=lambda: 0.0)
    runtime, tool_id = await runtime_over(Server("ok"), Attached("memory", sink), plugins=plugins)
    await runtime.execute(tool_id, {"text": "ann@example.com"}, OWNER)
    (record,) = sink.records
    assert [(stage.phase, stage.outcome, stage.note) for stage in record.stages] == [
        ("request", "modified", "email: 1"),
        ("result", "modified", "email: 1"),
    ]
    assert "example.com" not in repr(record)


@requirement("ACCESS-23")
async def test_a_kept_result_says_that_it_was_kept(sink: AuditMemory) -> None:
    runtime, tool_id = await runtime_over(Server("ok"), Attached("memory", sink))
    for _ in range(2):
        await runtime.execute(tool_id, {"text": "hi"}, OWNER)
    assert [record.cached for record in sink.records] == [False, True]


@requirement("ACCESS-23")
async def test_a_dry_run_and_a_view_are_recorded_too(sink: AuditMemory) -> None:
    runtime, tool_id = await runtime_over(Server("ok"), Attached("memory", sink))
    await runtime.execute(tool_id, {"text": "hi"}, OWNER, dry_run=True)
    await runtime.execute(tool_id, {"text": "hi"}, OWNER)
    with pytest.raises(GatewayError):
        await runtime.view(f"text:{tool_id}:0000", {"type": "head"}, READER)
    assert [(record.operation, record.outcome, record.transport) for record in sink.records] == [
        ("execute", "allowed", "none"),
        ("execute", "allowed", "ok"),
        ("view", "denied", "none"),
    ]


@requirement("ACCESS-25", "ACCESS-26")
async def test_nothing_runs_while_a_critical_sink_cannot_be_written(sink: AuditMemory) -> None:
    server = Server("ok")
    runtime, tool_id = await runtime_over(server, Attached("memory", sink))
    sink.broken = True
    with pytest.raises(Forbidden) as refused:
        await runtime.execute(tool_id, {"text": "hi"}, OWNER)
    assert "secret" not in refused.value.message
    assert server.calls == []


async def test_a_call_that_is_refused_for_want_of_a_sink_is_told_to_the_others(sink: AuditMemory) -> None:
    other = AuditMemory()
    auditor = Auditor([Attached("first", sink), Attached("second", other, critical=False)], wall_clock=lambda: 0.0)
    runtime = ProxyRuntime(Server("ok"), RuntimeOptions(READ_ONLY, auditor=auditor))
    await runtime.refresh_catalog()
    sink.broken = True
    with anyio.fail_after(BOUND_S):
        with pytest.raises(Forbidden):
            await runtime.execute(next(iter(runtime.catalog().items)), {"text": "hi"}, OWNER)
        await auditor.aclose()
    assert [(record.outcome, record.code) for record in other.records] == [("denied", "FORBIDDEN")]
    assert (auditor.refused, auditor.lost) == ({"first": 1}, {"first": 0, "second": 0})


async def test_a_caller_that_leaves_while_one_sink_writes_keeps_no_other_sink_from_its_record() -> None:
    slow, quick = AuditMemory(), AuditMemory()
    slow.gate = asyncio.Event()
    auditor = Auditor([Attached("slow", slow), Attached("quick", quick)], wall_clock=lambda: 0.0)
    runtime = ProxyRuntime(Server("ok"), RuntimeOptions(READ_ONLY, auditor=auditor))
    await runtime.refresh_catalog()
    call = asyncio.create_task(runtime.execute(next(iter(runtime.catalog().items)), {"text": "hi"}, OWNER))
    with anyio.fail_after(BOUND_S):
        while not quick.records:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        slow.gate.set()
        await auditor.aclose()
    assert (len(slow.records), len(quick.records)) == (1, 1)


@requirement("ACCESS-25", "ACCESS-26")
async def test_a_result_that_could_not_be_recorded_is_withheld(sink: AuditMemory) -> None:
    class BreaksMeanwhile(Server):
        async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
            sink.broken = True
            return await super()._answer(name, arguments, context)

    runtime, tool_id = await runtime_over(BreaksMeanwhile("ok"), Attached("memory", sink))
    with pytest.raises(UpstreamError) as withheld:
        await runtime.execute(tool_id, {"text": "hi"}, OWNER)
    assert "The call was made" in withheld.value.message and "secret" not in withheld.value.message


async def test_an_answer_without_a_call_that_could_not_be_recorded_does_not_say_that_one_was_made() -> None:
    class ReadyButBroken(AuditMemory):
        async def ready(self) -> None:
            """It only finds out when it writes."""

    sink = ReadyButBroken()
    sink.broken = True
    runtime, tool_id = await runtime_over(Server("ok"), Attached("memory", sink))
    with pytest.raises(UpstreamError, match="No server was called"):
        await runtime.execute(tool_id, {}, OWNER)


@requirement("ACCESS-27")
async def test_a_sink_that_is_not_critical_is_neither_waited_for_nor_missed() -> None:
    slow, broken = AuditMemory(), AuditMemory()
    slow.gate, broken.broken = asyncio.Event(), True
    auditor = Auditor(
        [Attached("slow", slow, critical=False), Attached("broken", broken, critical=False)], wall_clock=lambda: 0.0
    )
    runtime = ProxyRuntime(Server("ok"), RuntimeOptions(READ_ONLY, auditor=auditor))
    await runtime.refresh_catalog()
    with anyio.fail_after(BOUND_S):
        await runtime.execute(next(iter(runtime.catalog().items)), {"text": "hi"}, OWNER)
        assert slow.records == []
        slow.gate.set()
        await auditor.aclose()
    assert (len(slow.records), slow.closed) == (1, True)
    assert auditor.lost == {"slow": 0, "broken": 1}
