"""Calls that wait for the owner's approval, and the decisions that a client brings (CHAT-65 to CHAT-71).

No stream waits: it ends, and the decision comes with another POST, in ``metadata.approvals``, never in the text of a
message. An invalid decision runs nothing and blocks nothing.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from wicketgate.access.seal import Approval, ApprovalSeal, ApprovalSubject
from wicketgate.engine.contract import ApprovalDecision, ChatMessage, ChatRequest
from wicketgate.engine.waiting_calls import (
    Decision,
    WaitingCall,
    WaitingCalls,
    argument_names,
    shown_arguments,
)
from wicketgate.errors import ApprovalRequired, Forbidden, NotAdmitted
from wicketgate.gateway.call_memory import approval_digest
from wicketgate.models.provider import Message, ToolCall
from wicketgate.models.tool_calls import parse_arguments
from wicketgate.ports import TOOL_CHANGED, Approver, CallContext, PendingCall, approval_required

log = logging.getLogger("wicketgate.engine")

REQUIRED = "approval_required "
DENIED = "denied by the owner"
NOT_RUN = "Not run: this call waited for the owner's approval."
_UNKNOWN = "approval_refused: this approval is not known here"
_EXPIRED = "approval_refused: this approval has expired"
_USED = "approval_refused: this approval was decided before"
_CHANGED = f"approval_refused: {TOOL_CHANGED}"
_OTHER_CALL = "approval_refused: this approval was asked for another call"
_MAX_DEPTH = 100
_NO_CALL = "00" * 32
"""In the place of a call's digest, for one that no chat made: no call of a history is like it."""
_DENIED_CALL = "Denied by the owner. It was not run."
_WAITING = re.compile(re.escape(REQUIRED) + r"(apr_[A-Za-z0-9_-]{1,1000})")


class OnceStore(Protocol):
    """A memory of events that may happen once, shared by all replicas."""

    async def add(self, key: str, until: float) -> bool:
        """True for the first caller that adds *key*, and for no other before *until*, in seconds since the epoch.

        Raises NotAdmitted while nothing can be kept.
        """
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Resumed:
    """A decided call of the history. *approval* is set if it is to be run, *refusal* if not."""

    call: ToolCall
    index: int
    approval: Approval | None
    refusal: str = ""


class RunApprovals:
    """The decisions of one stream. *resumed*: decided calls of the history; *standing*: approvals, by their ids, of
    calls that the model has to make again; *denied*: tools of denied calls that the history does not hold."""

    def __init__(self, desk: "ApprovalDesk", actor: str, waiting: Sequence[int]) -> None:
        self.desk = desk
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


Report = Callable[[CallContext, str, str, str], None]
"""Takes a decision: the context it came in, the approval's id, the tool's id if it is known, and the refusal."""


class NotWaiting(Exception):
    """A call that does not wait any more: it was decided, or its time is over."""


class ApprovalDesk:
    """Judges decisions and redeems approvals. *seal* may be replaced at any time. *report* is called with each
    decision. *waiting* is the list of what waits, for people. *new_id* gives its handles."""

    def __init__(
        self,
        seal: ApprovalSeal,
        used: OnceStore,
        report: Report | None = None,
        *,
        waiting: WaitingCalls,
        new_id: Callable[[], str],
    ) -> None:
        self.seal = seal
        self.waiting = waiting
        self._used = used
        self._report = report
        self._new_id = new_id

    async def aclose(self) -> None:
        self.waiting.close()
        await self._used.aclose()

    def approver_of(self, context: CallContext) -> Approver:
        """The approver of each call in *context*, from whichever door: what was decided at the desk comes first, and
        a call that has to wait is put on its list."""
        return _AtDesk(self, context)

    async def decide(self, id: str, decision: Decision, context: CallContext) -> WaitingCall:
        """Decide on a call of the list by its handle, as its own actor. The decision stands for the next same call,
        until it lapses. Raises NotWaiting, and NotAdmitted while nothing can be kept."""
        call = self.waiting.find(id)
        if call is None or call.actor != context.identity.actor or call.args is None:
            raise NotWaiting
        approval = self.seal.open(call.actor, call.approval)
        if approval is None or self.seal.expired(approval):
            raise NotWaiting
        # From a denial on nobody can approve it, at whichever process.
        first = decision == "approve" or await self._used.add(approval.sealed.uid, approval.sealed.expires_at)
        if self.waiting.find(id) is None:
            raise NotWaiting
        if not first:
            self.waiting.drop(call)
            raise NotWaiting
        self.waiting.decide(call, decision, stands=True)
        if self._report is not None:
            self._report(context, call.approval, call.tool_id, DENIED if decision == "deny" else "")
        return call

    def put_on_list(self, call: PendingCall, context: CallContext, approval_id: str) -> None:
        """*approval_id* is the sealed id that the client has; empty if it has none."""
        actor, arguments = context.identity.actor, approval_digest(call.args)
        sealed = approval_id or self.seal.issue(
            actor, ApprovalSubject(call.tool_id, call.definition, arguments, _NO_CALL)
        )
        approval = self.seal.open(actor, sealed)
        if approval is None:
            return
        self.waiting.add(
            WaitingCall(
                self._new_id(),
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
            )
        )

    async def judge(self, request: ChatRequest, context: CallContext) -> RunApprovals:
        """Judge the decisions of a request. Those on calls that its history holds count from now on; an approval of
        any other call stands for this stream, until the model makes that call."""
        actor = context.identity.actor
        found = list(_waiting(request.messages))
        waiting = {approval_id: (index, call) for index, approval_id, call in found}
        run = RunApprovals(self, actor, [index for index, _, _ in found])
        brought = request.metadata.approvals or ()
        at_desk = self._decided_at_desk(waiting.keys() - {each.id for each in brought}, actor)
        for decision in (*brought, *at_desk):
            index, call = waiting.get(decision.id, (-1, None))
            approval, refusal = await self._judge(decision, actor, call, at_desk=decision in at_desk)
            tool_id = approval.subject.tool_id if approval else ""
            log.info("approval of %s: %s", tool_id or "?", refusal or "granted")
            if self._report is not None and decision not in at_desk:
                self._report(context, decision.id, tool_id, refusal)
            self._note(actor, decision, refusal, runs=call is not None and not refusal)
            # A call of the history is resumed; other decisions stand for calls to come.
            if call is not None:
                # A history may use an id in several turns; in a stream it belongs to one call.
                if any(each.call.id == call.id for each in run.resumed):
                    call = replace(call, id=f"{call.id}_{index}")
                run.resumed.append(Resumed(call, index, None if refusal else approval, refusal))
            elif approval is not None and not refusal:
                run.standing[decision.id] = approval
            elif approval is not None and refusal == DENIED:
                run.denied.append(approval.subject.tool_id)
        return run

    def stand_again(self, ids: Sequence[str], context: CallContext) -> RunApprovals:
        """The approvals that stood when a run was left. One that was used since is refused when its call is made."""
        run = RunApprovals(self, context.identity.actor, [])
        opened = ((each, self.seal.open(run.actor, each)) for each in ids)
        run.standing = {each: approval for each, approval in opened if approval and not self.seal.expired(approval)}
        return run

    async def redeem(self, approval: Approval) -> bool:
        """True the first time that *approval* is used, unless it has expired."""
        return not self.seal.expired(approval) and await self._used.add(approval.sealed.uid, approval.sealed.expires_at)

    def _decided_at_desk(self, ids: Iterable[str], actor: str) -> list[ApprovalDecision]:
        """The decisions that stand here for calls of a history whose client has brought none."""
        found = ((each, self.waiting.of_approval(actor, each)) for each in sorted(ids))
        return [
            ApprovalDecision(id=each, decision=call.decision)
            for each, call in found
            if call is not None and call.decision is not None
        ]

    def _note(self, actor: str, decision: ApprovalDecision, refusal: str, *, runs: bool) -> None:
        """Takes a call off the list, now that its decision has come by itself."""
        call = self.waiting.of_approval(actor, decision.id)
        if call is None or refusal not in ("", DENIED):
            return
        call.used = runs
        if call.decision is None:
            self.waiting.decide(call, decision.decision, stands=False)
        else:
            self.waiting.take(call)

    async def _judge(
        self, decision: ApprovalDecision, actor: str, call: ToolCall | None, *, at_desk: bool = False
    ) -> tuple[Approval | None, str]:
        """The approval under the decision's id, and the refusal; empty if it is granted. A denial *at_desk* has used
        the approval up already."""
        # The order decides which text a client gets: unknown, expired, for another call, used.
        approval = self.seal.open(actor, decision.id)
        if approval is None:
            return None, _UNKNOWN
        if self.seal.expired(approval):
            return approval, _EXPIRED
        if call is not None and _call_digest(call) != approval.subject.call:
            return approval, _OTHER_CALL
        if at_desk and decision.decision == "deny":
            return approval, DENIED
        if (call is not None or decision.decision == "deny") and not await self.redeem(approval):
            return approval, _USED
        return approval, DENIED if decision.decision == "deny" else ""


class _AtDesk:
    """Implements Approver for any call of *context*: see ``ApprovalDesk.approver_of``."""

    def __init__(self, desk: ApprovalDesk, context: CallContext) -> None:
        self._desk = desk
        self._context = context

    async def approve(self, call: PendingCall) -> None:
        desk, actor = self._desk, self._context.identity.actor
        for decided in desk.waiting.standing(actor, call.tool_id, lambda: approval_digest(call.args)):
            if decided.decision == "deny":
                raise Forbidden(_DENIED_CALL, path=call.tool_id)
            if not await self._redeem(decided):
                continue
            if decided.definition != call.definition:
                raise Forbidden(_CHANGED, path=call.tool_id)
            decided.used = True
            return
        try:
            await self._context.approver.approve(call)
        except ApprovalRequired as required:
            desk.put_on_list(call, self._context, str((required.details or {}).get("approval_id", "")))
            raise

    async def _redeem(self, decided: WaitingCall) -> bool:
        approval = self._desk.seal.open(decided.actor, decided.approval)
        try:
            return approval is not None and await self._desk.redeem(approval)
        except NotAdmitted:
            self._desk.waiting.put_back(decided)
            raise


class CallApprover:
    """Implements Approver for one call of the model. *waiting* is the id under which it waits for the owner, *refusal*
    the reason why its approval does not count; each is empty if there is none."""

    def __init__(self, run: RunApprovals, call: ToolCall) -> None:
        self._run = run
        self._call = call
        self.waiting = ""
        self.refusal = ""

    async def approve(self, call: PendingCall) -> None:
        # An approval that stands is used up by the first call that matches it, or is refused there.
        for each, approval in [item for item in self._run.standing.items() if _matches(item[1], call)]:
            del self._run.standing[each]
            if await self._run.desk.redeem(approval):
                self.refusal = _refusal(approval, call)
                if self.refusal:
                    raise Forbidden(self.refusal, path=call.tool_id)
                return
        subject = ApprovalSubject(call.tool_id, call.definition, approval_digest(call.args), _call_digest(self._call))
        self.waiting = self._run.desk.seal.issue(self._run.actor, subject)
        raise approval_required(call, approval_id=self.waiting)


class Redeemed:
    """Implements Approver for a call that was approved: this one, once. *refusal* as for CallApprover."""

    waiting = ""

    def __init__(self, approval: Approval) -> None:
        self._approval: Approval | None = approval
        self.refusal = ""

    async def approve(self, call: PendingCall) -> None:
        if self._approval is None or not _matches(self._approval, call):
            raise Forbidden("The owner's approval was for another call. This one was not run.", path=call.tool_id)
        approval, self._approval = self._approval, None
        self.refusal = _refusal(approval, call)
        if self.refusal:
            raise Forbidden(self.refusal, path=call.tool_id)


def _matches(approval: Approval, call: PendingCall) -> bool:
    return approval.subject.is_of(call.tool_id) and approval.subject.arguments == approval_digest(call.args)


def _refusal(approval: Approval, call: PendingCall) -> str:
    """Returns the reason why an approval of this very call does not count; empty if it does."""
    return "" if approval.subject.definition == call.definition else _CHANGED


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


def _call_digest(call: ToolCall) -> str:
    return approval_digest({"name": call.name, "arguments": call.arguments})
