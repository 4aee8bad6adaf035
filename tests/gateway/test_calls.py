"""Deadlines, retries and the cache, as an upstream's operator set them (EXEC-15, EXEC-16)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy
from wicketgate.catalog.catalog import build_catalog
from wicketgate.errors import (
    GatewayError,
    UpstreamBusy,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnclear,
)
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.fleet.member import Member, MultiplexUpstream, UpstreamLimits
from wicketgate.gateway.audited_call import AuditedCall
from wicketgate.gateway.call_policy import CallPolicy, RetryPolicy
from wicketgate.gateway.calls import CalledTool, Calls
from wicketgate.gateway.flows import Flows
from wicketgate.gateway.kept_calls import plain, raised
from wicketgate.gateway.options import RuntimePolicies
from wicketgate.gateway.snapshot import Snapshot
from wicketgate.ports import CallContext, InputAnswers, SilentCaller
from wicketgate.storage.flows import StoredFlows
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.memory_results import MemoryResultStore
from wicketgate.storage.quotas import StoredQuotas
from wicketgate.tokens import TokenCounter, shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "s")
SAFE = {"readOnlyHint": True, "idempotentHint": True}


@pytest.fixture(scope="module")
def tokens() -> TokenCounter:
    return shipped_token_counter()


class Shaky(StubUpstream):
    """Fails with the errors it is given, one a call, then answers with the number of the call."""

    def __init__(self, *errors: GatewayError, annotations: Mapping[str, Any] | None = None, is_error: bool = False):
        tool = {"name": "get", "inputSchema": {"type": "object"}, "annotations": dict(annotations or {})}
        super().__init__([tool], self._answer, name="shaky")
        self._errors = list(errors)
        self._is_error = is_error

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if self._errors:
            raise self._errors.pop(0)
        return {"content": [{"type": "text", "text": str(len(self.calls))}], "isError": self._is_error}


Call = Callable[..., Any]


@pytest.fixture
def call(tokens: TokenCounter) -> Call:
    async def call(
        upstream: StubUpstream,
        policy: CallPolicy,
        cache: MemoryResultStore | None = None,
        *,
        context: CallContext = CONTEXT,
        member: Member | None = None,
        **args: Any,
    ) -> Any:
        catalog = build_catalog({"shaky": upstream.tools}, tokens)
        (item,) = catalog.items.values()
        calls = Calls(
            MultiplexUpstream([member or Member(upstream)]),
            RuntimePolicies({"shaky": policy}),
            quota=StoredQuotas(MemoryStore(lambda: 0.0)),
            results=cache or MemoryResultStore(lambda: 0.0),
            in_force=lambda: (catalog, AccessPolicy()),
            now=lambda: 0.0,
            flows=Flows(StoredFlows(MemoryStore())),
        )
        note = AuditedCall(None, "execute", context, lambda: 0.0)
        called = await calls.call(Snapshot(catalog, {}, {}), AccessPolicy(), item.id, args, context, note)
        assert isinstance(called, CalledTool)
        return called.result["content"][0]["text"], note.cached

    return call


def quick(attempts: int, *, declared_safe: bool = False) -> CallPolicy:
    return CallPolicy(retry=RetryPolicy(attempts, base_s=0, declared_safe=declared_safe))


@requirement("EXEC-15")
async def test_a_call_that_never_left_is_tried_again_as_often_as_allowed(call: Call) -> None:
    twice = Shaky(UpstreamUnavailable("a"), UpstreamUnavailable("b"))
    assert await call(twice, quick(3)) == ("3", False)
    with pytest.raises(UpstreamUnavailable) as failure:
        await call(Shaky(UpstreamUnavailable("a"), UpstreamUnavailable("b")), quick(2))
    assert failure.value.path.startswith("shaky:get#")


@requirement("EXEC-15")
@pytest.mark.parametrize(
    ("error", "annotations", "declared_safe", "calls"),
    [
        (UpstreamTimeout("t"), {}, False, 1),
        (UpstreamTimeout("t"), SAFE, False, 1),
        (UpstreamTimeout("t"), {}, True, 1),
        (UpstreamTimeout("t"), {"readOnlyHint": True}, True, 1),
        (UpstreamTimeout("t"), SAFE, True, 2),
        (UpstreamError("refused"), SAFE, True, 1),
        (UpstreamLost("while it ran"), SAFE, False, 1),
        (UpstreamLost("while it ran"), SAFE, True, 2),
    ],
)
async def test_a_call_that_may_have_run_is_repeated_only_on_the_operators_word(
    call: Call, error: GatewayError, annotations: Mapping[str, Any], declared_safe: bool, calls: int
) -> None:
    upstream = Shaky(error, annotations=annotations)
    if calls == 1:
        with pytest.raises(type(error)):
            await call(upstream, quick(3, declared_safe=declared_safe))
    else:
        await call(upstream, quick(3, declared_safe=declared_safe))
    assert len(upstream.calls) == calls


NEVER_LEFT, LATE, LOST = UpstreamUnavailable("u."), UpstreamTimeout("t."), UpstreamLost("l.")
UNCLEAR = UpstreamUnclear("c.")


@requirement("EXEC-12", "EXEC-70")
@pytest.mark.parametrize(
    ("error", "annotations", "policy", "retryable", "is_known"),
    [
        (NEVER_LEFT, {}, {}, True, True),
        (UpstreamBusy("b."), {}, {}, True, True),
        (UpstreamError("refused."), {}, {}, False, True),
        *((error, {}, {}, False, False) for error in (LATE, LOST, UNCLEAR)),
        # The hints of a server are not believed.
        *((error, SAFE, {}, False, False) for error in (LATE, LOST, UNCLEAR)),
        # The word of the operator, or of our own code, is.
        (UNCLEAR, {}, {"read_only": ["get"]}, False, True),
        *((error, {}, {"read_only": ["get"]}, True, True) for error in (LATE, LOST)),
        *((error, {"readOnlyHint": True}, {"hints_hold": True}, True, True) for error in (LATE, LOST)),
        *((error, SAFE, {"retry": RetryPolicy(1, declared_safe=True)}, True, True) for error in (LATE, LOST)),
        (LATE, {"readOnlyHint": True}, {"retry": RetryPolicy(1, declared_safe=True)}, False, False),
    ],
)
async def test_a_caller_may_repeat_only_what_cannot_be_done_twice(
    call: Call,
    error: GatewayError,
    annotations: Mapping[str, Any],
    policy: Mapping[str, Any],
    retryable: bool,
    is_known: bool,
) -> None:
    upstream = Shaky(type(error)(error.message), annotations=annotations)
    with pytest.raises(type(error)) as failure:
        await call(upstream, CallPolicy(**{"retry": RetryPolicy(1), **policy}))
    body = failure.value.as_dict()
    assert body["retryable"] is retryable
    assert ("whether it took effect is not known" not in body["message"]) is is_known
    elsewhere = raised(json.loads(json.dumps(plain(failure.value))))
    assert isinstance(elsewhere, GatewayError)
    assert elsewhere.as_dict() == body


@requirement("EXEC-15")
@pytest.mark.parametrize("earlier", [UpstreamTimeout("late"), UpstreamLost("gone")])
async def test_an_attempt_that_never_left_hides_nothing_of_one_that_did(call: Call, earlier: GatewayError) -> None:
    upstream = Shaky(earlier, annotations=SAFE)
    resting = Member(upstream, UpstreamLimits(breaker=BreakerPolicy(failures=1)), now=lambda: 0.0)
    with pytest.raises(type(earlier)) as failed:
        await call(upstream, quick(3, declared_safe=True), member=resting)
    assert failed.value is earlier
    assert len(upstream.calls) == 1


@requirement("EXEC-15")
async def test_an_attempt_that_left_decides_after_one_that_did_not(call: Call) -> None:
    upstream = Shaky(UpstreamUnavailable("away"), UpstreamTimeout("late"), annotations=SAFE)
    with pytest.raises(UpstreamTimeout):
        await call(upstream, quick(2, declared_safe=True))
    with pytest.raises(UpstreamUnavailable):
        await call(Shaky(UpstreamUnavailable("away"), UpstreamUnavailable("away")), quick(2))


@requirement("EXEC-16")
async def test_a_result_is_not_kept_where_an_upstream_marks_the_call_as_questioned(call: Call) -> None:
    class Unassignable(Shaky):
        """Declines a question that belongs to one of several calls, as a handshake-era client must."""

        async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
            context.marks.questioned = True
            return await super()._answer(name, arguments, context)

    cache = MemoryResultStore(lambda: 0.0)
    upstream = Unassignable(annotations={"readOnlyHint": True})
    assert await call(upstream, KEPT, cache) == ("1", False)
    assert await call(upstream, KEPT, cache) == ("2", False)


@requirement("EXEC-15")
async def test_an_error_result_is_an_answer_and_never_repeated(call: Call) -> None:
    upstream = Shaky(annotations=SAFE, is_error=True)
    assert await call(upstream, quick(3, declared_safe=True)) == ("1", False)


@requirement("EXEC-15")
def test_waits_double_up_to_a_limit() -> None:
    policy = RetryPolicy(attempts=6, base_s=0.5, max_s=3)
    assert [policy.wait_s(failed) for failed in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert CallPolicy(10, {"slow_*": 20}, RetryPolicy(3, 0.5)).longest_s() == 61.5


@requirement("EXEC-14")
def test_the_first_pattern_that_fits_sets_the_deadline() -> None:
    policy = CallPolicy(10, {"export_all": 100, "export_*": 50})
    assert [policy.deadline_s(tool) for tool in ("export_all", "export_one", "get")] == [100, 50, 10]


@requirement("EXEC-16")
async def test_equal_calls_of_a_named_read_only_tool_are_answered_once(call: Call) -> None:
    now = [0.0]
    cache = MemoryResultStore(lambda: now[0])
    policy = CallPolicy(cached_tools=["g*"], cache_ttl_s=10)
    upstream = Shaky(annotations={"readOnlyHint": True})
    assert await call(upstream, policy, cache, a=1, b=2) == ("1", False)
    assert await call(upstream, policy, cache, b=2, a=1) == ("1", True)
    assert await call(upstream, policy, cache, a=2) == ("2", False)
    now[0] = 10.0
    assert await call(upstream, policy, cache, a=1, b=2) == ("3", False)
    upstream.tools[0] = {**upstream.tools[0], "description": "changed"}
    assert await call(upstream, policy, cache, a=1, b=2) == ("4", False)


@requirement("EXEC-16")
@pytest.mark.parametrize(
    ("annotations", "is_error", "tools"),
    [({}, False, ["get"]), ({"readOnlyHint": True}, True, ["get"]), ({"readOnlyHint": True}, False, ["other"])],
)
async def test_what_may_change_things_fails_or_was_not_named_is_never_kept(
    call: Call, annotations: Mapping[str, Any], is_error: bool, tools: list[str]
) -> None:
    upstream = Shaky(annotations=annotations, is_error=is_error)
    cache = MemoryResultStore(lambda: 0.0)
    for number in ("1", "2"):
        assert await call(upstream, CallPolicy(cached_tools=tools), cache) == (number, False)


@requirement("EXEC-16")
async def test_the_cache_is_bounded(call: Call) -> None:
    cache = MemoryResultStore(lambda: 0.0, max_results=2)
    upstream = Shaky(annotations={"readOnlyHint": True})
    answers = [await call(upstream, KEPT, cache, n=n) for n in (1, 2, 3, 3, 2, 1)]
    assert [cached for _, cached in answers] == [False, False, False, True, True, False]


KEPT = CallPolicy(cached_tools=["*"])
SHARED = replace(KEPT, cache_shared=True)
BOB = replace(CONTEXT, identity=Identity("bob", ("*",)))
ANSWERED = replace(CONTEXT, answers=InputAnswers({"q": {"action": "accept"}}, None))
NOW, LATER = (replace(CONTEXT, caller=RecordingCaller(when)) for when in ("now", "later"))
PAGES = SilentCaller({"extensions": {"io.modelcontextprotocol/ui": {}}})


@requirement("EXEC-16")
@pytest.mark.parametrize(
    ("policy", "calls"),
    [
        (KEPT, [(CONTEXT, "1", False), (BOB, "2", False), (CONTEXT, "1", True), (BOB, "2", True)]),
        (SHARED, [(CONTEXT, "1", False), (BOB, "1", True)]),
        *(
            (policy, [(ANSWERED, "1", False), (CONTEXT, "2", False), (ANSWERED, "3", False), (CONTEXT, "2", True)])
            for policy in (KEPT, SHARED)
        ),
        (KEPT, [(CONTEXT, "1", False), (NOW, "2", False), (LATER, "3", False), (CONTEXT, "1", True)]),
        (
            SHARED,
            [
                (CONTEXT, "1", False),
                (replace(CONTEXT, caller=PAGES), "2", False),
                (replace(BOB, caller=PAGES), "2", True),
            ],
        ),
    ],
    ids=["of an actor", "shared", "second attempt", "second attempt, shared", "way to be asked", "capabilities"],
)
async def test_a_kept_result_is_for_callers_who_would_get_the_same(
    call: Call, policy: CallPolicy, calls: list[tuple[CallContext, str, bool]]
) -> None:
    cache, upstream = MemoryResultStore(lambda: 0.0), Shaky(annotations={"readOnlyHint": True})
    given = [await call(upstream, policy, cache, context=context) for context, *_ in calls]
    assert given == [(number, is_kept) for _, number, is_kept in calls]


class Asking(Shaky):
    """Puts a question to the person before it answers; fails first where it is given errors."""

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        await context.caller.ask("elicitation/create", {"message": "Which one?"})
        return await super()._answer(name, arguments, context)


@requirement("EXEC-16")
@pytest.mark.parametrize("errors", [(), (UpstreamUnavailable("once"),)])
async def test_what_came_of_a_question_to_a_person_is_never_kept(call: Call, errors: tuple[GatewayError, ...]) -> None:
    cache = MemoryResultStore(lambda: 0.0)
    upstream = Asking(*errors, annotations={"readOnlyHint": True})
    policy = replace(quick(2), cached_tools=["*"], cache_shared=True)
    caller = RecordingCaller("now", {"action": "accept"})
    context = replace(CONTEXT, caller=caller)
    for number in (1, 2):
        assert await call(upstream, policy, cache, context=context) == (str(number + len(errors)), False)
    assert len(caller.asked) == 2 + len(errors)


@requirement("EXEC-16")
async def test_a_caller_who_is_not_asked_hears_the_server_and_shares_what_is_kept(call: Call) -> None:
    class Telling(Shaky):
        async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
            await context.caller.progress(1, 2, "half")
            await context.caller.log("info", "at work", None)
            return await super()._answer(name, arguments, context)

    cache = MemoryResultStore(lambda: 0.0)
    upstream = Telling(annotations={"readOnlyHint": True})
    caller = RecordingCaller("now", {"action": "accept"})
    context = replace(CONTEXT, caller=caller)
    assert await call(upstream, KEPT, cache, context=context) == ("1", False)
    assert await call(upstream, KEPT, cache, context=context) == ("1", True)
    assert caller.told == [("progress", 1, 2, "half"), ("log", "info", "at work", None)]
