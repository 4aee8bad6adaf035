"""Records by which an investigation finds the caller, and the intent of a call that may write (ACCESS-60 to
ACCESS-64)."""

import asyncio
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.gateway.test_audit import OWNER, SCHEMA, Audited, Server, everywhere
from tests.support.audit_memory import AuditMemory
from tests.support.process import ROOT
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import Forbidden, UpstreamError
from wicketgate.gateway import audited_call
from wicketgate.gateway.audit import AuditRecord
from wicketgate.gateway.call_policy import CallPolicy, RetryPolicy
from wicketgate.plugin_api import Continue, MiddlewarePlugin, PluginConfig, Request
from wicketgate.ports import CallContext, PendingCall
from wicketgate.upstreams.embedded import StubUpstream

KEY = "0123456789abcdef0123456789abcdef"
WRITES = CallPolicy(retry=RetryPolicy(attempts=1))


def phases(sink: AuditMemory) -> list[tuple[str, str]]:
    return [(record.operation, record.phase) for record in sink.records]


@requirement("ACCESS-60")
async def test_a_record_names_the_key_and_the_address_of_the_caller() -> None:
    sink = AuditMemory()
    audited = Audited(Server("ok"), sink, policy=WRITES)
    caller = CallContext(Identity("owner_1", ("*",), "laptop"), "req_1", "s", source="192.0.2.7")
    await audited.call(context=caller)
    assert [(record.key_id, record.source) for record in sink.records] == 2 * [("laptop", "192.0.2.7")]


@requirement("ACCESS-62")
async def test_a_call_that_may_write_leaves_an_intent_that_pairs_with_its_end() -> None:
    sink = AuditMemory()
    at_the_server: list[AuditRecord] = []

    class Watching(Server):
        async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
            at_the_server.extend(sink.records)
            return await super()._answer(name, arguments, context)

    audited = Audited(Watching("ok"), sink, policy=WRITES)
    for _ in range(2):
        await audited.call()
    first, end, second, _ = sink.records
    assert at_the_server[0] == first  # kept before the call left
    assert (first.phase, first.tool_id, first.arguments) == ("intent", audited.tool_id, end.arguments)
    assert (first.transport, first.protocol, first.tool) == ("none", "none", "none")
    assert (end.phase, end.call_id) == ("end", first.call_id)
    assert second.call_id != first.call_id


@requirement("ACCESS-62")
async def test_a_call_is_refused_and_not_made_if_its_intent_is_not_kept() -> None:
    class Full(AuditMemory):
        async def ready(self) -> None:
            """Fails only when it has to write."""

    sink, server = Full(), Server("ok")
    audited = Audited(server, sink, policy=WRITES)
    sink.broken = True
    with pytest.raises(Forbidden, match="Nothing was run"):
        await audited.call()
    assert server.calls == []


class PatientButFull(AuditMemory):
    async def write(self, record: AuditRecord) -> None:
        if record.phase == "intent":
            self.broken = True
        try:
            await super().write(record)
        finally:
            self.broken = False


@requirement("ACCESS-62")
async def test_the_end_of_a_call_whose_intent_was_not_kept_says_that_it_never_left() -> None:
    sink, server = PatientButFull(), Server("ok")
    audited = Audited(server, sink, policy=WRITES)
    with pytest.raises(Forbidden):
        await audited.call()
    await audited.auditor.aclose()
    (record,) = sink.records
    assert (record.outcome, record.code, record.transport, record.phase) == ("denied", "FORBIDDEN", "none", "end")
    assert audited.auditor.refused == {"memory": 1}
    assert server.calls == []


@requirement("ACCESS-63")
@pytest.mark.parametrize(
    ("policy", "intents"),
    [
        (CallPolicy(), 1),
        (CallPolicy(read_only=["ec*"]), 0),
        (CallPolicy(read_only=["other"]), 1),
        (CallPolicy(hints_hold=True), 0),
    ],
    ids=["the-server-says-so", "the-operator-says-so", "of-another-tool", "declared-here"],
)
async def test_a_hint_of_a_server_alone_does_not_make_a_tool_read_only(policy: CallPolicy, intents: int) -> None:
    sink = AuditMemory()
    audited = Audited(Server("ok"), sink, policy=policy)
    await audited.call()
    assert phases(sink).count(("execute", "intent")) == intents


@requirement("ACCESS-63")
async def test_a_tool_without_a_declaration_may_write_whoever_listed_it() -> None:
    sink = AuditMemory()
    upstream = StubUpstream([{"name": "pay", "inputSchema": SCHEMA}], name="raw")
    audited = Audited(upstream, sink, policy=CallPolicy(hints_hold=True))
    await audited.call()
    assert phases(sink) == [("execute", "intent"), ("execute", "end")]


class Elsewhere(MiddlewarePlugin):
    async def on_request(self, request: Request) -> Continue:
        return Continue(replace(request, name="pay"))


@requirement("ACCESS-63")
async def test_a_call_that_a_plugin_sends_to_another_tool_does_not_keep_the_hints_of_the_first() -> None:
    sink = AuditMemory()
    look = {"name": "look", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
    upstream = StubUpstream([look], name="raw")
    plugins = everywhere("elsewhere", Elsewhere(PluginConfig()))
    audited = Audited(upstream, sink, policy=CallPolicy(hints_hold=True), plugins=plugins)
    await audited.call()
    assert phases(sink) == [("execute", "intent"), ("execute", "end")]


@requirement("ACCESS-62")
async def test_a_result_from_the_cache_needs_no_intent() -> None:
    sink = AuditMemory()
    audited = Audited(Server("ok"), sink, policy=CallPolicy(cached_tools=["*"]))
    for _ in range(2):
        await audited.call()
    assert phases(sink) == [("execute", "intent"), ("execute", "end"), ("execute", "end")]


class Owner:
    def __init__(self, answer: Exception | None) -> None:
        self.answer = answer

    async def approve(self, call: PendingCall) -> None:
        if self.answer is not None:
            raise self.answer


@requirement("ACCESS-64")
@pytest.mark.parametrize(("answer", "outcome"), [(None, "allowed"), (Forbidden("Denied by the owner."), "denied")])
async def test_a_decision_on_a_call_that_waits_is_a_record_of_its_own(answer: Exception | None, outcome: str) -> None:
    sink = AuditMemory()
    access = AccessPolicy([AccessRule("raw:echo", approval="always")])
    audited = Audited(Server("ok"), sink, policy=WRITES, access=access)
    context = replace(OWNER, approver=Owner(answer))
    try:
        await audited.call(context=context)
    except Forbidden:
        assert answer is not None
    await audited.auditor.aclose()
    decision = next(record for record in sink.records if record.operation == "approval")
    end = next(record for record in sink.records if (record.operation, record.phase) == ("execute", "end"))
    assert (decision.outcome, decision.tool_id, decision.actor) == (outcome, audited.tool_id, "owner_1")
    assert (decision.call_id, decision.arguments) == (end.call_id, end.arguments)


@requirement("ACCESS-61")
async def test_with_a_key_the_program_of_the_manual_computes_the_digest_that_the_log_has() -> None:
    sink = AuditMemory()
    audited = Audited(Server("ok"), sink, policy=WRITES, digest_key=KEY)
    await audited.call()
    manual = (ROOT / "docs" / "operations" / "audit.md").read_text()
    (program,) = re.findall(r"python3 - \"\$AUDIT_KEY\" .*<<'END'\n(.*?)^END$", manual, re.DOTALL | re.MULTILINE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, KEY, '{"text": "hi"}', stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert sink.records[0].arguments == output.decode().strip()


@requirement("ACCESS-69")
async def test_a_call_waits_for_a_sink_that_hangs_no_longer_than_its_time_before_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audited_call, "BEFORE_S", 0.05)
    sink, server = AuditMemory(), Server("ok")
    audited = Audited(server, sink, policy=WRITES)
    sink.gate = asyncio.Event()
    async with asyncio.timeout(30):
        with pytest.raises(Forbidden, match="Nothing was run"):
            await audited.call()
    assert (server.calls, audited.auditor.refused) == ([], {"memory": 1})
    sink.gate.set()
    await audited.auditor.aclose()


@requirement("ACCESS-69")
async def test_a_result_is_withheld_when_its_record_is_not_kept_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audited_call, "AFTER_S", 0.05)
    sink = AuditMemory()

    class HangsMeanwhile(Server):
        async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
            sink.gate = asyncio.Event()
            return await super()._answer(name, arguments, context)

    audited = Audited(HangsMeanwhile("ok"), sink, policy=WRITES)
    async with asyncio.timeout(30):
        with pytest.raises(UpstreamError, match="withheld"):
            await audited.call()
