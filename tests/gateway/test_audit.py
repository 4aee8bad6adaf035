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
from wicketgate.gateway.call_policy import CallPolicy, RetryPolicy
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import GLOBAL, Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugin_api import Block, Plugin, Request, Result, SecurityPlugin
from wicketgate.plugins.filters import PiiConfig, PiiFilter
from wicketgate.ports import Artifact, CallContext, PutOutcome
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.memory import MemoryStore
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner_1", ("*",)), "req_1", "s")
READER = CallContext(Identity("reader_1", ("tools:other:*",)), "req_2", "s")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
BOUND_S = 30.0
HI = {"text": "hi"}
READ_ONLY = CallPolicy(retry=RetryPolicy(attempts=1), cached_tools=["*"], read_only=["*"])
"""With this a call leaves one record: it needs no intent."""


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


class Audited:
    """A runtime over *upstream*, whose records the *sinks* get; AuditMemory stands for a critical one."""

    def __init__(
        self,
        upstream: StubUpstream | MultiplexUpstream,
        *sinks: AuditMemory | Attached,
        policy: CallPolicy = READ_ONLY,
        digest_key: str | None = None,
        plugins: PluginChain | None = None,
        artifacts: StoredArtifacts | None = None,
        **policies: Any,
    ) -> None:
        attached = [each if isinstance(each, Attached) else Attached("memory", each) for each in sinks]
        self.auditor = Auditor(attached, wall_clock=lambda: 1_000.0, digest_key=digest_key)
        times = iter(range(1_000_000))
        self.runtime = ProxyRuntime(
            upstream,
            RuntimeOptions(
                RuntimePolicies(default_call=policy, **policies),
                artifacts or StoredArtifacts(MemoryStore()),
                auditor=self.auditor,
                now=lambda: float(next(times)),
                plugins=plugins,
            ),
        )
        self.tool_id = ""

    async def call(self, args: Mapping[str, Any] = HI, context: CallContext = OWNER, **how: Any) -> None:
        if not self.tool_id:
            await self.runtime.refresh_catalog()
            self.tool_id = next(iter(self.runtime.catalog().items))
        await self.runtime.execute(self.tool_id, args, context, **how)

    async def cancel(self, *calls: "asyncio.Task[Any]") -> None:
        """Cancel *calls*, one after the other, and wait for their records, which tasks of their own write."""
        await cancelled(*calls)
        await self.auditor.aclose()


async def cancelled(*calls: "asyncio.Task[Any]") -> None:
    for call in calls:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


def went(record: AuditRecord) -> tuple[str, str, str, str]:
    return record.outcome, record.transport, record.protocol, record.tool


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
    audited = Audited(Server(outcome), sink)
    try:
        await audited.call()
    except GatewayError as error:
        assert error.code == code
    (record,) = sink.records
    assert (went(record), record.code) == ((told, *legs), code)
    assert (record.actor, record.correlation_id, record.server) == ("owner_1", "req_1", "raw")
    assert (record.tool_id, record.arguments) == (audited.tool_id, arguments_digest(HI))
    assert 0 < record.upstream_ms < record.duration_ms


@requirement("ACCESS-30")
@pytest.mark.parametrize(
    ("args", "context", "options", "error", "told"),
    [
        ({}, OWNER, {}, ArgsInvalid, "invalid"),
        (HI, READER, {}, HydrateFailed, "denied"),
        (HI, OWNER, {"per_actor": 0}, RateLimited, "denied"),
        (
            HI,
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
    with pytest.raises(error):
        await Audited(server, sink, **options).call(args, context)
    (record,) = sink.records
    assert (record.outcome, record.code, record.transport) == (told, error.code, "none")
    assert server.calls == []


async def test_an_id_that_is_nowhere_is_invalid_and_noted_in_part(sink: AuditMemory) -> None:
    audited = Audited(Server("ok"), sink)
    audited.tool_id = "x" * 100_000
    with pytest.raises(HydrateFailed):
        await audited.call()
    assert (sink.records[0].outcome, len(sink.records[0].tool_id)) == ("invalid", 300)


@requirement("ACCESS-23", "ACCESS-30")
@pytest.mark.parametrize(
    ("outcome", "policy", "transport"),
    [
        ("wait", READ_ONLY, "ok"),
        # Between two attempts, neither of which left.
        (UpstreamUnavailable("away"), CallPolicy(retry=RetryPolicy(2, 60, 60), read_only=["*"]), "none"),
    ],
    ids=["at the server", "between attempts"],
)
async def test_a_call_that_is_cancelled_is_recorded_by_how_far_it_got(
    sink: AuditMemory, outcome: object, policy: CallPolicy, transport: str
) -> None:
    server = Server(outcome)
    audited = Audited(server, sink, policy=policy)
    call = asyncio.create_task(audited.call())
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        await audited.cancel(call)
    assert list(map(went, sink.records)) == [("cancelled", transport, "none", "none")]


@requirement("ACCESS-30")
async def test_a_call_that_is_cancelled_while_it_waits_for_a_place_reached_nothing(sink: AuditMemory) -> None:
    server = Server("wait")
    member = Member(server, UpstreamLimits(max_concurrent=1))
    audited = Audited(MultiplexUpstream([member]), sink)
    running = asyncio.create_task(audited.call())
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        waiting = asyncio.create_task(audited.call())
        while not member.state().queued:
            await asyncio.sleep(0)
        await audited.cancel(waiting, running)
    assert list(map(went, sink.records)) == [
        ("cancelled", "none", "none", "none"),
        ("cancelled", "ok", "none", "none"),
    ]


@requirement("ACCESS-30")
async def test_a_call_that_a_resting_server_never_got_reached_nothing(sink: AuditMemory) -> None:
    server = Server(UpstreamTimeout("late"))
    member = Member(server, UpstreamLimits(breaker=BreakerPolicy(1, 10.0, 60.0)), now=lambda: 0.0)
    audited = Audited(MultiplexUpstream([member]), sink)
    for kind in (UpstreamTimeout, UpstreamUnavailable):
        with pytest.raises(kind):
            await audited.call()
    assert len(server.calls) == 1
    assert (went(sink.records[1]), sink.records[1].code) == (
        ("failed", "unavailable", "none", "none"),
        "UPSTREAM_UNAVAILABLE",
    )


@requirement("ACCESS-30")
async def test_a_call_that_got_no_place_reached_nothing(sink: AuditMemory) -> None:
    server = Server("wait")
    audited = Audited(MultiplexUpstream([Member(server, UpstreamLimits(max_concurrent=1, max_queued=0))]), sink)
    running = asyncio.create_task(audited.call())
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        with pytest.raises(RateLimited):
            await audited.call()
        await audited.cancel(running)
    assert (went(sink.records[0]), sink.records[0].code) == (("denied", "none", "none", "none"), "RATE_LIMITED")


class Gate(AuditMemory):
    """Becomes ready, and writes, only when *gate* is set; notes that it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event = asyncio.Event()
        self.asked = asyncio.Event()

    async def ready(self) -> None:
        self.asked.set()
        await self.gate.wait()


@requirement("ACCESS-30")
async def test_a_cancelled_call_ends_at_once_and_every_sink_gets_its_record() -> None:
    slow, other = Gate(), AuditMemory()
    slow.gate.set()
    server = Server("wait")
    audited = Audited(server, slow, Attached("other", other, critical=False))
    call = asyncio.create_task(audited.call())
    with anyio.fail_after(BOUND_S):
        await server.reached.wait()
        slow.gate.clear()
        await cancelled(call)
        assert slow.records == [], "the caller did not wait for the sink"
        slow.gate.set()
        await audited.auditor.aclose()
    (record,) = slow.records
    assert other.records == [record]
    assert went(record) == ("cancelled", "ok", "none", "none"), "nothing was answered"
    assert (record.code, record.actor, record.tool_id) == ("", "owner_1", audited.tool_id)
    assert record.arguments == arguments_digest(HI)
    assert 0 < record.upstream_ms < record.duration_ms


@requirement("ACCESS-30")
async def test_a_call_that_is_cancelled_before_the_log_is_ready_is_recorded_and_reached_nothing() -> None:
    slow, other, server = Gate(), AuditMemory(), Server("ok")
    audited = Audited(server, slow, Attached("other", other, critical=False))
    call = asyncio.create_task(audited.call())
    with anyio.fail_after(BOUND_S):
        await slow.asked.wait()
        await cancelled(call)
        slow.gate.set()
        await audited.auditor.aclose()
    (record,) = slow.records
    assert other.records == [record]
    assert (record.outcome, record.transport, record.tool_id) == ("cancelled", "none", audited.tool_id)
    assert server.calls == []


@requirement("ACCESS-30")
async def test_a_call_that_is_cancelled_after_its_answer_says_that_there_was_one(sink: AuditMemory) -> None:
    class NeverStored(StoredArtifacts):
        async def put(self, owner: str, artifact: Artifact) -> PutOutcome:
            storing.set()
            await asyncio.Event().wait()
            return "failed"

    storing, server = asyncio.Event(), Server("ok")
    server.said *= 1_000
    audited = Audited(server, sink, artifacts=NeverStored(MemoryStore()))
    call = asyncio.create_task(audited.call())
    with anyio.fail_after(BOUND_S):
        await storing.wait()
        await audited.cancel(call)
    assert list(map(went, sink.records)) == [("cancelled", "ok", "ok", "none")]


class NothingOut(SecurityPlugin):
    async def on_result(self, request: Request, result: Result) -> Block:
        return Block("not today")


def everywhere(handler: str, plugin: Plugin) -> PluginChain:
    return PluginChain({GLOBAL: [Installed(handler, plugin)]}, now=lambda: 0.0)


@requirement("ACCESS-30")
@pytest.mark.parametrize("outcome", ["ok", UpstreamRefused("no", code=-32000, refusal="no")], ids=["result", "error"])
async def test_an_answer_that_a_plugin_withholds_was_an_answer(sink: AuditMemory, outcome: object) -> None:
    with pytest.raises(Forbidden):
        await Audited(Server(outcome), sink, plugins=everywhere("nothing_out", NothingOut(None))).call()
    assert list(map(went, sink.records)) == [("denied", "ok", "ok", "none")]


async def allowed() -> None:
    """As long as it lasts."""


@requirement("ACCESS-23", "ACCESS-30")
@pytest.mark.parametrize(
    ("left", "ends", "legs"),
    [
        (True, True, ("allowed", "ok", "ok", "ok")),
        (False, False, ("cancelled", "none", "none", "none")),
        (True, False, ("cancelled", "ok", "none", "none")),
    ],
    ids=["answered", "cancelled before it left", "cancelled at the server"],
)
async def test_a_read_of_a_resource_is_recorded_by_how_far_it_got(
    sink: AuditMemory, left: bool, ends: bool, legs: tuple[str, str, str, str]
) -> None:
    waits = asyncio.Event()

    async def send(request: Request, context: CallContext) -> Mapping[str, Any]:
        context.marks.left = left
        waits.set()
        if not ends:
            await asyncio.Event().wait()
        return {"contents": []}

    audited = Audited(Server("ok"), sink)
    request = Request("req_1", "resources/read", "raw", "file:///a", {}, OWNER.identity)
    reading = asyncio.create_task(audited.runtime.pass_on(request, OWNER, "read", send, "raw+file:///a", allowed))
    with anyio.fail_after(BOUND_S):
        await waits.wait()
        if ends:
            await reading
        else:
            await audited.cancel(reading)
    (record,) = sink.records
    assert (record.operation, went(record)) == ("read", legs)


@requirement("ROUTE-27", "ACCESS-24")
async def test_what_a_plugin_found_is_noted_by_kind_and_no_value_is(sink: AuditMemory) -> None:
    audited = Audited(Server("ok"), sink, plugins=everywhere("pii_filter", PiiFilter(PiiConfig())))
    await audited.call({"text": "ann@example.com"})
    (record,) = sink.records
    assert [(stage.phase, stage.outcome, stage.note) for stage in record.stages] == [
        ("request", "modified", "email: 1"),
        ("result", "modified", "email: 1"),
    ]
    assert "example.com" not in repr(record)


@requirement("ACCESS-23")
async def test_a_kept_result_a_dry_run_and_a_view_are_recorded_too(sink: AuditMemory) -> None:
    audited = Audited(Server("ok"), sink)
    await audited.call(dry_run=True)
    await audited.call()
    await audited.call()
    with pytest.raises(GatewayError):
        await audited.runtime.view(f"text:{audited.tool_id}:0000", {"type": "head"}, READER)
    assert [(record.operation, record.outcome, record.transport, record.cached) for record in sink.records] == [
        ("execute", "allowed", "none", False),
        ("execute", "allowed", "ok", False),
        ("execute", "allowed", "ok", True),
        ("view", "denied", "none", False),
    ]


@requirement("ACCESS-25", "ACCESS-26")
async def test_nothing_runs_while_a_critical_sink_cannot_be_written_and_the_others_are_told(sink: AuditMemory) -> None:
    other, server = AuditMemory(), Server("ok")
    audited = Audited(server, sink, Attached("second", other, critical=False))
    sink.broken = True
    with anyio.fail_after(BOUND_S):
        with pytest.raises(Forbidden) as refused:
            await audited.call()
        await audited.auditor.aclose()
    assert "secret" not in refused.value.message
    assert server.calls == []
    assert [(record.outcome, record.code) for record in other.records] == [("denied", "FORBIDDEN")]
    assert (audited.auditor.refused, audited.auditor.lost) == ({"memory": 1}, {"memory": 0, "second": 0})


async def test_a_caller_that_leaves_while_one_sink_writes_keeps_no_other_sink_from_its_record() -> None:
    slow, quick = AuditMemory(), AuditMemory()
    slow.gate = asyncio.Event()
    audited = Audited(Server("ok"), Attached("slow", slow), Attached("quick", quick))
    call = asyncio.create_task(audited.call())
    with anyio.fail_after(BOUND_S):
        while not quick.records:
            await asyncio.sleep(0)
        await cancelled(call)
        slow.gate.set()
        await audited.auditor.aclose()
    assert (len(slow.records), len(quick.records)) == (1, 1)


@requirement("ACCESS-25", "ACCESS-26")
async def test_a_result_that_could_not_be_recorded_is_withheld(sink: AuditMemory) -> None:
    class BreaksMeanwhile(Server):
        async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
            sink.broken = True
            return await super()._answer(name, arguments, context)

    with pytest.raises(UpstreamError) as withheld:
        await Audited(BreaksMeanwhile("ok"), sink).call()
    assert "The call was made" in withheld.value.message and "secret" not in withheld.value.message


async def test_an_answer_without_a_call_that_could_not_be_recorded_does_not_say_that_one_was_made() -> None:
    class ReadyButBroken(AuditMemory):
        async def ready(self) -> None:
            """It only finds out when it writes."""

    sink = ReadyButBroken()
    sink.broken = True
    with pytest.raises(UpstreamError, match="No server was called"):
        await Audited(Server("ok"), sink).call({})


@requirement("ACCESS-27")
async def test_a_sink_that_is_not_critical_is_neither_waited_for_nor_missed() -> None:
    slow, broken = AuditMemory(), AuditMemory()
    slow.gate, broken.broken = asyncio.Event(), True
    audited = Audited(Server("ok"), Attached("slow", slow, critical=False), Attached("broken", broken, critical=False))
    with anyio.fail_after(BOUND_S):
        await audited.call()
        assert slow.records == []
        slow.gate.set()
        await audited.auditor.aclose()
    assert (len(slow.records), slow.closed) == (1, True)
    assert audited.auditor.lost == {"slow": 0, "broken": 1}
