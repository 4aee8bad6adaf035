"""The approvals of a chat: sealed ids that are used once over all replicas, decisions that a chat brings, and the
approvers of its calls (CHAT-65 to CHAT-71).
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from wicketgate.access.approvers import Needs, described
from wicketgate.access.seal import Approval, ApprovalSeal, ApprovalSubject
from wicketgate.engine.contract import ApprovalDecision, ChatMessage, ChatRequest
from wicketgate.engine.waiting_calls import WaitingCalls
from wicketgate.errors import Forbidden, NotAdmitted
from wicketgate.gateway.audit_events import DecidedCall
from wicketgate.gateway.call_memory import approval_digest
from wicketgate.models.provider import Message, ToolCall
from wicketgate.models.tool_calls import parse_arguments
from wicketgate.ports import TOOL_CHANGED, CallContext, PendingCall, approval_required

CHANGED = f"approval_refused: {TOOL_CHANGED}"
"""The refusal of an approval of another definition than the tool has now."""
EXPIRED = "approval_refused: this approval has expired"
USED = "approval_refused: this approval was decided before"
OTHER_CALL = "approval_refused: this approval was asked for another call"


class OnceStore(Protocol):
    """A memory of events that may happen once, shared by all replicas."""

    async def add(self, key: str, until: float) -> bool:
        """True for the first caller that adds *key*, and for no other before *until*, in seconds since the epoch.

        Raises NotAdmitted while nothing can be kept.
        """
        ...


class SealedApprovals:
    """Uses up approvals of *seal*, which may be replaced at any time; *used* remembers those that are used up."""

    def __init__(self, seal: ApprovalSeal, used: OnceStore) -> None:
        self.seal = seal
        self._used = used

    async def use_up(self, approval: Approval) -> bool:
        """True the first time. Raises NotAdmitted while nothing can be kept."""
        return await self._used.add(approval.sealed.uid, approval.sealed.expires_at)

    async def redeem(self, approval: Approval) -> bool:
        """True the first time that *approval* is used, unless it has expired."""
        return not self.seal.expired(approval) and await self.use_up(approval)


def matches(approval: Approval, call: PendingCall) -> bool:
    """True if *approval* is of such a call, whatever the definition of its tool was."""
    return approval.subject.is_of(call.tool_id) and approval.subject.arguments == approval_digest(call.args)


def refusal_of(approval: Approval, call: PendingCall) -> str:
    """Returns the reason why an approval of this very call does not count; empty if it does."""
    return "" if approval.subject.definition == call.definition else CHANGED


def call_digest(call: ToolCall) -> str:
    """The digest of a call as the model made it."""
    return approval_digest({"name": call.name, "arguments": call.arguments})


log = logging.getLogger("wicketgate.engine")

REQUIRED = "approval_required "
DENIED = "denied by the owner"
DENIED_BY_OTHERS = "denied by an approver"
_DENIALS = (DENIED, DENIED_BY_OTHERS)
NOT_RUN = "Not run: this call waited for an approval."
_UNKNOWN = "approval_refused: this approval is not known here"
_NOT_YOURS = "approval_refused: this call waits for others, its caller cannot approve it"
_MAX_DEPTH = 100
_TRIES = 20
_WAITING = re.compile(re.escape(REQUIRED) + r"(apr_[A-Za-z0-9_-]{1,1000})(?: by .{1,2000})?(?:\n(?s:.*))?")


@dataclass(frozen=True, slots=True)
class Resumed:
    """A decided call of the history. *approval* is set if it is to be run, *refusal* if not. *granted*: the needs that
    the decision fulfils."""

    call: ToolCall
    index: int
    approval: Approval | None
    refusal: str = ""
    granted: Needs = ()


class RunApprovals:
    """The decisions of one stream. *resumed*: decided calls of the history; *standing*: approvals, by their ids, of
    calls that the model has to make again; *denied*: tools of denied calls that the history does not hold."""

    def __init__(self, sealed: SealedApprovals, actor: str, waiting: Sequence[int]) -> None:
        self.sealed = sealed
        self.actor = actor
        self._waiting = waiting
        self.resumed: list[Resumed] = []
        self.standing: dict[str, Approval] = {}
        self.denied: list[str] = []

    def for_model(self, messages: Sequence[Message]) -> list[Message]:
        """The history for the model: without ids, and with a line on each decision that it does not show."""
        shown = list(messages)
        for index in self._waiting:
            shown[index] = {**shown[index], "content": NOT_RUN}
        lines = [
            f"[The owner has approved one call of {approval.subject.tool_id} that was asked for before. "
            "Make the same call with the same arguments, and it will run.]"
            for approval in self.standing.values()
        ]
        lines += [f"[The owner has denied a call of {tool_id} that was asked for before.]" for tool_id in self.denied]
        if not lines:
            return shown
        # At the end of the message that the model answers, because every chat template accepts text there.
        text, last = "\n".join(lines), shown[-1]
        if last["role"] in ("user", "tool"):
            shown[-1] = {**last, "content": f"{last['content']}\n\n{text}".strip()}
        else:
            shown.append({"role": "user", "content": text})
        return shown


class Report(Protocol):
    """Takes a decision: the context it came in, the approval's id, the tool's id if it is known, the refusal, and the
    call, if it was decided at the desk."""

    def __call__(
        self, context: CallContext, approval_id: str, tool_id: str, refusal: str, on: DecidedCall | None = None, /
    ) -> None: ...


class Judging:
    """Judges the decisions of requests. *report* is called with each that was not made at the desk; *waiting* has what
    was decided there, at any process. *now* is the time of day in seconds."""

    def __init__(
        self, sealed: SealedApprovals, waiting: WaitingCalls, now: Callable[[], float], report: Report | None
    ) -> None:
        self._sealed = sealed
        self._waiting = waiting
        self._now = now
        self._report = report

    async def judge(self, request: ChatRequest, context: CallContext) -> RunApprovals:
        """Judge the decisions of a request. Those on calls that its history holds count from now on; an approval of
        any other call stands for this stream, until the model makes that call."""
        actor = context.identity.actor
        found = list(_waiting(request.messages))
        waiting = {approval_id: (index, call) for index, approval_id, call in found}
        run = RunApprovals(self._sealed, actor, [index for index, _, _ in found])
        brought = request.metadata.approvals or ()
        if not found and not brought:  # as in nearly every request
            return run
        own = {each.id for each in brought if each.decision == "deny" or not self._is_for_others(actor, each.id)}
        settled = await self._waiting.standing_of_chat(actor, waiting.keys() - own)
        at_desk = [
            ApprovalDecision(id=each, decision=call.decision)
            for each, call in settled.items()
            if call.decision is not None
        ]
        for decision in (*(each for each in brought if each.id not in settled), *at_desk):
            index, call = waiting.get(decision.id, (-1, None))
            granted = settled[decision.id].needs if decision.id in settled else ()
            approval, refusal = await self._judge(decision, actor, call, granted, at_desk=decision in at_desk)
            tool_id = approval.subject.tool_id if approval else ""
            log.info("approval of %s: %s", tool_id or "?", refusal or "granted")
            if self._report is not None and decision not in at_desk:
                self._report(context, decision.id, tool_id, refusal)
            await self._note(actor, decision, refusal, runs=call is not None and not refusal)
            # A call of the history is resumed; other decisions stand for calls to come.
            if call is not None:
                # A history may use an id in several turns; in a stream it belongs to one call.
                if any(each.call.id == call.id for each in run.resumed):
                    call = replace(call, id=f"{call.id}_{index}")
                run.resumed.append(Resumed(call, index, None if refusal else approval, refusal, granted))
            elif approval is not None and not refusal:
                run.standing[decision.id] = approval
            elif approval is not None and refusal == DENIED:
                run.denied.append(approval.subject.tool_id)
        return run

    def stand_again(self, ids: Sequence[str], context: CallContext) -> RunApprovals:
        """The approvals that stood when a run was left. One that was used since is refused when its call is made."""
        run = RunApprovals(self._sealed, context.identity.actor, [])
        opened = ((each, self._sealed.seal.open(run.actor, each)) for each in ids)
        run.standing = {
            each: approval for each, approval in opened if approval and not self._sealed.seal.expired(approval)
        }
        return run

    def _is_for_others(self, actor: str, id: str) -> bool:
        approval = self._sealed.seal.open(actor, id)
        return approval is not None and approval.by_others

    async def _note(self, actor: str, decision: ApprovalDecision, refusal: str, *, runs: bool) -> None:
        """Takes a call off the list, now that its decision has come by itself."""
        if refusal and refusal not in _DENIALS:
            return
        with suppress(NotAdmitted):  # the decision counts by its id, and the call leaves the list when it expires
            for _ in range(_TRIES):
                call = await self._waiting.of_approval(actor, decision.id)
                if call is None:
                    return
                if call.decision is None:
                    call = replace(call, decision=decision.decision, decided_at=self._now(), used=runs)
                    written = await self._waiting.decide(call)
                else:
                    written = await self._waiting.update(replace(call, stands=False, used=runs))
                if written:
                    return

    async def _judge(
        self, decision: ApprovalDecision, actor: str, call: ToolCall | None, granted: Needs, *, at_desk: bool
    ) -> tuple[Approval | None, str]:
        """The approval under the decision's id, and the refusal; empty if it is granted. A denial *at_desk* has used
        the approval up already; *granted* are the needs that a decision there fulfils."""
        # The order decides which text a client gets: unknown, expired, for another call, used.
        approval = self._sealed.seal.open(actor, decision.id)
        if approval is None:
            return None, _UNKNOWN
        if self._sealed.seal.expired(approval):
            return approval, EXPIRED
        if call is not None and call_digest(call) != approval.subject.call:
            return approval, OTHER_CALL
        if at_desk and decision.decision == "deny":
            return approval, DENIED_BY_OTHERS if granted else DENIED
        if approval.by_others and not at_desk and decision.decision == "approve":
            return approval, _NOT_YOURS
        if (call is not None or decision.decision == "deny") and not await self._sealed.redeem(approval):
            return approval, USED
        return approval, DENIED if decision.decision == "deny" else ""


def _waiting(messages: Sequence[ChatMessage]) -> Iterator[tuple[int, str, ToolCall]]:
    """The calls that wait for the owner: index of the tool message, approval id, and call."""
    calls: dict[str, ToolCall] = {}
    for index, message in enumerate(messages):
        for call in message.tool_calls or ():
            calls[call.id] = ToolCall(call.id, call.function.name, None, call.function.arguments)
        if message.role == "tool" and message.tool_call_id is not None:
            asked = _WAITING.fullmatch(message.content)
            if asked:
                made = calls[message.tool_call_id]
                arguments = parse_arguments(made.raw, cut=True)
                yield index, asked[1], replace(made, arguments=arguments if _is_shallow(arguments) else None)


def _is_shallow(value: Any) -> bool:
    """True if *value* is not nested more deeply than the arguments of a call may be."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            below
            for each in level
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


_OTHERS_NOW = "approval_refused: the approval of others is needed now"


class CallApprover:
    """Implements Approver for one call of the model. *waiting* is the id under which it waits, with those who have to
    approve where that is not the owner, and below it the reason if that is what was read; *refusal* is the reason why
    its approval does not count. Each is empty if there is none."""

    def __init__(self, run: RunApprovals, call: ToolCall) -> None:
        self._run = run
        self._call = call
        self.waiting = ""
        self.refusal = ""

    async def approve(self, call: PendingCall) -> None:
        # An approval that stands is used up by the first call that matches it, or is refused there. It is the owner's.
        standing = () if call.needs else self._run.standing.items()
        for each, approval in [item for item in standing if matches(item[1], call)]:
            del self._run.standing[each]
            if await self._run.sealed.redeem(approval):
                self.refusal = refusal_of(approval, call)
                if self.refusal:
                    raise Forbidden(self.refusal, path=call.tool_id)
                return
        subject = ApprovalSubject(call.tool_id, call.definition, approval_digest(call.args), call_digest(self._call))
        id = self._run.sealed.seal.issue(self._run.actor, subject, by_others=bool(call.needs))
        whose = f"{id} by {described(call.needs)}" if call.needs else id
        self.waiting = "\n".join(filter(None, (whose, call.flow.for_person())))
        raise approval_required(call, approval_id=id)


class Redeemed:
    """Implements Approver for a call that was approved: this one, once. *granted* are the needs that the approval
    fulfils. *refusal* as for CallApprover."""

    waiting = ""

    def __init__(self, approval: Approval, granted: Needs) -> None:
        self._approval: Approval | None = approval
        self._granted = granted
        self.refusal = ""

    async def approve(self, call: PendingCall) -> None:
        if self._approval is None or not matches(self._approval, call):
            raise Forbidden("The owner's approval was for a different call. This one was not run.", path=call.tool_id)
        approval, self._approval = self._approval, None
        self.refusal = refusal_of(approval, call) if set(call.needs) <= set(self._granted) else _OTHERS_NOW
        if self.refusal:
            raise Forbidden(self.refusal, path=call.tool_id)
