"""The runtime over stub upstreams: refresh, isolation, what reaches an upstream and what does not (CARD-16, EXEC-1)."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import (
    ApprovalRequired,
    ArgsInvalid,
    CatalogError,
    Forbidden,
    HydrateFailed,
    RateLimited,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
    ViewFailed,
)
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.archive import Execution
from wicketgate.gateway.call_policy import CallPolicy, RetryPolicy
from wicketgate.gateway.calls import DryRun
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import Artifact, CallContext, PendingCall, PutOutcome
from wicketgate.results.envelope import ResultEnvelope
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.seen_cards import MemorySessionStore
from wicketgate.tokens import TokenCounter, shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream


def context(*permissions: str, actor: str = "owner_1", session: str = "s") -> CallContext:
    return CallContext(Identity(actor, permissions or ("*",)), "trace-1", session)


def tool(name: str, *properties: str, required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in properties}, "required": list(required)}
    return {"name": name, "description": f"The {name} tool.", "inputSchema": schema}


async def envelope_of(running: Awaitable[Execution | DryRun]) -> ResultEnvelope:
    execution = await running
    assert isinstance(execution, Execution)
    return execution.envelope


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


@pytest.fixture(scope="module")
def tokens() -> TokenCounter:
    return shipped_token_counter()


Make = Callable[..., ProxyRuntime]


@pytest.fixture
def make(tokens: TokenCounter) -> Make:
    def make(*upstreams: StubUpstream, **policies: Any) -> ProxyRuntime:
        return ProxyRuntime(MultiplexUpstream(upstreams), RuntimeOptions(RuntimePolicies(**policies)))

    return make


async def say_name(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return text(f"called {name} with {dict(arguments)}")


def tool_id(runtime: ProxyRuntime, name: str) -> str:
    (found,) = (item.id for item in runtime.catalog().items.values() if item.upstream_name == name)
    return found


@requirement("EXEC-2")
async def test_a_call_goes_to_the_owner_under_the_upstreams_own_name(make: Make) -> None:
    a = StubUpstream([tool("files.read", "path", required=("path",))], say_name, name="files")
    b = StubUpstream([tool("read", "path")], say_name, name="other")
    runtime = await refreshed(make(a, b))
    envelope = await envelope_of(runtime.execute(tool_id(runtime, "files.read"), {"path": "x"}, context()))
    assert (envelope.status, envelope.provenance["tool_id"]) == ("ok", tool_id(runtime, "files.read"))
    assert [name for name, _, _ in a.calls] == ["files.read"]
    assert b.calls == []


@requirement("EXEC-1", "EXEC-5")
async def test_what_is_refused_never_reaches_the_upstream(make: Make) -> None:
    upstream = StubUpstream([tool("read", "path", required=("path",))], say_name, name="stub")
    runtime = await refreshed(make(upstream))
    known = tool_id(runtime, "read")
    with pytest.raises(ArgsInvalid) as refused:
        await runtime.execute(known, {}, context())
    assert refused.value.path == known
    with pytest.raises(HydrateFailed):
        await runtime.execute("missing:tool#00000000", {}, context())
    with pytest.raises(HydrateFailed):
        await runtime.execute(known, {"path": "x"}, context("tools:else:*"))
    with pytest.raises(ArgsInvalid):
        await runtime.execute(known, {}, context(), dry_run=True)
    assert isinstance(await runtime.execute(known, {"path": "x"}, context(), dry_run=True), DryRun)
    assert upstream.calls == []


@requirement("CARD-18")
async def test_a_subscription_is_answered_like_a_tool_that_is_not_there(make: Make) -> None:
    stream = {**tool("watch"), "_meta": {"wicketgate/operation": "subscription"}}
    upstream = StubUpstream([tool("read"), stream], say_name, name="stub")
    runtime = await refreshed(make(upstream))
    (held,) = runtime.catalog().subscriptions
    upstream.tools[:] = [tool("read")]
    without = await refreshed(make(upstream))
    answers = []
    for asked in (runtime, without):
        for refused in (asked.execute(held, {}, context()), asked.execute(held, {}, context(), dry_run=True)):
            with pytest.raises(HydrateFailed) as error:
                await refused
            answers.append(error.value.as_dict())
        with pytest.raises(HydrateFailed) as error:
            await asked.hydrate(held, context())
        answers.append(error.value.as_dict())
        answers.append({"cards": (await asked.browse_query("watch", 5, context())).cards})
        answers.append({"cards": (await asked.browse_path("/stub", context())).cards})
    assert answers[:5] == answers[5:]
    assert upstream.calls == []


@requirement("CARD-16")
async def test_a_tool_that_was_renamed_is_gone_under_its_old_id(make: Make) -> None:
    upstream = StubUpstream([tool("old")], say_name, name="stub")
    runtime = await refreshed(make(upstream))
    old = tool_id(runtime, "old")
    upstream.tools[:] = [tool("new")]
    await runtime.refresh_catalog()
    with pytest.raises(HydrateFailed):
        await runtime.execute(old, {}, context())
    assert upstream.calls == []
    await runtime.execute(tool_id(runtime, "new"), {}, context())


@requirement("CARD-14")
async def test_a_collision_leaves_the_catalog_in_force_whole(make: Make) -> None:
    upstream, other = StubUpstream([tool("one")], say_name, name="stub"), StubUpstream([tool("x.two")], name="other")
    runtime = await refreshed(make(upstream, other, inferred=("stub", "other")))
    before = runtime.catalog()
    upstream.tools[:] = [tool("three"), tool("x.two")]
    with pytest.raises(
        CatalogError, match=r"'x\.two' of stub and 'x\.two' of other|'x\.two' of other and 'x\.two' of stub"
    ):
        await runtime.refresh_catalog()
    assert runtime.catalog() is before
    one = tool_id(runtime, "one")
    assert [card.id for card in (await runtime.browse_path("/mcp", context())).cards] == [one]
    assert [card.id for card in (await runtime.browse_query("one", 5, context())).cards] == [one]
    await runtime.execute(one, {}, context())


@requirement("CARD-36")
async def test_twin_names_cost_a_server_the_twins_only(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    upstream = StubUpstream(
        [tool("one"), tool("two", "a"), {**tool("two", "a"), "title": "Twin"}], say_name, name="stub"
    )
    runtime = make(upstream)
    report = await runtime.refresh_catalog()
    assert (report.tools, list(report.left_out)) == (2, ["stub[2]"])
    assert "tool left out: stub[2]: 'two' has the id stub:two#" in caplog.text
    assert (await envelope_of(runtime.execute("stub:two", {"a": "x"}, context()))).status == "ok"
    assert runtime.troubles() == {}


@requirement("CARD-36")
async def test_a_hundred_twins_are_counted_and_fifty_of_them_named(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = make(StubUpstream([tool("one")] * 101, say_name, name="stub"))
    report = await runtime.refresh_catalog()
    assert (report.tools, len(report.left_out)) == (1, 100)
    lines = [record.message for record in caplog.records if record.message.startswith("tool left out: ")]
    assert (len(lines), lines[-1]) == (51, "tool left out: 50 more")


class Failing(StubUpstream):
    """Lists its tools until it is told to fail."""

    failing = False

    async def list_tools(self) -> Any:
        if self.failing:
            raise UpstreamUnavailable(f"{self.name} is not connected.")
        return await super().list_tools()


@requirement("CARD-16", "UP-2", "UP-4")
async def test_an_upstream_that_fails_keeps_its_last_tools_and_the_others_are_refreshed(make: Make) -> None:
    shaky, steady = Failing([tool("a")], say_name, name="shaky"), StubUpstream([tool("b")], say_name, name="steady")
    runtime = await refreshed(make(shaky, steady))
    shaky.failing = True
    steady.tools.append(tool("c"))
    report = await runtime.refresh_catalog()
    assert report.stale == runtime.troubles() == {"shaky": "shaky is not connected."}
    assert sorted(item.upstream_name for item in runtime.catalog().items.values()) == ["a", "b", "c"]
    assert (await runtime.refresh_catalog(["steady"])).stale == {}
    assert sorted(item.upstream_name for item in runtime.catalog().items.values()) == ["a", "b", "c"]


@requirement("EXEC-17")
async def test_a_call_in_flight_over_a_refresh_completes(make: Make) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def wait(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        started.set()
        await release.wait()
        return text("done at last")

    upstream = StubUpstream([tool("slow")], wait)
    runtime = await refreshed(make(upstream))
    running = asyncio.create_task(runtime.execute(tool_id(runtime, "slow"), {}, context()))
    await started.wait()
    upstream.tools[:] = [tool("other")]
    await runtime.refresh_catalog()
    release.set()
    envelope = await envelope_of(running)
    assert envelope.summary == "done at last"


@requirement("EXEC-12", "EXEC-14")
async def test_failures_of_upstreams_keep_their_class_and_name_the_tool(make: Make) -> None:
    async def fail(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        match name:
            case "hang":
                await asyncio.Event().wait()
            case "gone":
                raise UpstreamUnavailable("stub is not connected.")
        raise UpstreamError("stub refused the call.")

    runtime = await refreshed(
        make(
            StubUpstream([tool("hang"), tool("gone"), tool("refuse")], fail),
            default_call=CallPolicy(0.1, retry=RetryPolicy(1)),
        )
    )
    expected = {"hang": UpstreamTimeout, "gone": UpstreamUnavailable, "refuse": UpstreamError}
    for name, kind in expected.items():
        with pytest.raises(kind) as failure:
            await runtime.execute(tool_id(runtime, name), {}, context())
        assert failure.value.path == tool_id(runtime, name)
        assert failure.value.retryable is (name == "gone")


@requirement("EXEC-28", "EXEC-29")
async def test_a_result_can_be_viewed_by_its_owner_in_any_session_and_by_nobody_else(make: Make) -> None:
    async def long_text(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return text("\n".join(f"line {n}" for n in range(10_000)))

    runtime = await refreshed(make(StubUpstream([tool("export")], long_text, name="stub")))
    first = await envelope_of(runtime.execute(tool_id(runtime, "export"), {}, context()))
    second = await envelope_of(runtime.execute(tool_id(runtime, "export"), {}, context()))
    assert len(first.summary) <= 500
    handle = first.artifacts[0].handle
    assert handle == second.artifacts[0].handle
    assert handle.startswith("text:stub:export#")
    selector = {"type": "lines", "start": 9_998, "end": 10_000}
    view = await runtime.view(handle, selector, context(session="another"))
    assert view.content == "line 9998\nline 9999"
    for stranger, wanted in ((context(actor="other"), handle), (context(), handle[:-1])):
        with pytest.raises(ViewFailed) as refused:
            await runtime.view(wanted, selector, stranger)
        assert refused.value.path == wanted


@requirement("BROWSE-1", "BROWSE-5", "BROWSE-11", "BROWSE-18")
async def test_browsing_shows_only_what_the_caller_may_use(make: Make) -> None:
    runtime = await refreshed(
        make(StubUpstream([tool("read"), tool("write")], name="files"), StubUpstream([tool("read")], name="mail"))
    )
    some = context("tools:files:read")
    assert [card.id for card in (await runtime.browse_path("/", context())).cards] == ["/files", "/mail"]
    assert [card.id for card in (await runtime.browse_path("/", some)).cards] == ["/files"]
    assert [card.name for card in (await runtime.browse_path("/files", some)).cards] == ["read"]
    assert [card.namespace for card in (await runtime.browse_query("read", 10, some)).cards] == ["files"]
    nothing = await runtime.browse_query("zzzz qqqq", 10, context())
    assert nothing.cards == ()
    assert "'/'" in nothing.hint


@requirement("BROWSE-23")
async def test_a_tool_that_ran_counts_as_seen_and_one_that_did_not_does_not(tokens: TokenCounter) -> None:
    upstream = StubUpstream([tool("alpha"), tool("beta"), tool("gamma", "x", required=("x",))], say_name, name="stub")
    sessions = MemorySessionStore(now=lambda: 0.0)
    runtime = await refreshed(ProxyRuntime(upstream, RuntimeOptions(sessions=sessions), cache_stable=True))
    with pytest.raises(ArgsInvalid):
        await runtime.execute(tool_id(runtime, "gamma"), {}, context())
    await runtime.execute(tool_id(runtime, "beta"), {}, context())
    shown = [card.name for card in (await runtime.browse_path("/stub", context())).cards]
    assert shown == ["beta", "__cache_breakpoint__", "alpha", "gamma"]
    again = [card.name for card in (await runtime.browse_path("/stub", context())).cards]
    assert again == ["alpha", "beta", "gamma"]
    assert [card.name for card in (await runtime.browse_path("/stub", context(session="new"))).cards] == again


@requirement("CARD-25", "BROWSE-2", "BROWSE-17")
async def test_the_best_come_first_as_many_as_were_asked_for(make: Make) -> None:
    runtime = await refreshed(make(StubUpstream([tool(f"note_{n:02}", "text") for n in range(60)], name="notes")))
    for top_k in (1, 10, 50):
        cards = (await runtime.browse_query("note 07 text", top_k, context())).cards
        assert len(cards) == top_k
        ranked = sorted(cards, key=lambda card: (-(card.score or 0), card.id))
        assert list(cards) == ranked
        assert cards[0].name == "note_07"
        assert (await runtime.browse_query("note 07 text", top_k, context())).cards == cards
        assert all(card.kind == "tool" for card in cards)


@requirement("UP-21")
async def test_the_stub_gives_copies_and_without_a_handler_an_error_result() -> None:
    stub = StubUpstream([tool("one")])
    (await stub.list_tools())[0]["name"] = "changed"  # type: ignore[index]
    assert [listed["name"] for listed in await stub.list_tools()] == ["one"]
    result = await stub.call_tool("one", {}, context(), 1)
    assert result["isError"] is True


CLOSE_ISSUE = {
    "name": "close_issue",
    "inputSchema": {"type": "object", "properties": {"issue_id": {"type": "integer"}}, "required": ["issue_id"]},
}


@requirement("EXEC-9")
async def test_tolerant_arguments_are_mended_before_the_check_and_the_provenance_says_so(make: Make) -> None:
    upstream = StubUpstream([CLOSE_ISSUE], say_name, name="stub")
    strict, tolerant = make(upstream), make(upstream, default_call=CallPolicy(tolerant_args=True))
    await strict.refresh_catalog()
    await tolerant.refresh_catalog()
    issue = tool_id(strict, "close_issue")
    with pytest.raises(ArgsInvalid):
        await strict.execute(issue, {"issue_id": "42"}, context())
    with pytest.raises(ArgsInvalid):
        await tolerant.execute(issue, {"issue_id": "not-a-number"}, context())
    assert upstream.calls == []
    envelope = await envelope_of(tolerant.execute(issue, {"issue_id": "42"}, context()))
    assert envelope.provenance["arg_repairs"] == [{"path": "$.issue_id", "rule": "str_to_integer"}]
    assert [arguments for _, arguments, _ in upstream.calls] == [{"issue_id": 42}]
    plain = await envelope_of(tolerant.execute(issue, {"issue_id": 42}, context()))
    assert plain.provenance.keys().isdisjoint({"arg_repairs", "unchecked"})
    dry = await tolerant.execute(issue, '{"issue_id": "42"}', context(), dry_run=True)
    assert isinstance(dry, DryRun)
    assert [each["rule"] for each in dry.notes["arg_repairs"]] == ["json_to_object", "str_to_integer"]


@requirement("EXEC-6")
async def test_what_a_schema_asks_and_was_not_checked_is_named_in_the_provenance(make: Make) -> None:
    hostile = {"name": "say", "inputSchema": {"properties": {"words": {"type": "string", "pattern": "^(?!a)"}}}}
    runtime = await refreshed(make(StubUpstream([hostile], say_name, name="stub")))
    envelope = await envelope_of(runtime.execute(tool_id(runtime, "say"), {"words": "a"}, context()))
    assert envelope.provenance["unchecked"] == ["$.properties.words.pattern"]


async def test_large_schemas_and_arguments_are_treated_like_small_ones(make: Make) -> None:
    rows = {"type": "array", "items": {"type": "integer"}}
    wide = {"type": "object", "properties": {f"p{number}": rows for number in range(300)}}
    upstream = StubUpstream([{"name": "store", "inputSchema": wide}], say_name, name="stub")
    runtime = await refreshed(make(upstream))
    store = tool_id(runtime, "store")
    with pytest.raises(ArgsInvalid):
        await runtime.execute(store, {"p1": [1] * 1_000 + ["x"]}, context())
    assert upstream.calls == []
    assert (await envelope_of(runtime.execute(store, {"p1": [1] * 1_000}, context()))).status == "ok"


@requirement("BROWSE-19")
async def test_a_wrong_id_leads_to_tools_that_the_caller_may_see(make: Make) -> None:
    runtime = await refreshed(make(StubUpstream([tool("close_issue"), tool("delete_issue")], say_name, name="tracker")))
    close, delete = tool_id(runtime, "close_issue"), tool_id(runtime, "delete_issue")
    who = context("tools:tracker:close_issue")
    with pytest.raises(HydrateFailed) as wrong:
        await runtime.execute("tracker:close_issue#00000000", {}, who)
    assert wrong.value.details == {"did_you_mean": [close]}
    answers = []
    for absent in (delete, delete.replace("delete_issue", "delete_thing")):
        with pytest.raises(HydrateFailed) as raised:
            await runtime.execute(absent, {}, who)
        answers.append({**raised.value.as_dict(), "path": ""})
    assert answers[0] == answers[1]
    assert "details" not in answers[0]


@requirement("EXEC-5", "ACCESS-16")
async def test_a_quota_is_taken_by_calls_and_not_by_dry_runs_or_refused_arguments(make: Make) -> None:
    upstream = StubUpstream([tool("get", "x", required=("x",))], say_name, name="stub")
    runtime = await refreshed(make(upstream, per_actor=1))
    get = tool_id(runtime, "get")
    await runtime.execute(get, {"x": "1"}, context(), dry_run=True)
    with pytest.raises(ArgsInvalid):
        await runtime.execute(get, {}, context())
    await runtime.execute(get, {"x": "1"}, context())
    with pytest.raises(RateLimited):
        await runtime.execute(get, {"x": "1"}, context())
    await runtime.execute(get, {"x": "1"}, context(actor="another"))
    assert len(upstream.calls) == 2


@requirement("EXEC-29", "ACCESS-8")
async def test_an_artifact_is_viewed_only_by_keys_that_may_use_its_tool(make: Make) -> None:
    async def long_text(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return text(f"called {name}" * 1_000)

    runtime = await refreshed(make(StubUpstream([tool("get")], long_text, name="stub")))
    handle = (await envelope_of(runtime.execute(tool_id(runtime, "get"), {}, context()))).artifacts[0].handle
    head = {"type": "head", "chars": 5}
    assert (await runtime.view(handle, head, context("tools:stub:get"))).content == "calle"
    answers = []
    for wanted, caller in ((handle, context("tools:other:*")), (handle, context(actor="b")), ("nonsense", context())):
        with pytest.raises(ViewFailed) as refused:
            await runtime.view(wanted, head, caller)
        answers.append({**refused.value.as_dict(), "path": ""})
    assert answers[0] == answers[1] == answers[2]


@requirement("EXEC-16")
async def test_a_refresh_empties_the_result_cache(make: Make) -> None:
    upstream = StubUpstream([{**tool("get"), "annotations": {"readOnlyHint": True}}], say_name, name="stub")
    runtime = await refreshed(make(upstream, default_call=CallPolicy(cached_tools=["get"])))
    get = tool_id(runtime, "get")
    hits = []
    for refresh in (False, False, True, False):
        if refresh:
            await runtime.refresh_catalog()
        hits.append((await envelope_of(runtime.execute(get, {}, context()))).provenance.get("cache_hit", False))
    assert hits == [False, True, False, True]


@requirement("EXEC-16", "ACCESS-7")
async def test_a_kept_result_reaches_no_credential_that_may_not_make_the_call(make: Make) -> None:
    upstream = StubUpstream([{**tool("get", "of"), "annotations": {"readOnlyHint": True}}], say_name, name="files")
    access = AccessPolicy(
        [
            AccessRule("files:get", when=Condition("args.of == 'private'"), require_any=("role:admin",)),
            AccessRule("files:get", when=Condition("args.of == 'asked'"), approval="always"),
        ]
    )
    policy = CallPolicy(cached_tools=["*"], cache_shared=True)
    runtime = await refreshed(make(upstream, access=access, default_call=policy))
    get, plain = tool_id(runtime, "get"), context("tools:*")
    admin = replace(plain, identity=replace(plain.identity, roles=("admin",)))
    agreeing = replace(admin, approver=Agreeing())
    for args in ({"of": "private"}, {"of": "asked"}):
        await runtime.execute(get, args, agreeing)
        hit = await envelope_of(runtime.execute(get, args, agreeing))
        assert hit.provenance["cache_hit"] is True
    with pytest.raises(HydrateFailed):
        await runtime.execute(get, {"of": "private"}, context("tools:else:*"))
    with pytest.raises(Forbidden):
        await runtime.execute(get, {"of": "private"}, context("tools:*"))
    with pytest.raises(ApprovalRequired):
        await runtime.execute(get, {"of": "asked"}, admin)
    assert len(upstream.calls) == 2


class Agreeing:
    """An owner who agrees to every call."""

    async def approve(self, call: PendingCall) -> None:
        return


class Choosy(StoredArtifacts):
    """Keeps no artifact whose handle begins with one of *refused*; notes what it was given, in order."""

    def __init__(self, *refused: str) -> None:
        super().__init__(MemoryStore(lambda: 0.0))
        self._refused = refused
        self.given: list[str] = []

    async def put(self, owner: str, artifact: Artifact) -> PutOutcome:
        self.given.append(artifact.handle)
        return "failed" if artifact.handle.startswith(self._refused) else await super().put(owner, artifact)


@requirement("EXEC-31")
async def test_what_could_not_be_stored_is_not_offered_and_a_fact_says_why(tokens: TokenCounter) -> None:
    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        link = {"type": "resource_link", "uri": "file:///kept", "name": "kept"}
        return {"content": [{"type": "text", "text": "word " * 5_000}, link]}

    upstream = StubUpstream([tool("get")], answer)
    runtime = await refreshed(ProxyRuntime(upstream, RuntimeOptions(artifacts=Choosy("text:"))))
    envelope = await envelope_of(runtime.execute(tool_id(runtime, "get"), {}, context()))
    assert envelope.status == "partial"
    assert [ref.label for ref in envelope.artifacts] == ["kept"]
    assert any("cannot be viewed" in fact for fact in envelope.facts)
    assert "tool_view" not in envelope.summary
    assert tokens.count(json.dumps(envelope.as_dict(), separators=(",", ":"))) <= 500


@requirement("CARD-17")
async def test_listings_that_are_what_they_were_change_nothing(make: Make) -> None:
    runtime = await refreshed(make(StubUpstream([tool("one")])))
    before = runtime.catalog()
    await runtime.refresh_catalog()
    assert runtime.catalog() is before


@requirement("CARD-14")
async def test_refreshes_that_meet_are_built_as_one_and_a_collision_hurts_only_its_upstream(make: Make) -> None:
    upstreams = [StubUpstream([tool(f"n{n}.tool_{n}")], name=f"up{n}") for n in range(20)]
    runtime = make(*upstreams, inferred=[upstream.name for upstream in upstreams])
    await runtime.refresh_catalog(["up6"])
    upstreams[7].tools.append(tool("n6.tool_6"))
    outcomes = await asyncio.gather(
        *(runtime.refresh_catalog([upstream.name]) for upstream in upstreams), return_exceptions=True
    )
    failed = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, CatalogError)]
    assert failed == [7]
    assert sorted({item.server for item in runtime.catalog().items.values()}) == sorted(
        upstream.name for upstream in upstreams if upstream.name != "up7"
    )
    assert "tool_6" in runtime.troubles()["up7"]
    upstreams[7].tools.pop()
    await runtime.refresh_catalog(["up7"])
    assert runtime.troubles() == {}
    assert len(runtime.catalog().items) == 20


@requirement("ACCESS-7")
async def test_many_permissions_cost_a_look_up_and_hide_what_they_do_not_cover(make: Make) -> None:
    runtime = await refreshed(make(StubUpstream([tool(f"tool_{n}") for n in range(300)], name="big")))
    caller = context(*(f"tools:big:tool_{n}" for n in range(0, 300, 3)), "tools:else:*")
    shown = await runtime.browse_query("tool", 50, caller)
    assert len(shown.cards) == 50
    assert all(int(card.name.removeprefix("tool_")) % 3 == 0 for card in shown.cards)
    everything = (await runtime.browse_path("/", context())).spared_chars
    assert 0 < shown.spared_chars < everything / 2


async def many_images(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    images = [
        {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes([number]) * 9).decode()}
        for number in range(30)
    ]
    link = {"type": "resource_link", "uri": "file:///one", "name": "one"}
    return {"content": [*images, link]}


@requirement("EXEC-31")
async def test_every_artifact_that_is_offered_can_be_viewed_also_when_one_was_not_stored(tokens: TokenCounter) -> None:
    store = Choosy("resource_link:")
    runtime = await refreshed(ProxyRuntime(StubUpstream([tool("get")], many_images), RuntimeOptions(artifacts=store)))
    envelope = await envelope_of(runtime.execute(tool_id(runtime, "get"), {}, context()))
    index = envelope.artifacts[-1]
    assert index.handle.startswith("index:")
    assert [handle for handle in store.given if handle.startswith("index:")] == [index.handle]
    listing = await runtime.view(index.handle, {"type": "rows"}, context())
    assert "image:" in listing.content and "resource_link:" not in listing.content
    assert envelope.status == "partial"
    for ref in envelope.artifacts:
        assert await store.get("owner_1", ref.handle) is not None


@requirement("EXEC-31")
@pytest.mark.parametrize("refused", [("index:",), ("index:", "resource_link:")])
async def test_a_list_of_artifacts_that_was_not_stored_is_not_offered(
    tokens: TokenCounter, refused: tuple[str, ...]
) -> None:
    store = Choosy(*refused)
    runtime = await refreshed(ProxyRuntime(StubUpstream([tool("get")], many_images), RuntimeOptions(artifacts=store)))
    envelope = await envelope_of(runtime.execute(tool_id(runtime, "get"), {}, context()))
    assert (envelope.status, len(store.given)) == ("partial", 33), "the link beside the artifacts"
    assert sum("cannot be viewed" in fact for fact in envelope.facts) == len(refused)
    assert envelope.artifacts
    for ref in envelope.artifacts:
        assert await store.get("owner_1", ref.handle) is not None
