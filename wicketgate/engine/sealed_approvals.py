"""Approvals as they count: sealed ids, each opened for its actor alone and used once over all replicas, and the test
of an approval against a call (CHAT-65 to CHAT-71)."""

from typing import Protocol

from wicketgate.access.seal import Approval, ApprovalSeal, ApprovalSubject
from wicketgate.gateway.call_memory import approval_digest
from wicketgate.models.provider import ToolCall
from wicketgate.ports import TOOL_CHANGED, PendingCall

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

    async def aclose(self) -> None: ...


class SealedApprovals:
    """Opens, issues and uses up approvals. *seal* may be replaced at any time; *used* remembers those that are used
    up."""

    def __init__(self, seal: ApprovalSeal, used: OnceStore) -> None:
        self.seal = seal
        self._used = used

    async def aclose(self) -> None:
        await self._used.aclose()

    def opened(self, actor: str, id: str) -> Approval | None:
        """The approval under the sealed *id*, if *actor* was given it."""
        return self.seal.open(actor, id)

    def in_time(self, approval: Approval) -> bool:
        """True unless *approval* has expired."""
        return not self.seal.expired(approval)

    def issue(self, actor: str, subject: ApprovalSubject, *, by_others: bool) -> str:
        """A new sealed id. *by_others*: its actor may not approve."""
        return self.seal.issue(actor, subject, by_others=by_others)

    async def use_up(self, approval: Approval) -> bool:
        """True the first time. Raises NotAdmitted while nothing can be kept."""
        return await self._used.add(approval.sealed.uid, approval.sealed.expires_at)

    async def redeem(self, approval: Approval) -> bool:
        """True the first time that *approval* is used, unless it has expired."""
        return self.in_time(approval) and await self.use_up(approval)


def matches(approval: Approval, call: PendingCall) -> bool:
    """True if *approval* is of such a call, whatever the definition of its tool was."""
    return approval.subject.is_of(call.tool_id) and approval.subject.arguments == approval_digest(call.args)


def refusal_of(approval: Approval, call: PendingCall) -> str:
    """Returns the reason why an approval of this very call does not count; empty if it does."""
    return "" if approval.subject.definition == call.definition else CHANGED


def call_digest(call: ToolCall) -> str:
    """The digest of a call as the model made it."""
    return approval_digest({"name": call.name, "arguments": call.arguments})
