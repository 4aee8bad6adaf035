"""Approvers of the calls of a chat: of one that the model makes now, and of one that was approved (CHAT-65 to
CHAT-71)."""

from wicketgate.access.approvers import Needs, described
from wicketgate.access.seal import Approval, ApprovalSubject
from wicketgate.engine.approvals import RunApprovals
from wicketgate.engine.sealed_approvals import call_digest, matches, refusal_of
from wicketgate.errors import Forbidden
from wicketgate.gateway.call_memory import approval_digest
from wicketgate.models.provider import ToolCall
from wicketgate.ports import PendingCall, approval_required

_OTHERS_NOW = "approval_refused: the approval of others is needed now"


class CallApprover:
    """Implements Approver for one call of the model. *waiting* is the id under which it waits, with those who have to
    approve where that is not the owner, *refusal* the reason why its approval does not count; each is empty if there
    is none."""

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
        id = self._run.sealed.issue(self._run.actor, subject, by_others=bool(call.needs))
        self.waiting = f"{id} by {described(call.needs)}" if call.needs else id
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
            raise Forbidden("The owner's approval was for another call. This one was not run.", path=call.tool_id)
        approval, self._approval = self._approval, None
        self.refusal = refusal_of(approval, call) if set(call.needs) <= set(self._granted) else _OTHERS_NOW
        if self.refusal:
            raise Forbidden(self.refusal, path=call.tool_id)
