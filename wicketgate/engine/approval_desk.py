"""The desk: the list of calls that wait for an approval, of their owner or of others, and the decisions that people
make on it (OPS-253 to OPS-258)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from wicketgate.access.approvers import Persons, Vote, described, fulfilled, has_voted, may_approve, vote_of
from wicketgate.access.identity import Identity, Standing, always_good
from wicketgate.access.seal import ApprovalSeal, ApprovalSubject
from wicketgate.call_state import FlowStore
from wicketgate.engine.approvals import (
    CHANGED,
    DENIED,
    DENIED_BY_OTHERS,
    EXPIRED,
    OTHER_CALL,
    USED,
    Judging,
    OnceStore,
    Report,
    SealedApprovals,
    matches,
    refusal_of,
)
from wicketgate.engine.waiting_calls import (
    MOST_DECIDED,
    Change,
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
from wicketgate.ports import NO_APPROVER, Approver, CallContext, InputAnswers, PendingCall, approval_required
from wicketgate.task_end import end_tasks

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


_BUSY = "Others decide on this call at the moment. Try again."
_TRIES = 20
_LOOK_S = 1.0


class ApprovalDesk:
    """Takes decisions of people, and settles calls by them, at any process.

    *report* is called with each decision. *waiting* is the list of all processes, *now* the time of day in seconds. The
    word of an approver counts while its identity *stands*. *page* is the URL of the console's page of approvals, empty
    if there is none. *flows* takes the destinations that people accept for a session.
    """

    def __init__(
        self,
        seal: ApprovalSeal,
        used: OnceStore,
        report: Report | None = None,
        *,
        waiting: WaitingCalls,
        now: Callable[[], float],
        stands: Standing = always_good,
        page: str = "",
        flows: FlowStore | None = None,
    ) -> None:
        self.page = page
        self.on_waiting: Callable[[WaitingCall, str], None] = lambda call, handle: None
        """Called with each call that this process puts on the list, and its handle. It must neither wait nor fail."""
        self._flows = flows
        self.sealed = SealedApprovals(seal, used)
        self._waiting = waiting
        self._report = report
        self._now = now
        self._stands = stands
        self.persons = Persons()
        self.seen_waiting: int | None = None
        """The number of waiting calls at the last ``look``; None if the list was unreadable."""
        self.judging = Judging(self.sealed, waiting, now, report)
        self._ended_keys = set[str]()
        self._ending: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        await end_tasks(self._ending)

    def approver_of(self, context: CallContext) -> Approver:
        """The approver of each call in *context*, from whichever door: what was decided at the desk comes first, and
        a call that has to wait is put on its list."""
        return _AtDesk(self, context)

    def changes(self) -> AsyncGenerator[tuple[WaitingCall, Change]]:
        """As ``WaitingCalls.changes``."""
        return self._waiting.changes()

    async def lists(self, viewer: Identity, *, everything: bool) -> tuple[list[WaitingCall], list[WaitingCall]]:
        """Returns the calls that wait, oldest first, and the last decided: those of *viewer* and those that it may
        approve, or *everything*. Raises NotAdmitted while they cannot be read."""

        def readable(calls: Sequence[WaitingCall]) -> list[WaitingCall]:
            return [each for each in calls if everything or may_read(each, viewer, self.persons)]

        waiting, decided = readable(await self._waiting.waiting()), readable(await self._waiting.decided())
        return [self._without_lost_votes(each) for each in waiting], decided[:MOST_DECIDED]

    async def count(self, viewer: Identity, *, everything: bool) -> int:
        """Returns the number of calls that wait, of those that ``lists`` gives. Raises NotAdmitted."""
        return sum(everything or may_read(each, viewer, self.persons) for each in await self._waiting.waiting())

    async def waits(self, id: str) -> bool:
        """Returns true while the call *id* is on the list: it is neither decided nor expired. Raises NotAdmitted."""
        return await self._waiting.find(id) is not None

    async def look(self) -> None:
        """Updates ``seen_waiting`` with the calls of all processes, within a second."""
        number = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                number = await self._waiting.number()
        self.seen_waiting = number

    async def decide(
        self, id: str, decision: Decision, context: CallContext, *, for_conversation: bool = False
    ) -> bool:
        """Decides on a call of the list by its handle, as its own actor or one of its approvers. The decision stands
        for the next same call, until it expires. *for_conversation*: its destinations are fine for the rest of its
        session too. Returns false if others have to approve the call too.

        Raises NotWaiting, and NotAdmitted while nothing can be kept.
        """
        identity, used_up = context.identity, False
        if self._ended_keys:
            await self._drop_lost_votes()
        for _ in range(_TRIES):
            found = await self._waiting.find(id)
            if found is None:
                raise NotWaiting
            call = self._without_lost_votes(found)
            _check_approver(call, decision, identity, self.persons)
            if call.args is None:
                raise TooLarge
            approval = self.sealed.seal.open(call.actor, call.approval)
            if approval is None or self.sealed.seal.expired(approval):
                await self._waiting.drop(call)
                raise NotWaiting
            # From a denial on nobody can approve it, at any process.
            used_up = used_up or decision == "approve" or await self.sealed.use_up(approval)
            if not used_up:
                await self._waiting.drop(call)
                raise NotWaiting
            vote = vote_of(call.needs, identity, decision, self._now())
            voted = replace(call, votes=(*call.votes, vote)) if call.needs else call
            complete = decision == "deny" or fulfilled(call.needs, (*call.votes, vote), self.persons)
            if complete:
                decided = replace(voted, decision=decision, decided_at=self._now(), stands=True)
                written = await self._waiting.decide(decided)
            else:
                written = await self._waiting.update(voted)
            if written:
                accepted = for_conversation and complete and await self._accept(call)
                self._record(context, call, decision, vote, complete=complete, accepted=accepted)
                return complete
        raise NotAdmitted(_BUSY)

    async def _accept(self, call: WaitingCall) -> bool:
        """Returns false if the call has nothing to accept, or that could not be kept."""
        if not call.strange or self._flows is None:
            return False
        return await self._flows.change(call.session, None, lambda memory, at: memory.learn(call.strange))

    def _record(
        self, context: CallContext, call: WaitingCall, decision: Decision, vote: Vote, *, complete: bool, accepted: bool
    ) -> None:
        if self._report is not None and call.args is not None:
            on = DecidedCall(call.actor, call.definition, call.args, described(call.needs), vote.by, complete, accepted)
            self._report(context, call.approval, call.tool_id, _denial(call) if decision == "deny" else "", on)

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """Takes back the votes of the approvers with this key, of calls that wait."""
        self._ended_keys.add(key_id)
        if self._ending is None or self._ending.done():
            self._ending = asyncio.create_task(self._end_votes(), name="votes of ended keys")
        return {}

    async def _end_votes(self) -> None:
        with suppress(NotAdmitted):  # the next decision tries again
            while self._ended_keys:
                await self._drop_lost_votes()

    async def _drop_lost_votes(self) -> None:
        """Removes the votes of keys that have ended since the last time from the list."""
        ended = frozenset(self._ended_keys)
        for call in await self._waiting.waiting():
            found: WaitingCall | None = call
            while found is not None and found != (kept := self._without_lost_votes(found)):
                # A write that fails is followed by that of another process, so this ends.
                found = None if await self._waiting.update(kept) else await self._waiting.find(call.id)
        self._ended_keys -= ended

    def _without_lost_votes(self, call: WaitingCall) -> WaitingCall:
        votes = tuple(
            vote for vote in call.votes if vote.identity.key_id not in self._ended_keys and self._stands(vote.identity)
        )
        return call if len(votes) == len(call.votes) else replace(call, votes=votes)

    async def settle(self, call: PendingCall, actor: str, arguments: str) -> Verdict:
        """Uses up a decision on such a call that stands; *arguments* is their digest. An approval of others than *call*
        needs is void. Raises NotAdmitted while nothing can be kept."""
        for decided in await self._waiting.standing(actor, call.tool_id, arguments):
            if decided.decision == "deny":
                if await self._waiting.update(replace(decided, stands=False)):
                    return "denied_by_others" if decided.needs else "denied"
                continue  # it has refused another call
            approval = self.sealed.seal.open(actor, decided.approval)
            fits = set(call.needs) <= set(decided.needs)
            runs = fits and approval is not None and await self.sealed.redeem(approval)
            changed = decided.definition != call.definition
            with suppress(NotAdmitted):  # the approval counts by its id
                await self._end_standing(decided, used=runs and not changed)
            if runs:
                return "changed" if changed else "run"
        return ""

    async def stands(self, call: PendingCall, actor: str, arguments: str) -> bool:
        """Returns true if a decision on such a call stands. Raises NotAdmitted."""
        return bool(await self._waiting.standing(actor, call.tool_id, arguments))

    async def _end_standing(self, decided: WaitingCall, *, used: bool) -> None:
        """Notes that a decision stands no more, and whether it has run a call."""
        if not await self._waiting.update(replace(decided, stands=False, used=used)) and used:
            # Another process has found the approval used.
            again = await self._waiting.of_approval(decided.actor, decided.approval)
            if again is not None:
                await self._waiting.update(replace(again, stands=False, used=True))

    def asked(self, call: PendingCall, actor: str, arguments: str) -> str:
        """Returns the sealed id of an approval of *call*, which no chat made. *arguments* is their digest."""
        subject = ApprovalSubject(call.tool_id, call.definition, arguments, _NO_CALL)
        return self.sealed.seal.issue(actor, subject, by_others=bool(call.needs))

    async def answer(self, call: PendingCall, actor: str, given: InputAnswers) -> bool:
        """Uses up the decision on *call* that its client brings. False if it brings none. Raises Forbidden."""
        answer = given.responses.get(_OWNER)
        action = answer.get("action") if isinstance(answer, Mapping) else None
        if action not in ("accept", "decline"):
            return False
        approval = self.sealed.seal.open(actor, given.approval)
        refusal = OTHER_CALL
        if approval is not None and matches(approval, call):
            refusal = EXPIRED if self.sealed.seal.expired(approval) else refusal_of(approval, call)
            if not refusal and not await self.sealed.redeem(approval):
                refusal = USED
        if refusal or action == "decline":
            raise Forbidden(refusal or _DENIED_CALL, path=call.tool_id)
        return True

    def place_of(self, id: str) -> dict[str, str]:
        """Returns where people decide on the call *id*, for the client of the call."""
        place = {"id": id, "command": f"wicketgate approvals approve {id}"}
        return {**place, "console": self.page} if self.page else place

    async def put_on_list(self, call: PendingCall, context: CallContext, arguments: str, approval_id: str) -> str:
        """Returns the id under which *call* waits; empty if it does not. *arguments* is their digest, *approval_id* the
        sealed id that the client has; empty if it has none. Raises NotAdmitted while nothing can be kept."""
        identity = context.identity
        actor = identity.actor
        sealed = approval_id or self.asked(call, actor, arguments)
        approval = self.sealed.seal.open(actor, sealed)
        if approval is None:
            return ""
        waiting = WaitingCall(
            sealed,
            actor,
            call.tool_id,
            call.definition,
            arguments,
            shown_arguments(call.args),
            argument_names(call.args),
            self._now(),
            approval.sealed.expires_at,
            from_chat=bool(approval_id),
            key_id=identity.key_id,
            source=context.source,
            door=context.door,
            needs=call.needs,
            why=call.flow.for_person(),
            session=call.flow.session,
            # Where others approve, each call is theirs to read.
            strange=() if call.needs else call.flow.acceptable,
            requests=tuple(place.correlation_id for place in call.flow.places.values()),
            program=context.program[0],
        )
        handle = await self._waiting.add(waiting)
        if handle:
            self.on_waiting(waiting, handle)
        return handle


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
        if self._context.program[1] < 0:
            # A copy that runs ahead uses no decision up, and asks for none twice.
            if await desk.stands(call, actor, arguments):
                raise approval_required(call)
            verdict: Verdict = ""
        else:
            verdict = await desk.settle(call, actor, arguments)
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
            id = await desk.put_on_list(call, self._context, arguments, approval_id)
            if id and self._context.door in _SERVED:
                required.details = {**(required.details or {}), **desk.place_of(id)}
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


def may_read(call: WaitingCall, viewer: Identity, persons: Persons) -> bool:
    """True if *viewer* sees *call* with its arguments: its own actor, and those whom a rule names to decide on it."""
    return viewer.actor == call.actor or may_approve(call.needs, viewer, call.actor, persons)


def _denial(call: WaitingCall) -> str:
    return DENIED_BY_OTHERS if call.needs else DENIED
