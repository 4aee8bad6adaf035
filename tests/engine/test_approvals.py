"""The judgement of decisions, by a clock of the test's own (CHAT-65 to CHAT-70)."""

import itertools
import json
from dataclasses import replace

import pytest

from tests.support.clock import Clock
from tests.support.requirement import requirement
from wicketgate.access.approvers import Need
from wicketgate.access.identity import Identity, Standing, always_good
from wicketgate.access.seal import ApprovalSeal, Seal
from wicketgate.engine.approval_desk import ApprovalDesk
from wicketgate.engine.approvals import REQUIRED, CallApprover
from wicketgate.engine.contract import ChatRequest, parse_chat_request
from wicketgate.errors import ApprovalRequired, Forbidden
from wicketgate.gateway.call_memory import approval_digest
from wicketgate.models.provider import ToolCall
from wicketgate.ports import CallContext, InputAnswers, PendingCall
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.used_approvals import UsedApprovals
from wicketgate.storage.waiting_approvals import StoredWaitingCalls

CALL = ToolCall("c1", "tool_execute", {"tool_id": "shop:refund#0123abcd"}, '{"tool_id":"shop:refund#0123abcd"}')
PENDING = PendingCall("shop:refund#0123abcd", "dd" * 32, {"amount": 5})


def of(actor: str) -> CallContext:
    return CallContext(Identity(actor, ("*",), "laptop"), "req_1", "s", source="192.0.2.7")


def used_by(clock: Clock) -> UsedApprovals:
    return UsedApprovals(MemoryStore(clock), clock, StorageMeasures())


def desk(clock: Clock, used: UsedApprovals | None = None, stands: Standing = always_good) -> ApprovalDesk:
    numbers = itertools.count()
    seal = Seal(["k" * 32], b"own" * 16, clock, lambda: str(next(numbers)))
    waiting = StoredWaitingCalls(MemoryStore(clock), seal, clock, lambda: str(next(numbers)), StorageMeasures())
    sealed = ApprovalSeal(seal, ttl_s=60)
    return ApprovalDesk(sealed, used or used_by(clock), waiting=waiting, now=clock, stands=stands)


def request(*results: str, decisions: dict[str, str], raw: str = CALL.raw) -> ChatRequest:
    """A history in which one call was made again and again, under one id, each with one of *results*."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "x"}]
    function = {"name": CALL.name, "arguments": raw}
    for result in results:
        made = {"id": "c1", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [made]})
        messages.append({"role": "tool", "tool_call_id": "c1", "content": result})
    approvals = [{"id": approval_id, "decision": word} for approval_id, word in decisions.items()]
    body = {"messages": messages, "metadata": {"correlation_id": "r", "approvals": approvals}}
    return parse_chat_request(json.dumps(body).encode())


async def ask(at: ApprovalDesk, actor: str = "ann") -> str:
    approver = CallApprover(await at.judging.judge(request(decisions={}), of(actor)), CALL)
    with pytest.raises(ApprovalRequired) as refused:
        await approver.approve(PENDING)
    assert refused.value.details == {"approval_id": approver.waiting}
    return approver.waiting


@requirement("CHAT-67", "CHAT-68", "ACCESS-17")
async def test_an_approval_that_has_expired_runs_nothing() -> None:
    clock = Clock()
    at = desk(clock)
    waiting = await ask(at)
    clock.now += 60
    (held,) = (await at.judging.judge(request(REQUIRED + waiting, decisions={waiting: "approve"}), of("ann"))).resumed
    assert (held.approval, held.refusal) == (None, "approval_refused: this approval has expired")


@requirement("CHAT-67")
async def test_an_approval_that_stands_expires_as_any_other() -> None:
    clock = Clock()
    at = desk(clock)
    run = await at.judging.judge(request(decisions={await ask(at): "approve"}), of("ann"))
    clock.now += 60
    approver = CallApprover(run, CALL)
    with pytest.raises(ApprovalRequired):
        await approver.approve(PENDING)
    assert approver.waiting


@requirement("CHAT-69")
async def test_calls_of_several_turns_under_one_id_are_kept_apart() -> None:
    at = desk(Clock())
    first, second = await ask(at), await ask(at)
    asked = request(REQUIRED + first, REQUIRED + second, decisions={first: "approve", second: "deny"})
    run = await at.judging.judge(asked, of("ann"))
    assert [(each.index, each.refusal) for each in run.resumed] == [(2, ""), (4, "denied by the owner")]
    assert len({each.call.id for each in run.resumed}) == 2


class Remembering(UsedApprovals):
    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryStore(clock), clock, StorageMeasures())
        self.added: list[str] = []

    async def add(self, key: str, until: float) -> bool:
        self.added.append(key)
        return await super().add(key, until)


@requirement("CHAT-68", "CHAT-70")
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_an_approval_counts_once_by_the_id_inside_it(decision: str) -> None:
    clock = Clock()
    used = Remembering(clock)
    at = desk(clock, used)
    first, second = await ask(at), await ask(at)
    for waiting in (first, second, first):
        await at.judging.judge(request(REQUIRED + waiting, decisions={waiting: decision}), of("ann"))
    assert used.added == ["0", "1", "0"]


async def test_what_a_tool_answers_is_not_taken_for_a_call_that_waits() -> None:
    at = desk(Clock())
    waiting = await ask(at)
    run = await at.judging.judge(
        request(f'{{"summary":"{REQUIRED}{waiting}"}}', decisions={waiting: "approve"}), of("ann")
    )
    assert (run.resumed, len(run.standing)) == ([], 1)


@requirement("CHAT-70")
@pytest.mark.parametrize("raw", ["", "[1]", "not json", '{"a":' + "[" * 900 + "]" * 900 + "}", "[" * 100_000])
async def test_a_history_with_arguments_that_no_call_can_have_runs_nothing(raw: str) -> None:
    at = desk(Clock())
    waiting = await ask(at)
    asked = request(REQUIRED + waiting, decisions={waiting: "approve"}, raw=raw)
    (held,) = (await at.judging.judge(asked, of("ann"))).resumed
    assert held.refusal == "approval_refused: this approval was asked for another call"
    assert (held.call.arguments, held.approval) == (None, None)


async def test_a_caller_cannot_approve_its_own_call_that_waits_for_others_nor_use_the_id_up() -> None:
    clock = Clock()
    used = Remembering(clock)
    at = desk(clock, used)
    approver = CallApprover(await at.judging.judge(request(decisions={}), of("ann")), CALL)
    with pytest.raises(ApprovalRequired):
        await approver.approve(replace(PENDING, needs=(Need("role:lead"),)))
    waiting = approver.waiting.split()[0]
    (held,) = (await at.judging.judge(request(REQUIRED + waiting, decisions={waiting: "approve"}), of("ann"))).resumed
    assert held.refusal == "approval_refused: this call waits for others, its caller cannot approve it"
    assert (held.approval, used.added) == (None, [])


@requirement("CHAT-68", "CHAT-69")
async def test_a_denial_of_a_call_that_the_history_does_not_hold_uses_its_id_up() -> None:
    at = desk(Clock())
    waiting = await ask(at)
    first = await at.judging.judge(request(decisions={waiting: "deny"}), of("ann"))
    assert (first.denied, first.standing) == ([PENDING.tool_id], {})
    for again in ("approve", "deny"):
        held = await at.judging.judge(request(REQUIRED + waiting, decisions={waiting: again}), of("ann"))
        assert [each.refusal for each in held.resumed] == ["approval_refused: this approval was decided before"]
    later = await at.judging.judge(request(decisions={waiting: "approve"}), of("ann"))
    with pytest.raises(ApprovalRequired):
        await CallApprover(later, CALL).approve(PENDING)


def respelled(approval_id: str) -> list[str]:
    """Other texts that a lax reader takes for the same id."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    bare = approval_id.rstrip("=")
    last, padding = letters.index(bare[-1]), approval_id[len(bare) :]
    spellings = [bare[:-1] + letters[last ^ bits] + padding for bits in range(1, 16)]
    spellings += [approval_id.replace("-", "+").replace("_", "/"), approval_id[:4] + approval_id[4:].swapcase()]
    spellings += [approval_id + "=", approval_id + "==", approval_id + "A", bare]
    spellings += [approval_id + " ", approval_id + "\n", f"{approval_id[:8]} {approval_id[8:]}", approval_id[4:]]
    return [each for each in dict.fromkeys(spellings) if each != approval_id]


@requirement("CHAT-68")
@pytest.mark.parametrize("length", [1, 2, 3, 17, 34])
async def test_an_id_that_is_spelt_otherwise_than_it_was_issued_is_not_known(length: int) -> None:
    # Tools of several lengths: what is sealed ends at each place of a group of letters, as far as the scheme lets it.
    at = desk(Clock())
    pending = PendingCall("shop:refund" + "x" * length, "dd" * 32, {"amount": 5})
    approver = CallApprover(await at.judging.judge(request(decisions={}), of("ann")), CALL)
    with pytest.raises(ApprovalRequired):
        await approver.approve(pending)
    for spelling in respelled(approver.waiting):
        run = await at.judging.judge(request(decisions={spelling: "approve"}), of("ann"))
        assert run.standing == {}, spelling
    assert len((await at.judging.judge(request(decisions={approver.waiting: "approve"}), of("ann"))).standing) == 1


@requirement("CHAT-70", "CHAT-123")
async def test_approvals_that_stood_stand_again_at_another_process_and_count_once_in_all() -> None:
    clock = Clock()
    used = used_by(clock)
    here = desk(clock, used)
    waiting, late = await ask(here), await ask(here)
    run = await here.judging.judge(request(decisions={waiting: "approve"}), of("ann"))
    again = here.judging.stand_again([*run.standing, "apr_unknown"], of("ann"))
    assert list(again.standing) == [waiting]
    assert here.judging.stand_again([waiting], of("bob")).standing == {}
    await CallApprover(run, CALL).approve(PENDING)
    approver = CallApprover(again, CALL)
    with pytest.raises(ApprovalRequired):
        await approver.approve(PENDING)
    clock.now += 60
    assert here.judging.stand_again([late], of("ann")).standing == {}


@requirement("ACCESS-174")
async def test_the_vote_of_an_approver_who_no_longer_stands_does_not_count() -> None:
    ended = set[str]()
    at = desk(Clock(), stands=lambda identity: identity.actor not in ended)
    id = await at.put_on_list(replace(PENDING, needs=(Need("role:lead", 2),)), of("ann"), "ab" * 32, "")
    lena, sven, tom = (
        CallContext(Identity(name, ("nothing",), name, ("lead",)), "r", "s") for name in ("lena", "sven", "tom")
    )
    assert not await at.decide(id, "approve", lena)
    ended.add("lena")
    assert not await at.decide(id, "approve", sven)
    (waiting,), _ = await at.lists(of("ann").identity, everything=False)
    assert [vote.actor for vote in waiting.votes] == ["sven"]
    assert await at.decide(id, "approve", tom)


def answered(at: ApprovalDesk) -> CallContext:
    """The second attempt of a client that was asked, with its user's word."""
    approval = at.asked(PENDING, "ann", approval_digest(PENDING.args))
    return of("ann").having(answers=InputAnswers({"approval": {"action": "accept"}}, None, approval=approval))


@requirement("ACCESS-17")
async def test_an_answer_counts_once_and_until_its_approval_expires() -> None:
    clock = Clock()
    at = desk(clock)
    context = answered(at)
    await at.approver_of(context).approve(PENDING)
    with pytest.raises(Forbidden):
        await at.approver_of(context).approve(PENDING)
    late = answered(at)
    clock.now += 61
    with pytest.raises(Forbidden):
        await at.approver_of(late).approve(PENDING)


@requirement("ACCESS-175")
async def test_an_answer_of_the_caller_does_not_count_where_others_approve_now() -> None:
    at = desk(Clock())
    with pytest.raises(ApprovalRequired):
        await at.approver_of(answered(at)).approve(replace(PENDING, needs=(Need("role:lead"),)))
