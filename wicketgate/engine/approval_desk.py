"""The desk: the list of calls that wait for an approval, of their owner or of others, and the decisions that people
make on it (OPS-253 to OPS-258)."""

from collections.abc import Callable, Mapping, Sequence

from wicketgate.access.approvers import Needs, Persons, described, fulfilled, has_voted, may_approve, vote_of
from wicketgate.access.identity import Identity, Standing, always_good, issuer_of
from wicketgate.access.seal import ApprovalSeal, ApprovalSubject
from wicketgate.engine.approvals import DENIED, DENIED_BY_OTHERS, Judging, Report, RunApprovals
from wicketgate.engine.contract import ChatRequest
from wicketgate.engine.other_desks import By, Heard, Lists, OtherDesks, Outcome
from wicketgate.engine.sealed_approvals import (
    CHANGED,
    EXPIRED,
    OTHER_CALL,
    USED,
    OnceStore,
    SealedApprovals,
    matches,
    refusal_of,
)
from wicketgate.engine.waiting_calls import (
    Decision,
    Verdict,
    WaitingCall,
    WaitingCalls,
    argument_names,
    shown_arguments,
)
from wicketgate.errors import ApprovalRequired, Forbidden, InputRequired, NotAdmitted
from wicketgate.gateway.audit_events import DecidedCall
from wicketgate.gateway.call_memory import approval_digest
from wicketgate.peers import Alone, Peers
from wicketgate.ports import NO_APPROVER, Approver, CallContext, InputAnswers, PendingCall

_NO_CALL = "00" * 32
"""In the place of a call's digest, for one that no chat made: no call of a history is like it."""
_OWNER = "approval"
"""The key of the question to the owner among the questions to a client."""
_SERVED = ("mcp", "operations", "chat")
"""The doors of a service, whose desk is reached from outside."""
_DENIED_CALL = "Denied by the owner. It was not run."
_DENIED_BY_OTHERS_CALL = "Denied by an approver. It was not run."


class NotWaiting(Exception):
    """A call that does not wait any more: it was decided, or its time is over."""


class NotOwn(NotWaiting):
    """A call that waits for another actor."""


class NotCallers(NotOwn):
    """A call of this actor that others decide on."""


class VotedBefore(NotWaiting):
    """A call that this approver has approved, and that waits for another."""


class TooLarge(NotWaiting):
    """A call whose arguments nobody can read, and so nobody can decide on here."""


_OUTCOMES: Mapping[Outcome, type[NotWaiting]] = {
    "not_waiting": NotWaiting,
    "not_own": NotOwn,
    "not_callers": NotCallers,
    "voted_before": VotedBefore,
    "too_large": TooLarge,
}

_AWAY = "No decision can be kept at the moment. Try again later."


class ApprovalDesk:
    """Takes decisions of people, and settles calls by them. *report* is called with each decision. *waiting* is the
    list of what waits, for people; *peers* have the other parts of it. *new_id* gives its handles. The word of an
    approver counts while its identity *stands*. *page* is the URL of the console's page of approvals, empty if there is
    none."""

    def __init__(
        self,
        seal: ApprovalSeal,
        used: OnceStore,
        report: Report | None = None,
        *,
        waiting: WaitingCalls,
        new_id: Callable[[], str],
        peers: Peers | None = None,
        stands: Standing = always_good,
        page: str = "",
    ) -> None:
        self._page = page
        self.sealed = SealedApprovals(seal, used)
        self.waiting = waiting
        self._report = report
        self._new_id = new_id
        self._stands = stands
        self.persons = Persons()
        self._others = OtherDesks(peers or Alone(), waiting, self._decide_by, self.settle, self.persons)
        self._judging = Judging(self.sealed, waiting, self._others, report)

    async def aclose(self) -> None:
        self.waiting.close()
        await self._others.aclose()
        await self.sealed.aclose()

    async def judge(self, request: ChatRequest, context: CallContext) -> RunApprovals:
        """As ``Judging.judge``."""
        return await self._judging.judge(request, context)

    def stand_again(self, ids: Sequence[str], context: CallContext) -> RunApprovals:
        """As ``Judging.stand_again``."""
        return self._judging.stand_again(ids, context)

    def approver_of(self, context: CallContext) -> Approver:
        """The approver of each call in *context*, from whichever door: what was decided at the desk comes first, and
        a call that has to wait is put on its list."""
        return _AtDesk(self, context)

    def listen(self, listener: Heard) -> None:
        """Calls *listener* with each change of the list, at whichever process. It must neither wait nor fail."""
        self._others.listen(listener)

    async def lists(self, viewer: Identity, *, everything: bool) -> Lists:
        """The calls that wait, and the last decided, at all processes: those of *viewer* and those that it may
        approve, or *everything*."""
        return await self._others.lists(viewer, everything=everything)

    async def count(self, viewer: Identity, *, everything: bool) -> int:
        """The number of calls that wait at all processes, of those that ``lists`` gives."""
        return await self._others.count(viewer, everything=everything)

    async def decide(self, id: str, decision: Decision, context: CallContext) -> bool:
        """Decide on a call of the list by its handle, as its own actor or one of its approvers, at whichever process it
        waits. The decision stands for the next same call, until it lapses; false if others have to approve it too.
        Raises NotWaiting, and NotAdmitted while nothing can be kept or its process cannot be reached."""
        if self.waiting.find(id) is not None:
            return await self._decide(id, decision, context)
        identity = context.identity
        by = By(
            identity.actor,
            identity.key_id,
            context.source,
            context.correlation_id,
            context.door,
            list(identity.permissions),
            list(identity.roles),
        )
        outcome = await self._others.decide(id, decision, by)
        if outcome in _OUTCOMES:
            raise _OUTCOMES[outcome]
        if outcome == "away":
            raise NotAdmitted(_AWAY)
        return outcome == "done"

    async def _decide_by(self, id: str, decision: Decision, by: By) -> Outcome:
        """As ``decide``, for a caller at another process."""
        issuer = issuer_of(by.key_id)
        identity = Identity(by.actor, tuple(by.permissions), by.key_id, roles=tuple(by.roles), issuer=issuer)
        context = CallContext(identity, by.correlation_id, "-", source=by.source, door=by.door)
        try:
            return "done" if await self._decide(id, decision, context) else "one_of_several"
        except NotWaiting as refused:
            return next(outcome for outcome, kind in _OUTCOMES.items() if type(refused) is kind)
        except NotAdmitted:
            return "away"

    async def _decide(self, id: str, decision: Decision, context: CallContext) -> bool:
        call, identity = self.waiting.find(id), context.identity
        if call is None:
            raise NotWaiting
        self.waiting.drop_votes(lambda vote: vote.identity is not None and not self._stands(vote.identity))
        _check_approver(call, decision, identity, self.persons)
        if call.args is None:
            raise TooLarge
        approval = self.sealed.opened(call.actor, call.approval)
        if approval is None or not self.sealed.in_time(approval):
            raise NotWaiting
        # From a denial on nobody can approve it, at whichever process.
        first = decision == "approve" or await self.sealed.use_up(approval)
        if self.waiting.find(id) is None:
            raise NotWaiting
        if not first:
            self.waiting.drop(call)
            raise NotWaiting
        vote = vote_of(call.needs, identity, decision, self.waiting.now())
        complete = decision == "deny" or fulfilled(call.needs, (*call.votes, vote), self.persons)
        if self._report is not None:
            on = DecidedCall(call.actor, call.definition, call.args, described(call.needs), vote.by, complete=complete)
            self._report(context, call.approval, call.tool_id, _denial(call) if decision == "deny" else "", on)
        if not complete:
            self.waiting.vote(call, vote)
            return False
        if call.needs:
            call.votes = (*call.votes, vote)
        self.waiting.decide(call, decision, stands=True)
        return True

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """Takes back the words of the approvers with this key, of calls that wait."""
        self.waiting.drop_votes(lambda vote: vote.identity is not None and vote.identity.key_id == key_id)
        return {}

    async def settle(self, actor: str, tool_id: str, definition: str, arguments: str, needs: Needs) -> Verdict:
        """Uses up a decision on such a call that stands here; *arguments* is their digest. An approval of others than
        *needs* asks for is void. Raises NotAdmitted while nothing can be kept."""
        for decided in self.waiting.standing(actor, tool_id, arguments):
            if decided.decision == "deny":
                return "denied_by_others" if decided.needs else "denied"
            if not set(needs) <= set(decided.needs):
                continue
            if not await self._redeem_decided(decided):
                continue
            if decided.definition != definition:
                return "changed"
            decided.used = True
            return "run"
        return ""

    async def settle_anywhere(self, call: PendingCall, actor: str, arguments: str) -> tuple[Verdict, str | None]:
        """As ``settle``, then at the other processes. Also returns the id of the very same call that waits at one of
        those, without a chat; None if there is none."""
        wanted = (actor, call.tool_id, call.definition, arguments, call.needs)
        if verdict := await self.settle(*wanted):
            return verdict, None
        return await self._others.settle(*wanted)

    async def _redeem_decided(self, decided: WaitingCall) -> bool:
        approval = self.sealed.opened(decided.actor, decided.approval)
        try:
            return approval is not None and await self.sealed.redeem(approval)
        except NotAdmitted:
            self.waiting.put_back(decided)
            raise

    def asked(self, call: PendingCall, actor: str, arguments: str) -> str:
        """Returns the sealed id of an approval of *call*, which no chat made. *arguments* is their digest."""
        subject = ApprovalSubject(call.tool_id, call.definition, arguments, _NO_CALL)
        return self.sealed.issue(actor, subject, by_others=bool(call.needs))

    async def answer(self, call: PendingCall, actor: str, given: InputAnswers) -> bool:
        """Uses up the decision on *call* that its client brings. False if it brings none. Raises Forbidden."""
        answer = given.responses.get(_OWNER)
        action = answer.get("action") if isinstance(answer, Mapping) else None
        if action not in ("accept", "decline"):
            return False
        approval = self.sealed.opened(actor, given.approval)
        refusal = OTHER_CALL
        if approval is not None and matches(approval, call):
            refusal = EXPIRED if not self.sealed.in_time(approval) else refusal_of(approval, call)
            if not refusal and not await self.sealed.redeem(approval):
                refusal = USED
        if refusal or action == "decline":
            raise Forbidden(refusal or _DENIED_CALL, path=call.tool_id)
        return True

    def place_of(self, id: str) -> dict[str, str]:
        """Returns where people decide on the call *id*, for the client of the call."""
        place = {"id": id, "command": f"wicketgate approvals approve {id}"}
        return {**place, "console": self._page} if self._page else place

    def put_on_list(self, call: PendingCall, context: CallContext, arguments: str, approval_id: str) -> str:
        """Returns the id under which *call* waits; empty if it does not. *arguments* is their digest, *approval_id* the
        sealed id that the client has; empty if it has none."""
        identity = context.identity
        actor = identity.actor
        sealed = approval_id or self.asked(call, actor, arguments)
        approval = self.sealed.opened(actor, sealed)
        if approval is None:
            return ""
        return self.waiting.add(
            WaitingCall(
                self._others.handle(self._new_id()),
                sealed,
                actor,
                call.tool_id,
                call.definition,
                arguments,
                shown_arguments(call.args),
                argument_names(call.args),
                self.waiting.now(),
                approval.sealed.expires_at,
                from_chat=bool(approval_id),
                key_id=identity.key_id,
                source=context.source,
                door=context.door,
                needs=call.needs,
            )
        )


class _AtDesk:
    """Implements Approver for any call of *context*: see ``ApprovalDesk.approver_of``."""

    def __init__(self, desk: ApprovalDesk, context: CallContext) -> None:
        self._desk = desk
        self._context = context

    async def approve(self, call: PendingCall) -> None:
        desk, actor, arguments = self._desk, self._context.identity.actor, approval_digest(call.args)
        given, approver = self._context.answers, self._context.approver
        if given is not None and given.approval and not call.needs:
            if await desk.answer(call, actor, given):
                return
            approver = NO_APPROVER  # it has been asked
        verdict, elsewhere = await desk.settle_anywhere(call, actor, arguments)
        match verdict:
            case "run":
                return
            case "denied":
                raise Forbidden(_DENIED_CALL, path=call.tool_id)
            case "denied_by_others":
                raise Forbidden(_DENIED_BY_OTHERS_CALL, path=call.tool_id)
            case "changed":
                raise Forbidden(CHANGED, path=call.tool_id)
            case "":
                pass
        try:
            await approver.approve(call)
        except ApprovalRequired as required:
            # The calls of a batch have no second attempt.
            if required.question is not None and self._context.caller.answers == "later":
                approval = desk.asked(call, actor, arguments)
                raise InputRequired({_OWNER: required.question}, None, approval=approval) from None
            approval_id = str((required.details or {}).get("approval_id", ""))
            if approval_id or elsewhere is None:
                elsewhere = desk.put_on_list(call, self._context, arguments, approval_id)
            if elsewhere and self._context.door in _SERVED:
                required.details = {**(required.details or {}), **desk.place_of(elsewhere)}
                required.message += f" A person approves it: {required.details['command']}"
            raise


def _check_approver(call: WaitingCall, decision: Decision, identity: Identity, persons: Persons) -> None:
    """Raises NotOwn and VotedBefore for one who may not decide so on *call*. Its caller may always deny it."""
    own = call.actor == identity.actor
    if own and (not call.needs or decision == "deny"):
        return
    if own:
        raise NotCallers
    if not may_approve(call.needs, identity, call.actor, persons):
        raise NotOwn
    if decision == "approve" and has_voted(call.votes, identity.actor, persons):
        raise VotedBefore


def _denial(call: WaitingCall) -> str:
    return DENIED_BY_OTHERS if call.needs else DENIED
