"""Calls that wait for the owner's approval, and the decisions that a client brings (CHAT-65 to CHAT-71).

No stream waits: it ends, and the decision comes with another POST, in ``metadata.approvals``, never in the text of a
message. An invalid decision runs nothing and blocks nothing.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from wicketgate.access.seal import Approval, ApprovalSeal, ApprovalSubject
from wicketgate.engine.contract import ApprovalDecision, ChatMessage, ChatRequest
from wicketgate.errors import Forbidden
from wicketgate.gateway.call_memory import approval_digest
from wicketgate.models.provider import Message, ToolCall
from wicketgate.models.tool_calls import parse_arguments
from wicketgate.ports import TOOL_CHANGED, CallContext, PendingCall, approval_required

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


class ApprovalDesk:
    """Judges decisions and redeems approvals. *seal* may be replaced at any time. *report* is called with each
    decision."""

    def __init__(self, seal: ApprovalSeal, used: OnceStore, report: Report | None = None) -> None:
        self.seal = seal
        self._used = used
        self._report = report

    async def aclose(self) -> None:
        await self._used.aclose()

    async def judge(self, request: ChatRequest, context: CallContext) -> RunApprovals:
        """Judge the decisions of a request. Those on calls that its history holds count from now on; an approval of
        any other call stands for this stream, until the model makes that call."""
        actor = context.identity.actor
        found = list(_waiting(request.messages))
        waiting = {approval_id: (index, call) for index, approval_id, call in found}
        run = RunApprovals(self, actor, [index for index, _, _ in found])
        for decision in request.metadata.approvals or ():
            index, call = waiting.get(decision.id, (-1, None))
            approval, refusal = await self._judge(decision, actor, call)
            tool_id = approval.subject.tool_id if approval else ""
            log.info("approval of %s: %s", tool_id or "?", refusal or "granted")
            if self._report is not None:
                self._report(context, decision.id, tool_id, refusal)
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

    async def _judge(
        self, decision: ApprovalDecision, actor: str, call: ToolCall | None
    ) -> tuple[Approval | None, str]:
        """The approval under the decision's id, and the refusal; empty if it is granted."""
        # The order decides which text a client gets: unknown, expired, for another call, used.
        approval = self.seal.open(actor, decision.id)
        if approval is None:
            return None, _UNKNOWN
        if self.seal.expired(approval):
            return approval, _EXPIRED
        if call is not None and _call_digest(call) != approval.subject.call:
            return approval, _OTHER_CALL
        if (call is not None or decision.decision == "deny") and not await self.redeem(approval):
            return approval, _USED
        return approval, DENIED if decision.decision == "deny" else ""


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
