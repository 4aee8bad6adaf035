"""Calls that wait for the owner's word, and what becomes of the decisions that a client brings (DESIGN §3 "Approval").

Nothing waits: the stream ends, and the decision comes with another POST, in ``metadata.approvals``, never in the text
of a message. A decision that does not count runs nothing and blocks nothing.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from wicketgate.access.seal import Approval, ApprovalSeal, ApprovalSubject
from wicketgate.engine.contract import ApprovalDecision, ChatMessage, ChatRequest
from wicketgate.errors import Forbidden
from wicketgate.gateway.call_memory import approval_digest
from wicketgate.models.provider import Message, ToolCall
from wicketgate.models.tool_calls import parse_arguments
from wicketgate.ports import PendingCall, approval_required

log = logging.getLogger("wicketgate.engine")

REQUIRED = "approval_required "
DENIED = "denied by the owner"
NOT_RUN = "Not run: this call waited for the owner's approval."
_UNKNOWN = "approval_refused: this approval is not known here"
_EXPIRED = "approval_refused: this approval has expired"
_USED = "approval_refused: this approval was decided before"
_OTHER = "approval_refused: this approval was asked for another call"
_MAX_DEPTH = 100
_WAITING = re.compile(re.escape(REQUIRED) + r"(apr_[A-Za-z0-9_-]{1,1000})")


class OnceStore(Protocol):
    """Remembers what has happened, shared by all replicas."""

    async def add(self, key: str, until: float) -> bool:
        """True for the first who adds *key*, and for nobody else before *until*, in seconds since the epoch."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Resumed:
    """A call of the history that was decided on. *approval* when it is to be run, *refusal* when not."""

    call: ToolCall
    index: int
    approval: Approval | None
    refusal: str = ""


class ApprovalDesk:
    """Wired once; everything else comes with a stream."""

    def __init__(self, seal: ApprovalSeal, used: OnceStore) -> None:
        self.seal = seal
        """Another may be assigned at any time."""
        self._used = used

    async def aclose(self) -> None:
        await self._used.aclose()

    async def take_up(self, request: ChatRequest, actor: str) -> "RunApprovals":
        """Judge the decisions of a request. Those on calls that its history holds count from now on; an approval of
        any other call stands for this stream, until the model makes that call."""
        found = list(_waiting(request.messages))
        waiting = {approval_id: (index, call) for index, approval_id, call in found}
        run = RunApprovals(self, actor, [index for index, _, _ in found])
        for decision in request.metadata.approvals or ():
            index, call = waiting.get(decision.id, (-1, None))
            approval, refusal = await self._judge(decision, actor, call)
            log.info("approval of %s: %s", approval.subject.tool_id if approval else "?", refusal or "granted")
            if call is not None:
                # A history may use an id in several turns; in a stream it is one call's.
                if any(each.call.id == call.id for each in run.resumed):
                    call = replace(call, id=f"{call.id}_{index}")
                run.resumed.append(Resumed(call, index, None if refusal else approval, refusal))
            elif approval is not None and not refusal:
                run.standing.append(approval)
            elif approval is not None and refusal == DENIED:
                run.denied.append(approval.subject.tool_id)
        return run

    def issue(self, actor: str, subject: ApprovalSubject) -> str:
        return self.seal.issue(actor, subject)

    async def redeem(self, approval: Approval) -> bool:
        """Whether it may be used: the first time it is asked for, unless it has expired."""
        return not self.seal.expired(approval) and await self._used.add(approval.sealed.uid, approval.sealed.expires_at)

    async def _judge(
        self, decision: ApprovalDecision, actor: str, call: ToolCall | None
    ) -> tuple[Approval | None, str]:
        approval = self.seal.open(actor, decision.id)
        if approval is None:
            return None, _UNKNOWN
        if self.seal.expired(approval):
            return approval, _EXPIRED
        if call is not None and _call_digest(call) != approval.subject.call:
            return approval, _OTHER
        if (call is not None or decision.decision == "deny") and not await self.redeem(approval):
            return approval, _USED
        return approval, DENIED if decision.decision == "deny" else ""


class RunApprovals:
    """What one stream knows of approvals. *resumed*: calls of the history, decided; *standing*: approved calls that the
    model has to make again; *denied*: tools of denied calls that the history does not hold."""

    def __init__(self, desk: ApprovalDesk, actor: str, waiting: Sequence[int]) -> None:
        self._desk = desk
        self._actor = actor
        self._waiting = waiting
        self.resumed: list[Resumed] = []
        self.standing: list[Approval] = []
        self.denied: list[str] = []

    def approver(self, call: ToolCall) -> "CallApprover":
        return CallApprover(self._desk, self._actor, call, self.standing)

    def told(self, messages: Sequence[Message]) -> list[Message]:
        """The history as the model is to read it: no ids, and a line on decisions that it shows nothing of."""
        told = list(messages)
        for index in self._waiting:
            told[index] = {**told[index], "content": NOT_RUN}
        lines = [
            f"[The owner has approved one call of {approval.subject.tool_id} that was asked for before. "
            "Make the same call with the same arguments, and it will run.]"
            for approval in self.standing
        ]
        lines += [f"[The owner has denied a call of {tool_id} that was asked for before.]" for tool_id in self.denied]
        return _with_lines(told, lines)


class CallApprover:
    """Implements Approver for one call of the model. *waiting* is the id under which the owner was asked."""

    def __init__(self, desk: ApprovalDesk, actor: str, call: ToolCall, standing: list[Approval]) -> None:
        self._desk = desk
        self._actor = actor
        self._call = call
        self._standing = standing
        self.waiting = ""

    async def approve(self, call: PendingCall) -> None:
        for approval in [each for each in self._standing if _is_for(each, call)]:
            self._standing.remove(approval)
            if await self._desk.redeem(approval):
                return
        subject = ApprovalSubject(call.tool_id, approval_digest(call.args), _call_digest(self._call))
        self.waiting = self._desk.issue(self._actor, subject)
        raise approval_required(call, approval_id=self.waiting)


class Redeemed:
    """Implements Approver for a call that was approved: this one, once."""

    waiting = ""

    def __init__(self, approval: Approval) -> None:
        self._approval: Approval | None = approval

    async def approve(self, call: PendingCall) -> None:
        if self._approval is None or not _is_for(self._approval, call):
            raise Forbidden("The owner's approval was for another call. This one was not run.", path=call.tool_id)
        self._approval = None


def _is_for(approval: Approval, call: PendingCall) -> bool:
    return (approval.subject.tool_id, approval.subject.arguments) == (call.tool_id, approval_digest(call.args))


def _waiting(messages: Sequence[ChatMessage]) -> Iterator[tuple[int, str, ToolCall]]:
    """Tool messages that say that a call waits: where they are, under which id, and the call."""
    calls: dict[str, ToolCall] = {}
    for index, message in enumerate(messages):
        for call in message.tool_calls or ():
            calls[call.id] = ToolCall(call.id, call.function.name, None, call.function.arguments)
        if message.role == "tool" and message.tool_call_id is not None:
            asked = _WAITING.fullmatch(message.content)
            if asked:
                made = calls[message.tool_call_id]
                yield index, asked[1], replace(made, arguments=_object(made.raw))


def _object(text: str) -> dict[str, Any] | None:
    """None for what no call can have been: no object, or nested deeper than arguments may be."""
    value = parse_arguments(text, cut=True)
    return value if value is not None and _depth_is_fine(value) else None


def _depth_is_fine(value: Any) -> bool:
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


def _with_lines(messages: list[Message], lines: Sequence[str]) -> list[Message]:
    """Said where every chat template takes it: at the end of what the model answers, or else as a word of the user."""
    if not lines:
        return messages
    text, last = "\n".join(lines), messages[-1]
    if last["role"] in ("user", "tool"):
        return [*messages[:-1], {**last, "content": f"{last['content']}\n\n{text}".strip()}]
    line: Mapping[str, Any] = {"role": "user", "content": text}
    return [*messages, line]
