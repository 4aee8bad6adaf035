"""What is noted of one call while it runs, and how its end is told in the audit record (gatekit F)."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from app.errors import (
    ApprovalRequired,
    ArgsInvalid,
    Forbidden,
    GatewayError,
    HydrateFailed,
    InputRequired,
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
from app.gateway.audit import Auditor, AuditOutcome, AuditRecord, Leg, Operation
from app.gateway.plugin_chain import Trail
from app.gateway.ports import CallContext

_MAX_ID = 300
"""A caller may ask for any text as an id."""

_INVALID = (ArgsInvalid, SchemaInvalid, PathInvalid, PathNotFound, HydrateFailed, ViewFailed)


class AuditedCall:
    """Entered around one operation; everything set on it in between goes into the record that leaving it writes.

    Without an auditor it only carries notes. *hidden*: what was asked for exists, but not for this caller. *sent*: the
    call was on its way to the server. *answered*: the server gave an answer. Leaving raises UpstreamError when the
    record could not be kept where it must be.
    """

    def __init__(
        self,
        auditor: Auditor | None,
        operation: Operation,
        context: CallContext,
        now: Callable[[], float],
        tool_id: str = "",
    ) -> None:
        self._auditor = auditor
        self._operation = operation
        self._context = context
        self._now = now
        self._began = 0.0
        self.tool_id = tool_id
        self.server = ""
        self.arguments = ""
        self.hidden = False
        self.sent = False
        self.answered = False
        self.cached = False
        self.tool_error = False
        self.upstream_s = 0.0
        self.trail = Trail()

    @property
    def recorded(self) -> bool:
        """Whether anybody reads the notes: what is costly to note need not be noted otherwise."""
        return self._auditor is not None

    async def __aenter__(self) -> Self:
        if self._auditor is not None:
            self._began = self._now()
            try:
                await self._auditor.admit()
            except Forbidden as refused:
                self._auditor.tell_others(self._record(self._auditor, refused))
                raise
            except asyncio.CancelledError as left:
                self._auditor.record_soon(self._record(self._auditor, left))
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._auditor is None:
            return
        record = self._record(self._auditor, error)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._auditor.record_soon(record)
            return
        await self._auditor.record(record)

    def _record(self, auditor: Auditor, error: BaseException | None) -> AuditRecord:
        transport, protocol = self._legs(error)
        answered = protocol == "ok" and error is None
        duration = self._now() - self._began
        return AuditRecord(
            at=auditor.now() - duration,
            operation=self._operation,
            actor=self._context.identity.actor,
            correlation_id=self._context.correlation_id,
            outcome=self._outcome(error),
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
            stages=tuple(self.trail.stages),
        )

    def _outcome(self, error: BaseException | None) -> AuditOutcome:
        if self.hidden:
            return "denied"
        match error:
            case None | InputRequired():
                return "allowed"
            case asyncio.CancelledError() | GeneratorExit():
                return "cancelled"
            case ApprovalRequired():
                return "approval_required"
            case Forbidden() | RateLimited():
                return "denied"
            case _ if isinstance(error, _INVALID):
                return "invalid"
            case _:
                return "failed"

    def _legs(self, error: BaseException | None) -> tuple[Leg, Leg]:
        if not self.sent:
            return "none", "none"
        match error:
            case RateLimited():
                return "none", "none"  # it got no place at the server, so it never left
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
