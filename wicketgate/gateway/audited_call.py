"""The record of one call, from its beginning to its end, with what happens to it in between (ACCESS-23, ACCESS-62)."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from wicketgate.access.flow import NO_FLOW
from wicketgate.answer_room import AnswerHold, hold_in_force
from wicketgate.errors import (
    ApprovalRequired,
    ArgsInvalid,
    ConnectRequired,
    Forbidden,
    GatewayError,
    HydrateFailed,
    InputRequired,
    IssuerAway,
    NotAdmitted,
    NotRecorded,
    PathInvalid,
    PathNotFound,
    RateLimited,
    SchemaInvalid,
    UpstreamError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    ViewFailed,
)
from wicketgate.gateway.audit import (
    CALL_REFUSED,
    AuditedOperation,
    Auditor,
    AuditOutcome,
    AuditRecord,
    Leg,
    Phase,
    Watch,
    approval_mark,
)
from wicketgate.gateway.plugin_chain import Stage
from wicketgate.ports import Approver, CallContext, CallMarks, PendingCall
from wicketgate.random_ids import random_id
from wicketgate.results.firewall import is_bulky
from wicketgate.tracing import TOOL_ERROR, OpenSpan, content_is_on, traced

T = TypeVar("T")

_SPAN_ATTRIBUTES = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "extension"}

_MAX_ID = 300
"""A caller may ask for any text as an id."""

BEFORE_S = 5.0
"""The longest that one call waits for its critical sinks before it runs, in all."""
AFTER_S = 10.0
"""The longest that it waits for them afterwards."""

_INVALID = (ArgsInvalid, SchemaInvalid, PathInvalid, PathNotFound, HydrateFailed, ViewFailed)


class AuditedCall:
    """Entered around one operation; everything set on it in between goes into the record that leaving it writes.

    *watch* gets the record too, whatever becomes of it elsewhere; without it and an auditor this only carries notes.
    *hidden*: what was asked for exists, but not for this caller. *sent*: the call was on its way to the server.
    *answered*: the server gave an answer. *outcome*, if set, is recorded. Leaving raises NotRecorded when the record
    could not be kept where it must be.
    """

    def __init__(
        self,
        auditor: Auditor | None,
        operation: AuditedOperation,
        context: CallContext,
        now: Callable[[], float],
        tool_id: str = "",
        watch: Watch | None = None,
    ) -> None:
        self._auditor = auditor
        self.recorded = auditor is not None
        """True if the notes are read: notes that cost something are left out otherwise."""
        self._watch = watch
        self._operation = operation
        self._context = context
        self._now = now
        self._began = 0.0
        self._before_s = BEFORE_S
        self._refused = False
        self._call_id = "" if auditor is None and watch is None else random_id()
        self.tool_id = tool_id
        self.server = ""
        self.arguments = ""
        self.text = ""
        self.hidden = False
        self.sent = False
        self.answered = False
        self.cached = False
        self.tool_error = False
        self.price = 0
        self.upstream_s = 0.0
        self.trail: list[Stage] = []
        self.flow = NO_FLOW
        self.marks = CallMarks()
        self._hold = AnswerHold(context.identity.actor)
        self._around: AnswerHold | None = None
        self.outcome: AuditOutcome | None = None

    def beside(self, operation: AuditedOperation) -> "AuditedCall":
        """A record of its own for something that happens during this operation."""
        other = AuditedCall(self._auditor, operation, self._context, self._now, self.tool_id, self._watch)
        other.server = self.server
        return other

    def traced(self, context: CallContext, run: Callable[[CallContext], Awaitable[T]]) -> Awaitable[T]:
        """Returns the awaitable of *run* in the span of this call (OPS-540)."""
        return traced("execute_tool", "INTERNAL", _SPAN_ATTRIBUTES, context, run, self._conclude_span)

    def _conclude_span(self, span: OpenSpan, called: object) -> str:
        if content_is_on():
            for name, of_call in (("arguments", "args"), ("result", "result")):
                value = getattr(called, of_call, None)
                if value is not None and not is_bulky(value):
                    span.note_content(f"gen_ai.tool.call.{name}", value)
        # Only a tool that the catalog has: a caller may ask for any text as an id.
        if self.server:
            span.rename(f"execute_tool {self.tool_id}")
            span.note({"gen_ai.tool.name": self.tool_id})
        return TOOL_ERROR if self.tool_error else ""

    async def note_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Note the digest of the arguments that would be sent."""
        if self._auditor is None:
            return
        digest = self._auditor.digest
        self.arguments = await asyncio.to_thread(digest, arguments) if is_bulky(arguments) else digest(arguments)

    async def approve(self, approver: Approver, call: PendingCall) -> None:
        """Ask *approver*, and record what lets the call run or forbids it (ACCESS-64). Raises as it does."""
        try:
            await approver.approve(call)
        except ApprovalRequired:
            raise
        except Forbidden as denied:
            self._record_decision(call, "denied", denied.code)
            raise
        self._record_decision(call, "allowed", "")

    async def intend(self) -> None:
        """Record that the call is about to leave for the server, which may write. Raises NotAdmitted if that cannot be
        kept where it must be; then the call must not be made."""
        if self._auditor is None:
            return
        try:
            await self._patiently(self._auditor.intend(self._record(self._auditor.now, None, phase="intent")))
        except NotAdmitted:
            self._refused = True
            self.sent = False
            raise
        except asyncio.CancelledError:
            self.sent = False
            raise

    async def __aenter__(self) -> Self:
        self._began = self._now()
        if self._auditor is not None:
            try:
                await self._patiently(self._auditor.admit())
            except NotAdmitted as refused:
                self._auditor.record_elsewhere(self._record(self._auditor.now, refused))
                raise
            except asyncio.CancelledError as left:
                self._auditor.record_soon(self._record(self._auditor.now, left))
                raise
        self._around = hold_in_force.get()
        hold_in_force.set(self._hold)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._hold.close()
        hold_in_force.set(self._around)
        clock = self._auditor or self._watch
        if clock is None:
            return
        record = self._record(clock.now, error)
        if self._watch is not None:
            self._watch.note(record)
        if self._auditor is None:
            return
        # A call that was refused because its intent was not kept has no answer to withhold.
        if self._refused or isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._auditor.record_soon(record)
            return
        try:
            async with asyncio.timeout(AFTER_S):
                await self._auditor.record(record)
        except TimeoutError:
            raise NotRecorded("This could not be recorded in time, so its answer is withheld.") from None

    async def _patiently(self, work: Coroutine[None, None, None]) -> None:
        """Await *work*, with all others of this call within ``BEFORE_S``. Raises NotAdmitted when that is over."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._before_s):
                await work
        except TimeoutError:
            if self._auditor is not None:
                self._auditor.refused_in_time()
            raise NotAdmitted(CALL_REFUSED) from None
        finally:
            self._before_s -= loop.time() - began

    def _record_decision(self, call: PendingCall, outcome: AuditOutcome, code: str) -> None:
        if self._auditor is not None:
            record = self._record(self._auditor.now, None)
            tool_id = call.tool_id[:_MAX_ID]
            self._auditor.record_soon(
                replace(record, operation="approval", outcome=outcome, code=code, tool_id=tool_id, duration_ms=0.0)
            )

    def _record(self, wall: Callable[[], float], error: BaseException | None, *, phase: Phase = "end") -> AuditRecord:
        transport, protocol = self._legs(error) if phase == "end" else ("none", "none")
        answered = protocol == "ok" and error is None
        duration = self._now() - self._began
        return AuditRecord(
            at=wall() - duration,
            operation=self._operation,
            actor=self._context.identity.actor,
            correlation_id=self._context.correlation_id,
            outcome=self.outcome or self._outcome(error),
            tool_id=self.tool_id[:_MAX_ID],
            server=self.server,
            arguments=self.arguments,
            transport=transport,
            protocol=protocol,
            tool=("error" if self.tool_error else "ok") if answered else "none",
            code=error.code if isinstance(error, GatewayError) else "",
            cached=self.cached,
            duration_ms=round(duration * 1_000, 3),
            upstream_ms=round(self.upstream_s * 1_000, 3),
            stages=tuple(self.trail),
            key_id=self._context.identity.key_id,
            source=self._context.source,
            call_id=self._call_id,
            phase=phase,
            approval=_approval_of(error),
            flow=self._flow(),
            gate=self._context.identity.gate,
            program=self._context.program[0],
            step=self._context.program[1],
            text=self.text,
        )

    def _flow(self) -> Mapping[str, Sequence[str]]:
        if not self.flow.seen or self._auditor is None:
            return {}
        strange = [self._auditor.digest({"": each.text}) for each in self.flow.strange]
        return {"seen": self.flow.seen, "strange": strange}

    def _outcome(self, error: BaseException | None) -> AuditOutcome:
        if self.hidden:
            return "denied"
        match error:
            case InputRequired() if error.approval:
                return "approval_required"
            case None | InputRequired():
                return "allowed"
            case asyncio.CancelledError() | GeneratorExit():
                return "cancelled"
            case ApprovalRequired():
                return "approval_required"
            case Forbidden() | RateLimited() | ConnectRequired():
                return "denied"
            case _ if isinstance(error, _INVALID):
                return "invalid"
            case _:
                return "failed"

    def _legs(self, error: BaseException | None) -> tuple[Leg, Leg]:
        if not self.sent:
            return "none", "none"
        # Sent is not carried: it may have waited for a slot until its end.
        match error:
            case RateLimited():
                return "none", "none"  # it got no slot at the server, so it never left
            case asyncio.CancelledError() | GeneratorExit() if not (self.marks.left or self.answered):
                return "none", "none"  # it was cancelled while it waited for a slot
            case ConnectRequired() | IssuerAway():
                return "none", "none"  # the server was not asked, or has refused the caller's account
            case UpstreamUnavailable():
                return "unavailable", "none"
            case UpstreamTimeout():
                return "timeout", "none"
            case UpstreamLost():
                return "lost", "none"
            case UpstreamError():
                return "ok", "error"
            case InputRequired():
                return "ok", "ok"
            case _:
                return "ok", "ok" if self.answered else "none"


def _approval_of(error: BaseException | None) -> str:
    details = error.details if isinstance(error, GatewayError) else None
    return approval_mark(str((details or {}).get("approval_id", "")))


Audit = Callable[[AuditedOperation, CallContext, str], AuditedCall]
"""Makes the record of an operation of this caller on what it names: a tool, a handle, a resource."""
