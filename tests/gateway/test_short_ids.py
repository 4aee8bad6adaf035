"""Ids that leave out version and hash, and paths, taken for the tool that they name (CARD-34, CARD-35)."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.audit_memory import AuditMemory
from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import GatewayError, HydrateFailed, RateLimited, ViewFailed
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.audit import Attached, Auditor
from wicketgate.gateway.call_policy import CallPolicy
from wicketgate.gateway.calls import DryRun
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext, PendingCall
from wicketgate.upstreams.embedded import StubUpstream

ANY = {"type": "object"}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}}


def tool(name: str, version: str = "", schema: Mapping[str, Any] = ANY) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema, "_meta": {"version": version} if version else {}}


TOOLS = [
    tool("create_issue"),
    tool("get", "2.0"),
    tool("odd name!", "3"),
    tool("read", "1"),
    tool("read", "2"),
    tool("write"),
    tool("write", schema=PATH),
    *(tool(f"list_{each}") for each in ("a", "b", "c", "d")),
]


def caller(*permissions: str) -> CallContext:
    return CallContext(Identity("ann", permissions or ("*",)), "trace", "s")


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": f"{name} ran" * 400}]}


async def runtime_of(*tools: Mapping[str, Any], auditor: Auditor | None = None, **policies: Any) -> ProxyRuntime:
    upstream = StubUpstream(list(tools or TOOLS), answer, name="hub")
    return await refreshed(ProxyRuntime(upstream, RuntimeOptions(RuntimePolicies(**policies), auditor=auditor)))


def whole(runtime: ProxyRuntime, start: str) -> str:
    (found,) = (tool_id for tool_id in runtime.catalog().tools if tool_id.startswith(start))
    return found


async def refused(runtime: ProxyRuntime, wanted: str, context: CallContext) -> dict[str, Any]:
    """The answer of execute, which that of hydrate and of a dry run equals."""
    with pytest.raises(HydrateFailed) as executed:
        await runtime.execute(wanted, {}, context)
    with pytest.raises(HydrateFailed) as tried:
        await runtime.execute(wanted, {}, context, dry_run=True)
    with pytest.raises(HydrateFailed) as hydrated:
        await runtime.hydrate(wanted, context)
    assert executed.value.as_dict() == tried.value.as_dict() == hydrated.value.as_dict()
    return executed.value.as_dict()


@requirement("CARD-34")
@pytest.mark.parametrize(
    ("wanted", "start"),
    [
        ("hub:create_issue", "hub:create_issue#"),
        ("hub:get", "hub:get@2.0"),
        ("hub:odd_name_", "hub:odd_name_@3#"),
        ("hub:odd_name_@3", "hub:odd_name_@3#"),
        ("hub:read@2", "hub:read@2"),
        ("/hub/create_issue", "hub:create_issue#"),
        ("/hub/read-2", "hub:read@2"),
    ],
)
async def test_an_id_may_leave_out_what_is_not_needed_to_know_the_tool(wanted: str, start: str) -> None:
    runtime = await runtime_of()
    if wanted == "/hub/read-2":
        wanted = runtime.catalog().graph.path_of("hub:read@2")
    tool_id = whole(runtime, start)
    assert (await runtime.hydrate(wanted, caller())).tool_id == tool_id
    execution = await runtime.execute(wanted, {}, caller())
    assert execution.envelope.provenance["tool_id"] == tool_id
    assert execution.envelope.artifacts[0].handle.startswith(f"text:{tool_id}:")
    dry = await runtime.execute(wanted, {}, caller(), dry_run=True)
    assert isinstance(dry, DryRun)
    assert dry.tool_id == tool_id
    assert (await runtime.call(wanted, {}, caller()))["content"]


@requirement("CARD-46")
@pytest.mark.parametrize("name", ["検索", "with space", "x" * 130, "a/b", "hub.search", "Größe"])
async def test_a_tool_is_found_by_its_own_name_in_its_namespace(name: str) -> None:
    runtime = await runtime_of(tool(name), tool("get"), tool(f"{name}!"))
    dry = await runtime.execute(f"hub:{name}", {}, caller(), dry_run=True)
    assert isinstance(dry, DryRun)
    assert dry.upstream_name == name
    assert (await refused(runtime, f"hub:{name}#00000000", caller()))["error"] == "HYDRATE_FAILED"
    assert "details" not in await refused(runtime, f"hub:{name}", caller("tools:hub:get"))


@requirement("CARD-34")
async def test_what_an_id_gives_has_to_be_right() -> None:
    runtime = await runtime_of()
    issue, odd = whole(runtime, "hub:create_issue#"), whole(runtime, "hub:odd_name_@3#")
    hash_part = odd.partition("#")[2]
    assert (await runtime.hydrate(f"hub:odd_name_#{hash_part}", caller())).tool_id == odd
    for wanted, meant in (
        ("hub:create_issue#00000000", issue),
        ("hub:create_issue#", issue),
        (f"hub:create_issue@1#{issue.partition('#')[2]}", issue),
        ("hub:create_issue@", issue),
        ("hub:get@1.0", "hub:get@2.0"),
        ("other:create_issue", issue),
        ("create_issue", issue),
        ("hub.create_issue", issue),
        ("/hub/issues/create_issue", issue),
        (f"hub:odd_name_@4#{hash_part}", odd),
    ):
        body = await refused(runtime, wanted, caller())
        assert (body["error"], body["details"]) == ("HYDRATE_FAILED", {"did_you_mean": [meant]})
    for wanted in ("hub:create_issue\n", "hub:", ":", "", "/", "/hub", "//", "/hub/", "/hub/*", "hub:x" * 10_000):
        assert (await refused(runtime, wanted, caller()))["error"] == "HYDRATE_FAILED"


@requirement("CARD-34")
async def test_a_name_of_several_tools_is_refused_with_their_ids() -> None:
    runtime = await runtime_of()
    body = await refused(runtime, "hub:read", caller())
    assert body["message"] == "Several tools have this name. Use the whole id of one of them."
    assert body["details"] == {"did_you_mean": ["hub:read@1", "hub:read@2"]}
    writes = sorted(tool_id for tool_id in runtime.catalog().tools if tool_id.startswith("hub:write#"))
    assert (await refused(runtime, "hub:write", caller()))["details"] == {"did_you_mean": writes}


@requirement("CARD-34", "ACCESS-9")
async def test_a_tool_that_is_hidden_is_no_reason_for_anything() -> None:
    """Of two upstreams of one inferred namespace, one is hidden: no answer differs from those without it."""

    async def runtime_with(*hidden: Mapping[str, Any]) -> ProxyRuntime:
        fleet = [StubUpstream([tool("hub.read", "1"), tool("hub.get")], answer), StubUpstream(list(hidden), answer)]
        rules = AccessPolicy([AccessRule("hub:secret", require=("boss",))])
        return await refreshed(ProxyRuntime(MultiplexUpstream(fleet), RuntimeOptions(RuntimePolicies(access=rules))))

    plain, other = await runtime_with(), await runtime_with(tool("hub.secret"), tool("hub.secret", "1"))
    for wanted in ("hub:secret", "hub:secret@1", "hub:secret@2", "/hub/secret", "hub:secret#", "hub:secrets"):
        assert await refused(plain, wanted, caller("tools:*")) == await refused(other, wanted, caller("tools:*"))
    boss = caller("tools:*", "boss")
    assert (await other.hydrate("hub:secret@1", boss)).tool_id == "hub:secret@1"


@requirement("CARD-34", "ACCESS-9")
async def test_a_version_that_is_hidden_makes_no_name_ambiguous() -> None:
    runtime = await runtime_of(tool("read", "1"), {**tool("read", "2"), "name": "hub.read"})
    rules = AccessPolicy([AccessRule("hub:hub.read", require=("boss",))])
    runtime.access = rules
    visible = runtime.visible(caller("tools:*"))
    assert visible is not None
    seen = [tool_id for tool_id in runtime.catalog().tools if visible(tool_id)]
    assert seen == ["hub:read@1"]
    assert (await runtime.hydrate("hub:read", caller("tools:*"))).tool_id == "hub:read@1"
    assert (await refused(runtime, "hub:read", caller("tools:*", "boss")))["details"]["did_you_mean"] == [
        "hub:read@1",
        "hub:read@2",
    ]
    # The whole id of a hidden tool can be the short one of another.
    runtime = await runtime_of(tool("odd_name_", "3"), tool("odd name_", "3"))
    runtime.access = AccessPolicy([AccessRule("hub:odd_name_", require=("boss",))])
    assert await refused(runtime, "hub:odd_name_@3", caller("tools:*"))


class Approving:
    def __init__(self) -> None:
        self.asked: list[PendingCall] = []

    async def approve(self, call: PendingCall) -> None:
        self.asked.append(call)


@requirement("CARD-35")
async def test_everything_that_is_kept_of_a_call_has_the_whole_id() -> None:
    audited, approver = AuditMemory(), Approving()
    auditor = Auditor([Attached("memory", audited)], wall_clock=lambda: 0.0)
    rules = AccessPolicy([AccessRule("hub:create_issue", approval="always")])
    runtime = await runtime_of(auditor=auditor, access=rules)
    tool_id = whole(runtime, "hub:create_issue#")
    given = CallContext(Identity("ann", ("*",)), "trace", "s", approver=approver)
    for wanted in (tool_id, "hub:create_issue", "/hub/create_issue"):
        await runtime.execute(wanted, {}, given)
    await auditor.aclose()
    assert {record.tool_id for record in audited.records} == {tool_id}
    assert len({record.arguments for record in audited.records if record.operation == "execute"}) == 1
    item = runtime.catalog().tools[tool_id]
    assert approver.asked == [PendingCall(tool_id, item.digest, {})] * 3


@requirement("CARD-35")
async def test_a_hidden_tool_is_audited_as_denied_by_whatever_name_it_was_asked_for() -> None:
    audited = AuditMemory()
    auditor = Auditor([Attached("memory", audited)], wall_clock=lambda: 0.0)
    runtime = await runtime_of(auditor=auditor)
    for wanted in ("hub:create_issue", "/hub/create_issue", "hub:read", "hub:none"):
        with pytest.raises(HydrateFailed):
            await runtime.execute(wanted, {}, caller("tools:else:*"))
    with pytest.raises(HydrateFailed):
        await runtime.execute("hub:read", {}, caller())
    await auditor.aclose()
    assert [record.outcome for record in audited.records] == ["denied", "denied", "denied", "invalid", "invalid"]


@requirement("CARD-35")
async def test_a_quota_and_kept_results_are_the_same_for_all_names_of_a_tool() -> None:
    policy = CallPolicy(cached_tools=("get",), cache_ttl_s=60.0)
    read_only = {**tool("get", "2.0"), "annotations": {"readOnlyHint": True}}
    runtime = await runtime_of(read_only, per_tool={"hub:get@2.0": 3}, default_call=policy)
    first = await runtime.execute("hub:get@2.0", {}, caller())
    again = await runtime.execute("hub:get", {}, caller())
    assert "cache_hit" not in first.envelope.provenance
    assert again.envelope.provenance["cache_hit"] is True
    await runtime.execute("/hub/get", {}, caller())
    with pytest.raises(RateLimited) as over:
        await runtime.execute("hub:get", {}, caller())
    assert over.value.path == "hub:get@2.0"


@requirement("CARD-34")
async def test_a_handle_may_leave_out_the_hash_of_its_tool() -> None:
    runtime = await runtime_of()
    handle = (await runtime.execute("hub:create_issue", {}, caller())).envelope.artifacts[0].handle
    tool_id = whole(runtime, "hub:create_issue#")
    short = handle.replace(tool_id, "hub:create_issue")
    assert short != handle
    head = {"type": "head", "chars": 6}
    assert (await runtime.view(short, head, caller())).content == "create"
    # For a caller that may not use the tool, and one that owns nothing, there is none.
    answers: list[GatewayError] = []
    for wanted, context in (
        (short, caller("tools:hub:get")),
        (short.replace("create_issue", "none"), caller()),
        (short.replace("create_issue", "read"), caller()),
        (handle.replace(tool_id, "hub:create_issue#00000000"), caller()),
    ):
        with pytest.raises(ViewFailed) as none:
            await runtime.view(wanted, head, context)
        answers.append(none.value)
    assert len({error.message for error in answers}) == 1
